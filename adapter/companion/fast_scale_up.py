"""Fast scale-up: raises the count as soon as more is decided, as far as the HPA itself could at that moment.

The HPA does not know of it, so nothing is done that its next sync might take back.
"""

from collections.abc import Iterator
from fractions import Fraction

from adapter.companion.changes import ReplicaHistory
from adapter.companion.state import Condition, Context, Write, fenced
from adapter.hpa.behavior import DEFAULT_UP, highest, legacy_highest, rules
from adapter.kube.api import JSON_PATCH
from adapter.load.quantity import NANO, percent_text
from adapter.load.spec import Mode
from adapter.policy.behavior import DISABLED
from adapter.policy.conditions import Reason
from adapter.policy.hpa import Hpa

RAISE_SCALE = "RaiseScale"


def plan(context: Context) -> Iterator[Write]:
    """Raises the count to the decided one, or as far towards it as the HPA could go now."""
    view, decision, hpa = context.view, context.decision, context.hpa
    if not view.policy.fast_scale_up or decision is None or hpa is None or view.target is None:
        return
    current, desired, maximum = decision.current, decision.desired, hpa.bounds.maximum
    if desired is None or desired <= current or view.policy.mode_at(context.now) != Mode.ACTIVE:
        return
    # Outside of its bounds the HPA ignores its metrics, and 0 switches it off.
    is_within = current > 0 and hpa.bounds.minimum <= current <= maximum
    if not hpa.active or _obstacle(hpa, view.policy.name) or not is_within:
        return
    up = rules(hpa.scale_up, DEFAULT_UP, 0)
    # The HPA's times have whole seconds.
    quiet = max(policy.period + 1 for policy in up.policies) if hpa.has_behavior else 0
    history = context.state.of(ReplicaHistory)
    # A rise in the future: the clock was put back since.
    is_quiet = abs(context.now - history.since) >= max(quiet, context.settings.hpa_sync_seconds)
    # As after no rise in any period: whoever made one, the HPA may have, and then its policies leave less.
    allowed = highest(current, up, (), (), context.now) if hpa.has_behavior else legacy_highest(current)
    to = min(desired, maximum, allowed)
    if history.target and is_quiet and to > current:
        body = fenced({"/metadata/uid": view.target.uid, "/spec/replicas": current}, "/spec/replicas", to)
        yield Write(key=context.key, kind=RAISE_SCALE, path=view.scale_path, body=body, content_type=JSON_PATCH)


def condition(context: Context) -> Condition | None:
    """FastScaleUp, where the policy asks for it and is assessed."""
    policy, hpa = context.view.policy, context.hpa
    if not policy.fast_scale_up or hpa is None or context.view.assessment is None:
        return None
    trouble = _obstacle(hpa, policy.name)
    if not context.settings.features.fast_scale_up:
        trouble = "SwitchedOff", "the settings do not switch on companion.features.fastScaleUp"
    elif context.state.is_refused(RAISE_SCALE):
        lacks = "the companion was refused the right to scale the target when it last tried"
        trouble = "Forbidden", f"{lacks}; the component companion-fast-scale-up grants it"
    reason, message = trouble or ("Ready", "the count is raised as soon as that is decided")
    return Condition(trouble is None, reason, message)


def _obstacle(hpa: Hpa, policy: str) -> tuple[Reason, str] | None:
    """What in the HPA's spec forbids a raise: reason and message; None if nothing does."""
    up = hpa.scale_up
    if ("AverageValue", NANO) not in [(one.target, one.aim) for one in hpa.asks_for(policy)]:
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
