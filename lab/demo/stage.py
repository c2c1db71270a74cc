"""The story's cluster, a local control plane or a given one, and its temporary namespace."""

import asyncio
import contextlib
import secrets
import signal
import time
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from adapter.kube.credentials import ClusterAccess, choose_credentials
from adapter.kube.errors import CredentialsError
from lab.demo.objects import KWOK_NODE, OURS, STOCK, USAGE, scaling, workloads
from lab.demo.observe import CUSTOM, ClusterReader, DemoError, Observation
from lab.demo.sharing import share, usages
from lab.harness import binaries, objects
from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds
from lab.harness.client import ApiError, Client
from lab.harness.companion import CompanionProcess, companion_kubeconfig
from lab.harness.control_plane import ControlPlane

Announce = Callable[[str], None]
Built = Callable[..., None]
HPA_SYNC = 3
SETTINGS = {"resourceMetrics": {"intervalSeconds": 2}}
AFTER_SCRAPE = 3
"""Seconds from a scrape of metrics-server to the beginning of the story: the model has the same scrapes (`model`)."""


@dataclass(frozen=True)
class Place:
    """A cluster for the story. `nodes` are the pods' nodes, any node if empty; an `own` cluster ends with the demo."""

    client: Client
    kubeconfig: Path
    own: bool
    nodes: tuple[str, ...] = ()


@contextlib.contextmanager
def own_place(announce: Announce, built: Built) -> Iterator[Place]:
    """A control plane on this machine, and the adapter and companion with the rights of the manifests.

    `built` waits until the programs of these names are built, or all where none is named.
    """
    # With the kinds there before it starts, the HPA controller need not discover them later, every 30 s.
    cluster = ControlPlane(hpa_sync=HPA_SYNC, announce=announce, built=built, prepared=install_crds)
    announce("starting etcd, kube-apiserver, kube-controller-manager (the stock HPA), kube-scheduler, KWOK and")
    announce(f"metrics-server on this machine: Kubernetes {binaries.KUBERNETES} …")
    if not binaries.HPA_TOLERANCE:
        announce("its HPAs have no tolerance of their own; every step of the story is beyond the controller's 10 %")
    before = signal.getsignal(signal.SIGINT)
    try:
        with cluster:
            built()
            announce("starting the adapter and its companion with the rights of the manifests …")
            companion = CompanionProcess(cluster, SETTINGS, kubeconfig=companion_kubeconfig(cluster))
            with AdapterProcess(cluster, SETTINGS, kubeconfig=account_kubeconfig(cluster)), companion:
                try:
                    yield Place(cluster.client, cluster.kubeconfig, own=True)
                finally:
                    # A second Ctrl-C would interrupt the cleanup, which takes a few seconds.
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def given_place(kubeconfig: Path) -> Iterator[Place]:
    """An existing cluster. Raises DemoError with one sentence for the first missing requirement."""
    if not kubeconfig.is_file():
        raise DemoError(f"{kubeconfig} is no file: give --kubeconfig the kubeconfig of a cluster")
    client = client_of(kubeconfig)
    try:
        yield Place(client, kubeconfig, own=False, nodes=fit(client, kubeconfig))
    finally:
        client.close()


async def _access(kubeconfig: Path) -> ClusterAccess:
    return await choose_credentials(str(kubeconfig))()


def client_of(kubeconfig: Path) -> Client:
    """A client with the server and identity of the kubeconfig's current context, read as the adapter reads it."""
    try:
        access = asyncio.run(_access(kubeconfig))
    except CredentialsError as error:
        raise DemoError(f"{kubeconfig} cannot be used as a kubeconfig: {error}") from error
    server = urllib.parse.urlsplit(access.server)
    if access.tls is None or not server.hostname or server.path.strip("/"):
        raise DemoError(f"the demo speaks to https servers without a path only, and {kubeconfig} names {access.server}")
    headers = {"Authorization": access.authorization} if access.authorization else {}
    return Client(server.hostname, server.port or 443, access.tls, headers)


def fit(client: Client, kubeconfig: Path) -> tuple[str, ...]:
    """The nodes for the pods. Raises DemoError for the first missing requirement."""
    try:
        if client.find("/apis/effective-load.io/v1alpha1") is None or client.find(CUSTOM) is None:
            raise DemoError(
                f"the adapter is not installed in the cluster of {kubeconfig}: apply manifests/base there"
                " first, or leave --kubeconfig out for a local cluster"
            )
        if client.find("/apis/metrics.k8s.io/v1beta1") is None:
            raise DemoError(f"the cluster of {kubeconfig} has no metrics.k8s.io: install metrics-server there first")
        nodes = client.list("/api/v1/nodes")
    except ApiError as error:
        raise DemoError(f"the cluster of {kubeconfig} refuses the demo: {error.message}") from error
    except OSError as error:
        raise DemoError(f"the cluster of {kubeconfig} cannot be reached: {error}") from error
    played = [node["metadata"]["name"] for node in nodes if KWOK_NODE in node["metadata"].get("annotations", {})]
    if not played:
        raise DemoError(
            "the demo sets the usage of pods, which only KWOK can simulate, and none of that cluster's nodes is KWOK's"
            f" (annotation {KWOK_NODE}); on real pods, watch a policy of your own with `kubectl get wmp -w`"
        )
    return tuple(played[:20])


