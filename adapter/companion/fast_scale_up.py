"""Fast scale-up: raises the count as soon as more is decided, as far as the HPA itself could at that moment.

The HPA does not know of it, so nothing is done that its next sync might take back.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import partial

from adapter.companion.replica_history import LastRaise, ReplicaHistory
from adapter.companion.state import ActionResult, Context, PolicyCondition, State, Write, fenced
from adapter.hpa.behavior import DEFAULT_UP, highest, legacy_highest, rules
from adapter.kube.api import JSON_PATCH
from adapter.load.quantity import NANO, percent_text
from adapter.load.spec import Mode
from adapter.policy.behavior import DISABLED
from adapter.policy.conditions import ConditionType, Reason
from adapter.policy.hpa import Hpa, MetricTargetType

RAISE_SCALE = "RaiseScale"


def plan(context: Context) -> Iterator[Write]:
    """Raises the count to the decided one, or as far towards it as the HPA could go now."""
    view, decision, hpa = context.view, context.decision, context.hpa
    if not view.policy.fast_scale_up or decision is None or hpa is None or view.target is None:
        return
    current, desired = decision.current, decision.desired
    if desired is None or desired <= current or _obstacle(hpa, view.policy.name) or _waits(context, hpa):
        return
    # A count that the HPA's behavior certainly allows now: every rise counts as the HPA's own, and no fall does.
    history, policies = context.state.of(ReplicaHistory), hpa.scale_up.policies
    scaled_at = history.scaled_before
    longest = max((policy.period for policy in policies), default=0)
    # The HPA's times have whole seconds. How far it scaled before the first observation is not known.
    is_unsure = bool(policies) and scaled_at is not None and context.now - scaled_at < longest + 1
    if not history.target or is_unsure:
        return
    allowed = legacy_highest(current)
    if hpa.has_behavior:
        allowed = highest(current, rules(hpa.scale_up, DEFAULT_UP, 0), history.rises, (), context.now)
    to = min(desired, hpa.bounds.maximum, max(current, allowed))
    if to > current:
        body = fenced({"/metadata/uid": view.target.uid, "/spec/replicas": current}, "/spec/replicas", to)
        yield Write(
            key=context.key, kind=RAISE_SCALE, path=view.scale_path, body=body, content_type=JSON_PATCH,
            after=partial(_raised, to),
        )  # fmt: skip


def _raised(to: int, state: State, result: ActionResult, now: float) -> State:
    """A raise that failed without an answer may have been made."""
    is_made = result in {ActionResult.DONE, ActionResult.FAILED}
    return state.having(LastRaise(at=now, to=to)) if is_made else state


def conditions(context: Context) -> Iterator[PolicyCondition]:
    """FastScaleUp, where the policy asks for it and is assessed."""
    policy, hpa = context.view.policy, context.hpa
    if not policy.fast_scale_up or hpa is None or context.view.assessment is None:
        return
    trouble = _obstacle(hpa, policy.name)
    if not context.settings.features.fast_scale_up:
        trouble = Reason.SWITCHED_OFF, "the settings do not switch on companion.features.fastScaleUp"
    elif RAISE_SCALE in context.state.refused:
        lacks = "the companion was refused the right to scale the target when it last tried"
        trouble = Reason.FORBIDDEN, f"{lacks}; the component companion-fast-scale-up grants it"
    reason, message = trouble or (Reason.READY, "the count is raised as soon as that is decided")
    yield PolicyCondition(ConditionType.FAST_SCALE_UP, trouble is None, reason, message)


def _obstacle(hpa: Hpa, policy: str) -> tuple[Reason, str] | None:
    """What in the HPA's spec forbids a raise: reason and message; None if nothing does."""
    up = hpa.scale_up
    if not any(
        (metric.names(policy) or metric.describes(hpa.target))
        and (metric.target, metric.aim) == (MetricTargetType.AVERAGE_VALUE, NANO)
        for metric in hpa.desired_metrics
    ):
        return Reason.NOT_FOLLOWED, f'HPA {hpa.name} does not take desired_replicas with averageValue "1"'
    if up.select == DISABLED:
        return Reason.SCALE_UP_DISABLED, f"HPA {hpa.name} has scaleUp.selectPolicy Disabled"
    if up.stabilization:
        window = f"scaleUp.stabilizationWindowSeconds {up.stabilization}"
        return Reason.SCALE_UP_STABILIZED, f"HPA {hpa.name} has {window}; a fast scale-up would not wait for that"
    # With a tolerance the HPA answers status.replicas for a count that is near: it would take back the last pods.
    tolerance = hpa.bounds.tolerance.up if hpa.bounds.tolerance is not None else Fraction(0)
    if tolerance * hpa.bounds.maximum >= 1:
        return Reason.TOLERANCE, f"HPA {hpa.name} tolerates {percent_text(tolerance)} upwards; it might take pods back"
    return None


def _waits(context: Context, hpa: Hpa) -> bool:
    """Whether a raise has to wait: the HPA or the policy rests, the count is out of bounds, or it was just raised."""
    scale, now = context.view.scale, context.now
    if scale is None or not hpa.active or context.view.policy.mode_at(now) != Mode.ACTIVE:
        return True
    # Outside of its bounds the HPA ignores its metrics, and 0 switches it off.
    if scale.replicas == 0 or not hpa.bounds.minimum <= scale.replicas <= hpa.bounds.maximum:
        return True
    # Before this process led or observed the target, any rise may have been the companion's.
    history, raised_at = context.state.of(ReplicaHistory), context.state.of(LastRaise).at
    earlier = (rise.at for rise in history.rises if rise.at <= context.leads_since)
    last = max((history.since, raised_at or 0.0, *earlier))
    # A raise in the future: this machine's clock was put back since.
    return abs(now - last) < context.settings.hpa_sync_seconds
