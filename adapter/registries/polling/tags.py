"""What the last answers are known by (ETag, revision), so that a question may be answered with "not modified"."""

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple

from adapter.registries.roster import ServiceKey

TRUSTED_SECONDS = 120.0
"""So long a tag is asked with at most: "not modified" is the word of a server that may have mixed two services up."""
_SOONEST = 0.75


class _Tag(NamedTuple):
    tag: str
    until: float


class Tags:
    """Tags by service. `clock` gives epoch seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._tags: dict[ServiceKey, _Tag] = {}

    def of(self, key: ServiceKey) -> str:
        """The tag to ask with; empty where the question is to be without one."""
        known = self._tags.get(key)
        return known.tag if known is not None and 0 <= known.until - self._clock() <= TRUSTED_SECONDS else ""

    def put(self, key: ServiceKey, tag: str) -> None:
        """A whole answer with this tag came just now; empty: it has none."""
        # Of different length, so that services that were asked about together do not all send their lists together.
        until = self._clock() + TRUSTED_SECONDS * random.uniform(_SOONEST, 1)  # noqa: S311  spreads load
        self._tags[key] = _Tag(tag, until)

    def drop(self, keys: Iterable[ServiceKey] | None = None) -> None:
        """Ask about these services (default: all) without a tag next time."""
        for key in list(self._tags) if keys is None else keys:
            self._tags.pop(key, None)

    def keep(self, keys: Iterable[ServiceKey]) -> None:
        """Forget all but these services."""
        self.drop(self._tags.keys() - keys)
