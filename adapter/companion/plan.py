"""What to do about one policy. Pure: the same situation gives the same actions.

There are two lanes. What is urgent is done at once, several policies at a time; the rest waits its turn, so that all of
it together stays within `companion.writesPerSecond`.
"""

from collections.abc import Iterator

from adapter.companion.context import Context, State
from adapter.companion.features import deletion_cost, events, fast_scale_up, hpa_wiring, notices, status
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


def urgent(situation: Context) -> Iterator[Action]:
    """The actions that wait for nothing else. A feature that is switched off plans nothing."""
    if situation.settings.features.fast_scale_up and not situation.silent:
        yield from fast_scale_up.plan(situation)
    yield from notices.plan(situation)


def steady(situation: Context) -> Iterator[Action]:
    """The actions that wait their turn. A feature that is switched off plans nothing."""
    features = situation.settings.features
    if features.deletion_cost and not situation.silent:
        yield from deletion_cost.plan(situation)
    if features.hpa_wiring and not situation.silent:
        yield from hpa_wiring.plan(situation)
    if features.status:
        yield from status.plan(situation)
    if features.events:
        yield from events.plan(situation)


def after(past: State, action: Action, now: float) -> State:
    """What is remembered once an action was carried out."""
    match action:
        case RaiseScale():
            return fast_scale_up.after(past, action, now)
        case MarkPod():
            return deletion_cost.after(past, action, now)
        case AskTolerance() | WireHpa():
            return hpa_wiring.after(past, action, now)
        case WriteStatus():
            return status.after(past, action, now)
        case WriteEvent():
            return events.after(past, action, now)
        case Notify():
            return notices.after(past, action, now)


def missed(past: State, action: Action, outcome: ActionResult, now: float) -> State:
    """What is remembered of an action that was not done."""
    match action:
        case RaiseScale():
            return fast_scale_up.missed(past, action, outcome, now)
        case MarkPod():
            return deletion_cost.missed(past, action, outcome, now)
        case AskTolerance() | WireHpa():
            return hpa_wiring.missed(past, action, outcome, now)
        case WriteEvent():
            return events.missed(past, action, outcome, now)
        case WriteStatus() | Notify():
            return past
