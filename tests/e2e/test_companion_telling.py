"""Events as kubectl lists them, and notifications."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from lab.harness.adapter import AdapterProcess
from lab.harness.client import Object
from lab.harness.prometheus import HttpThread, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import MakeCompanion
from tests.e2e.kit import Load, prometheus_settings, wait_finding

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


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as made:
        yield made


def scalings(workloads: Workloads) -> list[Object]:
    """The Events about scalings of web, as events.k8s.io has them."""
    found = workloads.client.list(EVENTS.format(workloads.namespace))
    return [one for one in found if (one["regarding"]["name"], one["reason"]) == ("web", "Scaled")]


def test_each_scaling_is_an_event_that_names_its_author_and_a_notification(
    adapter: AdapterProcess,
    make_companion: MakeCompanion,
    workloads: Workloads,
    load: Load,
    shared_prometheus: Prometheus,
    hook: Hook,
) -> None:
    # So late that the companion, which reads for itself, knows the load before the HPA acts.
    load.serve(5, each=100, marks=("120", "40"), hpa={"minimum": 4, "up_window": 5})
    companion = make_companion(prometheus_settings(shared_prometheus) | {"companion": hook.settings()}, rights=RIGHTS)
    companion.wait_leading()
    wait_finding(workloads, "Ready", "Decided")
    load.each("web", 150)
    workloads.wait_replicas("web", 7)
    until(lambda: scalings(workloads), 40, lambda: f"no Event: {workloads.events('web')}")
    [event] = scalings(workloads)
    assert (event["type"], event["action"], event["reportingController"]) == (
        "Normal",
        "Scale",
        "effective-load.io/companion",
    )
    assert event["note"].startswith("from 5 to 7 by the HPA: load: 5 pods use 150 on average, above the high watermark")
    # `kubectl describe` reads the older form of the same object.
    assert any(text.startswith("Scaled: from 5 to 7") for text in workloads.events("web"))
    until(lambda: hook.taken, 40, lambda: "no notification")
    assert hook.taken[0]["title"] == "info scaled"
    assert hook.taken[0]["message"].startswith("from 5 to 7 by the HPA: load: 5 pods use 150")
    load.each("web", 100)
    workloads.scale("web", 2)
    until(lambda: len(scalings(workloads)) >= 3, 40, lambda: str(scalings(workloads)))
    notes = [one["note"] for one in scalings(workloads)]
    assert any(note.startswith("from 7 to 2 by ") and "the HPA" not in note for note in notes), notes
    assert any(note.startswith("from 2 to 4 by the HPA: ") for note in notes), notes
