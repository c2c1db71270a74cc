"""Reads the policies of a cluster, their HPAs, and the pods of their targets."""

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

import msgspec

from adapter.kube.api import ENDPOINT_SLICES, HPAS, PODS, WATERMARK_POLICIES
from adapter.kube.errors import KubeError, decode_answer
from adapter.kube.objects import AnyObject, Condition, EndpointSlice, KubeObject, ObjectList
from adapter.kube.pods import PodDecoder
from adapter.kube.rest_mapper import RestMapper
from adapter.kube.selectors import SelectorError, parse_selector
from adapter.kube.session import Session
from adapter.kube.targets import target_decoder
from adapter.load.pods import Pod
from adapter.load.spec import Policy, Target
from adapter.policy.conformance import Wiring
from adapter.policy.field_reader import PolicyObject
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.linking import NO_SCALE, Links, reference_faults, selector_fault, target_pods
from adapter.policy.watermark_policy import parse_policy
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import FaultyDocument

T = TypeVar("T")

GATE = "HPAConfigurableTolerance"
TOLERANCE_SINCE = (1, 35)
"""The Kubernetes version from which on the gate is on by default."""
_FEATURE = re.compile(rb'^kubernetes_feature_enabled\{[^}]*name="' + GATE.encode() + rb'"[^}]*\} ([01])', re.MULTILINE)
_DIGITS = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?!\d)")


class ClusterError(Exception):
    """The pods of a policy cannot be determined; the message says why."""


class _ServerVersion(KubeObject, frozen=True):
    git_version: str = ""


class ReportedStatus(KubeObject, frozen=True):
    """The parts of a policy's status that commands read."""

    assessed_at: str = ""
    conditions: tuple[Condition, ...] = ()


class _PolicyWithStatus(PolicyObject, frozen=True):
    status: ReportedStatus | None = None


@dataclass(frozen=True, slots=True)
class ListedPolicy:
    """A policy with its status; where it is not valid, `policy` is None and `fault` says why."""

    namespace: str
    name: str
    policy: Policy | None
    fault: str = ""
    status: ReportedStatus = field(default_factory=ReportedStatus)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class WiredTarget:
    """A policy's target, the target's pods, and the wiring of policy and HPA."""

    target: Target
    pods: tuple[Pod, ...]
    wiring: Wiring


