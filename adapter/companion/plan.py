"""What to do about one policy. Pure: the same situation gives the same actions."""

from collections.abc import Iterator

from adapter.companion import status
from adapter.companion.actions import Action, WriteStatus
from adapter.companion.situation import Past, Situation


def plan(situation: Situation) -> Iterator[Action]:
    """The actions, the urgent ones first. A feature that is switched off plans nothing."""
    features = situation.settings.features
    if features.status:
        yield from status.plan(situation)


def after(past: Past, action: Action, now: float) -> Past:
    """What is remembered once an action was carried out."""
    match action:
        case WriteStatus():
            return status.after(past, action, now)
