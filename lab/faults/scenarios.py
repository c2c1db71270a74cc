"""The catalogue: what is broken, how it is mended, and how long the right answers may take to return."""

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.faults import falsehoods
from lab.faults.proxies import Falsify, FalsifyingProxy
from lab.faults.scene import Scene, freeze, thaw
from lab.harness.adapter import NAMESPACE as ADAPTER_NAMESPACE
from lab.harness.pki import Authority
from lab.harness.processes import Component, LocalServer
from lab.harness.workloads import until

RECOVERY_SECONDS = 15.0
HOUR = 3600.0

Break = Callable[[Scene], AbstractContextManager[None]]
"""Breaks something on entry and mends it on exit."""


@dataclass(frozen=True)
class Scenario:
    """A fault. `hold`: seconds that it lasts. `answers`: whether the adapter itself can answer meanwhile. `recovery`:
    seconds from its end until all answers are right again. `root`: only root can break it. `restarts`: the adapter is
    another process afterwards.
    """

    name: str
    what: str
    broken: Break
    hold: float = 5.0
    answers: bool = True
    recovery: float = RECOVERY_SECONDS
    root: bool = False
    restarts: bool = False


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


def _component_killed(name: str) -> Break:
    return _mended(lambda scene: scene.cluster.kill(name), lambda scene: scene.cluster.start_component(name))


# --- the adapter and its companions ---


def _start(scene: Scene) -> None:
    scene.adapter.component.start()
    scene.adapter.component.wait_ready(30)


@contextmanager
def _adapter_restarted(scene: Scene) -> Iterator[None]:
    yield
    scene.adapter.component.stop()
    _start(scene)


@contextmanager
def _leader_lost(scene: Scene) -> Iterator[None]:
    until(lambda: scene.leader() is not None, 40, lambda: "no companion leads")
    lost = scene.leader()
    assert lost is not None
    lost.kill()
    until(lambda: scene.leader() not in {None, lost}, 30, lambda: "no other companion leads")
    yield
    lost.start()


@contextmanager
def _leader_frozen(scene: Scene) -> Iterator[None]:
    until(lambda: scene.leader() is not None, 40, lambda: "no companion leads")
    frozen = scene.leader()
    assert frozen is not None
    freeze(frozen.component)
    (other,) = [one for one in scene.companions if one is not frozen]
    try:
        until(lambda: other.leads, 30, lambda: "the other companion does not lead")
        yield
    finally:
        thaw(frozen.component)
    until(lambda: not frozen.leads, 10, lambda: "two companions lead")


# --- the cluster ---


_CUT = _mended(lambda scene: scene.server_proxy.silence(), lambda scene: scene.server_proxy.reset())


@contextmanager
def _some_delayed(scene: Scene) -> Iterator[None]:
    scene.server_proxy.delayed, scene.server_proxy.seconds = 0.02, 3.0
    yield
    scene.server_proxy.delayed = 0.0


# --- load sources ---


@contextmanager
def _slow(proxy: FalsifyingProxy, seconds: float) -> Iterator[None]:
    proxy.slow = seconds
    yield
    proxy.slow = 0.0


@contextmanager
def _false(proxy: FalsifyingProxy, falsify: Falsify) -> Iterator[None]:
    proxy.falsify = falsify
    yield
    proxy.falsify = None


def _prometheus(falsify: Falsify) -> Break:
    return lambda scene: _false(scene.prometheus_proxy, falsify)


def _metrics_server(falsify: Falsify) -> Break:
    return lambda scene: _false(scene.metrics_proxy, falsify)


# --- the registry ---


@contextmanager
def _consul_emptied(scene: Scene) -> Iterator[None]:
    scene.consul.kill()
    scene.consul.wipe()
    scene.consul.resume()
    yield
    scene.register_again()


@contextmanager
def _all_registered_out(scene: Scene) -> Iterator[None]:
    pods = scene.registered_in()
    for on in (True, False):
        for pod in pods:
            with contextlib.suppress(RuntimeError):  # it may have left meanwhile
                scene.consul.maintenance(pod, on=on)
        if on:
            yield


# --- time, trust, settings, disk ---


def _clock(seconds: float) -> Break:
    return _mended(lambda scene: scene.step_clock(seconds), lambda scene: scene.step_clock(0))


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
        until(
            lambda: new.certificate.decode().strip() in _published(scene),
            90,
            lambda: "the API server does not publish the new CA",
        )
        renewed = new.issue("front-proxy-client", file="front-proxy-client-new")
        client.key_file.write_bytes(renewed.key)
        client.cert_file.write_bytes(renewed.certificate)
        scene.rise(RECOVERY_SECONDS)
        yield


def _published(scene: Scene) -> str:
    """The front proxy's CAs that the API server publishes; it adds to them and takes none away before it expires."""
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    return str(scene.cluster.client.get(path)["data"]["requestheader-client-ca-file"])


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
def _settings_broken(scene: Scene) -> Iterator[None]:
    good = scene.adapter.settings_file.read_text()
    scene.adapter.write_settings("prometheus: [1, 2\nno: yaml")
    yield
    scene.adapter.write_settings(good)


