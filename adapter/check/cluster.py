"""The policies of a cluster and the pods of their targets, each asked for once."""

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

import msgspec

from adapter.kube.api import API_SERVICES, ENDPOINT_SLICES, HPAS, PODS, WATERMARK_POLICIES
from adapter.kube.errors import KubeError, MalformedAnswer
from adapter.kube.objects import Condition
from adapter.kube.pods import PodDecoder
from adapter.kube.resources import Resources
from adapter.kube.session import Session
from adapter.kube.targets import target_decoder
from adapter.load.matching import owned_by
from adapter.load.pods import Pod
from adapter.load.spec import Policy, Target
from adapter.policy.conformance import Wiring
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.objects import PolicyObject
from adapter.policy.references import reference_faults
from adapter.policy.watermark_policy import parse_policy
from adapter.runtime.decoding import Decoder, decode
from adapter.runtime.faults import FaultyDocument

_API_SERVICE = "v1beta2.custom.metrics.k8s.io"

T = TypeVar("T")


class ClusterFault(Exception):  # noqa: N818  an error is called what happened
    """What stands between a policy and its pods, in a sentence."""


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """As much of a policy's status as tells what the companion found, and when."""

    assessed_at: str = ""
    conditions: tuple[Condition, ...] = ()


class _Port(msgspec.Struct, frozen=True):
    name: str | None = None
    port: int | None = None


class _Endpoint(msgspec.Struct, frozen=True):
    addresses: tuple[str, ...] = ()


class _Slice(msgspec.Struct, frozen=True):
    ports: tuple[_Port, ...] | None = None
    endpoints: tuple[_Endpoint, ...] | None = None

    def addresses(self) -> Iterator[str]:
        for port in self.ports or ():
            if port.name == "https" and port.port is not None:
                for address in (one for endpoint in self.endpoints or () for one in endpoint.addresses):
                    yield f"[{address}]:{port.port}" if ":" in address else f"{address}:{port.port}"


class _PolicyWithStatus(PolicyObject, frozen=True):
    status: Status | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """A policy by its name with its status; `policy` is None where it is not valid, and `fault` says why."""

    namespace: str
    name: str
    policy: Policy | None
    fault: str = ""
    status: Status = field(default_factory=Status)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class _ApiServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str = ""


class _ApiService(msgspec.Struct, frozen=True):
    spec: _ApiServiceSpec = _ApiServiceSpec()


@dataclass(frozen=True, slots=True)
class TargetPods:
    """What a policy scales, its pods, and how policy and HPA are joined."""

    target: Target
    pods: tuple[Pod, ...]
    wiring: Wiring


