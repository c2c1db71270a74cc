"""policy → HPA → scale target → pods: one pure implementation for the server, `check` and `decide`.

A policy names an HPA of its own namespace, and that HPA its scale target. As the HPA controller does, API group, kind
and name identify a target, whatever the version: HPAs that name `apps/v1` and `apps/v1beta1` scale the same Deployment.
Kubernetes checks the parts of a reference as path segments only, so it admits `%61pps/v1` and `apps?x=1/v1`.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from typing import Any, NamedTuple

from adapter.load.pods import Pod
from adapter.load.spec import Policy, Target
from adapter.policy.documents import MAX_NAME_LENGTH
from adapter.policy.hpa import CrossVersionReference, Hpa
from adapter.runtime.faults import Fault, first_names

NAMED_NEIGHBOURS = 5
MAX_SELECTOR_REQUIREMENTS = 32
"""Every assessment tests every pod against each requirement of its target's selector. Workloads have a handful."""

NO_SCALE = "has no usable scale: its scale subresource leads nowhere, or its selector is not a label selector"
"""What is wrong with a target, after its kind and name."""

_SUBDOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
"""A DNS-1123 subdomain: a group, and the name of every kind of object that Kubernetes itself or a definition brings."""
_REFERENCE = {
    "apiVersion": rf"(?:{_SUBDOMAIN}/)?[a-z](?:[-a-z0-9]{{0,61}}[a-z0-9])?",
    "kind": r"[A-Za-z](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?",
    "name": _SUBDOMAIN,
}
"""What the fields of a reference look like."""

_BY_REPLICA_SET = {"deployment", "rollout"}
_REPLICA_SETS = {"ReplicaSet", "ReplicationController"}
_OWNING = {*_BY_REPLICA_SET, "statefulset", "replicaset", "replicationcontroller"}
_UNSCALED = {"Job", "DaemonSet"}
"""Controllers whose pods no other kind of target owns. StatefulSets are not among them: operators scale by theirs."""


class TargetRef(NamedTuple):
    """A scale target as an HPA names it."""

    namespace: str
    api_version: str
    kind: str
    name: str


class Neighbours(NamedTuple):
    """The other HPAs and the other policies of a policy's scale target: "a, b, c, d, e and 12 more", empty for none."""

    hpas: str = ""
    policies: str = ""


class Link(NamedTuple):
    """A valid policy and its HPA."""

    policy: Policy
    hpa: Hpa

    @property
    def ref(self) -> TargetRef:
        """The HPA's scale target."""
        return TargetRef(self.hpa.namespace, *self.hpa.target)


class Links:
    """The valid policies and the HPAs of one namespace, by name. Every query is an index lookup."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        self.hpas: dict[str, Hpa] = {}
        self._policies_of_hpa: dict[str, set[str]] = defaultdict(set)
        self._hpas_of_target: dict[CrossVersionReference, set[str]] = defaultdict(set)

    def __bool__(self) -> bool:
        return bool(self.policies or self.hpas)

    def put_policy(self, name: str, policy: Policy | None) -> None:
        """Add or replace a policy; None removes it."""
        if (old := self.policies.pop(name, None)) is not None:
            discard(self._policies_of_hpa, old.hpa, name)
        if policy is not None:
            self.policies[name] = policy
            self._policies_of_hpa[policy.hpa].add(name)

    def put_hpa(self, name: str, hpa: Hpa | None) -> None:
        """Add or replace an HPA; None removes it."""
        if (old := self.hpas.pop(name, None)) is not None:
            discard(self._hpas_of_target, old.target.identity, name)
        if hpa is not None:
            self.hpas[name] = hpa
            self._hpas_of_target[hpa.target.identity].add(name)

    def policies_of_hpa(self, hpa: str) -> Collection[str]:
        """The policies that name an HPA."""
        return self._policies_of_hpa.get(hpa, ())

    def policies_of_target(self, target: CrossVersionReference) -> Collection[str]:
        """The policies whose HPAs scale a target, in whatever version they name it; without those of faulty HPAs."""
        hpas = [self.hpas[name] for name in self._hpas_of_target.get(target.identity, ())]
        return [policy for hpa in hpas if not is_faulty(hpa) for policy in self.policies_of_hpa(hpa.name)]

    def link(self, name: str) -> Link | None:
        """The policy's link; None where the policy is not valid or its HPA does not exist."""
        policy = self.policies.get(name)
        hpa = self.hpas.get(policy.hpa) if policy is not None else None
        return None if policy is None or hpa is None else Link(policy, hpa)

    def neighbours(self, name: str) -> Neighbours:
        """The neighbours of a policy; empty where it has no link. Policies of a faulty reference share only its HPA."""
        link = self.link(name)
        if link is None:
            return Neighbours()
        hpas = self._hpas_of_target[link.hpa.target.identity]
        of_hpa = self.policies_of_hpa(link.hpa.name)
        rivals = of_hpa if is_faulty(link.hpa) else self.policies_of_target(link.hpa.target)
        return Neighbours(_others(hpas, link.hpa.name), _others(rivals, name))


