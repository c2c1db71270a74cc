"""Reads the policies of a cluster, their HPAs, and the pods of their targets."""

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from adapter.kube.api import ENDPOINT_SLICES, HPAS, PODS, WATERMARK_POLICIES, GroupVersionResource
from adapter.kube.errors import KubeError, NotFound, decode_answer
from adapter.kube.objects import Condition, EndpointSlice, KubeObject, ObjectList
from adapter.kube.pods import PodDecoder
from adapter.kube.rest_mapper import RestMapper
from adapter.kube.scale import target_decoder
from adapter.kube.selectors import SelectorError, parse_selector
from adapter.kube.session import Session
from adapter.load.pods import Pod
from adapter.load.spec import Policy
from adapter.policy.documents import PolicyObject
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.linking import NO_SCALE, reference_faults, selector_fault, target_pods
from adapter.policy.watermark_policy import parse_policy
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import FaultyDocument

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


class TargetPods(NamedTuple):
    """The pods of a policy's target, and the HPA that scales it."""

    hpa: Hpa
    pods: tuple[Pod, ...]


class Cluster:
    """Reads from one API server. Raises KubeError and ClusterError.

    `tolerance` is the ratio for HPAs that set none themselves.
    """

    def __init__(self, session: Session, tolerance: Fraction) -> None:
        self.session = session
        self._tolerance = tolerance
        self._resources = RestMapper(session)

    async def policies(self, namespaces: Iterable[str]) -> list[ListedPolicy]:
        """The policies of these namespaces (empty: of all), sorted by name."""
        return sorted(map(_policy, await self._within(WATERMARK_POLICIES, namespaces)), key=str)

    async def pods(self, policy: Policy) -> TargetPods:
        """The pods of a policy's target, by selector and owner."""
        found = await self._one(HPAS.collection(policy.namespace), policy.hpa)
        if found is None:
            raise ClusterError(f"there is no HorizontalPodAutoscaler {policy.hpa}, which the policy names")
        try:
            hpa = parse_hpa(found, self._tolerance)
        except FaultyDocument as error:
            raise ClusterError(str(error)) from error
        for fault in reference_faults(*hpa.target):
            raise ClusterError(f"HorizontalPodAutoscaler {hpa.name}: {fault}")
        resource = await self._resources.scalable(hpa.target.api_version, hpa.target.kind)
        named = f"{resource.kind} {hpa.target.name}"
        raw = await self._one(resource.collection(policy.namespace), hpa.target.name)
        if raw is None:
            raise ClusterError(f"{named}, which HorizontalPodAutoscaler {hpa.name} scales, does not exist")
        target = decode_answer(target_decoder(resource.api_version, resource.kind, resource.paths), raw, named)
        if target.scale is None:
            raise ClusterError(f"{named} {NO_SCALE}")
        try:
            selector = parse_selector(target.scale.selector)
        except SelectorError as error:
            raise ClusterError(f"{named}: {error}") from error
        if unusable := selector_fault(selector.requirements):
            raise ClusterError(f"{named}: {unusable}")
        decode = PodDecoder()
        raws = await self._items(PODS.collection(policy.namespace), labelSelector=str(selector))
        pods = target_pods([decode_answer(decode, raw, "pods") for raw in raws], selector.matches, target.target)
        return TargetPods(hpa, tuple(sorted(pods, key=lambda pod: pod.name)))

    async def hpas(self, namespaces: Iterable[str]) -> list[Hpa]:
        """The HPAs of these namespaces (empty: of all) that can be read."""
        hpas = []
        for raw in await self._within(HPAS, namespaces):
            with contextlib.suppress(FaultyDocument):
                hpas.append(parse_hpa(raw, self._tolerance))
        return hpas

    async def objects(self, api_version: str, plural: str, namespaces: Iterable[str]) -> list[Mapping[str, Any]]:
        """The objects of a kind that may not be installed (then none), as they are."""
        try:
            return list(
                map(msgspec.json.decode, await self._within(GroupVersionResource(api_version, plural), namespaces))
            )
        except NotFound:
            return []

    async def service_pods(self, namespace: str, service: str) -> list[str]:
        """The names of a Service's pods, ready or not."""
        labels = f"kubernetes.io/service-name={service}"
        raws = await self._items(ENDPOINT_SLICES.collection(namespace), labelSelector=labels)
        slices = [decode_answer(Decoder(EndpointSlice).decode, raw, "endpointslices") for raw in raws]
        targets = [endpoint.target_ref for each in slices for endpoint in each.endpoints or ()]
        return sorted({target.name for target in targets if target is not None and target.kind == "Pod"})

    async def _one(self, path: str, name: str) -> msgspec.Raw | None:
        """One object, by a list with a field selector: the rights to list and watch suffice."""
        return next(iter(await self._items(path, fieldSelector=f"metadata.name={name}")), None)

    async def _within(self, resource: GroupVersionResource, namespaces: Iterable[str]) -> list[msgspec.Raw]:
        """The objects of a kind in these namespaces (empty: in all)."""
        return [raw for one in tuple(namespaces) or ("",) for raw in await self._items(resource.collection(one))]

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
    return decode_answer(Decoder(_ServerVersion).decode, body, "the answer is not a version").git_version


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
