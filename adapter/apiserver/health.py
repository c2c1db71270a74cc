"""Health endpoints: `/livez` (this process works), `/readyz` (it can serve), `/healthz` (as livez).

A check is a function that gives None where all is well, else a sentence. A remark is one that `/readyz` shows without
being unready for it: what all replicas share, and what only people can mend. A server that is taken out of its Service
for that could tell nobody any more what is wrong.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Check = Callable[[], str | None]
TICK_SECONDS = 1.0
LATE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Report:
    """What a health request is answered: plain text."""

    healthy: bool
    text: str


class Heart:
    """Beats once a second in the event loop; `check` tells how long it has been still. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = clock()

    def beat(self) -> None:
        self._last = self._clock()

    def check(self) -> str | None:
        still = self._clock() - self._last
        return f"the event loop has not ticked for {still:.0f} s" if still > LATE_SECONDS else None


class Health:
    """Answers health paths from named checks."""

    def __init__(
        self, live: Mapping[str, Check], ready: Mapping[str, Check], remarks: Mapping[str, Check] | None = None
    ) -> None:
        self._remarks = remarks or {}
        self._checks = {"livez": {**live}, "healthz": {**live}, "readyz": {**live, **ready, **self._remarks}}

    def report(self, segments: tuple[str, ...], *, verbose: bool) -> Report | None:
        """The report for `/livez`, or of a single check for `/livez/<check>`; None for a check that does not exist."""
        endpoint, *single = segments
        checks = self._checks[endpoint]
        if single:
            if single[0] not in checks:
                return None
            checks = {single[0]: checks[single[0]]}
        results = {name: check() for name, check in checks.items()}
        if not any(results.values()) and not verbose:
            return Report(healthy=True, text="ok")
        healthy = not any(problem for name, problem in results.items() if name not in self._remarks)
        lines = [self._line(name, problem) for name, problem in results.items()]
        return Report(healthy, "\n".join([*lines, f"{endpoint} check {'passed' if healthy else 'failed'}", ""]))

    def _line(self, name: str, problem: str | None) -> str:
        if problem is None:
            return f"[+]{name} ok"
        return f"[!]{name}: {problem}" if name in self._remarks else f"[-]{name} failed: {problem}"
