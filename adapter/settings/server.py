"""The metrics API, the adapters behind it, the adapter's own metrics, and its logs, in the settings.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

import os
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from adapter.runtime.faults import Fault
from adapter.runtime.outbound import Access
from adapter.settings.base import Port, Section, access_of, default_of, raw_section, rival_faults
from adapter.settings.registries import url_faults

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

UPSTREAM_GROUPS = ("custom", "external")


def own_namespace() -> str:
    """The namespace this process runs in: $POD_NAMESPACE, else the service account's, else `effective-load`."""
    named = os.environ.get("POD_NAMESPACE", "")
    if not named and NAMESPACE_FILE.is_file():
        named = NAMESPACE_FILE.read_text(encoding="utf-8").strip()
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

    @property
    def names(self) -> tuple[str, ...]:
        """The DNS names of the Service; the aggregator verifies the first."""
        name, namespace = self.service, self.namespace
        return (f"{name}.{namespace}.svc", f"{name}.{namespace}", name, f"{name}.{namespace}.svc.cluster.local")


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

    @property
    def api_services(self) -> tuple[str, ...]:
        """The APIServices whose `caBundle` this server writes."""
        versions = ("v1beta2.custom", "v1beta1.custom", *(("v1beta1.external",) if self.external_metrics else ()))
        return tuple(f"{name}.metrics.k8s.io" for name in versions) if self.tls.inject_ca_bundle else ()


class TelemetrySettings(Section):
    """The adapter's own metrics, on a port of their own, without TLS."""

    address: str = ""
    """Address to listen on; empty: every interface, IPv4 and IPv6."""
    port: Port = 8080
    """Port of `/metrics`, `/livez`, `/readyz` and `/healthz` (HTTP); 0: any free one."""


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


class Upstream(Section):
    """One adapter that answers the names of an API group that are not this adapter's own."""

    url: str
    """Where it serves: `https://prometheus-adapter.monitoring.svc`. Only HTTPS, and only scheme, host and port."""
    ca_file: str = ""
    """PEM file with the CAs that may sign its certificate; read again when it changes. Empty, with an empty `caBundle`:
    those of the system."""
    ca_bundle: str = ""
    """The same as PEM text, in place of `caFile`: what an APIService holds in `spec.caBundle`, decoded from base64."""
    bearer_token_file: str = ""
    """File with the bearer token that it is asked with; read again when it changes. Give it a service account of its
    own that may do nothing but read this API group. Empty: without a token."""
    timeout_seconds: Annotated[float, Field(gt=0, le=30, allow_inf_nan=False)] = 3
    """How long a request may take in all. An HPA waits for it, and the HPA controller has 5 workers by default."""
    max_answer_mib: Annotated[int, Field(ge=1, le=64)] = Field(default=4, alias="maxAnswerMiB")
    """The largest answer, in MiB after unpacking."""

    @property
    def access(self) -> Access:
        """Credentials and TLS of its HTTP client."""
        return access_of(self, ca=self.ca_bundle)


class UpstreamsSettings(Section):
    """The adapters behind this one. A name of this adapter's own is never asked from them."""

    custom: Upstream | None = None
    """Who answers the other metrics of custom.metrics.k8s.io, such as prometheus-adapter."""
    external: Upstream | None = None
    """Who answers the other metrics of external.metrics.k8s.io, such as KEDA; needs `server.externalMetrics`."""


def upstream_faults(document: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of `upstreams` that no single key shows."""
    for group in UPSTREAM_GROUPS:
        upstream = raw_section(document, "upstreams", group)
        path = f"upstreams.{group}"
        if isinstance(upstream.get("url"), str):
            url = upstream["url"]
            scheme, _, rest = url.partition("://")
            faults = list(url_faults(f"{path}.url", url))
            yield from faults
            if not faults and scheme.lower() != "https":
                yield Fault(f"{path}.url", url, "write https://: an upstream proves who it is by its certificate")
            if not faults and "/" in rest.rstrip("/"):
                advice = "has a path; write scheme, host and port alone, such as https://adapter.monitoring.svc"
                yield Fault(f"{path}.url", url, advice)
        yield from rival_faults(path, upstream, ("caFile", "caBundle"))
        if isinstance(upstream.get("caBundle"), str) and upstream["caBundle"]:
            try:
                ssl.create_default_context(cadata=upstream["caBundle"])
            except (ssl.SSLError, TypeError, ValueError):
                # The text is not shown: it may be a key.
                advice = "write PEM text from -----BEGIN CERTIFICATE----- on; an APIService holds it in base64"
                yield Fault(f"{path}.caBundle", None, f"{advice}: decode it first")
    served = raw_section(document, "server").get("externalMetrics", default_of(ServerSettings, "external_metrics"))
    if raw_section(document, "upstreams", "external") and served is not True:
        advice = "is unused while server.externalMetrics is false; set it to true or remove this section"
        yield Fault("upstreams.external", None, advice)
