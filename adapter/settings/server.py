"""The server in the settings: its API, logs and metrics, the sources of load, and the adapters behind it."""

import os
import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from adapter.runtime.faults import Fault
from adapter.settings.base import (
    UNIQUE_NAMES,
    ClientTls,
    Credentials,
    HttpCredentials,
    Mebibytes,
    Port,
    Seconds,
    Section,
    Url,
    refuse,
)

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_OWN_NAME = re.compile(r"desired_replicas|pulled_out_pods|(effective|raw)_.*")
_METRIC_NAME = re.compile(r"(?=.{1,128}$)[A-Za-z_]([A-Za-z0-9_.:-]*[A-Za-z0-9_])?", re.ASCII)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)


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
    """Namespace of Service and Secret. Default: `$POD_NAMESPACE`, the service account's, `effective-load`."""
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

    def _faults(self) -> Iterator[Fault]:
        for key, file in (("certFile", self.cert_file), ("keyFile", self.key_file)):
            if self.mode == "Files" and not file:
                yield Fault(key, None, "is missing: mode Files needs both certFile and keyFile")
            elif self.mode == "SelfSigned" and file:
                yield Fault(key, file, "is read with mode: Files only; set the mode, or remove this key")


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


class Kubernetes(Section):
    """Which part of the cluster is watched, and the HPA controller's tolerance."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; empty: all of them."""
    hpa_tolerance: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.1
    """The kube-controller-manager's `--horizontal-pod-autoscaler-tolerance` (0.1: 10 %), for HPAs without their own."""
    watch_silence_seconds: Annotated[float, Field(ge=3, le=600, allow_inf_nan=False)] = 90
    """How long a watch is used without proof that it is alive. Raise it for slow or proxied API servers."""


class _Sampled(Section):
    interval_seconds: Seconds = 10
    """How often it is queried."""
    max_age_seconds: Seconds = 90
    """Samples older than this do not count."""

    def _faults(self) -> Iterator[Fault]:
        if self.max_age_seconds <= self.interval_seconds:
            advice = f"must be more than intervalSeconds ({self.interval_seconds:g}), or samples expire between queries"
            yield Fault("maxAgeSeconds", self.max_age_seconds, advice)


class ResourceMetricsSettings(_Sampled):
    """CPU and memory from metrics.k8s.io, which is queried for each namespace with policies."""

    timeout_seconds: Seconds = 5
    """How long one request may take."""
    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """The largest answer about a namespace in MiB; a larger one is an error. A pod takes about 500 bytes."""


class PrometheusServer(HttpCredentials, ClientTls):
    """One server that answers PromQL."""

    name: str = Field(min_length=1)
    """The name that queries refer to."""
    url: Url
    """Where its API begins: `http://prometheus.monitoring:9090`, with the path prefix if there is one."""
    timeout_seconds: Seconds = 5
    """How long one query may take."""
    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """The largest answer in MiB, unpacked; a larger one is an error. A series takes about 150 bytes."""


def _name_faults(name: str) -> Iterator[Fault]:
    if not _METRIC_NAME.fullmatch(name):
        wanted = "letters, digits, _, -, . or :, beginning with a letter, at most 128 characters"
        yield Fault("", name, f"write {wanted}")
    elif _OWN_NAME.fullmatch(name):
        reserved = "desired_replicas, pulled_out_pods, effective_*, raw_*"
        yield Fault("", name, f"is a name that the adapter serves itself ({reserved}); choose another")


def _query_faults(query: str) -> Iterator[Fault]:
    for match in _VARIABLE.finditer(query):
        if match[0] not in {"$namespace", "$workload"}:
            yield Fault("", match[0], "is an unknown variable; write $namespace or $workload")


