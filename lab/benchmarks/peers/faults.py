"""The source hung, down, and up without samples: what each adapter answers, how fast, and what the HPAs make of it.

This adapter and KEDA scale services of their own at the same time, by the stock controller, without a stabilization
window, so that a wrong answer shows within a minute. prometheus-adapter is asked directly only: KEDA has its API group.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from lab.benchmarks.peers.contenders import Contender, OfKeda, OfPrometheusAdapter, Ours, announce
from lab.benchmarks.peers.hpas import active
from lab.benchmarks.prometheus_scene import PrometheusScene, Size
from lab.faults.scene import freeze, thaw
from lab.harness.client import Client
from lab.harness.workloads import until

SERVICES = 20
FAULT_SECONDS = 120.0
"""Longer than our `maxAgeSeconds` of 90."""
AFTER_SECONDS = 75.0
"""The window of the rates is full again after 60."""
_PATIENCE_SECONDS = 20
_AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}

Figures = dict[str, Any]


@dataclass
class Answers:
    """What one adapter answered, request by request: moment, seconds, status, and the message of an error."""

    contender: Contender
    seen: list[tuple[float, float, int, str]] = field(default_factory=list)

    def ask(self, client: Client, turn: int) -> None:
        service = self.contender.services[turn % len(self.contender.services)]
        began = time.monotonic()
        try:
            response = client.raw(self.contender.path(service), timeout=_PATIENCE_SECONDS)
            status, text = response.status, response.text
            answer = response.json()
            right = status == 200 and self.contender.right(service, answer)
            text = "" if right else str(answer.get("message") or answer["items"])
        except OSError as error:
            status, text = 0, str(error)
        self.seen.append((began, time.monotonic() - began, status, text))

    def between(self, first: float, last: float) -> Figures:
        """Answers that were asked for in this time: right ones, wrong values, errors by status, and their seconds."""
        chosen = [one for one in self.seen if first <= one[0] < last]
        seconds = sorted(one[1] for one in chosen) or [0.0]
        kinds = Counter(
            "right" if not text else "wrong value" if status == 200 else str(status) for *_, status, text in chosen
        )
        messages = [text for *_, text in chosen if text]
        return {
            "answers": dict(kinds),
            "p50_seconds": round(seconds[len(seconds) // 2], 4),
            "max_seconds": round(seconds[-1], 4),
            "message": messages[-1][:300] if messages else "",
        }

    def right_again(self, since: float) -> float | None:
        """Seconds until the first right answer after this moment."""
        return next((round(at + took - since, 1) for at, took, _, text in self.seen if at >= since and not text), None)


class Watch:
    """Asks the adapters each second, and reads the counts of their services."""

    def __init__(self, stage: PrometheusScene, contenders: list[Contender]) -> None:
        self.answers = {contender.name: Answers(contender) for contender in contenders}
        self.counts: list[tuple[float, dict[str, int]]] = []
        self._stage, self._over = stage, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(one,), daemon=True) for one in self.answers.values()]
        self._threads.append(threading.Thread(target=self._count, daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(_PATIENCE_SECONDS)

    def _ask(self, answers: Answers) -> None:
        client, turn = answers.contender.client(), 0
        while not self._over.wait(1):
            answers.ask(client, turn)
            turn += 1

    def _count(self) -> None:
        while not self._over.wait(1):
            self.counts.append((time.monotonic(), self._stage.replicas()))

    def lowest(self, contender: Contender, first: float, last: float) -> int:
        """The smallest count of its services in this time."""
        names = {service.name for service in contender.services}
        chosen = [count for at, counts in self.counts if first <= at < last for count in counts.items()]
        return min((count for name, count in chosen if name in names), default=0)


def run(fault: str) -> Figures:
    """Each adapter meets the same fault at the same time; RuntimeError if a count moved before it."""
    with PrometheusScene(Size(services=100, scaled=2 * SERVICES), controller=True, wait=False) as stage:
        ours = Ours(stage, stage.scaled[:SERVICES])
        keda = OfKeda(stage, stage.scaled[SERVICES:])
        other = OfPrometheusAdapter(stage, stage.scaled[:SERVICES])
        contenders: list[Contender] = [ours, other, keda]
        try:
            keda.install(advanced={"horizontalPodAutoscalerConfig": {"behavior": _AT_ONCE}})
            stage.wait_rates()
            ours.start()
            other.start()
            keda.put_hpas()
            ours.put_hpas()
            for contender in contenders:
                contender.wait_right()
            until(lambda: active(stage) == 2 * SERVICES, 60, lambda: f"{active(stage)} HPAs active")
            with Watch(stage, contenders) as watch:
                figures = _fault(fault, stage, watch)
        finally:
            for contender in contenders:
                contender.kill()
    return {"count": stage.size.pods, "fault_seconds": FAULT_SECONDS, "contenders": figures}


def _fault(name: str, stage: PrometheusScene, watch: Watch) -> Figures:
    begin, end = FAULTS[name]
    announce(name)
    time.sleep(5)
    if set(stage.replicas().values()) != {stage.size.pods}:
        raise RuntimeError(f"the counts moved before the fault: {stage.replicas()}")
    began = time.monotonic()
    begin(stage)
    time.sleep(FAULT_SECONDS)
    ended = time.monotonic()
    end(stage)
    time.sleep(AFTER_SECONDS)
    over = time.monotonic()
    figures: Figures = {}
    for contender_name, answers in watch.answers.items():
        contender = answers.contender
        figures[contender_name] = {
            "title": contender.title,
            **answers.between(began + 1, ended),
            "right_again_seconds": answers.right_again(ended),
        }
        if not isinstance(contender, OfPrometheusAdapter):
            lowest = {"lowest_count": watch.lowest(contender, began, ended)}
            figures[contender_name] |= {**lowest, "lowest_count_after": watch.lowest(contender, ended, over)}
    return figures


_Action = Callable[[PrometheusScene], None]

FAULTS: dict[str, tuple[_Action, _Action]] = {
    "hung": (lambda stage: freeze(stage.prometheus.component), lambda stage: thaw(stage.prometheus.component)),
    "down": (lambda stage: stage.prometheus.kill(), lambda stage: stage.prometheus.resume()),
    "no_samples": (lambda stage: stage.page.kill(), lambda stage: stage.page.start()),
}
"""By name: how it begins and ends. Without samples Prometheus answers, and its targets cannot be scraped."""
