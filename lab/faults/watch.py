"""What must hold while something is broken: no count shrinks, answers come in time, the process does not grow."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

PERIOD = 0.2
LATEST_ANSWER = 1.0
"""Seconds within which a request is answered, by a number or an error."""


@dataclass
class Seen:
    """What was seen during one scenario."""

    counts: list[tuple[float, str, int]] = field(default_factory=list)
    """Changes of a count: when, whose, to what."""
    shrunk: list[str] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    """Seconds of each request to the adapter, in its turn."""
    late: list[str] = field(default_factory=list)
    errors: int = 0
    numbers: int = 0


Ask = Callable[[str], tuple[int, bytes]]
"""Asks the adapter about a service: the status and the body of its answer; OSError where there is none."""


class Watch:
    """Looks at every count and asks for every metric, several times a second, until it is closed."""

    def __init__(self, services: tuple[str, ...], count: Callable[[str], int], ask: Ask) -> None:
        self._services, self._count, self._ask = services, count, ask
        self.seen = Seen()
        self.must_answer = True
        """Whether the adapter can answer now: not while it is killed or stopped itself."""
        self.answers: Mapping[str, str] = {}
        """The last answer about each service: a number, or the message of an error."""
        self._known: dict[str, int] = {}
        self._closed = threading.Event()
        asking = [threading.Thread(target=self._keep_asking, args=(one,), daemon=True) for one in services]
        self._threads = [threading.Thread(target=self._watch_counts, daemon=True), *asking]
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        """Forgets what was seen before."""
        self.seen = Seen()

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
                self._compare(service, count)

    def _compare(self, service: str, count: int) -> None:
        known = self._known.get(service, count)
        self._known[service] = count
        if count != known:
            self.seen.counts.append((time.monotonic(), service, count))
        if count < known:
            self.seen.shrunk.append(f"{service} from {known} to {count}")

    def _keep_asking(self, service: str) -> None:
        while not self._closed.wait(PERIOD):
            must, began = self.must_answer, time.monotonic()
            try:
                status, body = self._ask(service)
            except OSError as error:
                self._note(service, f"no answer: {error}")
                if must and self.must_answer:
                    self.seen.late.append(f"{service}: {error}")
                continue
            seconds = time.monotonic() - began
            self._judge(service, status, body)
            if must and self.must_answer:
                self.seen.delays.append(seconds)
                if seconds > LATEST_ANSWER:
                    self.seen.late.append(f"{service} after {seconds:.1f} s: {self.answers[service][:200]}")

    def _judge(self, service: str, status: int, body: bytes) -> None:
        if status == HTTPStatus.OK:
            self.seen.numbers += 1
            self._note(service, str(json.loads(body)["items"][0]["value"]))
            return
        self.seen.errors += 1
        try:
            self._note(service, str(json.loads(body)["message"]))
        except (ValueError, KeyError):
            self._note(service, f"status {status}, no Status object: {body[:100]!r}")

    def _note(self, service: str, answer: str) -> None:
        self.answers = {**self.answers, service: answer}


@dataclass(frozen=True)
class Size:
    """What a process uses: resident memory in MiB, tasks of its event loop, sockets, threads."""

    memory: float
    tasks: int
    sockets: int
    threads: int

    def beyond(self, most: "Size") -> list[str]:
        """Which figures, of a growth, are larger than they may be."""
        pairs = zip(vars(self).items(), vars(most).values(), strict=True)
        return [f"{name} grew by {value:g}, more than {limit:g}" for (name, value), limit in pairs if value > limit]

    def growth(self, before: "Size") -> "Size":
        return Size(
            self.memory - before.memory,
            self.tasks - before.tasks,
            self.sockets - before.sockets,
            self.threads - before.threads,
        )
