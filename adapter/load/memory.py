"""What must be remembered between two assessments of one policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from adapter.load.roster import Roster

if TYPE_CHECKING:
    from adapter.load.census import Census


class LastSample(NamedTuple):
    """A pod's newest sample of one metric that counted."""

    at: float
    value: int


LAST_SAMPLE_SECONDS = 300.0
"""So long a sample says what a pod used last."""
AHEAD_SECONDS = 10.0
"""A sample that is dated more than this after the answer that brought it has no believable date."""


def recent(sample: LastSample | None, now: float) -> LastSample | None:
    """The sample if it is of the last 5 min; one from before the clock was put back is of now, and ages from there."""
    if sample is None or now - sample.at > LAST_SAMPLE_SECONDS:
        return None
    return sample if sample.at <= now + AHEAD_SECONDS else sample._replace(at=now)


class AheadSample(NamedTuple):
    """A sample dated after the answer that brought it: its own time and value, and when it was first seen."""

    at: float
    value: int
    first_seen: float


class Departed(NamedTuple):
    """A pod that served and has left: when that was first seen, and its last samples by metric."""

    at: float
    last_sample: Mapping[str, LastSample]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMemory:
    """What is remembered of one pod's life (by UID). Times are seconds since the epoch.

    `seen`: when the registry was first seen to list it. `absent_since`, `absent_count`: since when, and in how many
    valid rosters in a row, it has been absent. `out_since`, `doubt_since`: since when it is pulled out, or doubtful.
    `by_absence`: it is out on absence alone. `served`: it was serving, or might have been (doubtful), at some time.
    """

    seen: float | None = None
    absent_since: float | None = None
    absent_count: int = 0
    out_since: float | None = None
    by_absence: bool = False
    doubt_since: float | None = None
    served: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMemory:
    """What is remembered of the pods' samples of one metric, by UID.

    `last`: the newest samples that counted. `ahead`: those dated ahead of their answer. `zeros`: the pods whose sample
    fell to 0 and is doubted; no part of the JSON.
    """

    last: Mapping[str, LastSample] = field(default_factory=dict)
    ahead: Mapping[str, AheadSample] = field(default_factory=dict)
    zeros: frozenset[str] = frozenset()


NO_SAMPLES = SampleMemory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """A count that `replaced` raised: noted at `noted_at` over `noted_current`; `first_step` is the note that the first
    replacing step is dated at, once the count was seen to rise above it.
    """

    noted_at: float | None = None
    noted_current: int | None = None
    first_step: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of one policy. `assess` returns the next one; a request never advances it.

    `pods` and `departed` (pods that served and left of late) are by UID, `samples` (of pods) and `ahead` (of service
    totals) by metric.
    `ever_in_roster`: some pod of the target was ever registered. `roster_at`: the latest roster that counted;
    `last_valid`: the latest valid one; `rosters` valid rosters since `rosters_since`. `empty_since`: the first of the
    empty answers in a row. `roster_total`: the registry's instances then. `hold_until`: until when absence stays doubt.
    `rollout_since`: when the rollout that is under way was first seen. `last_replicas`: the count that was watched
    last; `last_scale`, `last_rise`: when it was last seen here to change, and to rise. `error_since`: since when
    nothing can be decided. Three are this process's own, and no part of the JSON: `looking_since`, where it took over
    from another; `unseen_change`, the last change of the count that it did not see itself; and `census`, what followed
    from the pods and the registry at the last look, which spares the next one the same work and changes no answer.
    """

    pods: Mapping[str, PodMemory] = field(default_factory=dict)
    samples: Mapping[str, SampleMemory] = field(default_factory=dict)
    departed: Mapping[str, Departed] = field(default_factory=dict)
    ahead: Mapping[str, AheadSample] = field(default_factory=dict)
    ever_in_roster: bool = False
    roster_at: float | None = None
    last_valid: Roster | None = None
    rosters: int = 0
    rosters_since: float | None = None
    empty_since: float | None = None
    roster_total: int | None = None
    reconnected_at: float | None = None
    hold_until: float | None = None
    rollout_since: float | None = None
    replacement: Replacement = field(default_factory=Replacement)
    last_replicas: int | None = None
    last_scale: float | None = None
    last_rise: float | None = None
    error_since: float | None = None
    looking_since: float | None = None
    unseen_change: float | None = None
    census: "Census | None" = field(default=None, compare=False, repr=False)

    def samples_of(self, metric: str) -> SampleMemory:
        """What is remembered of the samples of a metric."""
        return self.samples.get(metric, NO_SAMPLES)

    def last_samples(self, uid: str) -> dict[str, LastSample]:
        """The newest samples of a pod that counted, by metric."""
        return {name: seen.last[uid] for name, seen in self.samples.items() if uid in seen.last}
