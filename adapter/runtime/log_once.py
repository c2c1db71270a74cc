"""Logs a lasting failure once: when it begins and when its cause changes, not at each attempt."""

from collections.abc import Hashable


class LogOnce:
    """The cause that was logged last, by key (namespace, query; None where there is only one)."""

    def __init__(self) -> None:
        self._causes: dict[Hashable, str] = {}

    def is_new(self, cause: str, key: Hashable = None) -> bool:
        """Whether to log this cause; False where it was the last one of this key."""
        if self._causes.get(key) == cause:
            return False
        self._causes[key] = cause
        return True

    def clear(self, key: Hashable = None) -> bool:
        """After a success; returns whether a failure had been logged."""
        return self._causes.pop(key, None) is not None
