"""Types and reasons of a WatermarkPolicy's conditions. Users and programs read them, so none is ever renamed."""

from enum import StrEnum
from typing import NamedTuple, Self


class Found(str):
    """The name of a condition that an assessment finds (`load.explanation`)."""

    __slots__ = ()


class Reason(StrEnum):
    """Why a condition has its status, in one word; those of `Ready` are reasons of the served error too."""

    # Accepted
    VALID = "Valid"
    REFUSED = "Refused"
    # Ready
    DECIDED = "Decided"
    NO_DECISION = "NoDecision"
    NOT_ASSESSED = "NotAssessed"
    NOT_FOUND = "NotFound"
    CONFLICT = "Conflict"
    INVALID = "Invalid"
    SERVICE_UNAVAILABLE = "ServiceUnavailable"
    WATCH_SILENT = "WatchSilent"
    HPA_INACTIVE = "HPAInactive"
    # Active
    DECIDING = "Deciding"
    NOT_DECIDING = "NotDeciding"
    HPA_MISSING = "HPAMissing"
    OBSERVED = "Observed"
    PAUSED = "Paused"
    HELD = "Held"
    # InputsFresh and RegistryDataValid
    SAMPLES_FRESH = "SamplesFresh"
    INPUTS_MISSING = "InputsMissing"
    REGISTRY_ANSWERS = "RegistryAnswers"
    REGISTRY_DATA_INVALID = "RegistryDataInvalid"
    NO_REGISTRY = "NoRegistry"
    # VersionsConsistent
    ONE_VERSION = "OneVersion"
    ROLLING_OUT = "RollingOut"
    VERSION_MISMATCH = "VersionMismatch"
    # NotificationRoutesResolved
    KNOWN = "Known"
    UNKNOWN_ROUTE = "UnknownRoute"
    # FastScaleUp and DeletionCostApplied
    FORBIDDEN = "Forbidden"
    SWITCHED_OFF = "SwitchedOff"
    READY = "Ready"
    NOT_FOLLOWED = "NotFollowed"
    SCALE_UP_DISABLED = "ScaleUpDisabled"
    SCALE_UP_STABILIZED = "ScaleUpStabilized"
    MARKED = "Marked"
    MARKING = "Marking"
    NO_DEPLOYMENT = "NoDeployment"
    FOREIGN_COST = "ForeignCost"
    SEVERAL_REPLICA_SETS = "SeveralReplicaSets"
    # HPAConformant
    CONFORMANT = "Conformant"
    ONLY_OBSERVED = "OnlyObserved"
    POLICY_CONFLICT = "PolicyConflict"
    SHARED_TARGET = "SharedTarget"
    AMBIGUOUS_SELECTOR = "AmbiguousSelector"
    STUCK_AT_ZERO = "StuckAtZero"
    NOT_WIRED = "NotWired"
    RESTING = "Resting"
    AVERAGE_VALUE = "AverageValue"
    READ_ONLY_METRIC = "ReadOnlyMetric"
    STOCK_METRIC = "StockMetric"
    TOLERANCE = "Tolerance"
    NO_STABILIZATION = "NoStabilization"
    WAITS_TWICE = "WaitsTwice"
    WATERMARKS_TOO_CLOSE = "WatermarksTooClose"
    TOTAL = "Total"
    WIRING_OFF = "WiringOff"
    WIRING_REFUSED = "WiringRefused"
    WIRING_UNDONE = "WiringUndone"
    WIRING_CONFLICT = "WiringConflict"


class Healthy(NamedTuple):
    """What a condition says that is True without trouble: its reason and message, and its reason with trouble."""

    reason: Reason
    message: str
    reason_of_trouble: Reason


class ConditionType(StrEnum):
    """A type of condition: its name, whether an assessment finds it, and what it says without trouble.

    Statuses list conditions in this order. Those that an assessment finds are metrics too, and the assessment has the
    message of their trouble. Without a `Healthy` they are shown only while they are True, which is trouble, and their
    reason is their name. Of all others False is trouble.
    """

    is_found: bool
    """Whether an assessment finds it; the companion's features say the others."""
    healthy: Healthy | None

    ACCEPTED = "Accepted"
    READY = "Ready"
    ACTIVE = "Active"
    HPA_CONFORMANT = "HPAConformant"
    NOTIFICATION_ROUTES_RESOLVED = "NotificationRoutesResolved"
    INPUTS_FRESH = (
        Found("InputsFresh"),
        Healthy(Reason.SAMPLES_FRESH, "every metric has fresh samples", Reason.INPUTS_MISSING),
    )
    REGISTRY_DATA_VALID = (
        Found("RegistryDataValid"),
        Healthy(Reason.REGISTRY_ANSWERS, "the registry's answers are valid and recent", Reason.REGISTRY_DATA_INVALID),
    )
    UNREADY_PODS_FILL_REPLICAS = Found("UnreadyPodsFillReplicas")
    FLOOR_MISSING = Found("FloorMissing")
    ZERO_USAGE_IGNORED = Found("ZeroUsageIgnored")
    WATERMARK_AT_LIMIT = Found("WatermarkAtLimit")
    FAST_SCALE_UP = "FastScaleUp"
    DELETION_COST_APPLIED = "DeletionCostApplied"
    VERSIONS_CONSISTENT = "VersionsConsistent"
    MASS_PULL_OUT = "MassPullOut"
    AT_MAXIMUM = "AtMaximum"

    def __new__(cls, name: str, healthy: Healthy | None = None) -> Self:
        member = str.__new__(cls, name)
        member._value_ = str(name)
        member.is_found = isinstance(name, Found)
        member.healthy = healthy
        return member

    @property
    def is_trouble_while(self) -> bool:
        """The status that is trouble."""
        is_named_so = self in {ConditionType.MASS_PULL_OUT, ConditionType.AT_MAXIMUM}
        return is_named_so or (self.is_found and self.healthy is None)
