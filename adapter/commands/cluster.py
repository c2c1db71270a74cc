"""Reads the policies of a cluster, their HPAs, and the pods of their targets."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from adapter.kube.api import HPAS, PODS, WATERMARK_POLICIES, GroupVersionResource
from adapter.kube.errors import decode_answer
from adapter.kube.objects import ObjectList
from adapter.kube.pods import PodDecoder
from adapter.kube.rest_mapper import RestMapper
from adapter.kube.scale import target_decoder
from adapter.kube.selectors import SelectorError, parse_selector
from adapter.kube.session import Session
from adapter.load.pods import Pod
from adapter.load.spec import Policy
from adapter.policy.documents import mapping_at
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.linking import NO_SCALE, reference_faults, selector_fault, target_pods
from adapter.policy.watermark_policy import parse_policy
from adapter.runtime.decoding import Decoder
from adapter.runtime.faults import FaultyDocument

TOLERANCE_SINCE = (1, 35)
"""The Kubernetes version from which on HPAs have a tolerance of their own."""
_DIGITS = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?!\d)")


class ClusterError(Exception):
    """The pods of a policy cannot be determined; the message says why."""


@dataclass(frozen=True, slots=True)
class ListedPolicy:
    """A policy; where it is not valid, `policy` is None and `fault` says why."""

    namespace: str
    name: str
    policy: Policy | None
    fault: str = ""

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
        self._session = session
        self._tolerance = tolerance
        self._resources = RestMapper(session)

    async def policies(self, namespaces: Iterable[str]) -> list[ListedPolicy]:
        """The policies of these namespaces (empty: of all), sorted by name."""
        return sorted(map(_policy, await list_objects(self._session, WATERMARK_POLICIES, namespaces)), key=str)

    async def pods(self, policy: Policy) -> TargetPods:
        """The pods of a policy's target, by selector and owner."""
        try:
            path, missing = HPAS.collection(policy.namespace), f"there is no HPA {policy.hpa}, which the policy names"
            hpa = parse_hpa(await self._one(path, policy.hpa, missing), self._tolerance)
            for fault in reference_faults(*hpa.target):
                raise ClusterError(f"HPA {hpa.name}: {fault}")
            resource = await self._resources.scalable(hpa.target.api_version, hpa.target.kind)
            named = f"{resource.kind} {hpa.target.name}"
            missing = f"{named}, which HPA {hpa.name} scales, does not exist"
            raw = await self._one(resource.collection(policy.namespace), hpa.target.name, missing)
            target = decode_answer(target_decoder(resource.api_version, resource.kind, resource.paths), raw, named)
            if target.scale is None:
                raise ClusterError(f"{named} {NO_SCALE}")
            selector = parse_selector(target.scale.selector)
        except (FaultyDocument, SelectorError) as error:
            raise ClusterError(str(error)) from error
        if unusable := selector_fault(selector.requirements):
            raise ClusterError(f"{named}: {unusable}")
        decode, path = PodDecoder(), PODS.collection(policy.namespace)
        raws = await _items(self._session, path, labelSelector=str(selector))
        pods = target_pods([decode_answer(decode, raw, "pods") for raw in raws], selector.matches, target.target)
        return TargetPods(hpa, tuple(sorted(pods, key=lambda pod: pod.name)))

    async def _one(self, path: str, name: str, missing: str) -> msgspec.Raw:
        """One object, by a list with a field selector: the rights to list and watch suffice."""
        for raw in await _items(self._session, path, fieldSelector=f"metadata.name={name}"):
            return raw
        raise ClusterError(missing)


async def list_objects(
    session: Session, resource: GroupVersionResource, namespaces: Iterable[str] = (), **params: str
) -> list[Mapping[str, Any]]:
    """The objects of a kind in these namespaces (empty: in all). Raises KubeError."""
    paths = [resource.collection(namespace) for namespace in tuple(namespaces) or ("",)]
    return [msgspec.json.decode(raw) for path in paths for raw in await _items(session, path, **params)]


async def _items(session: Session, path: str, **params: str) -> list[msgspec.Raw]:
    body = await session.get(path, params=params or None, timeout=30)
    return decode_answer(Decoder(ObjectList).decode, body, path).items or []


def _policy(data: Mapping[str, Any]) -> ListedPolicy:
    metadata = mapping_at(data, "metadata")
    try:
        return ListedPolicy(metadata["namespace"], metadata["name"], parse_policy(data))
    except FaultyDocument as error:
        return ListedPolicy(metadata["namespace"], metadata["name"], None, "; ".join(map(str, error.faults)))


def parse_version(text: str) -> tuple[int, int] | None:
    """Major and minor version of texts such as `1.34` and `v1.34.0-gke.5`."""
    match = _DIGITS.match(text)
    return (int(match[1]), int(match[2])) if match else None
