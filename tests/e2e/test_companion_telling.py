"""Events as kubectl lists them, and notifications."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from lab.harness.adapter import AdapterProcess
from lab.harness.client import Client, Object
from lab.harness.companion import CompanionProcess
from lab.harness.prometheus import HttpThread, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeCompanion
from tests.e2e.kit import Load, prometheus_settings, query_watermarks, wait_finding

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
RIGHTS = ("status", "events")


class Hook(HttpThread):
    """A webhook that records the messages it receives."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        taken = self.taken

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the library's name for it
                pass

        super().__init__(Handler)

    def settings(self) -> dict[str, Any]:
        """Settings with a route to this webhook for all policies; titles begin with the severity."""
        url = f"json://127.0.0.1:{self.port}/hook"
        words = {"title": "$severity $event", "template": "$text"}
        route = {"name": "hook", "urls": [url], "default": True, "namespaces": ["*"], **words}
        return {"notifications": {"routes": [route]}}

    def of(self, title: str) -> list[str]:
        """The texts received under this title."""
        return [one["message"] for one in self.taken if one["title"] == title]

    def wait(self, title: str, count: int = 1, timeout: float = 40) -> list[str]:
        until(lambda: len(self.of(title)) >= count, timeout, lambda: f"not {count} times {title!r}: {self.taken}")
        return self.of(title)


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as made:
        yield made


def events(client: Client, namespace: str, policy: str, reason: str) -> list[Object]:
    """The Events about a policy for this reason, as events.k8s.io has them."""
    found = client.list(EVENTS.format(namespace))
    about = ("WatermarkPolicy", policy)
    return [
        one
        for one in found
        if (one["regarding"]["kind"], one["regarding"]["name"]) == about and one["reason"] == reason
    ]


def wait_event(workloads: Workloads, reason: str, policy: str = "web", timeout: float = 40) -> Object:
    def found() -> list[Object]:
        return events(workloads.client, workloads.namespace, policy, reason)

    until(lambda: bool(found()), timeout, lambda: f"no {reason}: {workloads.events(policy)}")
    return found()[0]


def test_a_real_scaling_is_an_event_and_a_notification(
    adapter: AdapterProcess,
    make_companion: MakeCompanion,
    workloads: Workloads,
    load: Load,
    shared_prometheus: Prometheus,
    hook: Hook,
) -> None:
    workloads.deployment("web", 5)
    load.each("web", 100)
    workloads.policy("web", [query_watermarks("load", "120", "40")])
    workloads.hpa("web", up_window=5)  # so that the companion, which reads for itself, knows the load before it acts
    companion = make_companion(prometheus_settings(shared_prometheus) | {"companion": hook.settings()}, rights=RIGHTS)
    companion.wait_leading()
    wait_finding(workloads, "Ready", "Decided")
    load.each("web", 150)
    workloads.wait_replicas("web", 7)
    event = wait_event(workloads, "Scaled")
    assert (event["type"], event["action"], event["reportingController"]) == (
        "Normal",
        "Scale",
        "effective-load.io/companion",
    )
    assert event["note"].startswith("from 5 to 7 by the HPA: load: 5 pods use 150 on average, above the high watermark")
    # `kubectl describe` reads the older form of the same object.
    assert any(text.startswith("Scaled: from 5 to 7") for text in workloads.events("web"))
    (text,) = hook.wait("info scaled")
    assert text.startswith("from 5 to 7 by the HPA: load: 5 pods use 150")
    assert len(events(workloads.client, workloads.namespace, "web", "Scaled")) == 1


def test_events_name_who_changed_the_count_and_how(
    adapter: AdapterProcess, companion: CompanionProcess, workloads: Workloads, load: Load
) -> None:
    workloads.deployment("web", 5)
    load.each("web", 100)
    workloads.policy("web", [query_watermarks("load", "120", "40")])
    workloads.hpa("web", minimum=4)
    wait_finding(workloads, "Ready", "Decided")
    workloads.scale("web", 6)
    until(lambda: len(scaled(workloads)) >= 1, 40, lambda: str(scaled(workloads)))
    workloads.scale("web", 2)
    until(lambda: len(scaled(workloads)) >= 3, 40, lambda: str(scaled(workloads)))
    notes = scaled(workloads)
    # An HPA that read 5 pods and then the metric of 6 sets 6 as well: then both names are true.
    assert any(note.startswith("from 5 to 6 by ") for note in notes), notes
    assert any(note.startswith("from 6 to 2 by ") and "the HPA" not in note for note in notes), notes
    assert any(note.startswith("from 2 to 4 by the HPA: ") for note in notes), notes


def scaled(workloads: Workloads) -> list[str]:
    """The notes of the Events about scalings of web."""
    return [one["note"] for one in events(workloads.client, workloads.namespace, "web", "Scaled")]
