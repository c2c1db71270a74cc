"""What the watches have told, and which policies a change touches. No I/O; one event loop, so no locks."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from adapter.evaluation.decode import DecodedPolicy
from adapter.evaluation.pod_index import PodIndex, owners
from adapter.load.matching import owns_its_pods
from adapter.load.pods import Pod
from adapter.load.spec import Policy
from adapter.policy.hpa import Hpa
from adapter.registries.roster import ServiceKey, service_of
from adapter.runtime.fair_slots import Claim
from adapter.snapshot import Key, Neighbours, PodsMetricTarget, TargetKey

K = TypeVar("K")


class TargetRef(NamedTuple):
    """A scale target as an HPA names it."""

    namespace: str
    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Link:
    """A valid policy with its HPA, and the target of that; `rivals` are other policies for the same target."""

    policy: Policy
    hpa: Hpa
    ref: TargetRef
    rivals: frozenset[Key]


class ObjectIndex:
    """Policies, HPAs and pods, linked: policy → HPA → target → pods.

    `mark` is called for each policy that a change touches, `mark_soon` where a registry told it. `on_links` is called
    when what policies need of the outside (targets, samples, queries) may have changed.
    """

    def __init__(
        self,
        mark: Callable[[Key], None],
        on_links: Callable[[], None],
        mark_soon: Callable[[Key], None] | None = None,
    ) -> None:
        self.pods = PodIndex()
        self.policies: dict[Key, DecodedPolicy] = {}
        self.hpas: dict[Key, Hpa] = {}
        self.tolerances = 0
        """HPAs that have a tolerance of their own."""
        self._mark = mark
        self._mark_soon = mark_soon or mark
        self._on_links = on_links
        self._by_namespace: dict[str, set[Key]] = defaultdict(set)
        self._by_hpa: dict[Key, set[Key]] = defaultdict(set)
        self._refs: dict[Key, TargetRef] = {}
        self._by_ref: dict[TargetRef, set[Key]] = defaultdict(set)
        self._by_kind: dict[tuple[str, str], set[Key]] = defaultdict(set)
        self._hpas_by_ref: dict[TargetRef, set[Key]] = defaultdict(set)
        self._by_owner: dict[Key, set[Key]] = defaultdict(set)
        self._loose: dict[str, set[Key]] = defaultdict(set)
        self._by_service: dict[ServiceKey, set[Key]] = defaultdict(set)

    def policy_changed(self, old: DecodedPolicy | None, new: DecodedPolicy | None) -> None:
        """A policy came, changed or went."""
        key = _key_of(old, new)
        if old is not None and new is not None and replace(old, memory=b"") == replace(new, memory=b""):
            self.policies[key] = new
            return  # a new status decides nothing here, but a policy's first assessment begins with the latest one
        if old is not None and old.policy is not None:
            self._by_hpa[Key(key.namespace, old.policy.hpa)].discard(key)
            if (service := service_of(old.policy)) is not None:
                _discard(self._by_service, service, key)
        if new is None:
            self.policies.pop(key, None)
            _discard(self._by_namespace, key.namespace, key)
        else:
            self.policies[key] = new
            self._by_namespace[key.namespace].add(key)
            if new.policy is not None:
                self._by_hpa[Key(key.namespace, new.policy.hpa)].add(key)
                if (service := service_of(new.policy)) is not None:
                    self._by_service[service].add(key)
        self._relink(key)

    def hpa_changed(self, old: Hpa | None, new: Hpa | None) -> None:
        """An HPA came, changed or went. What its status says decides nothing here."""
        found = new or old
        assert found is not None
        key = Key(found.namespace, found.name)
        if old is not None:
            _discard(self._hpas_by_ref, _unversioned(old), key)
        if new is None:
            self.hpas.pop(key, None)
        else:
            self.hpas[key] = new
            self._hpas_by_ref[_unversioned(new)].add(key)
        self.tolerances += _has_tolerance(new) - _has_tolerance(old)
        if old is not None and new is not None and old.target == new.target:
            # HPAs change with every scaling; who is linked to what does not.
            self._mark_all(self._by_hpa.get(key, ()))
            if old.pods_metrics != new.pods_metrics:
                self._on_links()
            return
        for policy in tuple(self._by_hpa.get(key, ())):
            self._relink(policy)
        self._on_links()

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, changed or went."""
        self.pods.change(old, new)
        touched: set[Key] = set()
        for pod in (old, new):
            if pod is not None:
                touched |= self._loose.get(pod.namespace, frozenset())
                touched.update(*(self._by_owner.get(owner, ()) for owner in owners(pod)))
        self._mark_all(touched)

    def endpoint_changed(self, namespace: str, pod_name: str) -> None:
        """What EndpointSlices say of a pod changed."""
        pod = self.pods.get(namespace, pod_name)
        if pod is not None:
            self._mark_all(key for owner in owners(pod) for key in self._by_owner.get(owner, ()))
            self._mark_all(self._loose.get(namespace, ()))

    def target_changed(self, ref: TargetRef) -> None:
        """A scale target came, changed or went."""
        self._mark_all(self._by_ref.get(ref, ()))

    def usage_changed(self, namespace: str) -> None:
        """New samples from metrics.k8s.io, or a new error."""
        self._mark_all(self._by_namespace.get(namespace, ()))

    def queries_changed(self, workloads: Iterable[Key]) -> None:
        """New answers of a query, or a new error, for the targets of these names."""
        for workload in workloads:
            self._mark_all(self._by_owner.get(workload, ()))

    def roster_changed(self, service: ServiceKey) -> None:
        """A registry's word about a service changed, or its error."""
        for key in tuple(self._by_service.get(service, ())):
            self._mark_soon(key)

    def target(self, key: Key) -> TargetRef | None:
        """The target of a policy, None where it has no HPA."""
        return self._refs.get(key)

    def mark_namespace(self, namespace: str) -> None:
        """Something else is known of all policies in a namespace, of all there are where it is empty."""
        self._mark_all(self._by_namespace.get(namespace, ()) if namespace else self.policies)

    def mark_kind(self, api_version: str, kind: str) -> None:
        """Something else is known of a kind of target."""
        self._mark_all(self._by_kind.get((api_version, kind), ()))

    def target_claims(self) -> Iterable[Claim[TargetRef]]:
        """The targets of policies, each with the policy's namespace and age."""
        return [Claim(key.namespace, self._since(key), ref) for key, ref in self._refs.items()]

    def service_claims(self) -> Iterable[Claim[ServiceKey]]:
        """The services that policies name, likewise."""
        return [
            Claim(key.namespace, self._since(key), service)
            for service, keys in self._by_service.items()
            for key in keys
        ]

    def _since(self, key: Key) -> tuple[str, str]:
        """What orders the policies of a namespace by age, in the same way in every process."""
        return self.policies[key].created, key.name

    def link(self, key: Key) -> Link | None:
        """The policy with its HPA and target, None where it is not valid or its HPA does not exist."""
        entry = self.policies.get(key)
        if entry is None or entry.policy is None:
            return None
        hpa = self.hpas.get(Key(key.namespace, entry.policy.hpa))
        if hpa is None:
            return None
        ref = self._refs[key]
        return Link(entry.policy, hpa, ref, frozenset(self._by_ref[ref] - {key}))

    def neighbours(self, link: Link) -> Neighbours:
        """Who else has to do with the target of a policy."""
        hpas = self._hpas_by_ref.get(_unversioned(link.hpa), set()) - {Key(link.hpa.namespace, link.hpa.name)}
        return Neighbours(tuple(sorted(key.name for key in hpas)), tuple(sorted(key.name for key in link.rivals)))

    def links(self) -> Iterable[Link]:
        """All policies that have an HPA."""
        return (link for link in map(self.link, tuple(self.policies)) if link is not None)

    def namespaces_with_resources(self) -> set[str]:
        """The namespaces whose policies need metrics.k8s.io."""
        return {
            key.namespace
            for key, entry in self.policies.items()
            if entry.policy is not None and any(metric.resource for metric in entry.policy.metrics)
        }

    def pods_metric_targets(self, resource_of: Callable[[str, str], str]) -> dict[str, tuple[PodsMetricTarget, ...]]:
        """HPAs that ask for Pods metrics of ours, by namespace."""
        found: dict[str, list[PodsMetricTarget]] = defaultdict(list)
        for hpa in self.hpas.values():
            ref = ref_of(hpa)
            resource = resource_of(ref.api_version, ref.kind)
            target = TargetKey(ref.namespace, resource, ref.name) if resource else None
            found[hpa.namespace] += [
                PodsMetricTarget(hpa=hpa.name, target=target, metric=metric, average=average)
                for metric, average in hpa.pods_metrics
            ]
        return {namespace: tuple(targets) for namespace, targets in found.items()}

    def _relink(self, key: Key) -> None:
        """Follow a policy to its target anew, and mark whoever shares, or shared, that target."""
        before = self._refs.pop(key, None)
        if before is not None:
            self._unfile(key, before)
        entry = self.policies.get(key)
        hpa = self.hpas.get(Key(key.namespace, entry.policy.hpa)) if entry and entry.policy else None
        if hpa is not None:
            self._file(key, ref_of(hpa))
        self._mark(key)
        after = self._refs.get(key)
        if before != after:
            self._mark_all(self._by_ref.get(before, ()) if before else ())
            self._mark_all(self._by_ref.get(after, ()) if after else ())
        self._on_links()

    def _file(self, key: Key, ref: TargetRef) -> None:
        self._refs[key] = ref
        self._by_ref[ref].add(key)
        self._by_kind[ref.api_version, ref.kind].add(key)
        self._by_owner[Key(ref.namespace, ref.name)].add(key)
        if not owns_its_pods(ref.kind):
            self._loose[ref.namespace].add(key)

    def _unfile(self, key: Key, ref: TargetRef) -> None:
        _discard(self._by_ref, ref, key)
        _discard(self._by_kind, (ref.api_version, ref.kind), key)
        _discard(self._by_owner, Key(ref.namespace, ref.name), key)
        _discard(self._loose, ref.namespace, key)

    def _mark_all(self, keys: Iterable[Key]) -> None:
        for key in tuple(keys):
            self._mark(key)


def ref_of(hpa: Hpa) -> TargetRef:
    """The target that an HPA names."""
    return TargetRef(hpa.namespace, hpa.target.api_version, hpa.target.kind, hpa.target.name)


def _unversioned(hpa: Hpa) -> TargetRef:
    """The target, in whatever version an HPA names it."""
    return ref_of(hpa)._replace(api_version=hpa.target.group)


def _has_tolerance(hpa: Hpa | None) -> bool:
    return hpa is not None and not (hpa.scale_up.tolerance is None and hpa.scale_down.tolerance is None)


def _discard(index: dict[K, set[Key]], place: K, key: Key) -> None:
    keys = index.get(place, set())
    keys.discard(key)
    if not keys:
        index.pop(place, None)


def _key_of(old: DecodedPolicy | None, new: DecodedPolicy | None) -> Key:
    found = new or old
    assert found is not None
    return Key(found.namespace, found.name)
