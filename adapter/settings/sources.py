"""Where load comes from, in the settings: the cluster, metrics.k8s.io, Prometheus servers and named queries.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from adapter.runtime.faults import Fault
from adapter.runtime.outbound import Access
from adapter.settings.base import Mebibytes, Seconds, Section, access_of, age_faults, rival_faults, unverified_faults
from adapter.settings.registries import header_faults, url_faults

OWN_NAMES = ("desired_replicas", "pulled_out_pods")
OWN_PREFIXES = ("effective_", "raw_")
"""Names the adapter serves itself; a named query may not be called so."""

_METRIC_NAME = re.compile(r"[A-Za-z_]([A-Za-z0-9_.:-]*[A-Za-z0-9_])?", re.ASCII)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_VARIABLES = {"$namespace", "$workload"}
_LONGEST_NAME = 128


class Kubernetes(Section):
    """Which part of the cluster is watched, and the HPA controller's tolerance."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; empty: all of them."""
    hpa_tolerance: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.1
    """The kube-controller-manager's `--horizontal-pod-autoscaler-tolerance` (0.1: 10 %), which no API exposes. It
    applies to HPAs without a tolerance of their own; changes within it, which they would ignore, are not requested."""
    max_policies_per_namespace: Annotated[int, Field(ge=1, le=100_000)] = 1000
    """The most WatermarkPolicies of one namespace. Those created later than the first so many are refused with reason
    `Conflict`."""


class ResourceMetricsSettings(Section):
    """CPU and memory from metrics.k8s.io."""

    interval_seconds: Seconds = 10
    """How often each namespace with policies is queried."""
    max_age_seconds: Seconds = 90
    """Samples older than this do not count."""
    timeout_seconds: Seconds = 5
    """How long one request may take."""
    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """The largest answer about one namespace, in MiB; a pod takes about 500 bytes. A larger one is an error, and the
    last answer counts until it is too old."""


class AnswersSettings(Section):
    """Answers of all sources together."""

    max_total_mib: Mebibytes = Field(default=128, alias="maxTotalMiB")
    """The undecoded answers of metrics.k8s.io, Prometheus servers and registries that may be in memory at once, in MiB
    after unpacking. Further answers wait, and large answers of one source always wait for each other. No `maxAnswerMiB`
    may be more."""


class BasicAuth(Section):
    """A user name, and the file that holds its password."""

    username: str = Field(min_length=1)
    """The user's name."""
    password_file: str = Field(min_length=1)
    """File with the password; read again when it changes."""


class PrometheusServer(Section):
    """One server that answers PromQL."""

    name: str = Field(min_length=1)
    """The name that queries refer to."""
    url: str
    """Where its API begins: `http://prometheus.monitoring:9090`, with the path prefix where there is one."""
    timeout_seconds: Seconds = 5
    """How long one query may take."""
    basic_auth: BasicAuth | None = None
    """User and password. Not together with `bearerTokenFile`."""
    bearer_token_file: str = ""
    """File with a bearer token; read again when it changes."""
    ca_file: str = ""
    """PEM file with the CAs that may sign this server's certificate; empty: those of the system."""
    insecure_skip_verify: bool = False
    """Whether to accept any certificate."""
    headers: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Further request headers, such as `X-Scope-OrgID`."""
    header_files: Mapping[str, str] = Field(default_factory=dict)
    """Further headers whose values are secrets: the file of each header's value, read again when it changes."""
    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """The largest answer, in MiB after unpacking; a series takes about 150 bytes. A larger one is an error, and the
    last answer counts until it is too old."""

    @property
    def access(self) -> Access:
        """Credentials and TLS of its HTTP client."""
        return access_of(self, *filter(None, (self.basic_auth,)))


class NamedQuery(Section):
    """A query that policies may name, and that is served as a Pods or External metric without a policy."""

    name: str
    """The metric's name: letters, digits, `_`, `-`, `.` and `:`. Not one of the adapter's own."""
    server: str
    """The name of the server that it runs on."""
    query: str = Field(min_length=1)
    """PromQL. `$namespace` and `$workload` stand for those of the policy that asks; a query without them is asked once
    for all policies, so keep the namespace and pod labels: `sum by (namespace, pod) (…)`."""
    scope: Literal["Pods", "Service"] = "Pods"
    """`Pods`: one series a pod. `Service`: one number for the whole service."""
    namespace_label: str = Field(default="namespace", min_length=1)
    """The label that holds the pod's namespace."""
    pod_label: str = Field(default="pod", min_length=1)
    """The label that holds the pod's name (scope `Pods`)."""
    max_age_seconds: Seconds = 90
    """Points older than this do not count."""
    interval_seconds: Seconds = 15
    """How often it runs."""
    window_seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None
    """How far back its values reach from their time. Default: the longest range in `query`, plus its longest offset;
    the window of a recording rule cannot be seen there, so name it here. The load of a pod that left counts until
    samples began later, so that old samples do not shrink a service again and again."""


class PrometheusSettings(Section):
    """Any number of Prometheus servers, and the queries they answer."""

    inline_queries: bool = False
    """Whether a policy may contain PromQL of its own. Anyone who may write policies can then read all data of these
    servers."""
    servers: tuple[PrometheusServer, ...] = ()
    """The servers."""
    queries: tuple[NamedQuery, ...] = ()
    """The named queries."""


def server_faults(path: str, server: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of one server that no single key shows."""
    yield from rival_faults(path, server, ("basicAuth", "bearerTokenFile"))
    yield from unverified_faults(path, server)
    authorized = bool(server.get("basicAuth") or server.get("bearerTokenFile"))
    yield from header_faults(path, server, authorized=authorized)
    if isinstance(server.get("url"), str):
        yield from url_faults(f"{path}.url", server["url"])


def query_faults(path: str, query: Mapping[str, Any], servers: Sequence[Any]) -> Iterator[Fault]:
    """The faults of one named query; `servers` are the names of the servers."""
    server = query.get("server")
    if isinstance(server, str) and server not in servers:
        names = ", ".join(str(name) for name in servers) or "none yet"
        yield Fault(f"{path}.server", server, f"is not among prometheus.servers ({names}); name one of them")
    if isinstance(query.get("name"), str):
        name, place = query["name"], f"{path}.name"
        if not _METRIC_NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            wanted = "letters, digits, _, -, . or :, beginning with a letter, at most 128 characters"
            yield Fault(place, name, f"write {wanted}")
        if name in OWN_NAMES or name.startswith(OWN_PREFIXES):
            reserved = ", ".join((*OWN_NAMES, *(f"{prefix}*" for prefix in OWN_PREFIXES)))
            yield Fault(place, name, f"is a name the adapter serves itself ({reserved}); choose another")
    if isinstance(query.get("query"), str):
        for match in _VARIABLE.finditer(query["query"]):
            if match[0] not in _VARIABLES:
                yield Fault(f"{path}.query", match[0], "is no variable; write $namespace or $workload")
    yield from age_faults(path, query, NamedQuery)
