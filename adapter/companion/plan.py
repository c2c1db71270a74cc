"""What to do about one policy: the table of features, asked one after the other. Pure: no I/O, no clock.

To add a feature: a module in `features`, its row in FEATURES, and its setting.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import NamedTuple

from adapter.companion import replica_history
from adapter.companion.features import (
    deletion_cost,
    events,
    fast_scale_up,
    hpa_configuration,
    notifications,
    readiness,
    status,
    versions,
)
from adapter.companion.state import Action, ActionResult, Context, PolicyCondition, State, Write
from adapter.policy.conditions import ConditionType


class Feature(NamedTuple):
    """A module with as many as it needs of these functions:

    - `observe(context)`: the state with what the feature notes at each look;
    - `plan(context)`: its actions, all of this `kind`;
    - `after(state, action, result, now)`: the state once one was tried. Without it, what the action notes is a part;
    - `conditions(context)`: its conditions.

    `switch` is its field of `companion.features`, empty where it is always on. Switched off, it plans nothing.
    `urgent`: its actions wait for no other write. `while_silent`: it plans also while a watch that the policy needs
    shows no sign of life.
    """

    module: ModuleType
    kind: str = ""
    switch: str = ""
    urgent: bool = False
    while_silent: bool = True

    def may_plan(self, context: Context) -> bool:
        """Whether the feature has actions, is switched on, and may act on what is known of the policy."""
        is_on = not self.switch or bool(getattr(context.settings.features, self.switch))
        return bool(self.kind) and is_on and (self.while_silent or not context.silent)


FEATURES = (
    Feature(fast_scale_up, "RaiseScale", switch="fast_scale_up", urgent=True, while_silent=False),
    Feature(notifications, "Notify", urgent=True),
    Feature(deletion_cost, "MarkPod", switch="deletion_cost", while_silent=False),
    Feature(hpa_configuration, "WireHpa", switch="hpa_configuration", while_silent=False),
    Feature(status, "WriteStatus", switch="status"),
    Feature(events, "WriteEvent", switch="events"),
    Feature(readiness),
    Feature(versions),
)
"""In the order in which they plan. The order of conditions in a status is that of ConditionType."""
_OWNERS = {feature.kind: feature.module for feature in FEATURES}


def conditions(context: Context) -> Mapping[str, PolicyCondition]:
    """The conditions of all features, in the order of a status; one that says nothing is absent."""
    modules = [feature.module for feature in FEATURES if hasattr(feature.module, "conditions")]
    by_type = {condition.type: condition for module in modules for condition in module.conditions(context)}
    return {type_: by_type[type_] for type_ in ConditionType if type_ in by_type}


def observe(context: Context) -> State:
    """The state after this look: the replica history, and what each feature notes. `context` has its conditions."""
    state = replica_history.attributed(context)
    for feature in FEATURES:
        if hasattr(feature.module, "observe"):
            state = feature.module.observe(replace(context, state=state))
    return state


def actions(context: Context, *, urgent: bool) -> Iterator[Action]:
    """The actions that wait for no other write, or those that wait their turn."""
    for feature in FEATURES:
        if feature.urgent is urgent and feature.may_plan(context):
            yield from feature.module.plan(context)


def after(state: State, action: Action, result: ActionResult, now: float) -> State:
    """The state once an action was tried."""
    refused, owner = {action.kind} if result is ActionResult.REFUSED else set[str](), _OWNERS[action.kind]
    state = replace(state, refused=(state.refused - {action.kind}) | refused)
    if hasattr(owner, "after"):
        new: State = owner.after(state, action, result, now)
        return new
    if isinstance(action, Write) and result in {ActionResult.DONE, ActionResult.DROPPED}:
        return state.having(action.noted)
    return state
