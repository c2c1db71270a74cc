"""metrics.k8s.io: decoding, the rhythm of polling, what stays known while fetches fail."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from adapter.kube.errors import KubeError, NotFound, ServerError, TimedOut, Unreachable
from adapter.load.quantity import NANO
from adapter.load.samples import ResourceSamples, time_text
from adapter.runtime.http import AT_ONCE
from adapter.runtime.source_errors import WrongAnswer
from adapter.settings import ResourceMetricsSettings as Options
from adapter.telemetry.metrics import Metrics
from adapter.usage.resource_metrics import ResourceMetrics, decode_usages, parse_go_duration
from tests.usage.fakes import NOW, Changes, beside

AT = "2026-01-01T11:59:50Z"
AT_SECONDS = NOW - 10


def item(name: str, *, at: str = AT, window: str = "15s", **containers: dict[str, Any]) -> dict[str, Any]:
    usage = containers or {"app": {"cpu": "250m", "memory": "300Mi"}}
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
        "timestamp": at,
        "window": window,
        "containers": [{"name": container, "usage": amounts} for container, amounts in usage.items()],
    }


def listing(*items: dict[str, Any]) -> bytes:
    document = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}, "items": list(items)}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


class TestDecoding:
    def test_a_pod_is_its_containers_in_nano_units(self) -> None:
        pods = decode_usages(listing(item("web-1", app={"cpu": "1234567n", "memory": "120336Ki"}, proxy={"cpu": "1"})))
        assert list(pods) == ["web-1"]
        usage = pods["web-1"]
        assert (usage.at, usage.window) == (AT_SECONDS, 15.0)
        assert usage.containers == {"app": {"cpu": 1234567, "memory": 120336 * 1024 * NANO}, "proxy": {"cpu": NANO}}

    @pytest.mark.parametrize(
        ("containers", "amounts"),
        [
            pytest.param(None, {}, id="a pod without containers is known and empty"),
            pytest.param(
                [{"name": "app", "usage": {"cpu": "-5m", "memory": "1Mi"}}, {"name": "proxy", "usage": {"cpu": "NaN"}}],
                {"app": {"memory": (1 << 20) * NANO}, "proxy": {}},
                id="an invalid quantity drops that resource of that container only",
            ),
            pytest.param(
                [{"name": "app", "usage": {"cpu": 2, "memory": 1.5}}],
                {"app": {"cpu": 2 * NANO, "memory": NANO * 3 // 2}},
                id="bare numbers are quantities",
            ),
        ],
    )
    def test_a_pod_has_the_quantities_that_are_some(self, containers: object, amounts: dict[str, Any]) -> None:
        pods = decode_usages(listing({**item("web-1"), "containers": containers}))
        assert pods["web-1"].containers == amounts

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{}[]",
            b'{"items":{}}',
            listing({**item("a"), "timestamp": "yesterday"}),
            listing({**item("a"), "timestamp": "2026-01-01T00:00:00"}),
            listing({**item("a"), "timestamp": None}),
            listing({**item("a"), "containers": [{"name": "app", "usage": {"cpu": None}}]}),
            listing(*(item(f"web-{number}") for number in range(3000)))[:-200],
        ],
    )
    def test_a_malformed_body_is_an_error(self, body: bytes) -> None:
        with pytest.raises(WrongAnswer, match="not a PodMetricsList"):
            decode_usages(body)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [("15s", 15), ("1m0s", 60), ("1m2.5s", 62.5), ("15.062s", 15.062), ("1h", 3600), ("500ms", 0.5), ("", 0),
         ("15", 0), ("s", 0), ("1x2s", 0), ("-15s", 0)],
    )  # fmt: skip
    def test_a_window_is_read_as_go_writes_it(self, text: str, expected: float) -> None:
        assert parse_go_duration(text) == pytest.approx(expected)


class FakeSession:
    """Answers by namespace: bytes, or an error to raise; waits for the gate first."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | KubeError] = {}
        self.asked: list[str] = []
        self.timeouts: set[float] = set()
        self.time = NOW
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = self.most_under_way = 0
        self.rung = Changes()
        self.bell = self.rung.until
        """Waits until something holds; looked at whenever a request begins or ends."""

    def now(self) -> float:
        return self.time

    async def get(self, path: str, *, timeout: float, **_: object) -> bytes:  # noqa: ASYNC109
        namespace = path.removeprefix("/apis/metrics.k8s.io/v1beta1/namespaces/").removesuffix("/pods")
        self.asked.append(namespace)
        self.timeouts.add(timeout)
        self.under_way += 1
        self.most_under_way = max(self.under_way, self.most_under_way)
        self.rung()
        try:
            await self.gate.wait()
            answer = self.answers.get(namespace, listing())
        finally:
            self.under_way -= 1
            self.rung()
        if isinstance(answer, KubeError):
            raise answer
        return answer