class Cluster:
    """Reads from one API server. Whatever fails is a KubeError or a ClusterFault.

    `tolerance` is that of HPAs which set none themselves (a ratio), `kubeconfig` the file that was named.
    """

    def __init__(self, session: Session, tolerance: Fraction, kubeconfig: str | None = None) -> None:
        self.session = session
        self.kubeconfig = kubeconfig
        self._tolerance = tolerance
        self._resources = Resources(session)
        self._neighbourhoods: dict[str, tuple[list[Hpa], list[Named]]] = {}

    async def policies(self, namespaces: Iterable[str]) -> list[Named]:
        """The policies of these namespaces, of all where none is named; by name."""
        paths = [WATERMARK_POLICIES.collection(one) for one in tuple(namespaces) or ("",)]
        found = [_policy(raw) for path in paths for raw in await self._items(path)]
        return sorted(found, key=str)

    async def policy(self, namespace: str, name: str) -> Named:
        """One policy."""
        raw = await self._one(WATERMARK_POLICIES.collection(namespace), name)
        if raw is None:
            raise ClusterFault(f"there is no WatermarkPolicy {name} in namespace {namespace}")
        return _policy(raw)

    async def pods(self, policy: Policy) -> TargetPods:
        """The pods of a policy's target, by selector and owner."""
        hpa = await self._hpa(policy)
        for fault in reference_faults(*hpa.target):
            raise ClusterFault(f"HorizontalPodAutoscaler {hpa.name}: {fault}")
        kind, name = hpa.target.kind, hpa.target.name
        resource = await self._resources.scalable(hpa.target.api_version, kind)
        raw = await self._one(resource.collection(policy.namespace), name)
        if raw is None:
            raise ClusterFault(f"{kind} {name}, that HorizontalPodAutoscaler {hpa.name} scales, does not exist")
        known = _decoded(raw, target_decoder(hpa.target.api_version, kind, resource.paths), f"{kind} {name}")
        if known.scale is None or not known.scale.selector:
            raise ClusterFault(f"the scale of {kind} {name} has no selector, so its pods cannot be told")
        path, decode = PODS.collection(policy.namespace), PodDecoder()
        raws = await self._items(path, labelSelector=known.scale.selector)
        pods = [_decoded(raw, decode, "pods") for raw in raws]
        owned = sorted((pod for pod in pods if owned_by(pod, known.target)), key=lambda pod: pod.name)
        return TargetPods(known.target, tuple(owned), await self._wiring(policy, hpa))

    async def hpas(self, namespaces: Iterable[str]) -> list[Hpa]:
        """The HPAs of these namespaces, of all where none is named; those that cannot be read are left out."""
        paths = [HPAS.collection(one) for one in tuple(namespaces) or ("",)]
        found = [self._parsed(raw) for path in paths for raw in await self._items(path)]
        return [one for one in found if one is not None]

    async def addresses(self, namespace: str, service: str) -> list[str]:
        """Where the pods of a Service listen on its port `https`, as host:port, those that are not ready too."""
        raws = await self._items(
            ENDPOINT_SLICES.collection(namespace), labelSelector=f"kubernetes.io/service-name={service}"
        )
        found = [_decoded(raw, Decoder(_Slice).decode, "endpointslices") for raw in raws]
        return sorted({address for one in found for address in one.addresses()})

    async def authority(self) -> str:
        """The PEM bundle that vouches for the adapter's servers, as the aggregator knows it; empty where it cannot be
        read.
        """
        try:
            return base64.b64decode((await self._api_service()).spec.ca_bundle).decode()
        except (KubeError, ValueError, msgspec.MsgspecError):
            return ""

    async def _api_service(self) -> "_ApiService":
        return decode(await self.session.get(API_SERVICES.path("", _API_SERVICE)), _ApiService)

    def now(self) -> float:
        """The time by the API server's clock, in seconds."""
        return self.session.now()

    async def _wiring(self, policy: Policy, hpa: Hpa) -> Wiring:
        """The HPA and the policy among the others of their namespace."""
        hpas, policies = await self._neighbourhood(policy.namespace)
        same = {one.name for one in hpas if _scales_the_same(one, hpa)}
        rivals = [one.name for one in policies if one.policy and one.policy.hpa in same and one.name != policy.name]
        seen = any(pace.tolerance is not None for one in hpas for pace in (one.scale_up, one.scale_down))
        return Wiring(
            policy=policy,
            hpa=hpa,
            beside=tuple(sorted(same - {hpa.name})),
            rivals=tuple(sorted(rivals)),
            has_tolerance=True if seen else None,
        )

    async def _neighbourhood(self, namespace: str) -> tuple[list[Hpa], list[Named]]:
        """The HPAs and policies of a namespace; an HPA that cannot be read is nobody's neighbour."""
        if namespace not in self._neighbourhoods:
            found = [self._parsed(raw) for raw in await self._items(HPAS.collection(namespace))]
            hpas = [one for one in found if one is not None]
            self._neighbourhoods[namespace] = hpas, await self.policies([namespace])
        return self._neighbourhoods[namespace]

    def _parsed(self, raw: msgspec.Raw) -> Hpa | None:
        try:
            return parse_hpa(raw, self._tolerance)
        except (FaultyDocument, msgspec.MsgspecError):
            return None

    async def _hpa(self, policy: Policy) -> Hpa:
        raw = await self._one(HPAS.collection(policy.namespace), policy.hpa)
        if raw is None:
            raise ClusterFault(f"there is no HorizontalPodAutoscaler {policy.hpa}, which the policy names")
        try:
            return parse_hpa(raw, self._tolerance)
        except FaultyDocument as error:
            raise ClusterFault(f"HorizontalPodAutoscaler {policy.hpa}: {error}") from error

    async def _one(self, path: str, name: str) -> msgspec.Raw | None:
        """An object by its name, as a list: what may be watched may be listed, and needs no further right to be got."""
        return next(iter(await self._items(path, fieldSelector=f"metadata.name={name}")), None)

    async def _items(self, path: str, **params: str) -> list[msgspec.Raw]:
        body = await self.session.get(path, params=params or None, timeout=30)
        return _decoded(body, Decoder(_List).decode, path).items or []


def _policy(body: bytes | msgspec.Raw) -> Named:
    wire = _decoded(body, Decoder(_PolicyWithStatus).decode, "WatermarkPolicy")
    namespace, name, status = wire.metadata.namespace, wire.metadata.name, wire.status or Status()
    try:
        return Named(namespace, name, parse_policy(wire), status=status)
    except FaultyDocument as error:
        return Named(namespace, name, None, str(error), status)


def _decoded(body: bytes | msgspec.Raw, decode: Callable[[bytes | msgspec.Raw], T], what: str) -> T:
    try:
        return decode(body)
    except msgspec.MsgspecError as error:
        raise MalformedAnswer(f"{what}: {error}") from error


def _scales_the_same(one: Hpa, other: Hpa) -> bool:
    ours, theirs = one.target, other.target
    return (ours.group, ours.kind, ours.name) == (theirs.group, theirs.kind, theirs.name)
