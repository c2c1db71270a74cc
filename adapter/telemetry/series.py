"""The series of policies and of services in registries: their values in rows, and a table of their gauges."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

VERDICTS = ("Above", "Inside", "Below", "Error")
MODES = ("Active", "Observe", "Paused", "Held")
SLICE_SECONDS, PAUSE_SECONDS = 0.0003, 0.0001
"""How long the thread of a scrape may keep the interpreter from requests, and how long it then gives way."""


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


class Series(NamedTuple):
    """A gauge of policies, or of services: `values` gives the values of one row by the gauge's own label, if any."""

    name: str
    help: str
    label: str
    values: Callable[[Any], Iterable[tuple[str, float | None]]]


POLICY_LABELS = ("namespace", "policy")
SERVICE_LABELS = ("registry", "registry_namespace", "group", "service")
"""The labels of all series of a row; its fields have their names."""


def _of_metrics(name: str, field_name: str, text: str) -> Series:
    return Series(name, text, "metric", lambda row: [(one.name, getattr(one, field_name)) for one in row.metrics])


def _of_row(name: str, field_name: str, text: str) -> Series:
    return Series(name, text, "", lambda row: [("", getattr(row, field_name))])


def _one_of(value: str, names: Sequence[str]) -> list[tuple[str, float]]:
    """1 for the value and 0 for the other names; nothing for an empty value."""
    return [(name, float(name == value)) for name in names] if value else []


POLICY_SERIES = (
    _of_metrics("effective", "effective", "Usage of the pods that serve, in the metric's unit"),
    _of_metrics("raw", "raw", "The average over all running pods"),
    _of_metrics("high_watermark", "high", "The high watermark, or the upper limit of a target's tolerance"),
    _of_metrics("low_watermark", "low", "The low watermark, or the lower limit of a target's tolerance"),
    _of_metrics("target", "target", "The target of strategies Ratio and Step, in the metric's unit"),
    _of_metrics("missing_pods", "missing", "Serving pods without a fresh sample of the metric"),
    _of_metrics("sample_age_seconds", "sample_age", "Age of the oldest sample in the metric's usage"),
    _of_row("desired_replicas", "desired", "The replicas that the policy requests"),
    _of_row("lower_bound", "lower", "The fewest pods that the known load needs at the high watermark"),
    _of_row("upper_bound", "upper", "The most pods that the possible load justifies at the low watermark"),
    _of_row("current_replicas", "current", "The target's replicas"),
    _of_row("min_replicas", "minimum", "The HPA's lowest count"),
    _of_row("max_replicas", "maximum", "The HPA's highest count"),
    _of_row("suppressed_replicas", "suppressed", "The step that the HPA's tolerance suppresses (negative: downward)"),
    Series("pods", "Pods of the target by state", "state", lambda row: row.pods.items()),
    _of_row("decision_age_seconds", "decision_age", "Time since the policy was last assessed"),
    Series("verdict", "1 for the verdict, 0 for the others", "verdict", lambda row: _one_of(row.verdict, VERDICTS)),
    Series(
        "mode", "1 for the mode (Held: by annotation), 0 for the others", "mode", lambda row: _one_of(row.mode, MODES)
    ),
    Series(
        "held",
        "1 for the last stage that held the count",
        "held_by",
        lambda row: _one_of(row.held_by, [row.held_by]),
    ),
    Series(
        "condition",
        "1 if the condition is true, 0 if it is false; ScalingActive is the HPA's own",
        "condition",
        lambda row: row.conditions.items(),
    ),
    Series("error", "1 for the reason of the policy's error", "reason", lambda row: _one_of(row.error, [row.error])),
)
SERVICE_SERIES = (
    _of_row("instances_age_seconds", "age", "Time since the registry's last valid answer about the service"),
    Series("instances", "Instances by their own state: in, out, unhealthy", "state", lambda row: row.instances.items()),
)
TABLES = (
    ("effective_load_policy_", POLICY_LABELS, POLICY_SERIES),
    ("effective_load_registry_", SERVICE_LABELS, SERVICE_SERIES),
)


def names() -> Iterator[tuple[str, tuple[str, ...], str]]:
    """(name, labels, help) of each gauge."""
    for prefix, labels, series in TABLES:
        yield from ((prefix + one.name, (*labels, *filter(None, [one.label])), one.help) for one in series)


def exposition(policies: Sequence[PolicyRow], services: Sequence[RegistryRow]) -> Iterator[bytes]:
    """The series of these rows in Prometheus text format, one gauge at a time. Draw it in a thread: it pauses.

    2,000 policies have 92,000 series: they take 0.1 s, and prometheus-client would keep the interpreter from requests
    for 0.6 s. Without the pauses a request during a scrape takes twice as long.
    """
    rows: tuple[Sequence[Any], ...] = (policies, services)
    until = 0.0
    for (prefix, labels, table), drawn in zip(TABLES, rows, strict=True):
        places = [",".join(f'{label}="{_escaped(getattr(row, label))}"' for label in sorted(labels)) for row in drawn]
        for series in table:
            name, own, is_first = prefix + series.name, series.label, series.label < min(labels)
            lines = [f"# HELP {name} {series.help}\n# TYPE {name} gauge\n"]
            for row, place in zip(drawn, places, strict=True):
                if time.perf_counter() > until:
                    time.sleep(PAUSE_SECONDS)
                    until = time.perf_counter() + SLICE_SECONDS
                for label, value in series.values(row):
                    if value is None:
                        continue
                    pair = f'{own}="{_escaped(label)}"' if own else ""
                    pairs = filter(None, (pair, place) if is_first else (place, pair))  # sorted, as everywhere
                    lines.append(f"{name}{{{','.join(pairs)}}} {float(value)!r}\n")
            yield "".join(lines).encode()


@lru_cache(1 << 14)
def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
