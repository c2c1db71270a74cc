"""The load curve: the total CPU demand of each service over time, and the moments at which pods are pulled out.

Pure. Demand is in millicores, time in seconds since the story began.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Chapter:
    """From `at` on, demand moves to `demand` within `ramp` seconds; `pull_out` pods of each service are pulled out."""

    at: float
    title: str
    demand: int
    ramp: float = 0
    pull_out: int = 0


@dataclass(frozen=True)
class Curve:
    """Chapters in order of time, the first at 0; the story ends at `end`."""

    chapters: tuple[Chapter, ...]
    end: float

    def demand(self, at: float) -> int:
        """The demand of each service at a moment."""
        level = self.chapters[0].demand
        for chapter in self.chapters:
            passed = at - chapter.at
            if passed >= chapter.ramp:
                level = chapter.demand
            elif passed >= 0:
                level = round(level + (chapter.demand - level) * passed / chapter.ramp)
        return level

    def between(self, after: float, until: float) -> Iterator[Chapter]:
        """The chapters that begin in (after, until]."""
        return (chapter for chapter in self.chapters if after < chapter.at <= until)

    def stretched(self, factor: float) -> "Curve":
        """The same story, slower, for a cluster with the usual intervals of HPA and metrics-server."""
        slower = tuple(replace(one, at=one.at * factor, ramp=one.ramp * factor) for one in self.chapters)
        return Curve(slower, self.end * factor)


FULL = Curve(
    (
        Chapter(0, "Calm: a demand of 5500m, 1100m for each of 5 pods.", 5500),
        Chapter(4, "Demand rises by a fifth, to 6500m: 1300m for each of 5 pods, 8 % above 1200m.", 6500, ramp=2),
        Chapter(32, "Demand rises to 8000m.", 8000, ramp=2),
        Chapter(60, "Two pods of each service are pulled out: still Ready, but without requests.", 8000, pull_out=2),
        Chapter(98, "Demand falls to 5000m. The two stay pulled out.", 5000, ramp=4),
    ),
    end=140,
)

QUICK = Curve(
    (
        Chapter(0, "Calm: a demand of 5500m, 1100m for each of 5 pods.", 5500),
        Chapter(2, "Demand rises to 7500m: 1500m a pod.", 7500),
        Chapter(30, "Two pods of each service are pulled out: still Ready, but without requests.", 7500, pull_out=2),
    ),
    end=58,
)
