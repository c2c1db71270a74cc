"""Types and reasons of a WatermarkPolicy's conditions. Users and programs read them, so none is ever renamed."""

from enum import StrEnum


class ConditionType(StrEnum):
    """A type of condition. Statuses list conditions in this order."""

    READY = "Ready"
    ACTIVE = "Active"
    HPA_CONFORMANT = "HPAConformant"
    ROUTES_KNOWN = "RoutesKnown"
    INPUTS_FRESH = "InputsFresh"
    REGISTRY_TRUSTED = "RegistryTrusted"
    REPLACEMENT_INEFFECTIVE = "ReplacementIneffective"
    UNDERSIZED_BY_UNREADY = "UndersizedByUnready"
    FLOOR_MISSING = "FloorMissing"
    FAST_SCALE_UP = "FastScaleUp"
    DELETED_FIRST = "DeletedFirst"
    VERSIONS_CONSISTENT = "VersionsConsistent"


TRUE_IS_TROUBLE = {
    ConditionType.REPLACEMENT_INEFFECTIVE,
    ConditionType.UNDERSIZED_BY_UNREADY,
    ConditionType.FLOOR_MISSING,
}
"""Types that are shown only while they are True, which is trouble; for all others False is."""


class Reason(StrEnum):
    """Why a condition has its status, in one word; those of `Ready` are reasons of the served error too."""

    # Ready
    DECIDED = "Decided"
    NO_DECISION = "NoDecision"
    NOT_ASSESSED = "NotAssessed"
    NOT_FOUND = "NotFound"
    CONFLICT = "Conflict"
    INVALID = "Invalid"
    SERVICE_UNAVAILABLE = "ServiceUnavailable"
    WATCH_SILENT = "WatchSilent"
    # Active
    DECIDING = "Deciding"
    NOT_DECIDING = "NotDeciding"
    HPA_MISSING = "HPAMissing"
    OBSERVED = "Observed"
    PAUSED = "Paused"
    HELD = "Held"
    # InputsFresh and RegistryTrusted
    SAMPLES_FRESH = "SamplesFresh"
    INPUTS_MISSING = "InputsMissing"
    REGISTRY_ANSWERS = "RegistryAnswers"
    REGISTRY_DISTRUSTED = "RegistryDistrusted"
    # ReplacementIneffective, UndersizedByUnready and FloorMissing
    REPLACEMENT_INEFFECTIVE = "ReplacementIneffective"
    UNDERSIZED_BY_UNREADY = "UndersizedByUnready"
    FLOOR_MISSING = "FloorMissing"
    # VersionsConsistent
    ONE_VERSION = "OneVersion"
    ROLLING_OUT = "RollingOut"
    VERSION_MISMATCH = "VersionMismatch"
    # RoutesKnown
    KNOWN = "Known"
    UNKNOWN_ROUTE = "UnknownRoute"
    ROUTE_NOT_FOR_NAMESPACE = "RouteNotForNamespace"
    # FastScaleUp and DeletedFirst
    FORBIDDEN = "Forbidden"
    SWITCHED_OFF = "SwitchedOff"
    READY = "Ready"
    NOT_FOLLOWED = "NotFollowed"
    SCALE_UP_DISABLED = "ScaleUpDisabled"
    SCALE_UP_STABILIZED = "ScaleUpStabilized"
    MARKED = "Marked"
    MARKING = "Marking"
    MARKS_LEFT = "MarksLeft"
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
