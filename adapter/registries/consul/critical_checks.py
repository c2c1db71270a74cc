"""Which critical checks of Consul are evidence: an agent calls each check critical from its start until it first ran.

So what turned critical since a reconnect is doubt while absence is, too. Maintenance is somebody's word, and no check.
"""

from collections.abc import Iterable
from dataclasses import replace

from adapter.load.roster import Instance
from adapter.registries.consul.wire import CRITICAL


class CriticalChecks:
    """The critical registrations of one service, each with the moment (seconds) until which it is doubt."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, int | None], float] = {}

    def judged(self, instances: Iterable[Instance], now: float, hold_until: float) -> tuple[Instance, ...]:
        """The registrations, the doubtful ones marked. `hold_until`: when the doubt ends that a reconnect left."""
        known, self._until = self._until, {}
        return tuple(self._judged(one, known.get((one.ip, one.port)), now, hold_until) for one in instances)

    def _judged(self, one: Instance, known: float | None, now: float, hold_until: float) -> Instance:
        if one.status != CRITICAL:
            return one
        until = known if known is not None and known <= now else hold_until
        self._until[one.ip, one.port] = until
        return replace(one, doubtful_until=until) if until > now else one
