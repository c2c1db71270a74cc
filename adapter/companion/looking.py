"""What is noted at each look at a policy, before anything is planned: how its count went, and what people must hear."""

from dataclasses import replace

from adapter.companion import course, events, notices, status
from adapter.companion.situation import Past, Situation


def look(situation: Situation) -> Past:
    """The past after another look."""
    past, findings = situation.past, {finding.type: finding for finding in status.findings(situation)}
    went = course.follow(situation)
    if situation.settings.features.events:
        announced = events.look(situation, findings, went)
    else:
        announced = events.silent(past.announced, went)
    return replace(past, course=went, announced=announced, noticed=notices.look(situation, findings, went))
