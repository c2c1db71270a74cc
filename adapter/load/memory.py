"""The memory of one policy, carried from one assessment to the next."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import NamedTuple

from adapter.load.roster import Roster


class LastSample(NamedTuple):
    """A pod's newest sample of one metric that counted: its time and value (nano-units)."""

    at: float
    value: int


LAST_SAMPLE_SECONDS = 300.0
"""For this long a sample stands for a pod's last usage."""
AHEAD_SECONDS = 10.0
"""A sample dated more than this after the answer that brought it has no believable date."""


def recent(sample: LastSample | None, now: float) -> LastSample | None:
    """The sample if it is at most LAST_SAMPLE_SECONDS old, else None. One dated in the future is dated now instead."""
    if sample is None or now - sample.at > LAST_SAMPLE_SECONDS:
        return None
    return sample if sample.at <= now + AHEAD_SECONDS else sample._replace(at=now)


class AheadSample(NamedTuple):
    """A sample dated after the answer that brought it: its own time and value, and when it was first observed."""

    at: float
    value: int
    first_seen: float


class Side(StrEnum):
    """The watermark that usage is beyond: above the high one, or below the low one."""

    ABOVE = "Above"
    BELOW = "Below"


class Beyond(NamedTuple):
    """A metric's usage beyond a watermark without a break.

    `since` and `until` are times of samples: the newest one at the first and at the latest observation.
    """

    verdict: Side
    since: float
    until: float


class Departed(NamedTuple):
    """A pod that served and has left: when that was first observed, and its last samples by metric."""

    at: float
    last_sample: Mapping[str, LastSample] = MappingProxyType({})


class Listed(StrEnum):
    """What a roster says of a pod."""

    IN = "In"
    OUT = "Out"
    ABSENT = "Absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodMemory:
    """The memory of one pod. Times are seconds since the epoch.

    `seen`: when a roster first listed it. `registration_lost`: the registry lost its data since it last listed the pod.
    `back_since`: when it was last seen back from being pulled out, or registered at last; a doubt that followed counts
    as being out.
    `absent_since`, `absent_count`: since when, and in how many valid rosters in a row, it has been absent while Ready.
    `listing`: what the latest roster that counted says of it; None where none did.
    `out_since`, `doubt_since`: since when it is pulled out, or doubtful. `by_absence`: it is out on absence alone.
    `served`: it has been serving or doubtful before, and has not left.
    """

    seen: float | None = None
    registration_lost: bool = False
    absent_since: float | None = None
    absent_count: int = 0
    listing: Listed | None = None
    out_since: float | None = None
    by_absence: bool = False
    back_since: float | None = None
    doubt_since: float | None = None
    served: bool = False


NO_POD_MEMORY = PodMemory()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleMemory:
    """The memory of the pods' samples of one metric, by UID.

    `last`: the newest samples that counted. `ahead`: those dated ahead of their answer. `lacking`: the pods of which no
    sample counts now, so that their last one stands for them. `read`: when a service total last had samples of the pod;
    with an empty UID, when its window was whole, or bounded.
    """

    last: Mapping[str, LastSample] = field(default_factory=dict)
    ahead: Mapping[str, AheadSample] = field(default_factory=dict)
    lacking: frozenset[str] = frozenset()
    read: Mapping[str, float] = field(default_factory=dict)


