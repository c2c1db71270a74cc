"""What to do about one policy. Pure: the same context gives the same actions.

There are two lanes. What is urgent is done at once, several policies at a time; the rest waits its turn, so that all of
it together stays within `companion.writesPerSecond`.
"""

from collections.abc import Iterator

from adapter.companion.context import Context, State
from adapter.companion.features import deletion_cost, events, fast_scale_up, hpa_wiring, notifications, status
from adapter.companion.writes.actions import (
    Action,
    ActionResult,
    AskTolerance,
    MarkPod,
    Notify,
    RaiseScale,
    WireHpa,
    WriteEvent,
    WriteStatus,
)


def urgent(context: Context) -> Iterator[Action]:
    """The actions that wait for nothing else. A feature that is switched off plans nothing."""
    if context.settings.features.fast_scale_up and not context.silent:
        yield from fast_scale_up.plan(context)
    yield from notifications.plan(context)


def steady(context: Context) -> Iterator[Action]:
    """The actions that wait their turn. A feature that is switched off plans nothing."""
    features = context.settings.features
    if features.deletion_cost and not context.silent:
        yield from deletion_cost.plan(context)
    if features.hpa_wiring and not context.silent:
        yield from hpa_wiring.plan(context)
    if features.status:
        yield from status.plan(context)
    if features.events:
        yield from events.plan(context)


def after(state: State, action: Action, now: float) -> State:
    """What is remembered once an action was carried out."""
    match action:
        case RaiseScale():
            return fast_scale_up.after(state, action, now)
        case MarkPod():
            return deletion_cost.after(state, action, now)
        case AskTolerance() | WireHpa():
            return hpa_wiring.after(state, action, now)
        case WriteStatus():
            return status.after(state, action, now)
        case WriteEvent():
            return events.after(state, action, now)
        case Notify():
            return notifications.after(state, action, now)


def missed(state: State, action: Action, outcome: ActionResult, now: float) -> State:
    """What is remembered of an action that was not done."""
    match action:
        case RaiseScale():
            return fast_scale_up.missed(state, action, outcome, now)
        case MarkPod():
            return deletion_cost.missed(state, action, outcome, now)
        case AskTolerance() | WireHpa():
            return hpa_wiring.missed(state, action, outcome, now)
        case WriteEvent():
            return events.missed(state, action, outcome, now)
        case WriteStatus() | Notify():
            return state
