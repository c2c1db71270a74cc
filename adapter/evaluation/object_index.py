"""Index of the watched objects; maps a change to the policies it affects. No I/O; one event loop, so no locks."""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import msgspec

from adapter.load.pods import Pod
from adapter.load.spec import Policy
from adapter.policy.documents import PolicyMetadata, PolicyObject
from adapter.policy.hpa import CrossVersionReference, Hpa, parse_hpa
from adapter.policy.linking import (
    MAX_POLICIES_PER_TARGET,
    Link,
    Links,
    Neighbours,
    TargetRef,
    discard,
    owns_its_pods,
    target_ref,
)
from adapter.policy.watermark_policy import parse_policy
from adapter.registries.source import Claim, ServiceKey, service_of
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import FaultyDocument
from adapter.snapshot import Key, PodsMetricTarget, PodStore, TargetKey


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedPolicy:
    """A WatermarkPolicy: `policy` if it is valid, else `fault` with the reason. `memory` is JSON from its status.

    `spec` is the spec of a valid policy as JSON, as it was written.
    """

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    policy: Policy | None = None
    fault: str = ""
    memory: bytes = b""
    spec: bytes = b""
    created: str = ""
    """The creationTimestamp as the API server writes it; as text it sorts by time."""


class _Status(msgspec.Struct, frozen=True):
    memory: msgspec.Raw = msgspec.Raw()


class _Watched(msgspec.Struct, frozen=True):
    metadata: PolicyMetadata = PolicyMetadata()
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: _Status | None = None


_DECODER = Decoder(_Watched)
_SPEC: Decoder[dict[str, Any] | None] = Decoder(dict[str, Any] | None)


def decode_policy(body: bytes | msgspec.Raw) -> DecodedPolicy:
    """Decode a WatermarkPolicy; an invalid one keeps its name and gets a fault. Raises msgspec.MsgspecError."""
    wire = _DECODER.decode(body)
    metadata, policy, fault = wire.metadata, None, ""
    memory = bytes(wire.status.memory) if wire.status is not None else b""
    try:
        policy = parse_policy(PolicyObject(metadata=metadata, spec=_SPEC.decode(wire.spec)))
    except FaultyDocument as error:
        fault = str(error)
    return DecodedPolicy(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        labels=metadata.labels or {},
        policy=policy,
        fault=fault,
        memory=memory,
        spec=b"" if policy is None else bytes(wire.spec),
        created=metadata.created or "",
    )


def decode_hpa(body: bytes | msgspec.Raw, tolerance: Fraction = Fraction(0)) -> Hpa:
    """Decode an HPA; `tolerance` applies if the HPA sets none. Raises msgspec.MsgspecError with the reason."""
    try:
        return parse_hpa(body, tolerance)
    except FaultyDocument as error:
        raise msgspec.ValidationError(str(error)) from error


