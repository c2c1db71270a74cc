"""The metrics API, the adapter's own metrics, and its logs, in the settings.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from adapter.runtime.faults import Fault
from adapter.settings.base import Port, Section

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace() -> str:
    """The namespace this process runs in: $POD_NAMESPACE, else the service account's, else `effective-load`."""
    named = os.environ.get("POD_NAMESPACE", "")
    if not named and _NAMESPACE_FILE.is_file():
        named = _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    return named or "effective-load"


class Tls(Section):
    """How the metrics API gets its serving certificate."""

    mode: Literal["SelfSigned", "Files"] = "SelfSigned"
    """`SelfSigned`: an own CA and leaf, kept in a Secret and renewed. `Files`: given files, read again on a change."""
    cert_file: str = ""
    """PEM file with the certificate chain, for mode `Files`."""
    key_file: str = ""
    """PEM file with the private key, for mode `Files`."""
    namespace: str = Field(default_factory=own_namespace, min_length=1)
    """Namespace of the Service and of the Secret. Default: `$POD_NAMESPACE`, else the service account's namespace, else
    `effective-load`."""
    service: str = Field(default="effective-load", min_length=1)
    """Name of the Service that the APIServices point to; the certificate is made out to it."""
    secret: str = Field(default="effective-load-tls", min_length=1)
    """Name of the Secret that holds the own CA and leaf."""
    inject_ca_bundle: bool = Field(default=True, alias="injectCABundle")
    """Whether to write the CA into the own APIServices' `caBundle`."""


class ServerSettings(Section):
    """The metrics API itself."""

    address: str = ""
    """Address to listen on; empty: every interface, IPv4 and IPv6."""
    port: Port = 6443
    """Port to listen on (HTTPS); 0: any free one."""
    external_metrics: bool = False
    """Whether external.metrics.k8s.io is served too. A cluster has one adapter for that group, often KEDA."""
    tls: Tls = Field(default_factory=Tls)
    """The serving certificate."""


class TelemetrySettings(Section):
    """The adapter's own metrics, on a port of their own, without TLS."""

    address: str = ""
    """Address to listen on; empty: every interface, IPv4 and IPv6."""
    port: Port = 8080
    """Port of `/metrics` and `/healthz` (HTTP); 0: any free one."""


class Logging(Section):
    """What is logged, to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is written."""
    format: Literal["json", "console"] = "json"
    """One JSON object a line, or aligned text for people."""


def tls_faults(tls: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of `server.tls` that no single key shows."""
    for key in ("certFile", "keyFile"):
        if tls.get("mode") == "Files" and not tls.get(key):
            yield Fault(f"server.tls.{key}", None, "mode Files needs both certFile and keyFile; name the file")
        if tls.get("mode", "SelfSigned") == "SelfSigned" and tls.get(key):
            yield Fault(f"server.tls.{key}", tls[key], "is read with mode: Files only; set the mode, or leave it away")
