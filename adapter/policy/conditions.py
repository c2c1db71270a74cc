"""Types and reasons of a WatermarkPolicy's conditions. Users and programs read them, so none is ever renamed."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, NamedTuple

Reason = Literal[
    "Valid", "Refused", "Decided", "NoDecision", "NotAssessed", "NotFound", "Conflict", "Invalid", "ServiceUnavailable",
    "WatchSilent", "HPAInactive", "Deciding", "NotDeciding", "HPAMissing", "Observed", "Paused", "Held",
    "SamplesFresh", "InputsMissing", "RegistryAnswers", "RegistryDataInvalid", "NoRegistry",
    "OneVersion", "RollingOut", "VersionMismatch", "Known", "UnknownRoute",
    "Forbidden", "SwitchedOff", "Ready", "NotFollowed", "ScaleUpDisabled", "ScaleUpStabilized",
    "Marked", "Marking", "NoDeployment", "ForeignCost", "SeveralReplicaSets",
    "Conformant", "OnlyObserved", "PolicyConflict", "SharedTarget", "AmbiguousSelector", "StuckAtZero", "NotWired",
    "Resting", "AverageValue", "ReadOnlyMetric", "StockMetric", "Tolerance", "NoStabilization", "WaitsTwice",
    "WatermarksTooClose", "Total", "WiringOff", "WiringRefused", "WiringUndone", "WiringConflict",
]  # fmt: skip
"""Why a condition has its status, in one word, by condition. Those of Ready are reasons of the served error too."""


class ConditionType(StrEnum):
    """Types of conditions, in the order in which statuses list them."""

    ACCEPTED = "Accepted"
    READY = "Ready"
    ACTIVE = "Active"
    HPA_CONFORMANT = "HPAConformant"
    NOTIFICATION_ROUTES_RESOLVED = "NotificationRoutesResolved"
    INPUTS_FRESH = "InputsFresh"
    REGISTRY_DATA_VALID = "RegistryDataValid"
    UNREADY_PODS_FILL_REPLICAS = "UnreadyPodsFillReplicas"
    FLOOR_MISSING = "FloorMissing"
    ZERO_USAGE_IGNORED = "ZeroUsageIgnored"
    WATERMARK_AT_LIMIT = "WatermarkAtLimit"
    FAST_SCALE_UP = "FastScaleUp"
    DELETION_COST_APPLIED = "DeletionCostApplied"
    VERSIONS_CONSISTENT = "VersionsConsistent"
    MASS_PULL_OUT = "MassPullOut"
    AT_MAXIMUM = "AtMaximum"


class Healthy(NamedTuple):
    """What a condition says that is True without trouble: its reason and message, and its reason with trouble."""

    reason: Reason
    message: str
    reason_of_trouble: Reason


FOUND: Mapping[ConditionType, Healthy | None] = {
    ConditionType.INPUTS_FRESH: Healthy("SamplesFresh", "every metric has fresh samples", "InputsMissing"),
    ConditionType.REGISTRY_DATA_VALID: Healthy(
        "RegistryAnswers", "the registry's answers are valid and recent", "RegistryDataInvalid"
    ),
    ConditionType.UNREADY_PODS_FILL_REPLICAS: None,
    ConditionType.FLOOR_MISSING: None,
    ConditionType.ZERO_USAGE_IGNORED: None,
    ConditionType.WATERMARK_AT_LIMIT: None,
}
"""The conditions that an assessment finds, which has the message of their trouble (`load.explanation`), and metrics.

Those without a `Healthy` are shown only while they are True, which is trouble, and their reason is their name.
"""
TROUBLE_WHILE_TRUE = {ConditionType.MASS_PULL_OUT, ConditionType.AT_MAXIMUM, *(one for one in FOUND if not FOUND[one])}
"""Of all others False is trouble."""