class ObjectIndex:
    """Policies, HPAs and pods, and the links between them.

    `mark` is called for each policy that a change affects, `mark_soon` where a source or a kind of target changed.
    `on_links` is called when the targets, samples or queries that policies need may have changed.
    """

    def __init__(
        self,
        mark: Callable[[Key], None],
        on_links: Callable[[], None],
        mark_soon: Callable[[Key], None] | None = None,
    ) -> None:
        self.pods = PodIndex()
        self.policies: dict[Key, DecodedPolicy] = {}
        self.tolerances = 0
        """HPAs that set a tolerance of their own."""
        self._mark = mark
        self._mark_soon = mark_soon or mark
        self._on_links = on_links
        self._links: dict[str, Links] = defaultdict(Links)
        self._by_namespace: dict[str, set[Key]] = defaultdict(set)
        self._refs: dict[Key, TargetRef] = {}
        self._by_kind: dict[tuple[str, str], set[Key]] = defaultdict(set)
        self._by_owner: dict[Key, set[Key]] = defaultdict(set)
        self._by_selector_alone: dict[str, set[Key]] = defaultdict(set)
        """Policies by namespace whose targets' pods are known by selector alone, so that any pod may be theirs."""
        self._by_service: dict[ServiceKey, set[Key]] = defaultdict(set)
        self._with_resources: dict[str, set[Key]] = defaultdict(set)
        """Policies by namespace that need metrics.k8s.io."""

    def policy_changed(self, old: DecodedPolicy | None, new: DecodedPolicy | None) -> None:
        """A policy was added, changed or deleted."""
        entry = new or old
        assert entry is not None
        key = Key(entry.namespace, entry.name)
        if old is not None and new is not None and replace(old, memory=b"") == replace(new, memory=b""):
            self.policies[key] = new
            return  # a new status changes no decision here, but a policy's first assessment starts from the latest one
        if (service := _service_of(old)) is not None:
            discard(self._by_service, service, key)
        if new is None:
            self.policies.pop(key, None)
            discard(self._by_namespace, key.namespace, key)
        else:
            self.policies[key] = new
            self._by_namespace[key.namespace].add(key)
        if (service := _service_of(new)) is not None:
            self._by_service[service].add(key)
        if new is not None and new.policy is not None and any(metric.resource for metric in new.policy.metrics):
            self._with_resources[key.namespace].add(key)
        else:
            discard(self._with_resources, key.namespace, key)
        self._links[key.namespace].put_policy(key.name, new.policy if new is not None else None)
        self._relink([key])
        self._drop_unlinked(key.namespace)

    def hpa_changed(self, old: Hpa | None, new: Hpa | None) -> None:
        """An HPA was added, changed or deleted. Its status changes nothing here."""
        hpa = new or old
        assert hpa is not None
        links = self._links[hpa.namespace]
        links.put_hpa(hpa.name, new)
        self.tolerances += bool(new and new.sets_tolerance) - bool(old and old.sets_tolerance)
        policies = [Key(hpa.namespace, name) for name in links.policies_of_hpa(hpa.name)]
        is_refused = bool(policies) and links.is_refused(policies[0].name)
        if old is not None and new is not None and old.target == new.target:
            # HPAs change with every scaling; their links do not.
            self._mark_all(() if is_refused else policies)
            if old.pods_metrics != new.pods_metrics:
                self._on_links()
            return
        self._relink(policies)
        self._drop_unlinked(hpa.namespace)
        self._on_links()

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod was added, changed or deleted."""
        self.pods.change(old, new)
        touched: set[Key] = set()
        for pod in (old, new):
            if pod is not None:
                touched.update(self._by_selector_alone.get(pod.namespace, ()))
                for owner in owners(pod):
                    touched.update(self._by_owner.get(owner, ()))
        self._mark_all(touched)

    def endpoint_changed(self, namespace: str, pod_name: str) -> None:
        """A pod's state in EndpointSlices changed."""
        pod = self.pods.get(namespace, pod_name)
        if pod is not None:
            self._mark_all(key for owner in owners(pod) for key in self._by_owner.get(owner, ()))
            self._mark_all(self._by_selector_alone.get(namespace, ()))

    def target_changed(self, ref: TargetRef) -> None:
        """A scale target was added, changed or deleted."""
        self._mark_all(self._rivals(ref, MAX_POLICIES_PER_TARGET))

    def _rivals(self, ref: TargetRef, at_most: int) -> list[Key]:
        """The policies of a target; none if they are more than `at_most`."""
        namespace, *target = ref
        links = self._links.get(namespace)
        names = links.policies_of_target(CrossVersionReference(*target)) if links is not None else ()
        return [Key(namespace, name) for name in names] if len(names) <= at_most else []

    def usage_changed(self, namespace: str) -> None:
        """New samples from metrics.k8s.io, or a new error."""
        self._mark_all(self._by_namespace.get(namespace, ()), soon=True)

    def queries_changed(self, workloads: Iterable[Key]) -> None:
        """New answers of a query, or a new error, for the targets of these names."""
        for workload in workloads:
            self._mark_all(self._by_owner.get(workload, ()), soon=True)

    def roster_changed(self, service: ServiceKey) -> None:
        """A registry's roster of a service changed, or its error."""
        self._mark_all(self._by_service.get(service, ()), soon=True)

    def target(self, key: Key) -> TargetRef | None:
        """The target of a policy, None where it has no HPA."""
        return self._refs.get(key)

    def mark_namespace(self, namespace: str) -> None:
        """Mark the policies of a namespace, all policies where it is empty."""
        self._mark_all(self._by_namespace.get(namespace, ()) if namespace else self.policies)

    def mark_kind(self, api_version: str, kind: str) -> None:
        """Mark the policies whose targets are of this kind."""
        self._mark_all(self._by_kind.get((api_version, kind), ()), soon=True)

    def kinds(self) -> set[tuple[str, str]]:
        """API version and kind of all targets of policies."""
        return set(self._by_kind)

    def service_claims(self) -> Iterable[Claim]:
        """The services that policies name, each with the policy's namespace and age."""
        return [
            Claim(key.namespace, (self.policies[key].created, key.name), service)
            for service, keys in self._by_service.items()
            for key in keys
        ]

    def link(self, key: Key) -> Link | None:
        """The policy's link; None where the policy is not valid or its HPA does not exist."""
        links = self._links.get(key.namespace)
        return links.link(key.name) if links is not None else None

    def neighbours(self, key: Key) -> Neighbours:
        """Other HPAs and policies of a policy's target."""
        links = self._links.get(key.namespace)
        return links.neighbours(key.name) if links is not None else Neighbours()

    def links(self) -> Iterable[Link]:
        """All policies that have an HPA and are not refused for it."""
        return (
            link
            for namespace, links in tuple(self._links.items())
            for name in tuple(links.policies)
            if not links.is_refused(name) and (link := links.link(name)) is not None
        )

    def namespaces_with_resources(self) -> set[str]:
        """The namespaces whose policies need metrics.k8s.io."""
        return set(self._with_resources)

    def pods_metric_targets(self, resource_of: Callable[[str, str], str]) -> dict[str, tuple[PodsMetricTarget, ...]]:
        """HPAs that ask for this adapter's Pods metrics, by namespace."""
        return {
            namespace: tuple(target for hpa in links.hpas.values() for target in _pods_metric_targets(hpa, resource_of))
            for namespace, links in self._links.items()
            if links.hpas
        }

    def _relink(self, keys: Iterable[Key]) -> None:
        """Link policies again, and mark them with the policies that share, or shared, their targets.

        Policies of a target that had too many and has too many do not differ.
        """
        moved: Counter[TargetRef] = Counter()
        for key in keys:
            before = self._refs.get(key)
            after = self._file(key)
            self._mark(key)
            if before != after:
                moved.update(ref for ref in (before, after) if ref is not None)
        for ref, count in moved.items():
            for rival in self._rivals(ref, MAX_POLICIES_PER_TARGET + count):
                self._file(rival)
                self._mark(rival)
        self._on_links()

    def _drop_unlinked(self, namespace: str) -> None:
        if not self._links[namespace]:
            del self._links[namespace]

    def _file(self, key: Key) -> TargetRef | None:
        """File a policy by what changes its assessment; return its target."""
        if (before := self._refs.pop(key, None)) is not None:
            discard(self._by_kind, (before.api_version, before.kind), key)
            discard(self._by_owner, Key(before.namespace, before.name), key)
            discard(self._by_selector_alone, before.namespace, key)
        if (link := self.link(key)) is None:
            return None
        ref = self._refs[key] = link.ref
        self._by_kind[ref.api_version, ref.kind].add(key)
        if not self._links[key.namespace].is_refused(key.name):
            self._by_owner[Key(ref.namespace, ref.name)].add(key)
            if not owns_its_pods(ref.kind):
                self._by_selector_alone[ref.namespace].add(key)
        return ref

    def _mark_all(self, keys: Iterable[Key], *, soon: bool = False) -> None:
        mark = self._mark_soon if soon else self._mark
        for key in tuple(keys):
            mark(key)


