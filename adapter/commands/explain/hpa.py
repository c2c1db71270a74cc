"""What the HPA will do with the served count, by the model of its controller, and what it did last."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec

from adapter.commands.cluster import Answer
from adapter.commands.explain.read import Explained
from adapter.commands.terminal.output import duration
from adapter.hpa.controller import Controller, Flags
from adapter.hpa.pods import milli
from adapter.load.quantity import parse_nano, percent_text
from adapter.policy.hpa import Hpa
from adapter.runtime.times import parse_time

_DOWN_WINDOW = 300
"""The controller's own window for scaling down, in seconds, where an HPA sets none."""
_LIMITS = {
    "ScaleUpLimit": "its behavior.scaleUp allows no more at once",
    "ScaleDownLimit": "its behavior.scaleDown allows no fewer at once",
    "TooManyReplicas": "maxReplicas allows no more",
    "TooFewReplicas": "minReplicas allows no fewer",
}


def will_do(explained: Explained) -> Iterator[str]:
    """What the HPA will do, and its tolerance; nothing where the HPA, or what it gets, is not known."""
    hpa, answer = explained.hpa, explained.answer
    if hpa is not None and explained.refusal and hpa.asks_for(explained.name):
        yield "it keeps its count: it gets an error instead of a value"
    if hpa is None or answer is None:
        return
    tolerances = tuple(
        explained.tolerance if one.tolerance is None else one.tolerance for one in (hpa.scale_up, hpa.scale_down)
    )
    is_ours = bool(hpa.asks_for(explained.name))
    if is_ours:
        yield _next_sync(explained, hpa, answer, tolerances)
    else:
        yield "it does not ask for this policy's count: other metrics set its count"
    if any(tolerances):
        own = "" if hpa.sets_tolerance else " (it sets none, so the controller's counts)"
        ignored = "{} up and {} down".format(*map(percent_text, tolerances))
        remedy = "; set tolerance 0 in both directions" if is_ours else ""
        yield f"tolerance: it ignores changes of up to {ignored}{own}{remedy}"
    else:
        yield "tolerance: 0, so it sets every count exactly"


def _next_sync(explained: Explained, hpa: Hpa, answer: Answer, tolerances: tuple[Fraction, ...]) -> str:
    """The next sync by the model, as if the HPA had recommended nothing else within its windows."""
    current, served = answer.decision.current, answer.decision.served
    status_replicas = current if answer.case is None else answer.case.scale.status_replicas
    if current == 0 and hpa.bounds.minimum > 0:
        return f"it rests at 0 until somebody scales the target to 1: minReplicas is {hpa.bounds.minimum}"
    if served is None:
        return f"it keeps {current}: the metric has an error instead of a value"
    bare = replace(
        hpa,
        metrics=hpa.asks_for(explained.name)[:1],
        scale_up=msgspec.structs.replace(hpa.scale_up, tolerance=tolerances[0], stabilization=0),
        scale_down=msgspec.structs.replace(hpa.scale_down, tolerance=tolerances[1], stabilization=0),
    )
    values = [(milli(parse_nano(served)),)]
    sync = Controller(bare, Flags(down_window=0)).sync(explained.at, current, values, (), status_replicas)
    count, wanted = sync.replicas, sync.recommendation
    if wanted is None or wanted == count == current:
        return f"it keeps {count}"
    if wanted != count:
        why = _LIMITS.get(sync.limit, "")
        return f"it wants {wanted} and sets {count} (now {current}){': ' if why else ''}{why}"
    rules, default, side = (hpa.scale_up, 0, "fewer") if count > current else (hpa.scale_down, _DOWN_WINDOW, "more")
    if window := default if rules.stabilization is None else rules.stabilization:
        when = f"once nothing {side} was recommended for {window} s (stabilizationWindowSeconds)"
    else:
        when = "at its next sync, at most 15 s from now by default"
    return f"it sets {count} (now {current}) {when}"


def did_last(explained: Explained) -> Iterator[str]:
    """What the HPA's status says: counts, the last scaling, conditions."""
    status = explained.hpa_status
    current, desired = (status.get(key, "unknown") for key in ("currentReplicas", "desiredReplicas"))
    yield f"current {current}, desired {desired}"
    at = parse_time(status.get("lastScaleTime"))
    yield "it has never scaled" if at is None else f"it last scaled {duration(explained.at - at)} ago"
    yield from map(condition_text, status.get("conditions") or ())


def condition_text(one: Mapping[str, Any]) -> str:
    """A condition of a status as a line."""
    return f"{one.get('type')} {one.get('status')} ({one.get('reason')}): {one.get('message')}"
