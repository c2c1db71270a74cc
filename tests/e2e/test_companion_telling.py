"""Events as kubectl lists them, notifications, differing versions, and modes."""

import datetime as dt
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lab.harness.client import Client, Object
from lab.harness.companion import CompanionProcess
from lab.harness.control_plane import ControlPlane
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads, until
from tests.e2e.conftest import Laws, MakeAdapter, MakeCompanion
from tests.e2e.kit import CALM, PULLED_OUT, Load, prometheus_settings, query_watermarks

POLICIES = "/apis/effective-load.io/v1alpha1/namespaces/{}/watermarkpolicies/{}"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
RIGHTS = ("status", "events")


class Hook:
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

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def settings(self, *others: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Settings with a route to this webhook for all policies, after `others`; titles begin with the severity."""
        url = f"json://127.0.0.1:{self.server.server_port}/hook"
        words = {"title": "$severity $event", "template": "$text"}
        route = {"name": "hook", "urls": [url], "default": True, "namespaces": ["*"], **words}
        return {"notifications": {"routes": [*others, route]}, **more}

    def of(self, title: str) -> list[str]:
        """The texts received under this title."""
        return [one["message"] for one in self.taken if one["title"] == title]

    def wait(self, title: str, count: int = 1, timeout: float = 40) -> list[str]:
        until(lambda: len(self.of(title)) >= count, timeout, lambda: f"not {count} times {title!r}: {self.taken}")
        return self.of(title)


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


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


def condition(client: Client, path: str, type_: str) -> tuple[str, str, str]:
    """Status, reason and message of a policy's condition; empty where it has none."""
    conditions = client.get(path).get("status", {}).get("conditions", [])
    found: Object = next((one for one in conditions if one["type"] == type_), {})
    return found.get("status", ""), found.get("reason", ""), found.get("message", "")


def wait_condition(workloads: Workloads, type_: str, reason: str, timeout: float = 40) -> tuple[str, str, str]:
    path = POLICIES.format(workloads.namespace, "web")
    until(
        lambda: condition(workloads.client, path, type_)[1] == reason,
        timeout,
        lambda: f"{type_} is not {reason}: {condition(workloads.client, path, type_)}",
    )
    return condition(workloads.client, path, type_)


def wait_mode(companion: CompanionProcess, workloads: Workloads, mode: str) -> None:
    """Waits until the metrics show the policy in this mode."""
    series = f'effective_load_policy_mode{{mode="{mode}",namespace="{workloads.namespace}",policy="web"}}'
    until(lambda: companion.metric(series) == 1, 30, lambda: f"not in mode {mode}")


def test_a_real_scaling_is_an_event_and_a_notification(
    make_adapter: MakeAdapter,
    make_companion: MakeCompanion,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
    hook: Hook,
) -> None:
    load = Load(exporter, workloads)
    workloads.deployment("web", 5)
    load.each("web", 100)
    workloads.policy("web", [query_watermarks("load", "120", "40")])
    workloads.hpa("web", up_window=5)  # so that the companion, which reads for itself, knows the load before it acts
    make_adapter(prometheus_settings(prometheus))
    companion = make_companion(prometheus_settings(prometheus) | {"companion": hook.settings()}, rights=RIGHTS)
    companion.wait_leading()
    wait_condition(workloads, "Ready", "Decided")
    load.each("web", 150)
    workloads.wait_replicas("web", 7)
    event = wait_event(workloads, "Scaled")
    assert (event["type"], event["action"], event["reportingController"]) == (
        "Normal",
        "Scale",
        "effective-load.io/companion",
    )
    assert event["note"].startswith("from 5 to 7 by the HPA: load: 5 pods use 150 on average, above the high watermark")
    assert event["related"]["kind"] == "Deployment"
    # `kubectl describe` reads the older form of the same object.
    assert any(text.startswith("Scaled: from 5 to 7") for text in workloads.events("web"))
    (text,) = hook.wait("info scaled")
    assert text.startswith("scaled from 5 to 7 by the HPA: load: 5 pods use 150")
    assert len(events(workloads.client, workloads.namespace, "web", "Scaled")) == 1


def test_each_change_of_the_mode_is_in_status_metrics_and_events(
    make_companion: MakeCompanion, workloads: Workloads, laws: Laws
) -> None:
    workloads.deployment("web", 2, usage_cpu="200m")
    workloads.policy("web", [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "900m"}])
    workloads.hpa("web")
    path = POLICIES.format(workloads.namespace, "web")
    companion = make_companion(laws.over({}), rights=RIGHTS, command=laws.run("companion"))
    companion.wait_leading()
    wait_condition(workloads, "Active", "Deciding")
    for mode in ("Paused", "Active") * 3:
        workloads.client.patch(path, {"spec": {"mode": mode}})
        wait_mode(companion, workloads, mode)
    workloads.client.patch(path, {"spec": {"mode": "Observe"}})
    assert wait_condition(workloads, "Active", "Observed")[0] == "False"
    wait_mode(companion, workloads, "Observe")
    assert wait_event(workloads, "Observed")["type"] == "Normal"
    until_time = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=25)
    held = {"effective-load.io/hold-until": until_time.strftime("%Y-%m-%dT%H:%M:%SZ")}
    workloads.client.patch(path, {"metadata": {"annotations": held}, "spec": {"mode": "Active"}})
    message = wait_condition(workloads, "Active", "Held", 20)[2]
    assert message.startswith(f"held until {held['effective-load.io/hold-until']}")
    wait_mode(companion, workloads, "Held")
    wait_event(workloads, "Held")
    wait_condition(workloads, "Active", "Deciding", 60)
    wait_mode(companion, workloads, "Active")

    def pauses() -> int:
        return len(events(workloads.client, workloads.namespace, "web", "Paused"))

    until(lambda: pauses() == 3, 40, lambda: f"{pauses()} Events of reason Paused")


