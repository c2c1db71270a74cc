"""What must hold while something is broken: no count shrinks, answers come in time."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.harness.client import ApiError, Response

PERIOD = 0.2
LATEST_ANSWER = 1.0
"""Seconds within which a request is answered, by a number or an error."""


@dataclass
class Seen:
    """What was seen during one scenario."""

    shrunk: list[str] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    """Seconds of each request to the adapter, in its turn."""
    late: list[str] = field(default_factory=list)
    errors: int = 0
    numbers: int = 0


class Watch:
    """Looks at every count and asks for every metric, several times a second, until it is closed.

    `ask` asks the adapter about a service; OSError where there is no answer.
    """

    def __init__(self, services: tuple[str, ...], count: Callable[[str], int], ask: Callable[[str], Response]) -> None:
        self._services, self._count, self._ask = services, count, ask
        self.seen = Seen()
        self.latest_answer = LATEST_ANSWER
        self.must_answer = True
        """Whether the adapter can answer now: not while it is killed or stopped itself."""
        self.answers: dict[str, str] = {}
        """The last answer about each service: a number, or the message of an error."""
        self.counts: dict[str, int] = {}
        """The last count of each service that was seen."""
        self.may_fall_to: dict[str, int] = {}
        """How far a service's count may fall now; one that is not named may not fall."""
        self._closed = threading.Event()
        asking = [threading.Thread(target=self._keep_asking, args=(one,), daemon=True) for one in services]
        self._threads = [threading.Thread(target=self._watch_counts, daemon=True), *asking]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join(10)

    def _watch_counts(self) -> None:
        while not self._closed.wait(PERIOD):
            for service in self._services:
                try:
                    count = self._count(service)
                except Exception:  # noqa: BLE001 - the API server may be what is broken
                    continue
                known = self.counts.get(service, count)
                if count < min(known, self.may_fall_to.get(service, known)):
                    self.seen.shrunk.append(f"{service} from {known} to {count}")
                self.counts[service] = count

    def _keep_asking(self, service: str) -> None:
        while not self._closed.wait(PERIOD):
            must, began = self.must_answer, time.monotonic()
            try:
                answer = self._ask(service)
            except OSError as error:
                self.answers[service] = f"no answer: {error}"
                if must and self.must_answer:
                    self.seen.late.append(f"{service}: {error}")
                continue
            seconds = time.monotonic() - began
            if answer.status == 200:
                self.seen.numbers += 1
                self.answers[service] = str(answer.json()["items"][0]["value"])
            else:
                self.seen.errors += 1
                self.answers[service] = ApiError(answer, service).message
            if must and self.must_answer:
                self.seen.delays.append(seconds)
                if seconds > self.latest_answer:
                    self.seen.late.append(f"{service} after {seconds:.1f} s: {self.answers[service][:200]}")
