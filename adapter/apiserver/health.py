"""Health endpoints: `/livez` (this process works), `/readyz` (it can serve), `/healthz` (as livez).

A check is a function that gives None where all is well, else a sentence. Anybody may ask whether all is well; the
sentences are for those with the right to them, and for the log.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import structlog

_log = structlog.get_logger(__name__)
Check = Callable[[], str | None]
TICK_SECONDS = 1.0
LATE_SECONDS = 15.0
REASONS_PATH = "/readyz/*"
"""Who may `get` this path is told reasons. Of Kubernetes' own roles `system:monitoring` allows it; `/readyz` itself is
allowed to everybody."""
_LONGEST_TARGET = 128
_LOG_SECONDS = 60.0
_WITHHELD = "reason withheld"


class Probe(NamedTuple):
    """A request for health: the endpoint, and a single check of it or none."""

    segments: tuple[str, ...]
    verbose: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What a health request is answered: plain text, and what of it anybody may read."""

    healthy: bool
    text: str
    public: str


class Heartbeat:
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
    """Answers health paths from named checks. What `warnings` say stands in `/readyz` where no check fails by it.

    `clock` is monotonic: what fails is logged once it fails, and once a minute for as long as it does.
    """

    def __init__(
        self,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
        warnings: Mapping[str, Check] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warnings = dict(warnings or {})
        self._checks = {"livez": dict(live), "healthz": dict(live), "readyz": {**live, **ready}}
        self._clock = clock
        self._logged: dict[str, float] = {}

    def probe(self, target: str) -> Probe | None:
        """What of health a request target asks for; None for any other target, at a cost that no target can raise."""
        if len(target) > _LONGEST_TARGET:
            return None
        path, _, query = target.partition("?")
        endpoint, *single = path.removeprefix("/").removesuffix("/").split("/", 1)
        checks = self._checks.get(endpoint)
        if checks is None or not path.startswith("/") or any(name not in checks for name in single):
            return None
        return Probe((endpoint, *single), verbose="verbose" in query.replace("=", "&").split("&"))

    def report(self, segments: tuple[str, ...], *, verbose: bool) -> Report:
        """The report for `/livez`, or of a single check for `/livez/<check>`. Raises KeyError for no check."""
        endpoint, *single = segments
        checks = self._checks[endpoint]
        if single:
            checks = {single[0]: checks[single[0]]}
        results = {name: check() for name, check in checks.items()}
        self._log(results)
        healthy = not any(results.values())
        warnings = {} if single or endpoint != "readyz" else self._told(results)
        if healthy and not warnings and not verbose:
            return Report(healthy=True, text="ok", public="ok")
        text = _listing(endpoint, results, warnings, healthy=healthy)
        public = _listing(endpoint, _withheld(results), _withheld(warnings), healthy=healthy)
        return Report(healthy, text, public)

    def _told(self, results: Mapping[str, str | None]) -> dict[str, str | None]:
        found = {name: check() for name, check in self._warnings.items() if not results.get(name)}
        self._log({f"{name} (warning)": warning for name, warning in found.items()})
        return {name: warning for name, warning in found.items() if warning}

    def _log(self, results: Mapping[str, str | None]) -> None:
        for name, reason in results.items():
            if not reason:
                self._logged.pop(name, None)
            elif name not in self._logged or self._clock() - self._logged[name] >= _LOG_SECONDS:
                self._logged[name] = self._clock()
                _log.warning("health_check_failed", check=name, error=reason)


def _withheld(results: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: _WITHHELD if reason else None for name, reason in results.items()}


def _listing(
    endpoint: str, results: Mapping[str, str | None], warnings: Mapping[str, str | None], *, healthy: bool
) -> str:
    lines = [f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok" for name, problem in results.items()]
    lines += [f"[!]{name}: {warning}" for name, warning in warnings.items()]
    return "\n".join([*lines, f"{endpoint} check {'passed' if healthy else 'failed'}", ""])