def test_versions_that_serve_side_by_side_are_named_and_notified(
    make_companion: MakeCompanion, workloads: Workloads, hook: Hook
) -> None:
    workloads.deployment("web", 4, usage_cpu="200m", max_surge=2, max_unavailable=0)
    workloads.policy("web", [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "900m"}])
    workloads.hpa("web")
    labels = {"metadata": {"labels": {"stage": "production"}}}
    workloads.client.patch(f"/api/v1/namespaces/{workloads.namespace}", labels)
    settings = hook.settings(versionMismatchSeconds=5, production={"label": "stage=production"})
    companion = make_companion({"companion": settings}, rights=(*RIGHTS, "namespaces"))
    companion.wait_leading()
    assert wait_condition(workloads, "VersionsConsistent", "OneVersion")[0] == "True"
    # The new pods are Ready and never available, so the rollout does not continue.
    image = {"containers": [{"name": "app", "image": "shop/web:1.4.2"}]}
    change = {"spec": {"minReadySeconds": 3600, "progressDeadlineSeconds": 7200, "template": {"spec": image}}}
    workloads.client.patch(workloads.path("web"), change, "strategic")
    until(lambda: len(workloads.pods("web")) == 6, 30, lambda: "no surge")
    workloads.client.patch(workloads.path("web"), {"spec": {"paused": True}})
    status, _, message = wait_condition(workloads, "VersionsConsistent", "VersionMismatch")
    assert status == "False"
    assert message.startswith("the serving pods run 2 versions: ")
    assert "4 pods)" in message
    assert "1.4.2 (" in message
    assert "2 pods)" in message
    (text,) = hook.wait("critical versionMismatch")
    assert text == message
    assert wait_event(workloads, "VersionMismatch")["type"] == "Warning"
    assert workloads.client.get(POLICIES.format(workloads.namespace, "web"))["status"]["notified"] == [
        "versionMismatch"
    ]
    workloads.client.patch(workloads.path("web"), {"spec": {"paused": False, "minReadySeconds": 0}})
    wait_condition(workloads, "VersionsConsistent", "OneVersion", 60)
    assert len(hook.of("critical versionMismatch")) == 1


@pytest.mark.timeout(420)
def test_each_problem_and_the_return_of_data_is_notified_once(
    make_companion: MakeCompanion,
    workloads: Workloads,
    exporter: Exporter,
    prometheus: Prometheus,
    hook: Hook,
    laws: Laws,
) -> None:
    load = Load(exporter, workloads)
    workloads.deployment("web", 4)
    load.each("web", 100)
    workloads.policy("web", [query_watermarks("load", "120", "40")])
    workloads.hpa("web", maximum=4)
    settings = prometheus_settings(prometheus) | {"companion": hook.settings()}
    make_companion(laws.over(settings), rights=RIGHTS).wait_leading()
    wait_condition(workloads, "InputsFresh", "SamplesFresh")
    load.each("web", 200)
    (text,) = hook.wait("warning atMaximum", timeout=60)
    assert text.startswith("more is needed than the HPA's maximum of 4: load: 4 pods use 200")
    load.each("web", 100)
    pods = workloads.pod_names("web")[:2]
    for pod in pods:
        workloads.annotate(pod, {PULLED_OUT: "true"})
    (text,) = hook.wait("critical massPullOut")
    assert text.startswith(f"2 of 4 running pods are pulled out; {pods[0]}: ")
    for pod in pods:
        workloads.annotate(pod, {PULLED_OUT: None})
    load.each("web", 0, but=dict.fromkeys(workloads.pod_names("web")))
    (text,) = hook.wait("warning dataLost", timeout=110)
    assert text.startswith("query load has no fresh sample")
    assert wait_event(workloads, "InputsMissing")["type"] == "Warning"
    assert hook.of("info dataRecovered") == []
    load.each("web", 100)
    hook.wait("info dataRecovered", timeout=60)
    assert sorted(one["title"] for one in hook.taken) == [
        "critical massPullOut",
        "info dataRecovered",
        "warning atMaximum",
        "warning dataLost",
    ]