class NamedQuery(_Sampled):
    """A query that policies may name, and that is served as a Pods or External metric without a policy."""

    name: Annotated[str, refuse(_name_faults)]
    """The metric's name: letters, digits, `_`, `-`, `.` and `:`. Not one of the adapter's own."""
    server: str
    """The name of the server that it runs on."""
    query: Annotated[str, Field(min_length=1), refuse(_query_faults)]
    """PromQL; `$namespace` and `$workload` are those of the policy. Keep the labels: `sum by (namespace, pod) (…)`."""
    scope: Literal["Pods", "Service"] = "Pods"
    """`Pods`: one series a pod. `Service`: one number for the whole service."""
    namespace_label: str = Field(default="namespace", min_length=1)
    """The label that holds the pod's namespace."""
    pod_label: str = Field(default="pod", min_length=1)
    """The label that holds the pod's name (scope `Pods`)."""
    interval_seconds: Seconds = 15
    """How often it runs."""
    window_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None
    """How far back its values reach. Default: from the ranges in `query`; name the window of a recording rule here."""


class PrometheusSettings(Section):
    """Any number of Prometheus servers, and the queries they answer."""

    inline_queries: bool = False
    """Whether policies may contain PromQL. Anyone who may write policies can then read all data of these servers."""
    servers: Annotated[tuple[PrometheusServer, ...], UNIQUE_NAMES] = ()
    """The servers."""
    queries: Annotated[tuple[NamedQuery, ...], UNIQUE_NAMES] = ()
    """The named queries."""

    def _faults(self) -> Iterator[Fault]:
        servers = [server.name for server in self.servers]
        for index, query in enumerate(self.queries):
            if query.server not in servers:
                advice = f"is not among prometheus.servers ({', '.join(servers) or 'none yet'}); name one of them"
                yield Fault(f"queries[{index}].server", query.server, advice)


class Upstream(Credentials):
    """Another metrics adapter, which has the metrics of an API group that are not this adapter's own."""

    url: Url
    """Where it serves: `https://prometheus-adapter.monitoring.svc`. Only HTTPS, and only scheme, host and port."""
    ca_file: str = ""
    """PEM file with the CAs that may sign its certificate; read again when it changes. Default: the system's CAs."""
    ca_bundle: str = ""
    """The same as PEM text, in place of `caFile`: what an APIService holds in `spec.caBundle`, decoded from base64."""
    bearer_token_file: str = ""
    """File with the bearer token of a service account that may read this API group; read again when it changes."""
    timeout_seconds: Annotated[float, Field(gt=0, le=30, allow_inf_nan=False)] = 3
    """How long a request may take in all. An HPA waits for it, and the HPA controller has 5 workers by default."""
    max_answer_mib: Annotated[int, Field(ge=1, le=64)] = Field(default=4, alias="maxAnswerMiB")
    """The largest answer in MiB, unpacked."""

    def _faults(self) -> Iterator[Fault]:
        scheme, _, rest = self.url.partition("://")
        if scheme.lower() != "https":
            yield Fault("url", self.url, "write https://: the certificate identifies the upstream")
        elif "/" in rest.rstrip("/"):
            advice = "has a path; write scheme, host and port alone, such as https://adapter.monitoring.svc"
            yield Fault("url", self.url, advice)
        if self.ca_file and self.ca_bundle:
            yield Fault("", None, "has both caFile and caBundle; keep one")
        try:
            if self.ca_bundle:  # the system's CAs are not read here: that takes 20 ms
                ssl.create_default_context(cadata=self.ca_bundle)
        except (ssl.SSLError, TypeError, ValueError):
            # The text is not shown: it may be a key.
            advice = "write PEM text from -----BEGIN CERTIFICATE----- on; decode the base64 text of an APIService first"
            yield Fault("caBundle", None, advice)


class UpstreamsSettings(Section):
    """The adapters behind this one. Requests for this adapter's own names are never forwarded."""

    custom: Upstream | None = None
    """The adapter with the other metrics of custom.metrics.k8s.io, such as prometheus-adapter."""
    external: Upstream | None = None
    """The adapter with the other metrics of external.metrics.k8s.io, such as KEDA; needs `server.externalMetrics`."""
