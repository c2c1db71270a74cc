"""What is noted at each look at a policy, before anything is planned: how its count went, and what people must hear."""

from dataclasses import replace

from adapter.companion import replica_history
from adapter.companion.context import Context, State
from adapter.companion.features import events, notifications, status


def observe(context: Context) -> State:
    """The state after another look."""
    state, findings = context.state, {finding.type: finding for finding in status.conditions(context)}
    went = replica_history.follow(context)
    if context.settings.features.events:
        told = events.observe(context, findings, went)
    else:
        told = events.silent(state.events, went)
    return replace(state, history=went, events=told, notifications=notifications.observe(context, findings, went))
