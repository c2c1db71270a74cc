"""The story's cluster, a control plane of this machine, and its namespace with both services."""

import contextlib
import email.utils
import time
from collections.abc import Callable, Iterator

from lab.demo.curve import share, usages
from lab.demo.objects import OURS, PULLED_OUT, STOCK, Object, scaling, workloads
from lab.demo.observe import Observation, milli_of
from lab.harness import binaries
from lab.harness.adapter import AdapterProcess, account_kubeconfig, install_crds
from lab.harness.client import ApiError
from lab.harness.companion import CompanionProcess, companion_kubeconfig
from lab.harness.control_plane import ControlPlane
from lab.harness.kwok import USAGE_CPU
from lab.harness.workloads import Workloads, until

Say = Callable[[str], None]
HPA_SYNC = 3
SETTINGS = {"resourceMetrics": {"intervalSeconds": 2}}
AFTER_SCRAPE = 3
"""Seconds from a scrape of metrics-server to the beginning of the story, so that every run has the same scrapes."""
PATIENCE = 120
_FIGURES = ("effective_cpu", "raw_cpu")


@contextlib.contextmanager
def started(say: Say) -> Iterator[ControlPlane]:
    """A control plane on this machine, and the adapter and companion with the rights of the manifests."""
    # With the kinds there before it starts, the HPA controller need not discover them later, every 30 s.
    cluster = ControlPlane(hpa_sync=HPA_SYNC, announce=say, prepared=install_crds)
    say("starting etcd, kube-apiserver, kube-controller-manager (the stock HPA), kube-scheduler, KWOK and")
    say(f"metrics-server on this machine: Kubernetes {binaries.KUBERNETES} …")
    if not binaries.HPA_TOLERANCE:
        say("its HPAs have no tolerance of their own; every step of the story is beyond the controller's 10 %")
    with cluster:
        say("starting the adapter and its companion with the rights of the manifests …")
        companion = CompanionProcess(cluster, SETTINGS, kubeconfig=companion_kubeconfig(cluster))
        with AdapterProcess(cluster, SETTINGS, kubeconfig=account_kubeconfig(cluster)), companion:
            yield cluster


