"""What to do about one policy: its conditions, what is noted at each look, and the writes. Pure: no I/O, no clock."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from adapter.companion import (
    changes,
    deletion_cost,
    fast_scale_up,
    findings,
    hpa_configuration,
    replica_history,
    status,
)
from adapter.companion.state import ActionResult, Context, PolicyCondition, State, Write
from adapter.policy.conditions import ConditionType


def conditions(context: Context) -> Mapping[str, PolicyCondition]:
    """The conditions of all subjects, in the order of a status; one that says nothing is absent."""
    modules = (findings, changes, deletion_cost, fast_scale_up, hpa_configuration)
    by_type = {condition.type: condition for module in modules for condition in module.conditions(context)}
    return {type_: by_type[type_] for type_ in ConditionType if type_ in by_type}


def observe(context: Context) -> State:
    """The state after this look: the replica history, and what is due to be told. `context` has its conditions."""
    return changes.observe(replace(context, state=replica_history.attributed(context)))


def actions(context: Context, *, urgent: bool) -> Iterator[Write]:
    """The actions that wait for no other write, or those that wait their turn; each feature only where it is on.

    While a watch that the policy needs shows no sign of life, its status and its Events say so, and that is all.
    """
    on, acts = context.settings.features, not context.silent
    if urgent:
        if on.fast_scale_up and acts:
            yield from fast_scale_up.plan(context)
        return
    if on.deletion_cost and acts:
        yield from deletion_cost.plan(context)
    if on.hpa_configuration and acts:
        yield from hpa_configuration.plan(context)
    if on.status:
        yield from status.plan(context)
    if on.events:
        yield from changes.plan(context)


def after(state: State, action: Write, result: ActionResult, now: float) -> State:
    """The state once an action was tried."""
    refused = {action.kind} if result is ActionResult.REFUSED else set[str]()
    return action.after(replace(state, refused=(state.refused - {action.kind}) | refused), result, now)
