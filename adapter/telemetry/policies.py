"""The series of each policy, written as Prometheus text straight from rows: no object per sample."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

VERDICTS = ("Above", "Inside", "Below", "Error")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric of a policy, in the metric's own unit (cores, bytes, a ratio); None where there is no value."""

    name: str
    effective: float | None = None
    raw: float | None = None
    high: float | None = None
    low: float | None = None
    missing: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """A policy as its series show it.

    `decision_age` is in seconds. `held_by` is empty where no stage held the count, `error` (a reason in one word) where
    there is none. `pods` is by state, `conditions` by name.
    """

    namespace: str
    policy: str
    metrics: tuple[MetricRow, ...] = ()
    desired: float | None = None
    current: float | None = None
    decision_age: float | None = None
    verdict: str = ""
    held_by: str = ""
    error: str = ""
    pods: Mapping[str, float] = field(default_factory=dict)
    conditions: Mapping[str, bool] = field(default_factory=dict)


Values = Iterable[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class Family:
    """A gauge with labels `namespace`, `policy` and at most one of its own; `values` gives (own label, value)."""

    name: str
    help: str
    label: str
    values: Callable[[PolicyRow], Values]

    @property
    def labels(self) -> tuple[str, ...]:
        """All label names."""
        return ("namespace", "policy", self.label) if self.label else ("namespace", "policy")

    @property
    def header(self) -> str:
        """The HELP and TYPE lines."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} gauge\n"


def _of_metrics(pick: Callable[[MetricRow], float | None]) -> Callable[[PolicyRow], Values]:
    return lambda row: [(metric.name, pick(metric)) for metric in row.metrics]


def _one(pick: Callable[[PolicyRow], float | None]) -> Callable[[PolicyRow], Values]:
    return lambda row: (("", pick(row)),)


def _flag(pick: Callable[[PolicyRow], str]) -> Callable[[PolicyRow], Values]:
    return lambda row: ((pick(row), 1.0),) if pick(row) else ()


_P = "effective_load_policy_"
FAMILIES = (
    Family(
        f"{_P}effective",
        "Usage of the pods that serve, in the metric's unit",
        "metric",
        _of_metrics(lambda m: m.effective),
    ),
    Family(f"{_P}raw", "What an average over all running pods would say", "metric", _of_metrics(lambda m: m.raw)),
    Family(f"{_P}high_watermark", "The high watermark, in the metric's unit", "metric", _of_metrics(lambda m: m.high)),
    Family(f"{_P}low_watermark", "The low watermark, in the metric's unit", "metric", _of_metrics(lambda m: m.low)),
    Family(
        f"{_P}missing_pods",
        "Serving pods without a fresh sample of the metric",
        "metric",
        _of_metrics(lambda m: m.missing),
    ),
    Family(f"{_P}desired_replicas", "The count the policy asks for", "", _one(lambda r: r.desired)),
    Family(f"{_P}current_replicas", "The count the target is set to", "", _one(lambda r: r.current)),
    Family(f"{_P}pods", "Pods of the target by state", "state", lambda r: r.pods.items()),
    Family(f"{_P}decision_age_seconds", "Time since the policy was last assessed", "", _one(lambda r: r.decision_age)),
    Family(
        f"{_P}verdict",
        "1 for where usage stands against the watermarks, 0 for the others",
        "verdict",
        lambda r: [(name, float(name == r.verdict)) for name in VERDICTS] if r.verdict else (),
    ),
    Family(f"{_P}held", "1 for the last stage that changed the count", "held_by", _flag(lambda r: r.held_by)),
    Family(
        f"{_P}condition",
        "1 where the condition is true",
        "condition",
        lambda r: [(name, float(value)) for name, value in r.conditions.items()],
    ),
    Family(f"{_P}error", "1 for the reason the policy has no answer", "reason", _flag(lambda r: r.error)),
)


def lines(row: PolicyRow) -> list[str]:
    """The row's text, one piece a family in the order of FAMILIES; pieces of all rows are joined family by family."""
    place = f'namespace="{_escaped(row.namespace)}",policy="{_escaped(row.policy)}"'
    pieces = []
    for family in FAMILIES:
        own = f",{family.label}=" if family.label else ""
        text = ""
        for label, value in family.values(row):
            if value is not None:
                more = f'{own}"{_escaped(label)}"' if own else ""
                text += f"{family.name}{{{place}{more}}} {_number(value)}\n"
        pieces.append(text)
    return pieces


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _escaped(value: str) -> str:
    if "\\" not in value and '"' not in value and "\n" not in value:
        return value
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