class Stage:
    """A namespace with both services; sets their load, pulls pods out, and reads what comes of it."""

    clock = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def __init__(self, cluster: ControlPlane, namespace: str = "demo") -> None:
        self.client, self.namespace = cluster.client, namespace
        self.pulled_out: dict[str, set[str]] = {OURS: set(), STOCK: set()}
        self._workloads = Workloads(cluster, namespace)

    def set_up(self, demand: int, say: Say) -> None:
        """Creates the Deployments, waits for their metrics, then creates policy and HPAs: these ignore the start."""
        self._workloads.make_namespace()
        for item in workloads(self.namespace):
            self.client.create(item)
        say("waiting until metrics-server has scraped the pods twice, as a rate requires …")
        until(lambda: self._calm(demand), PATIENCE, lambda: "metrics.k8s.io does not show the pods' load", 0.5)
        for item in scaling(self.namespace):
            self.client.create(item)
        say("waiting until both HPAs have their metrics; the HPA controller discovers new kinds within 30 s …")
        until(
            lambda: "effective_cpu" in self._figures() and not self._inactive(),
            PATIENCE,
            lambda: f"the HPAs do not get their metrics: {'; '.join(self._inactive())}",
            0.5,
        )
        scraped = self._scraped_at()
        until(lambda: self._scraped_at() != scraped, PATIENCE, lambda: "metrics-server has no new samples", 0.5)
        time.sleep(AFTER_SCRAPE)

    def _calm(self, demand: int) -> bool:
        """Sets the load; whether metrics-server shows it of every pod."""
        observation = self.observe()
        self.load(observation, demand)
        each = {name: share(demand, len(observation.pods[name])) or 0 for name in (OURS, STOCK)}
        samples = {name: list(observation.sampled(name).values()) for name in each}
        return all(
            len(samples[name]) >= observation.count(name)
            and all(abs(sample - each[name]) <= each[name] * 0.03 for sample in samples[name])
            for name in each
        )

    def _inactive(self) -> list[str]:
        """Why HPAs have no metric."""
        conditions = [self._workloads.hpa_condition(name, "ScalingActive") for name in (OURS, STOCK)]
        messages = [condition["message"] if condition else "not synced yet" for condition in conditions]
        return [
            message
            for condition, message in zip(conditions, messages, strict=True)
            if not condition or condition["status"] != "True"
        ]

    # -- what there is

    def observe(self) -> Observation:
        """Reads everything at once. Raises ApiError and OSError; metrics that fail to be read are missing."""
        answer = self.client.raw(self._workloads.pods_path)
        if answer.status >= 400:
            raise ApiError(answer, "pods")
        pods = answer.json()["items"]
        deployments = self.client.list(self._workloads.path("").rstrip("/"))
        hpas = self.client.list(self._workloads.hpa_path("").rstrip("/"))
        return Observation(
            now=email.utils.parsedate_to_datetime(answer.headers["Date"]),
            pods={name: [pod for pod in pods if pod["metadata"]["labels"]["app"] == name] for name in (OURS, STOCK)},
            deployments={item["metadata"]["name"]: item for item in deployments},
            hpas={item["metadata"]["name"]: item for item in hpas},
            usage=self._usage(),
            figures=self._figures(),
        )

    def _usage(self) -> list[Object]:
        answer = self.client.raw(f"/apis/metrics.k8s.io/v1beta1/namespaces/{self.namespace}/pods")
        return list(answer.json()["items"]) if answer.status == 200 else []

    def _scraped_at(self) -> str:
        return max((str(item["timestamp"]) for item in self._usage()), default="")

    def figure_path(self, metric: str) -> str:
        policy = f"watermarkpolicies.effective-load.io/{OURS}"
        return f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{self.namespace}/{policy}/{metric}"

    def _figures(self) -> dict[str, int]:
        """The adapter's figures in milli-units, without those in error."""
        answers = {name: self.client.raw(self.figure_path(name)) for name in _FIGURES}
        items = {name: answer.json()["items"] for name, answer in answers.items() if answer.status == 200}
        return {name: milli_of(item["value"]) for name, found in items.items() for item in found}

    def decision(self) -> list[Object]:
        """The adapter's decision at this moment; empty where it has none."""
        answer = self.client.raw(self.figure_path("decision"))
        return [answer.json()["decision"]] if answer.status == 200 else []

    def rescale_message(self, name: str, count: int, patience: float = 1.5) -> str:
        """The message of the HPA's event for this count, empty if none arrives; it follows the count after a moment."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        fields = f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={name},reason=SuccessfulRescale"
        deadline = time.monotonic() + patience
        while True:
            events = [event for event in self.client.list(path, fields=fields) if f"size: {count};" in event["message"]]
            if events or time.monotonic() > deadline:
                latest = max(events, key=lambda event: str(event.get("lastTimestamp")), default={"message": ""})
                return str(latest["message"])
            time.sleep(0.1)

    # -- load and pull-out

    def load(self, observation: Observation, demand: int) -> None:
        """Sets each pod's share of the demand where it has changed."""
        for name in (OURS, STOCK):
            replicas = observation.replicas(name)
            wanted = usages(replicas, self.pulled_out[name], demand)
            for replica in replicas:
                load = wanted.get(replica.name)
                if load is not None and load != replica.usage:
                    self._annotate(replica.name, {USAGE_CPU: f"{load}m"})

    def pull_out(self, name: str, pods: list[str]) -> None:
        """Stops requests to these pods; the adapter learns it by annotation, the stock HPA has no way to learn it."""
        self.pulled_out[name].update(pods)
        for pod in pods if name == OURS else ():
            self._annotate(pod, {PULLED_OUT: "true"})

    def _annotate(self, pod: str, annotations: dict[str, str]) -> None:
        try:
            self._workloads.annotate(pod, annotations)
        except ApiError as error:
            if error.status != 404:  # the pod may have been deleted since the observation
                raise
