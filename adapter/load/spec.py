"""A policy, a scale target and its bounds as the arithmetic sees them: defaults resolved, units exact."""

from dataclasses import dataclass, field
from datetime import tzinfo
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple


class Mode(StrEnum):
    """Whether a policy acts, watches (`Observe` serves "hold") or rests."""

    ACTIVE = "Active"
    OBSERVE = "Observe"
    PAUSED = "Paused"


class HpaWiring(StrEnum):
    """Whether the companion only reports what is unwise about a policy's HPA, or sets what it may."""

    REPORT = "Report"
    ENFORCE = "Enforce"


class Stance(StrEnum):
    """A mode, or that an active policy is held for a time by annotation."""

    ACTIVE = "Active"
    OBSERVE = "Observe"
    PAUSED = "Paused"
    HELD = "Held"


class Strategy(StrEnum):
    """How usage becomes a count."""

    WATERMARK = "Watermark"


class Average(StrEnum):
    """What the watermarks are for: one pod, or the whole service."""

    PER_POD = "PerPod"
    TOTAL = "Total"


class Capacity(StrEnum):
    """What usage is compared with, where a metric is a utilization."""

    LIMIT = "Limit"
    REQUEST = "Request"


class Converge(StrEnum):
    """The watermark to drift to while inside the band."""

    HIGH = "High"
    LOW = "Low"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Usage from metrics.k8s.io: of the named containers (none: all running ones), as such or of their capacity."""

    name: str
    containers: tuple[str, ...] = ()
    of: Capacity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query that the settings name, or inline PromQL where the settings allow it; `of` pairs it with capacity."""

    name: str = ""
    prom_ql: str = ""
    server: str = ""
    of: Capacity | None = None
    resource: str = ""
    containers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric with its watermarks in nano-units (for `of` metrics: nano of a ratio, so 80 % is 0.8 × 10⁹).

    Exactly one of `resource` and `query` is set, and at least one watermark.
    """

    name: str
    resource: Resource | None = None
    query: Query | None = None
    high: Fraction | None = None
    low: Fraction | None = None

    @property
    def of(self) -> Capacity | None:
        """What usage is divided by, None for plain usage."""
        source = self.resource or self.query
        return source.of if source else None


class Match(StrEnum):
    """How a registration finds its pod where it carries neither a pod's UID nor its name.

    By `IP_PORT` an address that is not one pod's own (host network) counts with a port of the pod only.
    """

    IP_PORT = "IPPort"
    IP = "IP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The service registry that a policy names, and the patience with it (seconds).

    `unhealthy_is_out`: whether an unhealthy registration is explicit evidence. `any_out`: a pod with several records is
    out when one is (default: when all are). `pod_name_key`: metadata of a registration that holds its pod's name.
    `port`: the only one that counts, of pods that register several.
    """

    name: str
    service: str = ""
    namespace: str = ""
    group: str = ""
    grace: float = 180.0
    absent: float = 45.0
    unhealthy_is_out: bool = True
    any_out: bool = False
    match: Match = Match.IP_PORT
    port: int | None = None
    pod_name_key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledOut:
    """What happens for pods that were pulled out: replaced on the way up after so many seconds; the share (percent) of
    ready pods that absence alone may turn out. `delete_first`: whether they are to go first on the way down.
    """

    replace: bool = True
    replace_after: float = 60.0
    max_percent: int = 50
    delete_first: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Velocity:
    """How far the count may move in one decision, in percent of the current one; None: any way, 0: not at all."""

    up: int | None = None
    down: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """How long after a scaling in either direction the count stays (seconds), by the direction it would move in."""

    up: float = 0.0
    down: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """From each time of a cron expression on, for so many seconds, at least `minimum` and at most `maximum` pods."""

    name: str
    cron: str
    zone: tzinfo
    duration: float
    minimum: int | None = None
    maximum: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The count to have at least where no metric has had an answer for so many seconds."""

    after: float
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A WatermarkPolicy with every default resolved. `tolerance` is a ratio: 1 % is 1/100.

    `hold_until`: the count stays until then (seconds), as in mode Paused. `fast_scale_up`: whether the count is raised
    without waiting for the HPA's next look. `notify` names routes of notifications.
    """

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    hpa: str
    mode: Mode = Mode.ACTIVE
    hold_until: float | None = None
    hpa_wiring: HpaWiring = HpaWiring.REPORT
    strategy: Strategy = Strategy.WATERMARK
    average: Average = Average.PER_POD
    tolerance: Fraction = Fraction(1, 100)
    metrics: tuple[Metric, ...]
    registry: Registry | None = None
    pulled_out: PulledOut = field(default_factory=PulledOut)
    velocity: Velocity = Velocity()
    cooldown: Cooldown = Cooldown()
    schedules: tuple[Schedule, ...] = ()
    fallback: Fallback | None = None
    min_serving_percent: int = 50
    tolerate_zero: bool | None = None
    multiple_of: int = 1
    converge_towards: Converge | None = None
    fast_scale_up: bool = False
    notify: tuple[str, ...] = ()

    def rests(self, now: float) -> bool:
        """Whether the policy leaves the count as it is at this time, by its mode or because it is held."""
        return self.stance(now) is not Stance.ACTIVE

    def stance(self, now: float) -> Stance:
        """How the policy stands to the count at this time. A mode of rest goes before a hold."""
        if self.mode is not Mode.ACTIVE:
            return Stance(self.mode.value)
        return Stance.HELD if self.hold_until is not None and now < self.hold_until else Stance.ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The scale subresource: the count asked for, the count that exists, and the selector of the pods."""

    replicas: int
    status_replicas: int
    selector: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a policy scales, and how its rollout stands.

    `progressing` is the reason of the Progressing condition (empty: there is none), `progressing_since` its
    lastUpdateTime.
    """

    api_version: str
    kind: str
    name: str
    uid: str = ""
    progressing: str = ""
    progressing_since: float | None = None


class HpaTolerance(NamedTuple):
    """How far (a ratio: 10 % is 1/10) a value may be above or below the HPA's target without a change."""

    up: Fraction
    down: Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """An HPA's min and max, and when it last scaled (seconds; None where it never did).

    `tolerance` is None where it is 0 both ways, or not known.
    """

    minimum: int = 1
    maximum: int
    last_scale: float | None = None
    tolerance: HpaTolerance | None = None