def is_faulty(hpa: Hpa) -> bool:
    """Policies of an HPA with a faulty reference are refused for that, and take nothing from others."""
    return any(reference_faults(*hpa.target))


def _others(names: Collection[str], own: str) -> str:
    """The first names but this one, and how many more there are."""
    return first_names(sorted(name for name in names if name != own), NAMED_NEIGHBOURS)


def discard(index: dict[Any, set[Any]], key: object, value: object) -> None:
    """Remove a value from an index of sets, and its key with the last value."""
    values = index.get(key, set())
    values.discard(value)
    if not values:
        index.pop(key, None)


def selector_fault(requirements: Sized) -> str:
    """Why the selector of a target's scale, of these requirements, does not identify pods; empty where it does."""
    if not requirements:
        return "its scale has no selector, so its pods cannot be identified"
    count, most = len(requirements), f"at most {MAX_SELECTOR_REQUIREMENTS} are read"
    is_long = count > MAX_SELECTOR_REQUIREMENTS
    return f"its selector has {count} requirements; {most}, so select the pods by fewer" if is_long else ""


def target_pods(
    pods: Iterable[Pod], selects: Callable[[Mapping[str, str]], bool], target: Target, *, partial: bool = False
) -> Iterator[Pod]:
    """The pods whose labels a target `selects` and that it owns; a selector may match another workload's pods as well.

    Where a target of another kind than Kubernetes' own is the controller of some of these pods, those with another
    controller are not its. Where the pods are `partial`, labels or an owner that a pod lacks do not exclude it.
    """
    matching = [pod for pod in pods if selects(pod.labels) or (partial and not pod.labels)]
    controls = not owns_its_pods(target.kind) and any(
        _is_named(pod, target) and owned_by(pod, target) for pod in matching
    )
    for pod in matching:
        is_its = owned_by(pod, target) and (not controls or pod.owner is None or _is_named(pod, target))
        if is_its or (partial and pod.owner is None):
            yield pod


def owns_its_pods(kind: str) -> bool:
    """Whether pods of targets of this kind, in any case, are recognized by owner; of other kinds by selector alone."""
    return kind.lower() in _OWNING


def owned_by(pod: Pod, target: Target) -> bool:
    """Whether the pod's controller is the target, or the target's ReplicaSet of the pod's own template.

    True for kinds with an unknown way of owning pods, but not for a Job's or DaemonSet's pods: there the selector
    alone decides, which callers check as well.
    """
    owner, by_selector = pod.owner, not owns_its_pods(target.kind)
    if owner is None:
        return by_selector
    if _is_named(pod, target):
        return not (owner.uid and target.uid) or owner.uid == target.uid
    if owner.kind in _REPLICA_SETS and target.kind.lower() in _BY_REPLICA_SET and pod.template_hash:
        return owner.name == f"{target.name}-{pod.template_hash}"
    return by_selector and owner.kind not in _UNSCALED


def _is_named(pod: Pod, target: Target) -> bool:
    """Whether the pod's controller has the target's kind, in any case, and its name."""
    return pod.owner is not None and (pod.owner.kind.lower(), pod.owner.name) == (target.kind.lower(), target.name)


def reference_faults(*reference: str) -> Iterator[Fault]:
    """The faults of a reference to a scale target: of its apiVersion, kind and, if given, name."""
    advice = (
        "is not valid here; name the target as `kubectl api-resources` and `kubectl get` do: apps/v1, Deployment, web"
    )
    for value, (key, pattern) in zip(reference, _REFERENCE.items(), strict=False):
        if len(value) > MAX_NAME_LENGTH or not re.fullmatch(pattern, value):
            yield Fault(f"spec.scaleTargetRef.{key}", value, advice)
