"""What the companion writes in each of the cases: conditions with their reasons, Events, notifications, key paths."""

import asyncio
from collections.abc import Iterator
from typing import get_args

from adapter.companion import writer
from adapter.companion.actions import Action, Notify, WriteEvent, WriteStatus
from adapter.kube import errors
from adapter.load.assessment import HeldBy
from adapter.load.pods import PodState
from adapter.load.spec import Stance
from adapter.settings.companion import FIELDS, Severity, Topic
from adapter.telemetry.series import MODES, VERDICTS
from tests.companion.kit import Leader
from tests.recorded.cases import cases, problems
from tests.recorded.shapes import shape
from tests.recorded.writes import requests


def lines() -> Iterator[str]:
    """Everything there is to note."""
    actions = list(_actions())
    for action in actions:
        yield from _said(action)
    yield from asyncio.run(requests(actions))
    yield from (f"problem {code} {reason}" for code, reason in problems())
    yield from (f"held by {one.value}" for one in HeldBy)
    yield from (f"pod state {one.value}" for one in PodState)
    yield from (f"template field ${name}" for name in FIELDS)
    yield from (f"topic {one.value}" for one in Topic)
    yield from (f"severity {one.value}" for one in Severity)


def _actions() -> Iterator[Action]:
    for case in cases():
        leader = Leader()
        leader.outcome = case.outcome
        for context in case.looks:
            yield from leader.look(context)


def _said(action: Action) -> Iterator[str]:
    """What people read of an action that is no plain write."""
    match action:
        case WriteStatus(status=status):
            yield from (f"status {line}" for line in shape(status))
            yield f"status verdict {status['verdict']}"
            yield from (f"condition {one['type']} {one['status']} {one['reason']}" for one in status["conditions"])
        case WriteEvent():
            body = writer.event_body(action)
            said = " ".join(body[key] for key in ("type", "reason", "action", "reportingController"))
            yield f"event {said} regarding {body['regarding']['apiVersion']} {body['regarding']['kind']}"
        case Notify(notifications=notices):
            for one in notices:
                yield f"notice {one.topic.value} {one.severity.value} {' '.join(sorted(one.fields))}".rstrip()


def label_values() -> Iterator[str]:
    """Label values that are words of the companion and of policies."""
    yield from (f"companion_writes_total action {one.__name__}" for one in get_args(Action))
    # What failed without a reason of the API server's own is counted by the name of its class.
    for one in vars(errors).values():
        if isinstance(one, type) and issubclass(one, errors.KubeError):
            yield f"companion_writes_total result {one.__name__}"
    yield from (f"policy_mode mode {one}" for one in (*MODES, *(stance.value for stance in Stance)))
    yield from (f"policy_verdict verdict {one}" for one in VERDICTS)
