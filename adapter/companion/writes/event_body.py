"""Events as the API takes them (events.k8s.io/v1)."""

import socket
from typing import Any, NamedTuple

from adapter.companion.writes.actions import WriteEvent
from adapter.kube.api import EVENTS
from adapter.policy.watermark_policy import API_VERSION, GROUP, KIND
from adapter.runtime.times import format_micro_time

CONTROLLER = f"{GROUP}/companion"
_LONGEST_INSTANCE = 128
_INSTANCE = socket.gethostname()[:_LONGEST_INSTANCE]


class Writing(NamedTuple):
    """A request: a new Event, or the count of one that is there."""

    method: str
    path: str
    body: dict[str, Any]


def writing(action: WriteEvent) -> Writing:
    """What writes as much of the series as there is."""
    namespace, series = action.key.namespace, action.series
    repeated = {"count": series.count, "lastObservedTime": format_micro_time(series.last)}
    if series.written:
        return Writing("PATCH", EVENTS.path(namespace, series.name), {"series": repeated})
    event = _event(action) | ({"series": repeated} if series.count > 1 else {})
    return Writing("POST", EVENTS.collection(namespace), event)


def _event(action: WriteEvent) -> dict[str, Any]:
    key, target = action.key, action.target
    regarding = {"apiVersion": API_VERSION, "kind": KIND, "uid": action.uid}
    event: dict[str, Any] = {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": action.series.name, "namespace": key.namespace},
        "eventTime": format_micro_time(action.series.first),
        "type": "Warning" if action.subject.warning else "Normal",
        "reason": action.subject.reason,
        "action": action.series.action,
        "note": action.series.note,
        "regarding": regarding | key._asdict(),
        "reportingController": CONTROLLER,
        "reportingInstance": _INSTANCE,
    }
    if target is not None:
        event["related"] = {
            "apiVersion": target.api_version,
            "kind": target.kind,
            "uid": target.uid,
            "namespace": key.namespace,
            "name": target.name,
        }
    return event
