"""Index of the watched objects; maps a change to the policies it affects. No I/O; one event loop, so no locks."""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from adapter.load.pods import Pod
from adapter.load.spec import Policy
from adapter.policy.documents import Metadata
from adapter.policy.hpa import CrossVersionReference, Hpa
from adapter.policy.linking import (
    Link,
    Links,
    Neighbours,
    TargetRef,
    discard,
    is_faulty,
    owns_its_pods,
)
from adapter.policy.watermark_policy import HOLD_UNTIL, parse_policy
from adapter.registries.source import Claim, ServiceKey, service_of
from adapter.runtime.decoding import Decoder, remembered
from adapter.runtime.faults import FaultyDocument
from adapter.snapshot import Key, PodStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedPolicy:
    """A WatermarkPolicy. `policy` of an invalid one has only its name, UID and generation, and `fault` has the reason.

    `memory` is JSON from its status, `spec` that of a valid policy as it was written. `created` is the
    creationTimestamp; as text it sorts by time.
    """

    policy: Policy
    fault: str = ""
    memory: bytes = b""
    spec: bytes = b""
    created: str = ""

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return Key(self.policy.namespace, self.policy.name)


class _Status(msgspec.Struct, frozen=True):
    memory: msgspec.Raw = msgspec.Raw()


