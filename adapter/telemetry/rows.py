"""The rows behind the series of each policy and of each service of a registry, and their gauge families."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

POLICY_LABELS = ("namespace", "policy")
REGISTRY_LABELS = ("registry", "registry_namespace", "group", "service")
VERDICTS = ("Above", "Inside", "Below", "Error")
MODES = ("Active", "Observe", "Paused", "Held")


R = TypeVar("R")
"""The source of series: its fields with the names of the shared labels are their values."""

LabelledValues = Iterable[tuple[str, float | None]]


@dataclass(frozen=True, slots=True)
class Family(Generic[R]):
    """A gauge with the shared labels of its rows and at most one more; `values` returns (label value, value) pairs."""

    shared_labels: tuple[str, ...]
    name: str
    help: str
    label: str
    values: Callable[[R], LabelledValues]

    @property
    def labels(self) -> tuple[str, ...]:
        """All label names."""
        return (*self.shared_labels, self.label) if self.label else self.shared_labels

    @property
    def header(self) -> str:
        """The HELP and TYPE lines."""
        return f"# HELP {self.name} {self.help}\n# TYPE {self.name} gauge\n"


_SPECIAL = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
"""Numbers that the exposition writes in another way than Python."""


def format_row(families: Sequence[Family[R]], row: R) -> list[str]:
    """The row's text, one piece per family in their order; the caller joins the pieces of all rows by family."""
    place = ",".join(f'{name}="{_escaped(getattr(row, name))}"' for name in families[0].shared_labels)
    pieces = []
    for family in families:
        label_prefix = f",{family.label}=" if family.label else ""
        text = ""
        for label, value in family.values(row):
            if value is not None:
                label_text = f'{label_prefix}"{_escaped(label)}"' if label_prefix else ""
                number = repr(float(value))
                text += f"{family.name}{{{place}{label_text}}} {_SPECIAL.get(number, number)}\n"
        pieces.append(text)
    return pieces


def _escaped(value: str) -> str:
    if "\\" not in value and '"' not in value and "\n" not in value:
        return value
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric of a policy, in the metric's unit (cores, bytes, a ratio); `sample_age` in seconds; None: no value."""

    name: str
    effective: float | None = None
    raw: float | None = None
    high: float | None = None
    low: float | None = None
    target: float | None = None
    missing: float = 0
    sample_age: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """The values of a policy's series.

    `minimum` and `maximum` are the HPA's bounds, `lower` and `upper` those of the load. `suppressed` is None if the HPA
    has no tolerance. `decision_age` is in seconds. `held_by` is empty if no stage changed the count, `error` (a reason
    in one word) if there is none. `pods` is by state, `conditions` by name.
    """

    namespace: str
    policy: str
    metrics: tuple[MetricRow, ...] = ()
    desired: float | None = None
    current: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    lower: float | None = None
    upper: float | None = None
    suppressed: float | None = None
    decision_age: float | None = None
    mode: str = ""
    verdict: str = ""
    held_by: str = ""
    error: str = ""
    pods: Mapping[str, float] = field(default_factory=dict)
    conditions: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRow:
    """The values of a registry service's series: `age` of the last valid answer (seconds), instances by state."""

    registry: str
    registry_namespace: str
    group: str
    service: str
    age: float | None = None
    instances: Mapping[str, float] = field(default_factory=dict)


def _family(name: str, text: str, label: str, values: Callable[[PolicyRow], LabelledValues]) -> Family[PolicyRow]:
    return Family(POLICY_LABELS, f"effective_load_policy_{name}", text, label, values)


def _of_metrics(name: str, pick: Callable[[MetricRow], float | None], text: str) -> Family[PolicyRow]:
    return _family(name, text, "metric", lambda row: [(metric.name, pick(metric)) for metric in row.metrics])


def _of_policy(name: str, pick: Callable[[PolicyRow], float | None], text: str) -> Family[PolicyRow]:
    return _family(name, text, "", lambda row: (("", pick(row)),))


POLICY_FAMILIES: tuple[Family[PolicyRow], ...] = (
    _of_metrics("effective", lambda m: m.effective, "Usage of the pods that serve, in the metric's unit"),
    _of_metrics("raw", lambda m: m.raw, "What an average over all running pods would say"),
    _of_metrics(
        "high_watermark",
        lambda m: m.high,
        "The high watermark, or where the policy acts above a target, in the metric's unit",
    ),
    _of_metrics(
        "low_watermark",
        lambda m: m.low,
        "The low watermark, or where the policy acts below a target, in the metric's unit",
    ),
    _of_metrics("target", lambda m: m.target, "The target of strategies Ratio and Step, in the metric's unit"),
    _of_metrics("missing_pods", lambda m: m.missing, "Serving pods without a fresh sample of the metric"),
    _of_metrics(
        "sample_age_seconds", lambda m: m.sample_age, "Age of the oldest sample that the metric's usage comes from"
    ),
    _of_policy("desired_replicas", lambda r: r.desired, "The count the policy asks for"),
    _of_policy("lower_bound", lambda r: r.lower, "The fewest pods that the known load needs at the high watermark"),
    _of_policy("upper_bound", lambda r: r.upper, "The most pods that the possible load justifies at the low watermark"),
    _of_policy("current_replicas", lambda r: r.current, "The count the target is set to"),
    _of_policy("min_replicas", lambda r: r.minimum, "The HPA's lowest count"),
    _of_policy("max_replicas", lambda r: r.maximum, "The HPA's highest count"),
    _of_policy(
        "suppressed_replicas",
        lambda r: r.suppressed,
        "The step that the HPA's own tolerance suppresses (negative: downward)",
    ),
    _family("pods", "Pods of the target by state", "state", lambda r: r.pods.items()),
    _of_policy("decision_age_seconds", lambda r: r.decision_age, "Time since the policy was last assessed"),
    _family(
        "verdict",
        "1 for where usage stands against the watermarks, 0 for the others",
        "verdict",
        lambda r: [(name, float(name == r.verdict)) for name in VERDICTS] if r.verdict else (),
    ),
    _family(
        "mode",
        "1 for how the policy stands to the count (Held: by annotation, for a time), 0 for the others",
        "mode",
        lambda r: [(name, float(name == r.mode)) for name in MODES] if r.mode else (),
    ),
    _family(
        "held",
        "1 for the last stage that changed the count",
        "held_by",
        lambda r: ((r.held_by, 1.0),) if r.held_by else (),
    ),
    _family(
        "condition",
        "1 where the condition is true, 0 where it is false; ScalingActive is the HPA's own",
        "condition",
        lambda r: [(name, float(value)) for name, value in r.conditions.items()],
    ),
    _family(
        "error",
        "1 for the reason the policy has no answer",
        "reason",
        lambda r: ((r.error, 1.0),) if r.error else (),
    ),
)

REGISTRY_FAMILIES: tuple[Family[RegistryRow], ...] = (
    Family(
        REGISTRY_LABELS,
        "effective_load_registry_instances_age_seconds",
        "Time since the registry last gave a valid answer about the service",
        "",
        lambda row: (("", row.age),),
    ),
    Family(
        REGISTRY_LABELS,
        "effective_load_registry_instances",
        "Instances in the last valid answer by what they say of themselves: in, out, unhealthy",
        "state",
        lambda row: row.instances.items(),
    ),
)
