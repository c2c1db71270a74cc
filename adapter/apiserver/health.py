"""Health endpoints: `/livez` (this process works), `/readyz` (it can serve), `/healthz` (as livez).

A check is a function that gives None where all is well, else a sentence.
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
    """Answers health paths from named checks. What `warnings` say stands in `/readyz` where no check fails by it."""

    def __init__(
        self, live: Mapping[str, Check], ready: Mapping[str, Check], warnings: Mapping[str, Check] | None = None
    ) -> None:
        self._warnings = dict(warnings or {})
        self._checks = {"livez": dict(live), "healthz": dict(live), "readyz": {**live, **ready}}

    def report(self, segments: tuple[str, ...], *, verbose: bool) -> Report | None:
        """The report for `/livez`, or of a single check for `/livez/<check>`; None for a check that does not exist."""
        endpoint, *single = segments
        checks = self._checks[endpoint]
        if single:
            if single[0] not in checks:
                return None
            checks = {single[0]: checks[single[0]]}
        results = {name: check() for name, check in checks.items()}
        healthy = not any(results.values())
        warnings = [] if single or endpoint != "readyz" else self._told(results)
        if healthy and not warnings and not verbose:
            return Report(healthy=True, text="ok")
        return Report(healthy, _listing(endpoint, results, warnings, healthy=healthy))

    def _told(self, results: Mapping[str, str | None]) -> list[str]:
        found = {name: check() for name, check in self._warnings.items() if not results.get(name)}
        return [f"[!]{name}: {warning}" for name, warning in found.items() if warning]


def _listing(endpoint: str, results: Mapping[str, str | None], warnings: list[str], *, healthy: bool) -> str:
    lines = [f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok" for name, problem in results.items()]
    return "\n".join([*lines, *warnings, f"{endpoint} check {'passed' if healthy else 'failed'}", ""])