@contextmanager
def _disk_full(scene: Scene) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", scene.small_disk], check=True)
    try:
        with contextlib.suppress(OSError):
            (scene.small_disk / "full").write_bytes(b"0" * 65536)
        yield
    finally:
        subprocess.run(["umount", "-l", scene.small_disk], check=True)


SCENARIOS = (
    Scenario(
        "adapter-killed", "kill -9", _mended(lambda scene: scene.adapter.kill(), _start), answers=False, restarts=True
    ),
    Scenario(
        "adapter-frozen", "stopped for 5 s, then goes on", _frozen(lambda scene: scene.adapter.component), answers=False
    ),
    Scenario("adapter-restarted", "SIGTERM and a new process", _adapter_restarted, answers=False, restarts=True),
    Scenario("leader-lost", "the companion that leads is killed", _leader_lost, hold=1),
    Scenario("leader-frozen", "the companion that leads is stopped until another leads", _leader_frozen, hold=1),
    Scenario("api-server-restarted", "kube-apiserver is killed and starts again", _component_killed("kube-apiserver")),
    Scenario("etcd-paused", "etcd is stopped", _frozen(lambda scene: scene.cluster.components["etcd"]), hold=8),
    Scenario("connections-cut", "open connections to the API server pass nothing", _CUT, hold=10),
    Scenario("requests-delayed", "2 % of what passes to and from the API server waits 3 s", _some_delayed, hold=10),
    Scenario("prometheus-gone", "Prometheus is killed", _killed(lambda scene: scene.prometheus)),
    Scenario(
        "prometheus-frozen", "Prometheus accepts and does not answer", _frozen(lambda scene: scene.prometheus.component)
    ),
    Scenario("prometheus-slow", "each answer takes 3 s", lambda scene: _slow(scene.prometheus_proxy, 3), hold=8),
    Scenario("prometheus-zeros", "every other pod has load 0", _prometheus(falsehoods.zeros)),
    Scenario("prometheus-halves", "every other pod has no series", _prometheus(falsehoods.halves)),
    Scenario("prometheus-empty", "no series", _prometheus(falsehoods.nothing)),
    Scenario("prometheus-nan", "every value is NaN", _prometheus(falsehoods.not_numbers)),
    Scenario("prometheus-future", "its clock is an hour ahead", _prometheus(falsehoods.ahead(HOUR))),
    Scenario("prometheus-old", "a quarter of the load, ten minutes ago", _prometheus(falsehoods.old(600))),
    Scenario(
        "metrics-server-gone",
        "metrics-server is killed",
        _component_killed("metrics-server"),
        recovery=2 * RECOVERY_SECONDS + 10,  # it needs two scrapes, 10 s apart, after its start
    ),
    Scenario("metrics-server-slow", "each answer takes 3 s", lambda scene: _slow(scene.metrics_proxy, 3), hold=8),
    Scenario("metrics-server-zeros", "every other pod uses nothing", _metrics_server(falsehoods.zero_usage), hold=12),
    Scenario("metrics-server-halves", "every other pod is missing", _metrics_server(falsehoods.half_of_the_pods)),
    Scenario("metrics-server-future", "its clock is an hour ahead", _metrics_server(falsehoods.usage_ahead(HOUR))),
    Scenario("metrics-server-old", "a quarter, ten minutes ago", _metrics_server(falsehoods.usage_of_the_past(600))),
    Scenario("consul-restarted", "Consul is killed and starts again", _killed(lambda scene: scene.consul)),
    Scenario("consul-frozen", "Consul accepts and does not answer", _frozen(lambda scene: scene.consul.component)),
    Scenario("consul-emptied", "Consul starts again without its data", _consul_emptied, hold=10),
    Scenario("all-pulled-out", "every pod is in maintenance", _all_registered_out),
    Scenario("clock-ahead", "the adapter's clock jumps an hour ahead", _clock(HOUR)),
    Scenario("clock-behind", "the adapter's clock jumps an hour back", _clock(-HOUR)),
    Scenario("certificate-rotated", "its Secret is emptied; its disk is full if that is allowed", _certificate_rotated),
    Scenario("front-proxy-rotated", "the front proxy's CA and certificate are replaced", _front_proxy_rotated, hold=1),
    Scenario("settings-broken", "its settings are no YAML", _settings_broken, hold=8),
    Scenario("disk-full", "nothing can be written where it keeps temporary files", _disk_full, root=True),
)
"""In the order in which they run by default."""


def may_run(scenario: Scenario) -> bool:
    return not scenario.root or os.geteuid() == 0


def wait(seconds: float) -> None:
    """How long a fault lasts is part of the fault: there is no event to wait for."""
    time.sleep(seconds)
