"""Debouncing, for Events and notifications: a value counts once it has lasted."""

from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")


class Debounced(NamedTuple, Generic[V]):
    """The `value` that counts, and since when (seconds) it has been `candidate` instead; None: it has not."""

    value: V
    candidate: V | None = None
    since: float | None = None

    def seen(self, value: V, seconds: float, now: float) -> "Debounced[V]":
        """After this value was seen; another one counts once it has lasted for so many seconds."""
        if value == self.value:
            return Debounced(self.value)
        since = self.since if self.since is not None and self.candidate == value else now
        return Debounced(self.value, value, since) if now - since < seconds else Debounced(value)