class Cluster:
    """Reads from one API server. Raises KubeError and ClusterError.

    `tolerance` is the ratio for HPAs that set none themselves; `kubeconfig` the file that the user named.
    """

    def __init__(self, session: Session, tolerance: Fraction, kubeconfig: str | None = None) -> None:
        self.session = session
        self.kubeconfig = kubeconfig
        self._tolerance = tolerance
        self._resources = RestMapper(session)
        self._links: dict[str, tuple[Links, dict[str, str]]] = {}

    def hpa_tolerance(self, tolerance: float) -> None:
        """Set the ratio for HPAs that set none themselves, before any is read."""
        self._tolerance = Fraction(tolerance)

    async def policies(self, namespaces: Iterable[str]) -> list[ListedPolicy]:
        """The policies of these namespaces (empty: of all), sorted by name."""
        paths = [WATERMARK_POLICIES.collection(namespace) for namespace in tuple(namespaces) or ("",)]
        return sorted([_policy(raw) for path in paths for raw in await self._items(path)], key=str)

    async def policy(self, namespace: str, name: str) -> ListedPolicy:
        """One policy."""
        raw = await self._one(WATERMARK_POLICIES.collection(namespace), name)
        if raw is None:
            raise ClusterError(f"there is no WatermarkPolicy {name} in namespace {namespace}")
        return _policy(raw)

    async def wiring(self, policy: Policy) -> Wiring:
        """A policy with its HPA; `has_tolerance` is None unless an HPA proves that the field is kept."""
        if policy.namespace not in self._links:
            links, faults = Links(), dict[str, str]()
            for raw in await self._items(HPAS.collection(policy.namespace)):
                try:
                    hpa = parse_hpa(raw, self._tolerance)
                except FaultyDocument as error:
                    name = decode_answer(Decoder(AnyObject).decode, raw, "HorizontalPodAutoscaler").metadata.name
                    faults[name] = "; ".join(map(str, error.faults))  # without the HPA's name, which the reader has
                else:
                    links.put_hpa(hpa.name, hpa)
            for listed in await self.policies([policy.namespace]):
                links.put_policy(listed.name, listed.policy)
            self._links[policy.namespace] = links, faults
        links, faults = self._links[policy.namespace]
        if policy.hpa in faults:
            raise ClusterError(f"HorizontalPodAutoscaler {policy.hpa}: {faults[policy.hpa]}")
        if policy.hpa not in links.hpas:
            raise ClusterError(f"there is no HorizontalPodAutoscaler {policy.hpa}, which the policy names")
        return Wiring(
            policy=policy,
            hpa=links.hpas[policy.hpa],
            neighbours=links.neighbours(policy.name),
            has_tolerance=True if any(hpa.sets_tolerance for hpa in links.hpas.values()) else None,
        )

    async def pods(self, policy: Policy) -> WiredTarget:
        """The pods of a policy's target, by selector and owner."""
        wiring = await self.wiring(policy)
        hpa = wiring.hpa
        for fault in reference_faults(*hpa.target):
            raise ClusterError(f"HorizontalPodAutoscaler {hpa.name}: {fault}")
        kind, name = hpa.target.kind, hpa.target.name
        resource = await self._resources.scalable(hpa.target.api_version, kind)
        raw = await self._one(resource.collection(policy.namespace), name)
        if raw is None:
            raise ClusterError(f"{kind} {name}, which HorizontalPodAutoscaler {hpa.name} scales, does not exist")
        target = decode_answer(target_decoder(hpa.target.api_version, kind, resource.paths), raw, f"{kind} {name}")
        if target.scale is None:
            raise ClusterError(f"{kind} {name} {NO_SCALE}")
        try:
            selector = parse_selector(target.scale.selector)
        except SelectorError as error:
            raise ClusterError(f"{kind} {name}: {error}") from error
        if unusable := selector_fault(selector):
            raise ClusterError(f"{kind} {name}: {unusable}")
        path, decode = PODS.collection(policy.namespace), PodDecoder()
        raws = await self._items(path, labelSelector=str(selector))
        pods = target_pods((decode_answer(decode, raw, "pods") for raw in raws), selector, target.target)
        return WiredTarget(target.target, tuple(sorted(pods, key=lambda pod: pod.name)), wiring)

    async def hpas(self, namespaces: Iterable[str]) -> list[Hpa]:
        """The HPAs of these namespaces (empty: of all) that can be read."""
        hpas = []
        for namespace in tuple(namespaces) or ("",):
            for raw in await self._items(HPAS.collection(namespace)):
                with contextlib.suppress(FaultyDocument):
                    hpas.append(parse_hpa(raw, self._tolerance))
        return hpas

    async def service_pods(self, namespace: str, service: str) -> list[str]:
        """The names of a Service's pods, ready or not."""
        slices = await self._endpoint_slices(namespace, service)
        targets = [endpoint.target_ref for each in slices for endpoint in each.endpoints or ()]
        return sorted({target.name for target in targets if target is not None and target.kind == "Pod"})

    async def _endpoint_slices(self, namespace: str, service: str) -> list[EndpointSlice]:
        labels = f"kubernetes.io/service-name={service}"
        raws = await self._items(ENDPOINT_SLICES.collection(namespace), labelSelector=labels)
        return [decode_answer(Decoder(EndpointSlice).decode, raw, "endpointslices") for raw in raws]

    def now(self) -> float:
        """Epoch seconds."""
        return self.session.now()

    async def _one(self, path: str, name: str) -> msgspec.Raw | None:
        """One object, by a list with a field selector: the rights to list and watch suffice."""
        return next(iter(await self._items(path, fieldSelector=f"metadata.name={name}")), None)

    async def _items(self, path: str, **params: str) -> list[msgspec.Raw]:
        body = await self.session.get(path, params=params or None, timeout=30)
        return decode_answer(Decoder(ObjectList).decode, body, path).items or []


def _policy(body: bytes | msgspec.Raw) -> ListedPolicy:
    wire = decode_answer(Decoder(_PolicyWithStatus).decode, body, "WatermarkPolicy")
    namespace, name, status = wire.metadata.namespace, wire.metadata.name, wire.status or ReportedStatus()
    try:
        return ListedPolicy(namespace, name, parse_policy(wire), status=status)
    except FaultyDocument as error:
        return ListedPolicy(namespace, name, None, "; ".join(map(str, error.faults)), status)


def parse_version(text: str) -> tuple[int, int] | None:
    """Major and minor version of texts such as `1.34` and `v1.34.0-gke.5`."""
    match = _DIGITS.match(text)
    return (int(match[1]), int(match[2])) if match else None


async def server_version(session: Session) -> str:
    """The API server's version as it gives it. Raises KubeError."""
    body = await session.get("/version")
    return decode_answer(Decoder(_ServerVersion).decode, body, "the answer is no version").git_version


async def has_tolerance(session: Session, version: str) -> bool | None:
    """Whether the HPAs of this server, which is of this version, have a tolerance; None where nothing says so.

    The server's own metrics show the gate; where they may not be read, the version's default counts.
    """
    try:
        gate = _FEATURE.search(await session.get("/metrics", accept="text/plain", timeout=5))
    except KubeError:
        gate = None
    if gate:
        return gate[1] == b"1"
    parsed = parse_version(version)
    return None if parsed is None else parsed >= TOLERANCE_SINCE
