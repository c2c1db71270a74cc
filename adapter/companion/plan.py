"""What to do about one policy: the table of features, asked one after the other. Pure: no I/O, no clock.

To add a feature: a module in `features`, its row in FEATURES, and its setting.

There are two lanes. Urgent actions are carried out at once, for several policies at a time; all others wait their turn,
so that together they stay within `companion.writesPerSecond`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from adapter.companion import replica_history
from adapter.companion.actions import (
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
from adapter.companion.state import Context, PolicyCondition, State
from adapter.policy.conditions import ConditionType

A = TypeVar("A")


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature(Generic[A]):
    """What a feature notes at each look, what it plans, how its actions change the state, and its conditions.

    `switch` is its field of `companion.features`, empty where it is always on. Switched off, it plans nothing.
    `urgent`: its actions wait for no other write. `while_silent`: it plans also while a watch that the policy needs
    shows no sign of life. `after` is called with an action that was carried out, `missed` with one that was not.
    """

    switch: str = ""
    urgent: bool = False
    while_silent: bool = True
    actions: tuple[type[A], ...] = ()
    observe: Callable[[Context], State] | None = None
    plan: Callable[[Context], Iterable[A]] = lambda _: ()
    after: Callable[[State, A, float], State] = lambda state, *_: state
    missed: Callable[[State, A, ActionResult, float], State] = lambda state, *_: state
    conditions: Callable[[Context], Iterable[PolicyCondition]] = lambda _: ()

    def may_plan(self, context: Context) -> bool:
        """Whether the feature is switched on, and may act on what is known of the policy."""
        is_on = not self.switch or bool(getattr(context.settings.features, self.switch))
        return is_on and (self.while_silent or not context.silent)


FEATURES: tuple[Feature[Any], ...] = (
    Feature(
        switch="fast_scale_up",
        urgent=True,
        while_silent=False,
        actions=(RaiseScale,),
        plan=fast_scale_up.plan,
        after=fast_scale_up.after,
        missed=fast_scale_up.missed,
        conditions=fast_scale_up.conditions,
    ),
    Feature(
        urgent=True,
        actions=(Notify,),
        observe=notifications.observe,
        plan=notifications.plan,
        after=notifications.after,
        conditions=notifications.conditions,
    ),
    Feature(
        switch="deletion_cost",
        while_silent=False,
        actions=(MarkPod,),
        plan=deletion_cost.plan,
        after=deletion_cost.after,
        missed=deletion_cost.missed,
        conditions=deletion_cost.conditions,
    ),
    Feature(
        switch="hpa_configuration",
        while_silent=False,
        actions=(AskTolerance, WireHpa),
        plan=hpa_configuration.plan,
        after=hpa_configuration.after,
        missed=hpa_configuration.missed,
        conditions=hpa_configuration.conditions,
    ),
    Feature(switch="status", actions=(WriteStatus,), plan=status.plan, after=status.after),
    Feature(
        switch="events",
        actions=(WriteEvent,),
        observe=events.observe,
        plan=events.plan,
        after=events.after,
        missed=events.missed,
    ),
    Feature(conditions=readiness.conditions),
    Feature(conditions=versions.conditions),
)
"""In the order in which they plan. The order of conditions in a status is that of ConditionType."""
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
