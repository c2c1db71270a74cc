"""What to do about one policy: the features of the table, asked one after the other. Pure: no I/O, no clock.

There are two lanes. Urgent actions are carried out at once, for several policies at a time; all others wait their turn,
so that together they stay within `companion.writesPerSecond`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from adapter.companion import replica_history
from adapter.companion.actions import Action, ActionResult
from adapter.companion.context import Context, PolicyCondition
from adapter.companion.features import FEATURES, Feature
from adapter.companion.state import State
from adapter.load.conditions import ConditionType

_FEATURE_OF: Mapping[type, Feature[Any]] = {action: feature for feature in FEATURES for action in feature.actions}


def conditions(context: Context) -> Mapping[str, PolicyCondition]:
    """The conditions of all features, in the order of a status; one that says nothing is absent."""
    by_type = {condition.type: condition for feature in FEATURES for condition in feature.conditions(context)}
    return {type_: by_type[type_] for type_ in ConditionType if type_ in by_type}


def observe(context: Context) -> State:
    """The state after this look: the replica history, and what each feature notes. `context` has its conditions."""
    history = replica_history.observe_count(context.state.history, context.view, context.now)
    context = replace(context, state=replace(context.state, history=history))
    state = replace(context.state, history=replica_history.attribute(context))
    for feature in FEATURES:
        if feature.observe is not None:
            state = feature.observe(replace(context, state=state))
    return state


def urgent(context: Context) -> Iterator[Action]:
    """The actions that wait for no other write."""
    return _plan(context, urgent=True)


def steady(context: Context) -> Iterator[Action]:
    """The actions that wait their turn."""
    return _plan(context, urgent=False)


def _plan(context: Context, *, urgent: bool) -> Iterator[Action]:
    for feature in FEATURES:
        if feature.urgent is urgent and feature.may_plan(context):
            yield from feature.plan(context)


def after(state: State, action: Action, now: float) -> State:
    """The state once an action was carried out."""
    return _FEATURE_OF[type(action)].after(state, action, now)


def missed(state: State, action: Action, result: ActionResult, now: float) -> State:
    """The state once an action was not carried out."""
    return _FEATURE_OF[type(action)].missed(state, action, result, now)
