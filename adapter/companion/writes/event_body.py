"""Events as the API takes them (events.k8s.io/v1)."""

import socket
from typing import Any, NamedTuple

from adapter.companion.writes.actions import WriteEvent
from adapter.kube.paths import collection, path
from adapter.runtime.times import format_micro_time

EVENTS = ("events.k8s.io/v1", "events")
CONTROLLER = "effective-load.io/companion"
_LONGEST_INSTANCE = 128
_INSTANCE = socket.gethostname()[:_LONGEST_INSTANCE]


class EventRequest(NamedTuple):
    """A request: to create an Event, or to write the count of an existing one."""

    method: str
    path: str
    body: dict[str, Any]


def event_request(action: WriteEvent) -> EventRequest:
    """The request that writes a series as it is now."""
    events, series = collection(*EVENTS, action.key.namespace), action.series
    repeated = {"count": series.count, "lastObservedTime": format_micro_time(series.last)}
    if series.written:
        return EventRequest("PATCH", events + path(series.name), {"series": repeated})
    event = _event(action) | ({"series": repeated} if series.count > 1 else {})
    return EventRequest("POST", events, event)


def _event(action: WriteEvent) -> dict[str, Any]:
    key, target = action.key, action.target
    regarding = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy", "uid": action.uid}
    event: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
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