class World:
    def __init__(self, *namespaces: str, interval: float = 0.01) -> None:
        self.session = FakeSession()
        self.namespaces = set(namespaces)
        self.changes = Changes()
        self.metrics = Metrics()
        options = Options(interval_seconds=interval, max_age_seconds=90, timeout_seconds=3)
        self.usage = ResourceMetrics(self.session, lambda: self.namespaces, options, self.changes, self.metrics)

    def answers(self, *items: dict[str, Any]) -> None:
        """What metrics-server says of `shop` from now on."""
        self.session.answers["shop"] = listing(*items)

    async def change(self, number: int = 1) -> None:
        await self.changes.until(lambda: len(self.changes.seen) >= number)

    def running(self) -> AbstractAsyncContextManager["World"]:
        return beside(self.usage.run(), self)

    def samples(self) -> ResourceSamples:
        return self.usage.samples("shop")

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"effective_load_{name}", {"source": "metrics.k8s.io", **labels})


class TestPolling:
    async def test_samples_are_kept_with_their_own_times(self) -> None:
        world = World("shop")
        assert world.samples() == ResourceSamples(max_age=90.0, interval=0.01)
        world.answers(item("web-1"))
        async with world.running():
            await world.change()
        found = world.samples()
        assert found.pods["web-1"].at == AT_SECONDS
        assert (found.error, found.fetched_at, found.max_age) == (None, NOW, 90.0)
        assert world.session.timeouts == {3}
        assert world.value("source_up") == 1
        assert (world.value("source_fetch_duration_seconds_count") or 0) >= 1

    async def test_a_date_ahead_of_its_answer_is_that_of_the_first_answer_with_it(self) -> None:
        """A source whose clock is ahead, and that is frozen: its samples grow old all the same."""
        world = World("shop")
        world.session.time = AT_SECONDS - 60
        world.answers(item("web-1"))
        async with world.running():
            await world.change()
            world.session.time += 30
            asked = len(world.session.asked)
            await world.session.bell(lambda: len(world.session.asked) >= asked + 3)
            assert world.samples().fetched_at == AT_SECONDS - 30
            assert world.samples().pods["web-1"].at == AT_SECONDS - 60

    @pytest.mark.parametrize("answer", [listing(item("web-1")), Unreachable("connection refused")])
    async def test_the_same_samples_or_failure_again_are_no_change(self, answer: bytes | KubeError) -> None:
        world = World("shop")
        world.session.answers["shop"] = answer
        async with world.running():
            await world.session.bell(lambda: len(world.session.asked) >= 5)
        assert world.changes.seen == ["shop"]

    async def test_many_namespaces_make_no_burst(self) -> None:
        world = World(*(f"ns-{number}" for number in range(100)), interval=60)
        world.session.gate.clear()
        async with world.running():
            await world.session.bell(lambda: world.session.under_way == AT_ONCE)
            world.session.gate.set()
            await world.session.bell(lambda: len(world.session.asked) == 100)
        assert world.session.most_under_way == AT_ONCE


class TestFailing:
    @pytest.mark.parametrize(
        ("error", "sentence", "reason"),
        [
            (TimedOut("GET /apis/metrics.k8s.io/…: no answer within 3 s"), "no answer in time (", "silent"),
            (Unreachable("gone"), "", "unreachable"),
            (NotFound(404, "NotFound", "no"), "404 NotFound (", "http_404"),
            # The request would name the source again.
            (ServerError(503, "ServiceUnavailable", "no", request="GET /…"), "503 ServiceUnavailable (", "http_503"),
            (b"<html>", "the answer is not a PodMetricsList", "malformed"),
        ],
    )
    async def test_the_last_samples_stay_until_it_is_back_and_the_error_has_their_time(
        self, error: KubeError | bytes, sentence: str, reason: str
    ) -> None:
        world = World("shop")
        async with world.running():
            world.answers(item("web-1"))
            await world.change()
            world.session.answers["shop"] = error
            await world.change(2)
            world.session.time += 42
            found = world.samples()
            assert found.pods["web-1"].at == AT_SECONDS
            assert found.fetched_at == NOW
            assert (found.error or "").startswith(sentence)
            assert (found.error or "").endswith(f" (last answer at {time_text(NOW)})")
            assert world.value("source_up") == 0
            assert (world.value("source_errors_total", reason=reason) or 0) >= 1
            assert world.value("source_last_success_timestamp_seconds") == NOW
            world.answers(item("web-1"))
            await world.change(3)
        assert world.samples().error is None
