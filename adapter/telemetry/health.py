"""Health endpoints: `/livez` (this process works), `/readyz` (it can serve), `/healthz` (as livez).

A check is a function that returns None if healthy, else the reason.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import structlog

_log = structlog.get_logger(__name__)
Check = Callable[[], str | None]
_TICK_SECONDS = 1.0
LATE_SECONDS = 15.0
_LONGEST_TARGET = 128
_LOG_SECONDS = 60.0


class HealthAnswer(NamedTuple):
    """A health answer: HTTP status and plain text."""

    code: int
    text: str


class Heartbeat:
    """`run` beats once a second; `check` reports a stalled event loop. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._last = self._clock()
            await asyncio.sleep(_TICK_SECONDS)

    def check(self) -> str | None:
        still = self._clock() - self._last
        return f"the event loop has not ticked for {still:.0f} s" if still > LATE_SECONDS else None


class Health:
    """Answers health requests from named checks. `warnings` are listed in `/readyz` and fail nothing.

    A failure is logged when it begins and once a minute while it lasts; `clock` is monotonic.
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

    def answer(self, target: str) -> HealthAnswer | None:
        """The answer to `/livez`, or of one check to `/livez/<check>`; None to any other target, however long it is.

        `?verbose` names every check. `?report` answers a failure with status 200 as well: a proxy shows the text of no
        other answer.
        """
        if len(target) > _LONGEST_TARGET:
            return None
        path, _, query = target.partition("?")
        endpoint, *single = path.removeprefix("/").removesuffix("/").split("/", 1)
        checks = self._checks.get(endpoint)
        if checks is None or not path.startswith("/") or any(name not in checks for name in single):
            return None
        options = query.replace("=", "&").split("&")
        results = {name: check() for name, check in checks.items() if not single or name in single}
        self._log(results)
        healthy = not any(results.values())
        code = HTTPStatus.OK if healthy or "report" in options else HTTPStatus.INTERNAL_SERVER_ERROR
        warnings: dict[str, str | None] = {}
        if endpoint == "readyz" and not single:
            warnings = {name: check() for name, check in self._warnings.items() if not results.get(name)}
            self._log({f"{name} (warning)": warning for name, warning in warnings.items()})
            warnings = {name: warning for name, warning in warnings.items() if warning}
        if healthy and not warnings and "verbose" not in options:
            return HealthAnswer(code, "ok")
        lines = [f"[-]{name} failed: {problem}" if problem else f"[+]{name} ok" for name, problem in results.items()]
        lines += [f"[!]{name}: {warning}" for name, warning in warnings.items()]
        lines += [f"{endpoint} check {'passed' if healthy else 'failed'}", ""]
        return HealthAnswer(code, "\n".join(lines))

    def _log(self, results: Mapping[str, str | None]) -> None:
        for name, reason in results.items():
            if not reason:
                self._logged.pop(name, None)
            elif name not in self._logged or self._clock() - self._logged[name] >= _LOG_SECONDS:
                self._logged[name] = self._clock()
                _log.warning("health_check_failed", check=name, error=reason)
