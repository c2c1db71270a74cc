"""Fast scale-up: the count is raised as soon as more is decided, as far as the HPA itself might raise it then.

The HPA is not told. So nothing is done that its next sync might take back.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from adapter.companion.context import Context, PolicyCondition, Raised, State
from adapter.companion.writes.actions import ActionResult, RaiseScale
from adapter.load.quantity import NANO
from adapter.load.tolerance import percent_text
from adapter.policy.behavior import DISABLED, highest_allowed
from adapter.policy.hpa import Hpa, MetricTargetType

APART_SECONDS = 15.0
"""A target is raised once in so long at most: an HPA's usual sync period."""
CONDITION = "FastScaleUp"


def plan(situation: Context) -> Iterator[RaiseScale]:
    """Raise the count to what is decided, or as far towards it as the HPA might go now."""
    view, decision, hpa = situation.view, situation.decision, situation.hpa
    if not view.policy.fast_scale_up or decision is None or hpa is None or view.target is None:
        return
    current, desired = decision.current, decision.desired
    if desired is None or desired <= current or _obstacle(hpa, view.policy.name) or _waits(situation, hpa):
        return
    to = min(desired, hpa.bounds.maximum, _allowed(situation, hpa, current))
    if to > current:
        yield RaiseScale(key=situation.key, path=view.scale_path, target=view.target.uid, current=current, to=to)


def after(past: State, action: RaiseScale, now: float) -> State:
    """The past once the count was raised."""
    return replace(past, raised=Raised(at=now, to=action.to))


def missed(past: State, action: RaiseScale, outcome: ActionResult, now: float) -> State:
    """The past once that was tried in vain. What got no answer may have been done all the same."""
    match outcome:
        case ActionResult.REFUSED:
            return replace(past, raised=Raised(refused=True))
        case ActionResult.FAILED:
            return replace(past, raised=Raised(at=now, to=action.to))
        case _:
            return past


def findings(situation: Context) -> Iterator[PolicyCondition]:
    """Whether the count is raised fast where that is wanted, and if not, why."""
    policy, hpa = situation.view.policy, situation.hpa
    if not policy.fast_scale_up or hpa is None:
        return
    trouble = _trouble(situation, hpa)
    if trouble is not None:
        yield PolicyCondition(CONDITION, False, *trouble)
    else:
        yield PolicyCondition(CONDITION, True, "Ready", "the count is raised as soon as that is decided")


def _trouble(situation: Context, hpa: Hpa) -> tuple[str, str] | None:
    if not situation.settings.features.fast_scale_up:
        return "SwitchedOff", "the settings do not switch on companion.features.fastScaleUp"
    if situation.past.raised.refused:
        lacks = "the companion was not let scale the target when it last tried"
        return "Forbidden", f"{lacks}; the component companion-fast-scale-up has the right for it"
    return _obstacle(hpa, situation.view.policy.name)


def _obstacle(hpa: Hpa, policy: str) -> tuple[str, str] | None:
    """What in the HPA's spec stands against it, for as long as that is so: reason and sentence; None where nothing."""
    up = hpa.scale_up
    if not _follows(hpa, policy):
        return "NotFollowed", f'HPA {hpa.name} does not take desired_replicas with averageValue "1"'
    if up.select == DISABLED:
        return "ScaleUpDisabled", f"HPA {hpa.name} has scaleUp.selectPolicy Disabled"
    if up.stabilization:
        window = f"scaleUp.stabilizationWindowSeconds {up.stabilization}"
        return "ScaleUpStabilized", f"HPA {hpa.name} has {window}; a fast scale-up would not wait for that"
    # With a tolerance the HPA answers status.replicas for a count that is near: it would take back the last pods.
    tolerance = hpa.bounds.tolerance.up if hpa.bounds.tolerance is not None else Fraction(0)
    if tolerance * hpa.bounds.maximum >= 1:
        return "Tolerance", f"HPA {hpa.name} tolerates {percent_text(tolerance)} upwards; it might take pods back"
    return None


def _follows(hpa: Hpa, policy: str) -> bool:
    """Whether the HPA takes the policy's count as it is."""
    return any(
        (metric.names(policy) or metric.describes(hpa.target))
        and (metric.target, metric.aim) == (MetricTargetType.AVERAGE_VALUE, NANO)
        for metric in hpa.desired_metrics
    )


def _waits(situation: Context, hpa: Hpa) -> bool:
    """Whether this is no moment for it: the HPA does not act, it does so by other rules, or it was just done."""
    scale, now = situation.view.scale, situation.now
    if scale is None or not hpa.active or situation.view.policy.rests(now):
        return True
    # Outside of its bounds the HPA asks nobody, and 0 has it rest.
    if scale.replicas == 0 or not hpa.bounds.minimum <= scale.replicas <= hpa.bounds.maximum:
        return True
    last = _last_raise(situation)
    return last is not None and now - last < APART_SECONDS


def _last_raise(situation: Context) -> float | None:
    """When the companion may last have raised the count (seconds).

    This replica did, or somebody before it led, or who knows who before it looked.
    """
    watched, own = situation.watched, situation.past.raised.at
    inherited = [watched.since, *(r.at for r in watched.rises if r.at <= situation.leads_since)] if watched else []
    return max([*inherited, *([] if own is None else [own])], default=None)


def _allowed(situation: Context, hpa: Hpa, current: int) -> int:
    """The count that the HPA's behavior would let it go to now, at least.

    Every rise counts as the HPA's own, and no fall: so what is left is never more than it has left itself.
    """
    watched, policies = situation.watched, hpa.scale_up.policies
    longest = max((policy.period for policy in policies), default=0)
    if watched is None:
        return current
    before = watched.scaled_before
    # Its times have whole seconds. What it did before it was watched is not known, but that it did something.
    if policies and before is not None and situation.now - before < longest + 1:
        return current
    return highest_allowed(current, hpa.scale_up, watched.rises, situation.now)
