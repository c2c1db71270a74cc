"""Policies, HPAs and pods as the watches bring them."""

from dataclasses import dataclass, field
from types import SimpleNamespace

from adapter.evaluation.evaluator import Inputs
from adapter.evaluation.object_index import DecodedPolicy
from adapter.evaluation.targets import ResolvedTarget
from adapter.kube.scale import TargetObject
from adapter.load.pods import Owner, Pod
from adapter.load.roster import Roster
from adapter.load.samples import QuerySamples, ResourceSamples
from adapter.load.spec import Bounds, Query, Scale, Target
from adapter.policy.hpa import CrossVersionReference, Hpa, HpaMetric
from adapter.policy.linking import TargetRef
from adapter.registries.source import ServiceKey
from adapter.snapshot import Key
from tests.load.kit import NOW, pod, policy, usage

KEY = Key("shop", "web")
REF = TargetRef("shop", "apps/v1", "Deployment", "web")


def entry(name: str = "web", hpa: str = "", **changes: object) -> DecodedPolicy:
    """A valid policy, for the HPA of its own name unless told otherwise."""
    return DecodedPolicy(policy=policy(name=name, hpa=hpa or name, **changes))  # type: ignore[arg-type]


def hpa(name: str = "web", target: str = "web", kind: str = "Deployment", *metrics: HpaMetric) -> Hpa:
    """An HPA of 1 to 100."""
    return Hpa(
        namespace="shop",
        name=name,
        target=CrossVersionReference("apps/v1", kind, target),
        bounds=Bounds(minimum=1, maximum=100),
        metrics=metrics,
    )


def pods_metric(name: str, aim: int) -> HpaMetric:
    """An HPA's Pods metric."""
    return HpaMetric(kind="Pods", name=name, aim=aim)


def web_pods(count: int, target: str = "web") -> list[Pod]:
    """Pods of a Deployment's ReplicaSet, with the label that its selector names."""
    return [
        pod(f"{target}-{index}", labels={"app": target}, owner=Owner("ReplicaSet", f"{target}-abc"))
        for index in range(count)
    ]


@dataclass
class FakeInputs:
    """Samples, targets and endpoints that the test sets."""

    found: ResolvedTarget | str = "Deployment web has not been looked up yet"
    samples: ResourceSamples = field(default_factory=ResourceSamples)
    endpoints: dict[str, bool] = field(default_factory=dict)
    refused: str = ""
    crowded: str = ""
    silent: str | None = None
    are_endpoints_silent: bool = False
    listed: Roster | None = None
    service: str = "web-service"

    def rooms(self) -> Inputs:
        """Itself in place of every room."""
        resources, queries = SimpleNamespace(samples=self.resources), SimpleNamespace(samples=self.query)
        return Inputs(self, self, self, resources, queries, self)  # type: ignore[arg-type]

    def find(self, ref: TargetRef) -> ResolvedTarget | str:
        assert ref.namespace == "shop"
        return self.found

    def policy(self, namespace: str, target: TargetRef | None) -> str | None:
        assert namespace == "shop"
        return self.silent

    def resources(self, namespace: str) -> ResourceSamples:
        assert namespace == "shop"
        return self.samples

    def query(self, query: Query, namespace: str, workload: str) -> QuerySamples:
        return QuerySamples(error=f"{query.name} of {namespace}/{workload}", undefined=query.name == "unknown")

    def instances(self, service: ServiceKey) -> Roster | None:
        assert service.service == self.service
        return self.listed

    def refusal(self, service: ServiceKey, namespace: str) -> str:
        assert (service.registry, service.service, namespace) == ("prod-nacos", self.service, "shop")
        return self.refused

    def over_limit_message(self, service: ServiceKey, namespace: str) -> str:
        assert (service.service, namespace) == (self.service, "shop")
        return self.crowded

    def endpoint_serving(self, namespace: str, pod: str, uid: str) -> bool | None:
        assert (namespace, uid) == ("shop", f"uid-{pod}")
        return self.endpoints.get(pod)

    def endpoints_silent(self, namespace: str) -> bool:
        assert namespace == "shop"
        return self.are_endpoints_silent


def deployment(replicas: int, selector: str = "app=web", *, scale: bool = True) -> ResolvedTarget:
    """The Deployment as its watch knows it."""
    return ResolvedTarget(
        object=TargetObject(
            namespace="shop",
            target=Target(api_version="apps/v1", kind="Deployment", name="web"),
            scale=Scale(replicas=replicas, status_replicas=replicas, selector=selector) if scale else None,
        ),
        resource="deployments.apps",
        scale_path="/apis/apps/v1/namespaces/shop/deployments/web/scale",
        proven_at=NOW,
    )


def loads(count: int, load: str, at: float = NOW - 10) -> ResourceSamples:
    """The same CPU on so many pods."""
    return usage({f"web-{index}": load for index in range(count)}, at=at).resources
