"""policy → HPA → scale target → pods: one pure implementation for the server, `check` and `decide`.

A policy names an HPA of its own namespace, and that HPA its scale target. The API group, kind and name identify a
target: Kubernetes serves one object under every version of its group, and the HPA controller maps a reference by group
and kind alone. HPAs that name `apps/v1` and `apps/v1beta1` scale the same Deployment.

An HPA's `scaleTargetRef` may name no kind or object at all: Kubernetes 1.36 holds `kind` and `name` to the rules of a
path segment and `apiVersion` to at most one slash, so it admits `%61pps/v1` and `apps?x=1/v1`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import NamedTuple, Protocol, TypeVar

from adapter.load.matching import owned_by
from adapter.load.pods import Pod
from adapter.load.spec import Policy, Target
from adapter.policy.field_reader import MAX_NAME_LENGTH
from adapter.policy.hpa import Hpa, ObjectReference
from adapter.runtime.faults import Fault

K = TypeVar("K")
V = TypeVar("V")

MOST_REQUIREMENTS = 32
"""Every assessment tests every pod against each requirement of its target's selector. Workloads have a handful."""

NO_SCALE = (
    "has no usable scale: the paths of its scale subresource lead nowhere, or its selector is not a label selector"
)
"""What is wrong with a target, after its kind and name."""

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
"""A DNS-1123 subdomain: a group, and the name of every kind of object that Kubernetes itself or a definition brings."""
_VERSION = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
"""A DNS-1035 label."""
_KIND = re.compile(r"[A-Za-z](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
"""A DNS-1035 label in letters of any case, as definitions of custom resources are held to."""


class TargetRef(NamedTuple):
    """A scale target as an HPA names it."""

    namespace: str
    api_version: str
    kind: str
    name: str


class Neighbours(NamedTuple):
    """The other HPAs and the other policies of a policy's scale target, by name."""

    hpas: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()


class Link(NamedTuple):
    """A valid policy and its HPA."""

    policy: Policy
    hpa: Hpa

    @property
    def ref(self) -> TargetRef:
        """The HPA's scale target."""
        return target_ref(self.hpa)


class Links:
    """The valid policies and the HPAs of one namespace, by name. Every query is an index lookup."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        self.hpas: dict[str, Hpa] = {}
        self._policies_of_hpa: dict[str, set[str]] = defaultdict(set)
        self._hpas_of_target: dict[ObjectReference, set[str]] = defaultdict(set)

    def __bool__(self) -> bool:
        return bool(self.policies or self.hpas)

    def put_policy(self, name: str, policy: Policy | None) -> None:
        """Add or replace a policy; None removes it."""
        old = self.policies.pop(name, None)
        if old is not None:
            discard(self._policies_of_hpa, old.hpa, name)
        if policy is not None:
            self.policies[name] = policy
            self._policies_of_hpa[policy.hpa].add(name)

    def put_hpa(self, name: str, hpa: Hpa | None) -> None:
        """Add or replace an HPA; None removes it."""
        old = self.hpas.pop(name, None)
        if old is not None:
            discard(self._hpas_of_target, old.target.identity, name)
        if hpa is not None:
            self.hpas[name] = hpa
            self._hpas_of_target[hpa.target.identity].add(name)

    def policies_of_hpa(self, hpa: str) -> Iterable[str]:
        """The policies that name an HPA."""
        return self._policies_of_hpa.get(hpa, ())

    def policies_of_target(self, target: ObjectReference) -> Iterator[str]:
        """The policies whose HPAs scale a target, in whatever version they name it."""
        for hpa in self._hpas_of_target.get(target.identity, ()):
            yield from self.policies_of_hpa(hpa)

    def link(self, name: str) -> Link | None:
        """The policy's link; None where the policy is not valid or its HPA does not exist."""
        policy = self.policies.get(name)
        hpa = self.hpas.get(policy.hpa) if policy is not None else None
        return None if policy is None or hpa is None else Link(policy, hpa)

    def neighbours(self, name: str) -> Neighbours:
        """The neighbours of a policy; empty where it has no link."""
        link = self.link(name)
        if link is None:
            return Neighbours()
        own, hpas = link.policy.hpa, self._hpas_of_target[link.hpa.target.identity]
        # A policy whose HPA has a faulty reference is refused for that; it takes nothing from the others.
        faulty = {hpa for hpa in hpas if len(hpas) > 1 and any(reference_faults(*self.hpas[hpa].target))}
        answered = {own} if own in faulty else hpas - faulty
        policies = {policy for hpa in answered for policy in self.policies_of_hpa(hpa)}
        return Neighbours(tuple(sorted(hpas - {own})), tuple(sorted(policies - {name})))


def target_ref(hpa: Hpa) -> TargetRef:
    """The target that an HPA names."""
    target = hpa.target
    return TargetRef(hpa.namespace, target.api_version, target.kind, target.name)


def discard(index: dict[K, set[V]], key: K, value: V) -> None:
    """Remove a value from an index of sets, and its key with the last value."""
    values = index.get(key, set())
    values.discard(value)
    if not values:
        index.pop(key, None)


class PodSelector(Protocol):
    """A parsed label selector."""

    @property
    def requirements(self) -> Sized:
        """The conditions, all of which must hold."""
        ...

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy every requirement."""
        ...


def selector_fault(selector: PodSelector) -> str:
    """Why the selector of a target's scale does not identify pods; empty where it does."""
    count = len(selector.requirements)
    if not count:
        return "its scale has no selector, so its pods cannot be identified"
    if count > MOST_REQUIREMENTS:
        return (
            f"its selector has {count} requirements; at most {MOST_REQUIREMENTS} are read, so select the pods by fewer"
        )
    return ""


def target_pods(pods: Iterable[Pod], selector: PodSelector, target: Target, *, partial: bool = False) -> Iterator[Pod]:
    """The pods that a target's selector matches and that it owns; a selector alone may match another workload's pods.

    Where the pods are `partial`, labels or an owner that a pod lacks do not exclude it.
    """
    for pod in pods:
        matches = selector.matches(pod.labels) or (partial and not pod.labels)
        if matches and (owned_by(pod, target) or (partial and pod.owner is None)):
            yield pod


def kind_faults(api_version: str, kind: str) -> Iterator[Fault]:
    """The faults of a reference's apiVersion and kind."""
    group, slash, version = api_version.rpartition("/")
    if (slash and not _is_subdomain(group)) or not _VERSION.fullmatch(version):
        advice = "is not a group and version of the Kubernetes API; write them as `kubectl api-resources` does: apps/v1"
        yield Fault("spec.scaleTargetRef.apiVersion", api_version, advice)
    if not _KIND.fullmatch(kind):
        advice = "is not a kind (letters, digits, -; at most 63); write it as `kubectl api-resources` does: Deployment"
        yield Fault("spec.scaleTargetRef.kind", kind, advice)


def reference_faults(api_version: str, kind: str, name: str) -> Iterator[Fault]:
    """The faults of a reference to a scale target."""
    yield from kind_faults(api_version, kind)
    if not _is_subdomain(name):
        advice = f"is not an object's name (small letters, digits, - and ., at most {MAX_NAME_LENGTH}); name the target"
        yield Fault("spec.scaleTargetRef.name", name, advice)


def _is_subdomain(text: str) -> bool:
    return len(text) <= MAX_NAME_LENGTH and _SUBDOMAIN.fullmatch(text) is not None
