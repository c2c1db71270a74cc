"""The catalogue: what is broken, how it is mended, and how long the right answers may take to return."""

import contextlib
import datetime as dt
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.usage.promql import INPUT_PREFIX
from lab.chaos.proxies import Falsify, FalsifyingProxy
from lab.chaos.scene import Scene, freeze, thaw
from lab.harness.adapter import NAMESPACE as ADAPTER_NAMESPACE
from lab.harness.companion import CompanionProcess
from lab.harness.pki import Authority
from lab.harness.processes import Component, LocalServer
from lab.harness.workloads import until

RECOVERY_SECONDS = 15.0
HOUR = 3600.0

Break = Callable[[Any], AbstractContextManager[None]]
"""Breaks something of a scene on entry and mends it on exit."""


@dataclass(frozen=True)
class Scenario:
    """A fault. `hold`: seconds that it lasts. `answers`: whether the adapter itself can answer meanwhile. `recovery`:
    seconds from its end until all answers are right again. `root`: only root can break it.
    """

    name: str
    what: str
    broken: Break
    hold: float = 5.0
    answers: bool = True
    recovery: float = RECOVERY_SECONDS
    root: bool = False


def _mended(broken: Callable[[Scene], object], mend: Callable[[Scene], object]) -> Break:
    """Two steps: what breaks it and what mends it."""

    @contextmanager
    def both(scene: Scene) -> Iterator[None]:
        broken(scene)
        try:
            yield
        finally:
            mend(scene)

    return both


# --- processes ---


def _frozen(process: Callable[[Scene], Component]) -> Break:
    """It keeps its connections and does not answer."""
    return _mended(lambda scene: freeze(process(scene)), lambda scene: thaw(process(scene)))


def _killed(server: Callable[[Scene], LocalServer]) -> Break:
    return _mended(lambda scene: server(scene).kill(), lambda scene: server(scene).resume())


def _emptied(server: Callable[[Scene], LocalServer], after: Callable[[Scene], object] = lambda _: None) -> Break:
    """A server is killed and starts again without its data; `after` ends it."""

    def empty(scene: Scene) -> None:
        server(scene).kill()
        server(scene).wipe()
        server(scene).resume()

    return _mended(empty, after)


def _component_killed(name: str) -> Break:
    return _mended(lambda scene: scene.cluster.kill(name), lambda scene: scene.cluster.start_component(name))


def _set(target: Callable[[Scene], object], name: str, broken: object, well: object) -> Break:
    """An attribute of something in the scene has another value meanwhile."""
    return _mended(lambda scene: setattr(target(scene), name, broken), lambda scene: setattr(target(scene), name, well))


def _slow(proxy: Callable[[Scene], FalsifyingProxy]) -> Break:
    return _set(proxy, "slow", 3.0, 0.0)


def _false(proxy: Callable[[Scene], FalsifyingProxy], falsify: Falsify) -> Break:
    return _set(proxy, "falsify", falsify, None)


# --- the adapter and its companions ---


def _start(scene: Scene) -> None:
    scene.adapter.component.start()
    scene.adapter.component.wait_ready(30)


@contextmanager
def _adapter_restarted(scene: Scene) -> Iterator[None]:
    yield
    scene.adapter.component.stop()
    _start(scene)


def _leader(scene: Scene) -> CompanionProcess:
    until(lambda: scene.leader() is not None, 40, lambda: "no companion leads")
    leader = scene.leader()
    assert leader is not None
    return leader


@contextmanager
def _leader_lost(scene: Scene) -> Iterator[None]:
    lost = _leader(scene)
    lost.kill()
    until(lambda: scene.leader() not in {None, lost}, 30, lambda: "no other companion leads")
    yield
    lost.start()


@contextmanager
def _leader_frozen(scene: Scene) -> Iterator[None]:
    frozen = _leader(scene)
    freeze(frozen.component)
    (other,) = [companion for companion in scene.companions if companion is not frozen]
    try:
        until(lambda: other.leads, 30, lambda: "the other companion does not lead")
        yield
    finally:
        thaw(frozen.component)
    until(lambda: not frozen.leads, 10, lambda: "two companions lead")


# --- the registry ---


@contextmanager
def _all_registered_out(scene: Scene) -> Iterator[None]:
    pods = scene.serving()
    for on in (True, False):
        for pod in pods:
            with contextlib.suppress(RuntimeError):  # it may have left meanwhile
                scene.consul.maintenance(pod, on=on)
        if on:
            yield


# --- time, trust, settings, disk ---


