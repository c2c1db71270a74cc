"""Dates of samples that are ahead of the answer that brought them, as of a source whose clock is ahead of ours."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

T = TypeVar("T", float, float | None)


class AheadDates:
    """Dates such samples by their answer. The same sample keeps that date when it is read again.

    By its own date a sample of a frozen source would stay fresh for as long as the source's clock is ahead.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[float, float]] = {}
        """By sample: the date that it came with, and the one that it was given."""
        self.seconds = 0.0
        """How far a date of the last answer was ahead of it, at most."""

    def clamped(self, keys: Iterable[Hashable], dates: Sequence[T], answered: float) -> Sequence[T]:
        """The dates (seconds; None is no date), those after `answered` replaced. `keys` name the samples in order."""
        seen, self._seen = self._seen, {}
        self.seconds = max(0.0, max(filter(None, dates), default=answered) - answered)
        if not self.seconds:
            return dates
        given = list(dates)
        for index, (key, at) in enumerate(zip(keys, dates, strict=True)):
            if at is not None and at > answered:
                before = seen.get(key)
                as_of = before[1] if before is not None and before[0] == at else answered
                self._seen[key] = at, as_of
                given[index] = as_of
        return given