class Stage:
    """A namespace with both services; sets their load and pulls pods out."""

    def __init__(self, place: Place, namespace: str) -> None:
        self.place, self.client, self.namespace = place, place.client, namespace
        self.reader = ClusterReader(place.client, namespace)
        self.pulled_out: dict[str, set[str]] = {OURS: set(), STOCK: set()}

    def set_up(self, demand: int, announce: Announce, patience: float = 120) -> None:
        """Creates the Deployments, waits for their metrics, then creates policy and HPAs: these ignore the start."""
        for item in workloads(self.namespace, self.place.nodes):
            self.client.create(item)
        announce("waiting until metrics-server has scraped the pods twice, as a rate requires …")
        self._wait(lambda: self._calm(demand), patience, "metrics.k8s.io does not show the pods' load")
        for item in scaling(self.namespace):
            self.client.create(item)
        announce("waiting until both HPAs have their metrics; the HPA controller discovers new kinds within 30 s …")
        self._wait(self._wired, patience, "the HPAs do not get their metrics", self._complaint)
        if self.place.own:
            scraped = self.reader.scraped_at()
            self._wait(lambda: self.reader.scraped_at() != scraped, patience, "metrics-server has no new samples")
            time.sleep(AFTER_SCRAPE)

    def _calm(self, demand: int) -> bool:
        observation = self.reader.observe()
        self.load(observation, demand)
        for name in (OURS, STOCK):
            samples = observation.sampled(name)
            each = share(demand, len(observation.pods[name])) or 0
            if (
                not samples
                or len(samples) < observation.count(name)
                or any(abs(one - each) > each * 0.03 for one in samples.values())
            ):
                return False
        return True

    def _wired(self) -> bool:
        active = [self.reader.active(name) for name in (OURS, STOCK)]
        return "effective_cpu" in self.reader.figures() and all(one and one["status"] == "True" for one in active)

    def _complaint(self) -> str:
        conditions = [self.reader.active(name) for name in (OURS, STOCK)]
        return "; ".join(one["message"] for one in conditions if one and one["status"] != "True")

    def _wait(
        self, holds: Callable[[], bool], patience: float, otherwise: str, more: Callable[[], str] = lambda: ""
    ) -> None:
        deadline = time.monotonic() + patience
        while not holds():
            if time.monotonic() > deadline:
                detail = more()
                raise DemoError(f"{otherwise} within {patience:.0f} s" + (f": {detail}" if detail else ""))
            time.sleep(0.5)

    # -- load and pull-out

    def load(self, observation: Observation, demand: int) -> None:
        """Sets each pod's share of the demand where it has changed."""
        for name in (OURS, STOCK):
            replicas = observation.replicas(name)
            wanted = usages(replicas, self.pulled_out[name], demand)
            for replica in replicas:
                load = wanted.get(replica.name)
                if load is not None and load != replica.usage:
                    self._annotate(replica.name, {USAGE: f"{load}m"})

    def pull_out(self, name: str, pods: list[str], annotation: str) -> None:
        """Stops requests to these pods; the adapter learns it by annotation, the stock HPA has no way to learn it."""
        self.pulled_out[name].update(pods)
        for pod in pods if name == OURS else ():
            self._annotate(pod, {annotation: "true"})

    def _annotate(self, pod: str, annotations: dict[str, str]) -> None:
        try:
            self.client.patch(self.reader.path("pods", pod), {"metadata": {"annotations": annotations}})
        except ApiError as error:
            if error.status != 404:  # the pod may have been deleted since the observation
                raise


@contextlib.contextmanager
def staged(place: Place, announce: Announce) -> Iterator[Stage]:
    """A namespace for the story; in a given cluster it is always removed at the end."""
    namespace = "demo" if place.own else f"effective-load-demo-{secrets.token_hex(3)}"
    place.client.create(objects.namespace(namespace))
    path = f"/api/v1/namespaces/{namespace}"
    try:
        # The API server rejects pods until the namespace has its default account.
        place.client.wait_for(f"{path}/serviceaccounts/default", timeout=30)
        yield Stage(place, namespace)
    finally:
        if not place.own:
            announce(f"removing namespace {namespace} …")
            _remove(place.client, namespace)


def _remove(client: Client, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}"
    try:
        client.delete(path, wait=90)
    except (ApiError, OSError, KeyboardInterrupt) as error:  # a TimeoutError is an OSError
        raise DemoError(
            f"namespace {namespace} may still exist: kubectl delete namespace {namespace} ({error})"
        ) from error
