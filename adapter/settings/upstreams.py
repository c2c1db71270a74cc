"""The adapters behind this one in the settings: who answers the metrics that are not ours.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

import ssl
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from adapter.runtime.faults import Fault
from adapter.runtime.outbound import Access
from adapter.settings.base import Section, default_of, raw_section
from adapter.settings.registry_rules import url_faults
from adapter.settings.server import ServerSettings

UPSTREAM_GROUPS = ("custom", "external")


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
        return Access(bearer_token_file=self.bearer_token_file, ca_file=self.ca_file, ca=self.ca_bundle)


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
            yield from _url_faults(f"{path}.url", upstream["url"])
        if upstream.get("caFile") and upstream.get("caBundle"):
            yield Fault(path, None, "has both caFile and caBundle; keep one")
        if isinstance(upstream.get("caBundle"), str):
            yield from _bundle_faults(f"{path}.caBundle", upstream["caBundle"])
    served = raw_section(document, "server").get("externalMetrics", default_of(ServerSettings, "external_metrics"))
    if raw_section(document, "upstreams", "external") and served is not True:
        yield Fault("upstreams.external", None, "is asked by nobody; set server.externalMetrics: true, or remove it")


def _url_faults(path: str, url: str) -> Iterator[Fault]:
    faults = list(url_faults(path, url))
    yield from faults
    if faults:
        return
    scheme, _, rest = url.partition("://")
    if scheme.lower() != "https":
        yield Fault(path, url, "write https://: an upstream proves who it is by its certificate")
    if "/" in rest.rstrip("/"):
        yield Fault(path, url, "has a path; write scheme, host and port alone, such as https://adapter.monitoring.svc")


def _bundle_faults(path: str, bundle: str) -> Iterator[Fault]:
    if not bundle:
        return
    try:
        ssl.create_default_context(cadata=bundle)
    except (ssl.SSLError, TypeError, ValueError):
        # The text is not shown: it may be a key.
        advice = "write PEM text from -----BEGIN CERTIFICATE----- on; an APIService holds it in base64: decode it first"
        yield Fault(path, None, advice)