def test_a_receiver_that_hangs_delays_neither_other_receivers_nor_shutdown(
    make_companion: MakeCompanion, workloads: Workloads, hook: Hook, laws: Laws
) -> None:
    workloads.deployment("web", 2, usage_cpu="200m")
    workloads.policy("web", [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "900m"}])
    workloads.hpa("web", behavior=CALM)  # otherwise it may set our count once more, and call it its own
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts connections and never answers
        silent.settimeout(30)
        url = f"json://127.0.0.1:{silent.getsockname()[1]}/hook?rto=60"
        hanging = {"name": "hanging", "urls": [url], "default": True, "namespaces": ["*"], "timeoutSeconds": 60}
        settings = {"companion": hook.settings(hanging)}
        companion = make_companion(laws.over(settings), rights=RIGHTS)
        companion.wait_leading()
        path = POLICIES.format(workloads.namespace, "web")
        workloads.client.wait_for(path, lambda one: one.get("status", {}).get("current") == 2, 30)
        workloads.scale("web", 3)
        hook.wait("info scaled")
        connection, _ = silent.accept()
        with connection:
            workloads.scale("web", 4)
            assert hook.wait("info scaled", 2) == ["scaled from 2 to 3", "scaled from 3 to 4"]
            sent = 'effective_load_notifications_total{result="sent",route="hook"}'
            until(lambda: (companion.metric(sent) or 0) >= 2, 10, companion.metrics)
            began = time.monotonic()
            companion.stop()
            assert time.monotonic() - began < 5
    assert companion.component.process is not None
    assert companion.component.process.returncode == 0


def test_a_new_leader_notifies_new_events_and_repeats_none(
    make_companion: MakeCompanion, workloads: Workloads, hook: Hook
) -> None:
    workloads.deployment("web", 2, usage_cpu="200m")
    workloads.policy("web", [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "900m"}])
    workloads.hpa("web", minimum=1, maximum=9, behavior=CALM)
    path = POLICIES.format(workloads.namespace, "web")
    settings = {"companion": hook.settings()}
    first = make_companion(settings, rights=RIGHTS)
    first.wait_leading()
    wait_condition(workloads, "Active", "Deciding")
    workloads.scale("web", 3)
    assert hook.wait("info scaled") == ["scaled from 2 to 3"]
    workloads.client.wait_for(path, lambda one: one["status"].get("current") == 3, 30)
    second = make_companion(settings, rights=RIGHTS)
    first.kill()
    workloads.scale("web", 4)
    second.wait_leading(40)
    assert hook.wait("info scaled", 2) == ["scaled from 2 to 3", "scaled from 3 to 4"]
    until(lambda: sorted(notes(workloads)) == ["from 2 to 3", "from 3 to 4"], 40, lambda: f"Events: {notes(workloads)}")


def notes(workloads: Workloads) -> list[str]:
    """What the Events about a change of the count say."""
    return [one["note"] for one in events(workloads.client, workloads.namespace, "web", "Scaled")]


def test_without_the_right_for_events_other_features_work_and_retries_back_off(
    make_companion: MakeCompanion, control_plane: ControlPlane, workloads: Workloads
) -> None:
    workloads.deployment("web", 2, usage_cpu="200m")
    workloads.policy("web", [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "900m"}])
    workloads.hpa("web")
    companion = make_companion(rights=("status",))
    companion.wait_leading()
    wait_condition(workloads, "Active", "Deciding")
    workloads.client.patch(POLICIES.format(workloads.namespace, "web"), {"spec": {"mode": "Paused"}})
    wait_condition(workloads, "Active", "Paused")
    until(lambda: companion.writes("WriteEvent", "Forbidden") >= 1, 20, companion.logs)
    workloads.client.patch(POLICIES.format(workloads.namespace, "web"), {"spec": {"mode": "Active"}})
    wait_condition(workloads, "Active", "Deciding")
    assert companion.writes("WriteEvent", "Forbidden") <= 8
    assert companion.writes("WriteEvent") == 0
    log = [line for line in companion.logs(500).splitlines() if "WriteEvent" in line]
    assert len(log) == 1
