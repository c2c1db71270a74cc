"""What is noted at each look at a policy, before anything is planned: how its count went, and what people must hear."""

from dataclasses import replace

from adapter.companion import replica_history
from adapter.companion.context import Context, State
from adapter.companion.features import events, notices, status


def observe(situation: Context) -> State:
    """The past after another look."""
    past, findings = situation.past, {finding.type: finding for finding in status.findings(situation)}
    went = replica_history.follow(situation)
    if situation.settings.features.events:
        announced = events.look(situation, findings, went)
    else:
        announced = events.silent(past.announced, went)
    return replace(past, course=went, announced=announced, noticed=notices.look(situation, findings, went))
