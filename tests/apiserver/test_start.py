"""The first seconds of a real server: early requests get a 503, never a 404."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self

import pytest

from lab.harness.adapter import AdapterProcess, install_crds
from lab.harness.client import Client, Object, Response
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads, cpu_watermarks, until

pytestmark = pytest.mark.integration

STARTS = 5
POLICIES = 30
USER = ("system:serviceaccount:kube-system:horizontal-pod-autoscaler", "system:masters")
SETTINGS = {
    "prometheus": {
        "servers": [{"name": "gone", "url": "http://127.0.0.1:1"}],
        "queries": [{"name": "depth", "server": "gone", "query": "sum by (namespace) (depth)", "scope": "Service"}],
    }
}


@pytest.fixture(scope="module")
def shop(api_server: ControlPlane) -> Workloads:
    """Policies with their HPAs and Deployments, without pods."""
    install_crds(api_server)
    api_server.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "starts"}})
    made = Workloads(api_server, "starts")
    for index in range(POLICIES):
        made.policy(f"web-{index}", [cpu_watermarks("1200m", "400m")])
        made.hpa(f"web-{index}")
        api_server.client.create(deployment(f"web-{index}"))
    return made


def deployment(name: str) -> Object:
    pod = {"containers": [{"name": "app", "image": "app"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "starts"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    }


@pytest.fixture
def adapter(api_server: ControlPlane, shop: Workloads) -> Iterator[AdapterProcess]:
    """A registered server that is not started yet."""
    process = AdapterProcess(api_server, SETTINGS, external=True, name="adapter-starts")
    process.register()
    for path in paths().values():  # the API server learns of what it has stored from a watch of its own
        until(lambda path=path: api_server.client.raw(path).status == 503, 30, lambda path=path: path)
    yield process
    process.close()
    api_server.watched.remove(process.component)


class Askers:
    """One thread per path that sends requests in a row, from before the port opens."""

    def __init__(self) -> None:
        self.answers: dict[str, Counter[tuple[int, str]]] = {}
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []

    def ask(self, name: str, client: Client, path: str) -> None:
        seen = self.answers.setdefault(name, Counter())

        def loop() -> None:
            while not self._end.wait(0.002):
                with contextlib.suppress(OSError):  # the port is not open yet
                    answer = client.raw(path, timeout=5)
                    seen[answer.status, sentence(answer)] += 1

        self._threads.append(threading.Thread(target=loop))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def codes(self, name: str) -> set[int]:
        return {code for code, _ in self.answers[name]}


def sentence(answer: Response) -> str:
    """The Status's message, empty for a value; the aggregator's own refusal is plain text."""
    try:
        return str(answer.json().get("message", ""))
    except ValueError:
        return answer.text


def paths() -> dict[str, str]:
    """Requests for a policy's count, its target's, an External metric and a query; for the last of each by name."""
    custom = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/starts"
    external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/starts"
    last = f"web-{POLICIES - 1}"
    return {
        "policy": f"{custom}/watermarkpolicies.effective-load.io/{last}/effective_pods",
        "target": f"{custom}/deployments.apps/{last}/effective_pods",
        "external": f"{external}/effective_pods?labelSelector=policy%3D{last}",
        "query": f"{external}/depth",
    }


def started(adapter: AdapterProcess) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            return bool(adapter.get("/readyz").status == 200)
        except OSError:
            return False

    return ready


@pytest.mark.parametrize("start", range(STARTS))
def test_requests_from_the_first_moment_on_get_503_and_then_answers(
    api_server: ControlPlane, adapter: AdapterProcess, start: int
) -> None:
    askers = Askers()
    for name, path in paths().items():
        askers.ask(f"{name}, directly", api_server.as_aggregator(adapter.port, *USER), path)
        askers.ask(f"{name}, through the aggregator", api_server.client, path)
    with askers:
        adapter.component.start()
        until(started(adapter), 60, adapter.logs)
        answered = {name for name in askers.answers if not name.startswith("query")}
        until(lambda: all(200 in askers.codes(name) for name in answered), 30, lambda: str(askers.answers))
        time.sleep(1)  # whatever comes late: what is found out after the first answer
    wrong = {name: [one for one in seen if one[0] not in {200, 503}] for name, seen in askers.answers.items()}
    assert {name: found for name, found in wrong.items() if found} == {}
