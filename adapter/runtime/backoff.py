"""When to try again: exponential back-off, for one caller or by key; and logging a repeated cause once."""

import random
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0
KEYED_FIRST_SECONDS = 2.0
KEYED_LONGEST_SECONDS = 300.0

K = TypeVar("K", bound=Hashable)


def exponential(retries: int, first: float, longest: float) -> float:
    """Seconds before the next retry: `first`, and twice as long after each of `retries`, up to `longest`."""
    return min(first * 2.0 ** min(retries, 64), longest)


class Backoff:
    """Exponential with full jitter: a random delay from 0 to a bound that doubles from 0.5 s to 30 s."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self.failures = 0

    def next(self, retry_after: float | None = None) -> float:
        """Seconds to wait after one more failure; at least the server's `retry_after`, of which 30 s count."""
        bound = exponential(self.failures, FIRST_SECONDS, LONGEST_SECONDS)
        self.failures += 1
        return max(self._uniform(0.0, bound), min(retry_after or 0.0, LONGEST_SECONDS))

    def reset(self) -> None:
        """After a success: starts again with the shortest delay."""
        self.failures = 0


class KeyedBackoff(Generic[K]):
    """Back-off of failed actions by key and kind: each failure in a row doubles the wait, from 2 s to 5 min."""

    def __init__(self) -> None:
        self._failures: dict[K, dict[str, tuple[str, int, float]]] = {}
        """By key and kind the last reason, the failures in a row, and when to try again (epoch seconds)."""

    def is_ready(self, key: K, kind: str, now: float) -> bool:
        """Whether an action of this kind may be tried."""
        _, _, until = self._failures.get(key, {}).get(kind, ("", 0, 0.0))
        # No wait is longer than that: the clock was put back since.
        return not 0 < until - now <= KEYED_LONGEST_SECONDS

    def failed(self, key: K, kind: str, reason: str, now: float) -> bool:
        """Records a failure; returns whether its reason is a new one, so that it is logged once."""
        before, retries, _ = self._failures.setdefault(key, {}).get(kind, ("", 0, 0.0))
        wait = exponential(retries, KEYED_FIRST_SECONDS, KEYED_LONGEST_SECONDS)
        self._failures[key][kind] = (reason, retries + 1, now + wait)
        return before != reason

    def reset(self, key: K, kind: str) -> None:
        """After a success."""
        self._failures.get(key, {}).pop(kind, None)

    def forget(self, key: K) -> None:
        """Drops all kinds of a key."""
        self._failures.pop(key, None)


class LogOnce:
    """The cause that was logged last, by key (namespace, query; None where there is only one)."""

    def __init__(self) -> None:
        self._causes: dict[Hashable, str] = {}

    def is_new(self, cause: str, key: Hashable = None) -> bool:
        """Whether to log this cause; False where it was the last one of this key."""
        before, self._causes[key] = self._causes.get(key), cause
        return before != cause

    def clear(self, key: Hashable = None) -> bool:
        """After a success; returns whether a failure had been logged."""
        return self._causes.pop(key, None) is not None
