"""Policies, HPAs and workloads of the YAML files that a replay is given."""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapter.load.quantity import QuantityError, parse_nano
from adapter.load.spec import Policy
from adapter.policy.documents import mapping_at
from adapter.policy.hpa import Hpa, parse_hpa
from adapter.policy.watermark_policy import KIND, parse_policy
from adapter.runtime import document_text
from adapter.runtime.faults import Fault, FaultyDocument, first_faults

_DOCUMENT = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)
_HPA = "HorizontalPodAutoscaler"
_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a pod of a workload requests and may use (nano-units by resource), all containers together."""

    namespace: str
    name: str
    requests: Mapping[str, int] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifests:
    """The objects of a file that a replay can use."""

    policies: tuple[Policy, ...] = ()
    hpas: tuple[Hpa, ...] = ()
    workloads: tuple[Workload, ...] = ()

    def hpa_of(self, policy: Policy) -> Hpa | None:
        """The HPA that the policy names; the only one of the file where none has that name."""
        by_name = [hpa for hpa in self.hpas if (hpa.namespace, hpa.name) == (policy.namespace, policy.hpa)]
        if by_name:
            return by_name[0]
        return self.hpas[0] if len(self.hpas) == 1 and len(self.policies) <= 1 else None

    def workload_of(self, policy: Policy, hpa: Hpa | None) -> Workload | None:
        """The workload that the policy's HPA scales."""
        name = policy.hpa if hpa is None else hpa.target.name
        return next(
            (
                workload
                for workload in self.workloads
                if (workload.namespace, workload.name) == (policy.namespace, name)
            ),
            None,
        )


def read_manifests(text: str, name: str) -> Manifests:
    """Read a file of YAML documents; objects of other kinds are passed over. Raises FaultyDocument, or PolicyError."""
    policies, hpas, workloads = [], [], []
    for data in _objects(text, name):
        kind = data.get("kind")
        if kind == KIND:
            policies.append(parse_policy(data))
        elif kind == _HPA:
            hpas.append(parse_hpa(data))
        elif (workload := _workload(data)) is not None:
            workloads.append(workload)
    return Manifests(policies=tuple(policies), hpas=tuple(hpas), workloads=tuple(workloads))


def _objects(text: str, name: str) -> Iterator[Mapping[str, Any]]:
    for part in _DOCUMENT.split(text):
        if not any(line.strip() and not line.lstrip().startswith("#") for line in part.splitlines()):
            continue
        try:
            data = document_text.read_document(part)
        except document_text.TextError as error:
            raise FaultyDocument(first_faults(error.faults), name) from error
        if not isinstance(data, Mapping):
            raise FaultyDocument([Fault("", data, "must be a Kubernetes object, such as a WatermarkPolicy")], name)
        items = data.get("items")
        if str(data.get("kind", "")).endswith("List") and isinstance(items, list):
            yield from (item for item in items[:_MOST] if isinstance(item, Mapping))
        else:
            yield data


def _workload(data: Mapping[str, Any]) -> Workload | None:
    """The resources of an object with a pod template; None for any other."""
    metadata, template = mapping_at(data, "metadata"), mapping_at(data, "spec", "template", "spec")
    containers = template.get("containers")
    if not isinstance(containers, list) or not isinstance(metadata.get("name"), str):
        return None
    inits = template.get("initContainers")
    sidecars = (
        [container for container in inits if mapping_at(container).get("restartPolicy") == "Always"]
        if isinstance(inits, list)
        else []
    )

    def amounts(holder: object, key: str) -> dict[str, int]:
        readable = {}
        for name, text in mapping_at(holder, "resources", key).items():
            with contextlib.suppress(QuantityError):
                readable[name] = parse_nano(str(text))
        return readable

    def of_pod(key: str) -> dict[str, int]:
        return sums([amounts(container, key) for container in (*containers, *sidecars)]) | amounts(template, key)

    return Workload(
        namespace=str(metadata.get("namespace") or "default"),
        name=metadata["name"],
        requests=of_pod("requests"),
        limits=of_pod("limits"),
    )


def sums(amounts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The sums by resource that every container has; a container without one makes it unknown."""
    names = set.intersection(*(set(amount) for amount in amounts)) if amounts else set()
    return {name: sum(amount[name] for amount in amounts) for name in sorted(names)}