@contextmanager
def _certificate_rotated(scene: Scene) -> Iterator[None]:
    path = f"/api/v1/namespaces/{ADAPTER_NAMESPACE}/secrets/effective-load-tls"
    before = scene.cluster.client.get(path)["data"]
    with _disk_full(scene) if os.geteuid() == 0 else contextlib.nullcontext():
        scene.cluster.client.patch(path, {"data": dict.fromkeys(before)})
        yield
        until(  # the Secret is looked at once a minute
            lambda: (scene.cluster.client.get(path).get("data") or {}).get("tls.crt") not in {None, before["tls.crt"]},
            90,
            lambda: "no new certificate was written",
        )


@contextmanager
def _front_proxy_rotated(scene: Scene) -> Iterator[None]:
    """The cluster's front proxy gets another CA as Kubernetes documents it: first both are trusted, then the client."""
    pki = scene.cluster.pki
    trusted, client = pki.front_proxy.file, pki.front_proxy_client
    new = Authority(pki.folder, "front-proxy-ca-new")
    with _kept(trusted, client.cert_file, client.key_file):
        trusted.write_bytes(trusted.read_bytes() + new.certificate)
        # The API server adds to the CAs that it publishes, and takes none away before it expires.
        path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
        until(
            lambda: (
                new.certificate.decode().strip()
                in scene.cluster.client.get(path)["data"]["requestheader-client-ca-file"]
            ),
            90,
            lambda: "the API server does not publish the new CA",
        )
        renewed = new.issue("front-proxy-client", file="front-proxy-client-new")
        client.key_file.write_bytes(renewed.key)
        client.cert_file.write_bytes(renewed.certificate)
        scene.rise(RECOVERY_SECONDS)
        yield


@contextmanager
def _kept(*files: Path) -> Iterator[None]:
    """Restores these files."""
    contents = {file: file.read_bytes() for file in files}
    try:
        yield
    finally:
        for file, content in contents.items():
            file.write_bytes(content)


@contextmanager
def _disk_full(scene: Scene) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", scene.small_disk], check=True)
    try:
        with contextlib.suppress(OSError):
            (scene.small_disk / "full").write_bytes(b"0" * 65536)
        yield
    finally:
        subprocess.run(["umount", "-l", scene.small_disk], check=True)


def _clock(seconds: float) -> Break:
    return _mended(lambda scene: scene.step_clock(seconds), lambda scene: scene.step_clock(0))


# --- how a load source can be wrong, Prometheus and metrics-server in the same ways ---


def _missing(step: int = 0) -> Falsify:
    """Only every so many-th series or pod is there; with 0 none."""

    def falsify(_asked: str, answer: Any) -> Any:
        if isinstance(answer, dict):
            for holder, name in ((answer.get("data", {}), "result"), (answer, "items")):
                if holder.get(name):
                    holder[name] = holder[name][::step] if step else []
        return answer

    return falsify


def _other(value: Callable[[float], str] = str, seconds: float = 0.0, step: int = 1) -> Falsify:
    """Every so many-th series or pod has another value, and a time that is ahead; `value` makes it of the former one,
    or of a whole core and of a byte for a pod of metrics-server.
    """

    def falsify(asked: str, answer: Any) -> Any:
        for series in list(_series(answer))[::step]:
            former, labels = float(series["value"][1]), series["metric"].items()
            asks = next((mark for label, mark in labels if label.startswith(INPUT_PREFIX)), "")
            if not asks.startswith("count"):
                series["value"][1] = str(former + seconds) if asks else value(former)
        for pod in list(_pods(asked, answer))[::step]:
            moment = dt.datetime.fromisoformat(pod["timestamp"]) + dt.timedelta(seconds=seconds)
            pod["timestamp"] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
            for container in pod["containers"] if value is not str else ():
                container["usage"] = dict.fromkeys(container["usage"], value(1.0))
        return answer

    return falsify


def _series(answer: Any) -> Iterator[dict[str, Any]]:
    yield from answer.get("data", {}).get("result", []) if isinstance(answer, dict) else ()


def _pods(asked: str, answer: Any) -> Iterator[dict[str, Any]]:
    yield from answer.get("items", []) if "/pods" in asked and isinstance(answer, dict) else ()


def _quarter(load: float) -> str:
    return str(load / 4)


def _metrics(scene: Scene) -> FalsifyingProxy:
    return scene.metrics_proxy


def _prometheus(scene: Scene) -> FalsifyingProxy:
    return scene.prometheus_proxy


