"""The load: the total CPU demand of each service over time, when pods are pulled out, and what each pod then carries.

Pure. Demand is in millicores, time in seconds since the story began.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

IDLE = 20
"""The usage of a pod without requests."""


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
COUNTS = {"ours": [5, 6, 7, 9, 7], "stock": [5, 7, 5]}
"""The counts of both services in FULL, each change once, by the HPA's arithmetic.

Ours keeps 1200m on each serving pod and replaces two pulled-out ones: 6500m / 1200m, 8000m / 1200m, that and two, and
5000m / 1200m and two. The stock HPA keeps 5 pods at 1300m, within its 10 %, and adds none for those that are out.
"""


@dataclass(frozen=True)
class Replica:
    """One pod as the load balancing sees it; `created` orders pods by age, `usage` is its current setting."""

    name: str
    ready: bool = True
    leaving: bool = False
    created: str = ""
    usage: int | None = None


def serving(replicas: Iterable[Replica], pulled_out: Collection[str]) -> list[Replica]:
    """The pods that receive requests."""
    return [replica for replica in replicas if replica.ready and not replica.leaving and replica.name not in pulled_out]


def share(demand: int, count: int) -> int | None:
    """The load of each of `count` serving pods; None if there are no serving pods."""
    return round(demand / count) if count else None


def usages(replicas: Iterable[Replica], pulled_out: Collection[str], demand: int) -> dict[str, int]:
    """The usage of each pod that is not being deleted, by name."""
    staying = [replica.name for replica in replicas if not replica.leaving]
    carriers = {replica.name for replica in serving(replicas, pulled_out)}
    each = share(demand, len(carriers))
    return {name: each if each is not None and name in carriers else IDLE for name in staying}
