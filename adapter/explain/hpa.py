"""What the HPA will do with the served count, by the model of the controller, and what it did last: in sentences."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from adapter.explain.reading import Explained, HpaState
from adapter.load.quantity import parse_nano, percent_text
from adapter.load.spec import Bounds, Scale
from adapter.policy.conformance import Wiring, flaws
from adapter.policy.hpa import Hpa
from adapter.replay.hpa.behavior import DEFAULT_DOWN, DEFAULT_UP, Rules, rules
from adapter.replay.hpa.controller import Controller, Flags, Sync
from adapter.replay.hpa.machine import milli

_DOWN_WINDOW = 300
"""The controller's own window for scaling down, in seconds, where an HPA sets none."""
_LIMITS = {
    "ScaleUpLimit": "its behavior.scaleUp allows no more at once",
    "ScaleDownLimit": "its behavior.scaleDown allows no fewer at once",
    "TooManyReplicas": "maxReplicas allows no more",
    "TooFewReplicas": "minReplicas allows no fewer",
}


def will_do(explained: Explained) -> Iterator[str]:
    """What the HPA will do with the served value, its rules included; nothing where the HPA is not known."""
    state, case, served = explained.hpa, explained.case, explained.served
    if state is None:
        return
    hpa = state.hpa
    if case is not None:
        if served is not None and hpa.asks_for(case.inputs.policy.name):
            own = [
                one for one in hpa.desired_metrics if one.names(case.inputs.policy.name) or one.describes(hpa.target)
            ]
            asked = replace(hpa, metrics=tuple(own[:1]))
            yield from _next_sync(asked, case.inputs.bounds, case.scale, served.served, case.now)
        yield from (flaw.message for flaw in flaws(Wiring(policy=case.inputs.policy, hpa=hpa)))
        yield _tolerance(case.inputs.bounds)
    yield f"bounds: {hpa.bounds.minimum} to {hpa.bounds.maximum}"
    yield f"scaleUp: {_pace_text(hpa, rules(hpa.scale_up, DEFAULT_UP, 0))}"
    yield f"scaleDown: {_pace_text(hpa, rules(hpa.scale_down, DEFAULT_DOWN, _DOWN_WINDOW))}"


def _next_sync(hpa: Hpa, bounds: Bounds, scale: Scale, served: str | None, now: float) -> Iterator[str]:
    if served is None:
        yield f"it keeps {scale.replicas}: the metric has an error instead of a value"
        return
    sync = next_sync(hpa, bounds, scale, served, now)
    count, wanted = sync.replicas, sync.recommendation
    if wanted is None or wanted == count == scale.replicas:
        yield f"it keeps {count}"
    elif wanted == count:
        yield f"it sets {count} (now {scale.replicas}){_window(hpa, count, scale.replicas)}"
    else:
        limit = sync.conditions.get("ScalingLimited")
        why = _LIMITS.get(limit.reason, "") if limit is not None else ""
        yield f"it wants {wanted} and sets {count} (now {scale.replicas}){': ' if why else ''}{why}"


def next_sync(hpa: Hpa, bounds: Bounds, scale: Scale, served: str, now: float) -> Sync:
    """The next sync by the model, as if the HPA had recommended nothing else within its windows.

    `served` is the value of the HPA's only metric.
    """
    tolerance = bounds.tolerance
    up, down = (tolerance.up, tolerance.down) if tolerance is not None else (Fraction(0), Fraction(0))
    bare = replace(
        hpa,
        bounds=bounds,
        scale_up=replace(hpa.scale_up, tolerance=up, stabilization=0),
        scale_down=replace(hpa.scale_down, tolerance=down, stabilization=0),
    )
    controller = Controller(bare, Flags(down_window=0))
    values = [(milli(parse_nano(served)),)]
    return controller.sync(now, scale.replicas, values, (), scale.status_replicas)


def _window(hpa: Hpa, count: int, current: int) -> str:
    """How stabilization delays the change."""
    is_up = count > current
    own = rules(hpa.scale_up, DEFAULT_UP, 0) if is_up else rules(hpa.scale_down, DEFAULT_DOWN, _DOWN_WINDOW)
    if not own.window:
        return " at its next sync, at most 15 s from now by default"
    side = "fewer" if is_up else "more"
    return f" once nothing {side} was recommended for {own.window} s (stabilizationWindowSeconds)"


def _tolerance(bounds: Bounds) -> str:
    if bounds.tolerance is None:
        return "tolerance: 0, so it sets every count exactly"
    up, down = percent_text(bounds.tolerance.up), percent_text(bounds.tolerance.down)
    return f"tolerance: it ignores changes of up to {up} up and {down} down; set tolerance 0 in both directions"


def _pace_text(hpa: Hpa, pace: Rules) -> str:
    if not hpa.has_behavior:
        return f"no behavior is set; scale-down waits {_DOWN_WINDOW} s, scale-up at most doubles (or goes to 4)"
    if pace.select == "Disabled":
        return "disabled"
    changes = [f"{one.value} {'%' if one.kind == 'Percent' else 'pods'} in {one.period} s" for one in pace.policies]
    which = "" if len(changes) < 2 else " (the smaller)" if pace.select == "Min" else " (the larger)"
    return f"window {pace.window} s, at most {' or '.join(changes)}{which}"


def did_last(state: HpaState, now: float) -> Iterator[str]:
    """What the HPA's status says: counts, the last scaling, conditions."""
    yield f"current {_known(state.current)}, desired {_known(state.desired)}"
    if state.last_scale is None:
        yield "it has never scaled"
    else:
        yield f"it last scaled {age_text(now - state.last_scale)} ago"
    for condition in state.conditions:
        yield f"{condition.type} {condition.status} ({condition.reason}): {condition.message}"


def _known(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def age_text(seconds: float) -> str:
    """A time span for people: 12 s, 3 min, 5 h, 2 d; never negative."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