SCENARIOS = (
    Scenario("adapter-killed", "kill -9", _mended(lambda scene: scene.adapter.kill(), _start), answers=False),
    Scenario(
        "adapter-frozen", "stopped for 5 s, then goes on", _frozen(lambda scene: scene.adapter.component), answers=False
    ),
    Scenario("adapter-restarted", "SIGTERM and a new process", _adapter_restarted, answers=False),
    Scenario("leader-lost", "the companion that leads is killed", _leader_lost, hold=1),
    Scenario("leader-frozen", "the companion that leads is stopped until another leads", _leader_frozen, hold=1),
    Scenario(
        "api-server-restarted",
        "kube-apiserver is killed and starts again",
        _component_killed("kube-apiserver"),
        # The HPA controller of 1.36 does nothing until its watch has shown its own last write ("read version 7 is not
        # as new as written version 9"), and a client-go watch waits 30 s and as much again by chance at most before it
        # connects again, after a second restart within two minutes.
        recovery=RECOVERY_SECONDS + 60,
    ),
    Scenario("etcd-paused", "etcd is stopped", _frozen(lambda scene: scene.cluster.components["etcd"]), hold=8),
    Scenario(
        "connections-cut",
        "open connections to the API server pass nothing",
        _mended(lambda scene: scene.server_proxy.silence(), lambda scene: scene.server_proxy.reset()),
        hold=10,
    ),
    Scenario(
        "requests-delayed",
        "2 % of what passes to and from the API server waits 3 s",
        _set(lambda scene: scene.server_proxy, "delayed", 0.02, 0.0),
        hold=10,
    ),
    Scenario("prometheus-gone", "Prometheus is killed", _killed(lambda scene: scene.prometheus)),
    Scenario(
        "prometheus-frozen", "Prometheus accepts and does not answer", _frozen(lambda scene: scene.prometheus.component)
    ),
    Scenario(
        "prometheus-emptied", "Prometheus starts again without its data", _emptied(lambda scene: scene.prometheus)
    ),
    Scenario("prometheus-slow", "each answer takes 3 s", _slow(_prometheus), hold=8),
    Scenario("prometheus-zeros", "every other pod has load 0", _false(_prometheus, _other(lambda _: "0", step=2))),
    Scenario("prometheus-halves", "every other pod has no series", _false(_prometheus, _missing(2))),
    Scenario("prometheus-empty", "no series", _false(_prometheus, _missing())),
    Scenario("prometheus-nan", "every value is NaN", _false(_prometheus, _other(lambda _: "NaN"))),
    Scenario("prometheus-future", "its clock is an hour ahead", _false(_prometheus, _other(seconds=HOUR))),
    Scenario("prometheus-old", "a quarter of the load, ten minutes ago", _false(_prometheus, _other(_quarter, -600))),
    Scenario(
        "metrics-server-gone",
        "metrics-server is killed",
        _component_killed("metrics-server"),
        recovery=2 * RECOVERY_SECONDS + 10,  # it needs two scrapes, 10 s apart, after its start
    ),
    Scenario("metrics-server-slow", "each answer takes 3 s", _slow(_metrics), hold=8),
    Scenario(
        "metrics-server-zeros", "every other pod uses nothing", _false(_metrics, _other(lambda _: "0", step=2)), hold=12
    ),
    Scenario("metrics-server-halves", "every other pod is missing", _false(_metrics, _missing(2))),
    Scenario("metrics-server-future", "its clock is an hour ahead", _false(_metrics, _other(seconds=HOUR))),
    Scenario("metrics-server-old", "a quarter, ten minutes ago", _false(_metrics, _other(_quarter, -600))),
    Scenario("consul-restarted", "Consul is killed and starts again", _killed(lambda scene: scene.consul)),
    Scenario("consul-frozen", "Consul accepts and does not answer", _frozen(lambda scene: scene.consul.component)),
    Scenario(
        "consul-emptied",
        "Consul starts again without its data",
        _emptied(lambda scene: scene.consul, lambda scene: scene.register()),
        hold=10,
    ),
    Scenario("all-pulled-out", "every pod is in maintenance", _all_registered_out),
    Scenario("clock-ahead", "the adapter's clock jumps an hour ahead", _clock(HOUR)),
    Scenario("clock-behind", "the adapter's clock jumps an hour back", _clock(-HOUR)),
    Scenario("certificate-rotated", "its Secret is emptied; its disk is full if that is allowed", _certificate_rotated),
    Scenario("front-proxy-rotated", "the front proxy's CA and certificate are replaced", _front_proxy_rotated, hold=1),
    Scenario(
        "settings-broken",
        "its settings are no YAML",
        _mended(
            lambda scene: scene.adapter.write_settings("prometheus: [1, 2\nno: yaml"),
            lambda scene: scene.adapter.configure(scene.adapter.settings),
        ),
        hold=8,
    ),
    Scenario("disk-full", "nothing can be written where it keeps temporary files", _disk_full, root=True),
)
"""In the order in which they run by default."""


def may_run(scenario: Scenario) -> bool:
    return not scenario.root or os.geteuid() == 0