class _Watched(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: _Status | None = None


_DECODER = Decoder(_Watched)
_SPEC: Decoder[dict[str, Any] | None] = Decoder(dict[str, Any] | None)


def decode_policy(body: bytes | msgspec.Raw) -> DecodedPolicy:
    """Decode a WatermarkPolicy; an invalid one keeps its name and gets a fault. Raises msgspec.MsgspecError."""
    wire = _DECODER.decode(body)
    read = {name: text for name, text in wire.metadata.annotations.items() if name == HOLD_UNTIL}
    head = msgspec.json.encode(msgspec.structs.replace(wire.metadata, annotations=read))
    decoded = _decoded(head, bytes(wire.spec))
    return replace(decoded, memory=bytes(wire.status.memory)) if wire.status is not None else decoded


@remembered
def _decoded(head: bytes, spec: bytes) -> DecodedPolicy:
    """The policy without its memory. Its status is written each minute, which changes nothing else (1 ms each)."""
    metadata, fault = msgspec.json.decode(head, type=Metadata), ""
    try:
        policy = parse_policy({"metadata": msgspec.to_builtins(metadata), "spec": _SPEC.decode(spec)})
    except FaultyDocument as error:
        policy = Policy(
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            generation=metadata.generation,
            hpa=metadata.name,
            metrics=(),
        )
        spec, fault = b"", str(error)
    return DecodedPolicy(policy=policy, fault=fault, spec=spec, created=metadata.creation_timestamp)


_NO_LINKS = Links()


class Need(NamedTuple):
    """Something whose change affects the policies that need it.

    That is a scale target, the pods and samples of a workload, any pod of a namespace (where the selector alone tells
    which are the target's), the samples of metrics.k8s.io for a namespace, or a service in a registry.
    """

    kind: Literal["target", "workload", "any pod", "resources", "service"]
    item: TargetRef | Key | str | ServiceKey


class ObjectIndex:
    """Policies, HPAs and pods, and the links between them.

    `mark` is called for each policy that a change affects, `on_links` when the targets, samples or queries that
    policies need may have changed.
    """

    def __init__(self, mark: Callable[[Key], None], on_links: Callable[[], None]) -> None:
        self.pods = PodIndex()
        self.policies: dict[Key, DecodedPolicy] = {}
        self._tolerances = 0
        """HPAs that set a tolerance of their own."""
        self._mark = mark
        self._on_links = on_links
        self._links: dict[str, Links] = defaultdict(Links)
        self._needs: dict[Key, frozenset[Need]] = {}
        self._neighbours = functools.lru_cache(8192)(self._find_neighbours)
        """Until a link changes. Each of thousands of one target sorts the others, and asks with each scaling."""
        self._users: dict[Need, set[Key]] = defaultdict(set)

    def policy_changed(self, old: DecodedPolicy | None, new: DecodedPolicy | None) -> None:
        """A policy was added, changed or deleted."""
        entry = new or old
        assert entry is not None
        key = entry.key
        if new is None:
            self.policies.pop(key, None)
        else:
            self.policies[key] = new
        if old is not None and new is not None and replace(old, memory=b"") == replace(new, memory=b""):
            return  # a new status changes no decision here, but a policy's first assessment starts from the latest one
        self._links[key.namespace].put_policy(key.name, new.policy if new is not None and not new.fault else None)
        self._relink(key.namespace, [key.name])

    def hpa_changed(self, old: Hpa | None, new: Hpa | None) -> None:
        """An HPA was added, changed or deleted. Its status changes nothing here."""
        hpa = new or old
        assert hpa is not None
        links = self._links[hpa.namespace]
        links.put_hpa(hpa.name, new)
        self._tolerances += bool(new and new.sets_tolerance) - bool(old and old.sets_tolerance)
        policies = tuple(links.policies_of_hpa(hpa.name))
        if old is None or new is None or old.target != new.target:
            self._relink(hpa.namespace, policies)
            return
        # HPAs change with every scaling; their links do not.
        for name in policies:
            self._mark(Key(hpa.namespace, name))

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A pod was added, changed or deleted."""
        self.pods.change(old, new)
        for pod in (old, new):
            if pod is not None:
                self._mark_users_of(pod)

    def endpoint_changed(self, namespace: str, pod_name: str) -> None:
        """A pod's state in EndpointSlices changed."""
        if (pod := self.pods.namespace(namespace).get(pod_name)) is not None:
            self._mark_users_of(pod)

    def _mark_users_of(self, pod: Pod) -> None:
        for need in (Need("any pod", pod.namespace), *(Need("workload", owner) for owner in owners(pod))):
            self.mark_users(need)

    def mark_users(self, need: Need) -> None:
        """Mark the policies that need this: samples, an instance list, or the error of their source."""
        for key in tuple(self._users.get(need, ())):
            self._mark(key)

    def target_changed(self, ref: TargetRef) -> None:
        """A scale target was added, changed or deleted."""
        for key in self._rivals(ref):
            self._mark(key)

    def _rivals(self, ref: TargetRef) -> list[Key]:
        """The policies of a target."""
        namespace, *target = ref
        names = self._links.get(namespace, _NO_LINKS).policies_of_target(CrossVersionReference(*target))
        return [Key(namespace, name) for name in names]

    def target(self, key: Key) -> TargetRef | None:
        """The target of a policy, None where it has no HPA."""
        return link.ref if (link := self.link(key)) is not None else None

    def hpa(self, key: Key) -> Hpa | None:
        """The HPA that a policy names; None if the policy is invalid or the HPA does not exist."""
        return link.hpa if (link := self.link(key)) is not None else None

    def tolerance_seen(self) -> bool:
        """Whether an HPA sets `tolerance`: then the cluster knows that field."""
        return self._tolerances > 0

    def mark_namespace(self, namespace: str) -> None:
        """Mark the policies of a namespace, all policies where it is empty."""
        for key in tuple(self.policies):
            if namespace in {"", key.namespace}:
                self._mark(key)

    def mark_kind(self, api_version: str, kind: str) -> None:
        """Mark the policies whose targets are of this kind."""
        for ref in self._needed(TargetRef):
            if (ref.api_version, ref.kind) == (api_version, kind):
                self.mark_users(Need("target", ref))

    def kinds(self) -> set[tuple[str, str]]:
        """API version and kind of all targets of policies."""
        return {(ref.api_version, ref.kind) for ref in self._needed(TargetRef)}

    def service_claims(self) -> Iterable[Claim]:
        """The services that policies name, each with the policy's namespace and age."""
        return [
            Claim(key.namespace, (self.policies[key].created, key.name), service)
            for service in self._needed(ServiceKey)
            for key in self._users[Need("service", service)]
        ]

    def namespaces_with_resources(self) -> set[str]:
        """The namespaces whose policies need metrics.k8s.io."""
        return {str(need.item) for need in self._users if need.kind == "resources"}

    def _needed(self, kind: type[T]) -> list[T]:
        return [need.item for need in self._users if isinstance(need.item, kind)]

    def link(self, key: Key) -> Link | None:
        """The policy's link; None where the policy is not valid or its HPA does not exist."""
        return self._links.get(key.namespace, _NO_LINKS).link(key.name)

    def neighbours(self, key: Key) -> Neighbours:
        """Other HPAs and policies of a policy's target."""
        return self._neighbours(key)

    def _find_neighbours(self, key: Key) -> Neighbours:
        return self._links.get(key.namespace, _NO_LINKS).neighbours(key.name)

    def links(self) -> Iterable[Link]:
        """All policies that have an HPA and are not refused for it."""
        keys = [key for need, keys in self._users.items() if need.kind == "workload" for key in keys]
        return [link for key in keys if (link := self.link(key)) is not None]

    def _relink(self, namespace: str, names: Iterable[str]) -> None:
        """Link policies again, and mark them with the policies that share, or shared, their targets."""
        moved: set[TargetRef] = set()
        self._neighbours.cache_clear()
        for key in [Key(namespace, name) for name in names]:
            moved.update(need.item for need in self._file(key) if isinstance(need.item, TargetRef))
            self._mark(key)
        for rival in [key for ref in moved for key in self._rivals(ref)]:
            self._mark(rival)
        if not self._links[namespace]:
            del self._links[namespace]
        self._on_links()

    def _file(self, key: Key) -> frozenset[Need]:
        """File a policy by what it needs; returns the difference to before."""
        before, after = self._needs.pop(key, frozenset()), frozenset(self._needs_of(key))
        for need in before - after:
            discard(self._users, need, key)
        for need in after - before:
            self._users[need].add(key)
        if after:
            self._needs[key] = after
        return before ^ after

    def _needs_of(self, key: Key) -> Iterator[Need]:
        decoded, link = self.policies.get(key), self.link(key)
        if decoded is None:
            return
        if any(metric.query is None for metric in decoded.policy.metrics):
            yield Need("resources", key.namespace)
        if (service := service_of(decoded.policy)) is not None:
            yield Need("service", service)
        if link is None:
            return
        yield Need("target", link.ref)
        if not is_faulty(link.hpa):
            yield Need("workload", Key(link.ref.namespace, link.ref.name))
            if not owns_its_pods(link.ref.kind):
                yield Need("any pod", link.ref.namespace)


class PodIndex:
    """All pods. A pod is indexed by its controller's name, and by that name without the pod's template hash."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, PodStore] = defaultdict(PodStore)
        self._by_owner: dict[Key, dict[str, Pod]] = defaultdict(dict)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        """Apply a watch event: `old` is None for a new pod, `new` is None for a deleted one."""
        if old is not None:
            _take(self._by_namespace, old.namespace, old.name)
            for key in owners(old):
                _take(self._by_owner, key, old.name)
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


def _take(index: dict[T, Any], key: T, name: str) -> None:
    """Take a pod out of an index, and its key with the last pod."""
    pods = index.get(key, {})
    pods.pop(name, None)
    if not pods:
        index.pop(key, None)


def owners(pod: Pod) -> tuple[Key, ...]:
    """The names that the scale target of this pod may have."""
    return () if pod.owner is None else _owners(pod.namespace, pod.owner.name, pod.template_hash)


@functools.lru_cache(8192)
def _owners(namespace: str, owner: str, template_hash: str) -> tuple[Key, ...]:
    """The same for all pods of one ReplicaSet, which come one after the other."""
    stem = owner.removesuffix(f"-{template_hash}") if template_hash else owner
    names = (owner,) if stem == owner else (owner, stem)
    return tuple(Key(namespace, name) for name in names)