NO_SAMPLES = SampleMemory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The memory of replacing pulled-out pods.

    At `noted_at` the policy first asked for more than `noted_current` pods to replace some. Once the count has risen
    above that, `first_step` is the time of that first request.
    """

    noted_at: float | None = None
    noted_current: int | None = None
    first_step: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The memory of one policy. `assess` returns the next one; `decide` never changes it. Times are in seconds.

    `pods` and `departed` (pods that served and left recently) are by UID, `samples` (of pods), `ahead` (of service
    totals) and `beyond` (of metrics with a delay) by metric. `ever_in_roster`: some pod of the target was registered
    once. `roster_at`: the time of the latest roster that counted; `last_valid`: the latest valid one; `rosters` valid
    ones since `rosters_since`. `empty_since`: the first of the latest empty rosters in a row. `roster_total`: the
    registry's instances in the latest roster, `roster_unfollowed` those of services that had left it by then.
    `hold_until`: the registry may lose more until then. `rollout_since`: when the current rollout was first observed.
    `last_replicas`: the last watched count; `last_scale`, `last_rise`: when a change, and a rise, of it was last
    observed. `error_since`: since when nothing can be decided. `zero_since`: since when the usage of a metric has been
    exactly 0, and is not believed.

    `observing_since`: when this process took the policy over. `KEPT` says which fields outlive the process.
    """

    pods: Mapping[str, PodMemory] = field(default_factory=dict)
    samples: Mapping[str, SampleMemory] = field(default_factory=dict)
    departed: Mapping[str, Departed] = field(default_factory=dict)
    ahead: Mapping[str, AheadSample] = field(default_factory=dict)
    beyond: Mapping[str, Beyond] = field(default_factory=dict)
    ever_in_roster: bool = False
    roster_at: float | None = None
    last_valid: Roster | None = None
    rosters: int = 0
    rosters_since: float | None = None
    empty_since: float | None = None
    roster_total: int | None = None
    roster_unfollowed: int = 0
    reconnected_at: float | None = None
    hold_until: float | None = None
    rollout_since: float | None = None
    replacement: Replacement = field(default_factory=Replacement)
    last_replicas: int | None = None
    last_scale: float | None = None
    last_rise: float | None = None
    error_since: float | None = None
    zero_since: float | None = None
    observing_since: float | None = None

    def pod(self, uid: str) -> PodMemory:
        """The memory of a pod."""
        return self.pods.get(uid, NO_POD_MEMORY)

    def samples_of(self, metric: str) -> SampleMemory:
        """The memory of the samples of a metric."""
        return self.samples.get(metric, NO_SAMPLES)

    def ahead_samples(self, uid: str) -> dict[str, AheadSample]:
        """A pod's samples that are dated ahead, by metric."""
        return {name: seen.ahead[uid] for name, seen in self.samples.items() if uid in seen.ahead}

    def last_samples(self, uid: str) -> dict[str, LastSample]:
        """A pod's newest samples that counted, by metric."""
        return {name: seen.last[uid] for name, seen in self.samples.items() if uid in seen.last}


class Kept(Enum):
    """Where a field is kept other than in the status, which is written at each change of the fields there."""

    LAZILY = "in the status, but its change alone is no reason to write: it changes with every roster or sample"
    IN_DOCUMENTS = "in documents of `decide`, not in the status: it belongs to a connection, or each replica reads it"
    IN_PROCESS = "nowhere else: it belongs to this process"


KEPT: Mapping[type, Mapping[str, Kept]] = {
    Memory: {
        "roster_at": Kept.LAZILY,
        "rosters": Kept.LAZILY,
        "last_valid": Kept.LAZILY,
        "ahead": Kept.IN_DOCUMENTS,
        "roster_total": Kept.IN_DOCUMENTS,
        "roster_unfollowed": Kept.IN_DOCUMENTS,
        "reconnected_at": Kept.IN_DOCUMENTS,
        "observing_since": Kept.IN_PROCESS,
    },
    PodMemory: {"absent_count": Kept.LAZILY},
    SampleMemory: {"ahead": Kept.IN_DOCUMENTS, "lacking": Kept.IN_PROCESS, "read": Kept.IN_PROCESS},
    Beyond: {"until": Kept.LAZILY},
    Roster: {
        "instances": Kept.IN_DOCUMENTS,
        "registry_total": Kept.IN_DOCUMENTS,
        "registry_unfollowed": Kept.IN_DOCUMENTS,
        "reconnected_at": Kept.IN_DOCUMENTS,
    },
}
"""By type, the fields that are kept elsewhere than in the status. Of the samples, of existing pods of which one counts
now, of registered pods that only serve, and of long lists the status has less (`policy.status_memory`)."""
