"""Custom kinds that an HPA can scale."""

from typing import Any


def scalable(
    group: str,
    kind: str,
    version: str = "v1",
    *,
    spec: str = ".spec.replicas",
    status: str = ".status.replicas",
    selector: str = ".status.selector",
) -> dict[str, Any]:
    """The definition of a kind whose scale has these paths."""
    plural = f"{kind.lower()}s"
    scale = {"specReplicasPath": spec, "statusReplicasPath": status, "labelSelectorPath": selector}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"status": {}, "scale": scale},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [served],
        },
    }
