"""What PromQL asks for, held against the series that the adapter really exposes: names, labels, and values of labels.

Rules and dashboards are checked by it, so that neither a renamed metric nor a misspelt label turns into an empty panel
or an alert that never fires.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import promql_parser

from adapter.load.assessment import HeldBy
from adapter.load.pods import PodState
from adapter.policy.conditions import ConditionType, Reason
from adapter.registries.cache import INSTANCE_STATES
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.series import MODES, VERDICTS

TARGET_LABELS = frozenset({"cluster", "container", "endpoint", "instance", "job", "namespace", "node", "pod"})
"""What Prometheus adds to every series of a target, or a Prometheus of several clusters besides."""
OURS = "effective_load_"
VALUES: dict[tuple[str, str], frozenset[str]] = {
    ("effective_load_policy_pods", "state"): frozenset(PodState),
    ("effective_load_policy_verdict", "verdict"): frozenset(VERDICTS),
    ("effective_load_policy_mode", "mode"): frozenset(MODES),
    ("effective_load_policy_held", "held_by"): frozenset(HeldBy),
    ("effective_load_policy_condition", "condition"): frozenset({*ConditionType, "ScalingActive"}),
    ("effective_load_policy_error", "reason"): frozenset(get_args(Reason)),
    ("effective_load_registry_instances", "state"): frozenset(INSTANCE_STATES),
    ("effective_load_certificate_expiry_timestamp_seconds", "certificate"): frozenset({"authority", "serving"}),
    ("effective_load_scale_read_duration_seconds_count", "result"): frozenset({"cached", "live", "watched", "failed"}),
}
"""The values of labels that are of a closed set."""
_CHILDREN = ("lhs", "rhs", "expr", "args", "vector_selector", "param")


@dataclass(frozen=True)
class Selector:
    """A vector selector: the metric's name, and its matchers (operator, label, value)."""

    name: str
    matchers: tuple[tuple[str, str, str], ...] = ()


def selectors(expression: str) -> list[Selector]:
    """All vector selectors of an expression."""
    return [_selector(node) for node in _nodes(promql_parser.parse(expression)) if _is_selector(node)]


def faults(expression: str) -> Iterator[str]:
    """What of an expression no series of the adapter answers, as sentences; series of others are not looked at."""
    for selector in selectors(expression):
        yield from _faults_of(selector)


@cache
def exposed() -> dict[str, frozenset[str]]:
    """The labels of each series of the adapter, by its name."""
    series = {}
    for name, kind, labels, _ in Metrics().names():
        if kind != "histogram":
            series[name] = frozenset(labels)
            continue
        series |= {f"{name}{suffix}": frozenset(labels) for suffix in ("_sum", "_count")}
        series[f"{name}_bucket"] = frozenset({*labels, "le"})
    return series


def _faults_of(selector: Selector) -> Iterator[str]:
    if not selector.name.startswith(OURS):
        return
    if selector.name not in exposed():
        yield f"there is no series {selector.name}"
        return
    for operator, label, value in selector.matchers:
        if label not in exposed()[selector.name] | TARGET_LABELS:
            yield f"{selector.name} has no label {label}"
        known = VALUES.get((selector.name, label))
        for one in value.split("|") if operator in {"=~", "!~"} else [value]:
            if known is not None and "$" not in one and not any(re.fullmatch(one, other) for other in known):
                yield f"{selector.name} never has {label}={one!r}"


def _selector(node: Any) -> Selector:
    signs = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
    matchers = [(signs[str(m.op).rpartition(".")[2]], m.name, m.value) for m in node.matchers.matchers]
    name = node.name or next((value for sign, label, value in matchers if (sign, label) == ("=", "__name__")), "")
    return Selector(name, tuple(one for one in matchers if one[1] != "__name__"))


def _is_selector(node: Any) -> bool:
    return isinstance(node, promql_parser.VectorSelector)


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for name in _CHILDREN:
        child = getattr(node, name, None)
        for one in child if isinstance(child, list) else [child]:
            if one is not None and not isinstance(one, str):
                yield from _nodes(one)