def _pods_metric_targets(hpa: Hpa, resource_of: Callable[[str, str], str]) -> Iterable[PodsMetricTarget]:
    ref = target_ref(hpa)
    resource = resource_of(ref.api_version, ref.kind)
    target = TargetKey(ref.namespace, resource, ref.name) if resource else None
    for metric, average in hpa.pods_metrics:
        yield PodsMetricTarget(hpa=hpa.name, target=target, metric=metric, average=average)


def _service_of(entry: DecodedPolicy | None) -> ServiceKey | None:
    return service_of(entry.policy) if entry is not None and entry.policy is not None else None


class PodIndex:
    """All pods. A pod is indexed by its controller's name, and by that name without the pod's template hash."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, PodStore] = defaultdict(PodStore)
        self._by_owner: dict[Key, dict[str, Pod]] = defaultdict(dict)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        """Apply a watch event: `old` is None for a new pod, `new` is None for a deleted one."""
        if old is not None:
            if (pods := self._by_namespace.get(old.namespace)) is not None:
                pods.pop(old.name, None)
                if not pods:
                    del self._by_namespace[old.namespace]
            for key in owners(old):
                if (owned := self._by_owner.get(key)) is not None:
                    owned.pop(old.name, None)
                    if not owned:
                        del self._by_owner[key]
        if new is not None:
            self._by_namespace[new.namespace].put(new)
            for key in owners(new):
                self._by_owner[key][new.name] = new

    def owned(self, namespace: str, name: str) -> Iterable[Pod]:
        """The pods whose controller has this name, directly or through a ReplicaSet; its kind is not compared."""
        return self._by_owner.get(Key(namespace, name), {}).values()

    def namespace(self, namespace: str) -> Mapping[str, Pod]:
        """The pods of a namespace, by name."""
        return self._by_namespace.get(namespace, {})

    def namespaces(self) -> Mapping[str, PodStore]:
        """All pods by namespace and name. The map is live: readers must not await while they use it."""
        return self._by_namespace

    def get(self, namespace: str, name: str) -> Pod | None:
        """One pod."""
        return self.namespace(namespace).get(name)


def owners(pod: Pod) -> tuple[Key, ...]:
    """The names that the scale target of this pod may have."""
    return () if pod.owner is None else _owners(pod.namespace, pod.owner.name, pod.template_hash)


@functools.lru_cache(8192)
def _owners(namespace: str, owner: str, template_hash: str) -> tuple[Key, ...]:
    """The same for all pods of one ReplicaSet, which come one after the other."""
    stem = owner.removesuffix(f"-{template_hash}") if template_hash else owner
    names = (owner,) if stem == owner else (owner, stem)
    return tuple(Key(namespace, name) for name in names)
