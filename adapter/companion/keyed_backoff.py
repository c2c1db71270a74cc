"""How long to wait after what did not succeed: never loop hot, and say the same thing once."""

from typing import NamedTuple

from adapter.snapshot import Key

FIRST_SECONDS = 2.0
LONGEST_SECONDS = 300.0


class _Refusal(NamedTuple):
    """What went wrong, how often in a row, and when it may be tried again (seconds)."""

    reason: str
    times: int
    until: float


class KeyedBackoff:
    """Refused actions by policy and kind. Each refusal in a row doubles the wait, from 2 s to 5 min."""

    def __init__(self) -> None:
        self._refusals: dict[tuple[Key, str], _Refusal] = {}

    def may(self, key: Key, kind: str, now: float) -> bool:
        """Whether an action of this kind may be tried."""
        refusal = self._refusals.get((key, kind))
        return refusal is None or now >= refusal.until

    def refused(self, key: Key, kind: str, reason: str, now: float) -> bool:
        """It did not succeed; whether that is news."""
        before = self._refusals.get((key, kind))
        times = before.times + 1 if before is not None else 1
        wait = min(FIRST_SECONDS * 2.0 ** min(times - 1, 16), LONGEST_SECONDS)
        self._refusals[key, kind] = _Refusal(reason, times, now + wait)
        return before is None or before.reason != reason

    def done(self, key: Key, kind: str) -> None:
        """It succeeded."""
        self._refusals.pop((key, kind), None)

    def reason(self, key: Key, kind: str) -> str | None:
        """Why it did not succeed the last time, None where it did or was not tried."""
        refusal = self._refusals.get((key, kind))
        return refusal.reason if refusal is not None else None

    def forget(self, key: Key) -> None:
        """The policy is gone."""
        for known in [known for known in self._refusals if known[0] == key]:
            del self._refusals[known]
