"""Kubernetes objects of the harness: kubeconfigs, and API services that lead to a program on this machine."""

import base64
from pathlib import Path
from typing import Any

import yaml

from lab.harness.pki import Pair, write_private

Object = dict[str, Any]


def kubeconfig(path: Path, server: str, authority: bytes, user: Pair | str, namespace: str = "default") -> Path:
    """Writes a kubeconfig with inline data; the user is a client certificate or a bearer token."""

    def inline(pem: bytes) -> str:
        return base64.b64encode(pem).decode()

    if isinstance(user, str):
        identity: Object = {"token": user}
    else:
        identity = {"client-certificate-data": inline(user.certificate), "client-key-data": inline(user.key)}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": {"server": server, "certificate-authority-data": inline(authority)}}],
        "users": [{"name": "tests", "user": identity}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": namespace}}],
    }
    return write_private(path, yaml.safe_dump(content).encode())


def external_service(name: str, namespace: str, port: int) -> Object:
    """A Service that leads to this machine by an external name, which the aggregator resolves itself."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "type": "ExternalName",
            "externalName": "localhost",
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        },
    }


def api_service(
    group: str,
    version: str,
    service: tuple[str, str, int],
    *,
    priority: int = 100,
    skip: bool = True,
) -> Object:
    """An APIService served by (namespace, name, port), not verified, or with `skip` false by the CA it writes there."""
    namespace, name, port = service
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}"},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": priority,
            "service": {"namespace": namespace, "name": name, "port": port},
            **({"insecureSkipTLSVerify": True} if skip else {}),
        },
    }


def namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
