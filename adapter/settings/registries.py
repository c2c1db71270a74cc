"""The service registries in the settings: one section each, told apart by `type`.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import Field
from pydantic.alias_generators import to_camel

from adapter.runtime.faults import Fault
from adapter.runtime.outbound import Access
from adapter.settings.base import (
    Mebibytes,
    Seconds,
    Section,
    access_of,
    raw_section,
    rival_faults,
    type_of,
    unverified_faults,
)

_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+):([1-9][0-9]{0,4})", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_FRAMING = {"host", "content-length", "transfer-encoding", "connection", "content-type", "accept", "accept-encoding"}
_PAIRS = (("username", "passwordFile"), ("accessKeyFile", "secretKeyFile"))
_RIVALS = (("username", "accessKeyFile"), ("username", "bearerTokenFile"))


class AllowedServices(Section):
    """Which services the policies of which namespaces may name."""

    namespaces: tuple[str, ...] = Field(min_length=1)
    """Kubernetes namespaces; `*` and `?` are wildcards."""
    services: tuple[str, ...] = Field(min_length=1)
    """Service names in the registry, likewise; case-sensitive."""
    registry_namespaces: tuple[str, ...] = Field(default=("*",), min_length=1)
    """The registry's own namespaces, likewise: the policy's, else that of the registry's settings."""
    groups: tuple[str, ...] = Field(default=("*",), min_length=1)
    """The registry's groups, likewise."""


class RegistryTls(Section):
    """TLS with a registry."""

    ca_file: str = ""
    """PEM file with the CAs that may sign the registry's certificate; empty: those of the system."""
    cert_file: str = ""
    """PEM file with a client certificate, where the registry asks for one."""
    key_file: str = ""
    """PEM file with the client certificate's private key; empty: it is in `certFile`."""
    insecure_skip_verify: bool = False
    """Whether to accept any certificate."""


class _Registry(Section):
    credential_fields: ClassVar[tuple[tuple[str, ...], ...]] = (("username", "password_file"),)
    """The fields of credentials, by kind; those of the last kind that is set count, else those of the first."""
    address_field: ClassVar[str] = "servers"
    plain_addresses: ClassVar[bool] = False
    """Whether addresses are `host:port` instead of URLs."""
    default_namespace: ClassVar[str] = ""
    """The registry's own namespace where neither policy nor settings name one."""
    group_separator: ClassVar[str] = ""
    """What ends a group within the name of a service. Nacos reads `group@@service` as group and name, whatever group is
    given beside it, and splits at the first."""

    name: str = Field(min_length=1)
    """The name that policies refer to."""
    allow: tuple[AllowedServices, ...] = ()
    """Which services policies may name, by namespace; empty: every policy may name every service. The registry is never
    asked for other services."""
    services_per_namespace: Annotated[int, Field(ge=1)] = 500
    """How many services the policies of one Kubernetes namespace may follow; the oldest policies come first. So no
    namespace takes the registry's connections from the others."""
    pod_name_key: str = ""
    """Metadata key under which instances carry the name of their pod; a policy may name another. Empty: by address."""
    timeout_seconds: Seconds = 5
    """How long one request may take."""
    tls: RegistryTls = RegistryTls()
    """TLS: with servers whose addresses begin with `https`; with ZooKeeper if `useTls` is true."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses to ask."""
        given = getattr(self, self.address_field)
        return given if isinstance(given, tuple) else (given,) if given else ()

    def with_address(self, address: str) -> Self:
        """These settings with one of their addresses alone."""
        chosen: Any = (address,) if isinstance(getattr(self, self.address_field), tuple) else address
        return self.model_copy(update={self.address_field: chosen})

    @property
    def credentials(self) -> str:
        """The keys of the credentials to mend where they are refused."""
        kinds = self.credential_fields
        fields = next((kind for kind in reversed(kinds) if getattr(self, kind[0])), kinds[0])
        return ", ".join(f"`{to_camel(field)}`" for field in fields)

    @property
    def has_credentials(self) -> bool:
        """Whether any kind of credentials is set."""
        return any(getattr(self, kind[0]) for kind in self.credential_fields)

    def place(self, namespace: str, group: str) -> tuple[str, str]:
        """The registry's namespace and group of a service: the policy's, else those of the settings."""
        namespace = namespace or getattr(self, "namespace", "") or self.default_namespace
        return namespace, group or getattr(self, "group", "")


class HttpAsked(_Registry):
    """A registry that is asked over HTTP."""

    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """How large an answer may be, in MiB after unpacking; an instance takes about 500 bytes. A larger one is an error,
    and the last answer counts as that of any failing registry."""

    credential_header: ClassVar[str] = ""
    """The header that holds the content of `token_file`."""

    @property
    def access(self) -> Access:
        """Credentials and TLS of the HTTP client."""
        token = {self.credential_header: getattr(self, "token_file", "")} if self.credential_header else {}
        return access_of(self.tls, self, secret_headers={name: file for name, file in token.items() if file})


class PolledRegistry(HttpAsked):
    """A registry of which each service is polled."""

    interval_seconds: Seconds = 2
    """How often each service is polled."""


class NacosRegistry(HttpAsked):
    """Nacos 2.x or 3.x, or a server that speaks its protocols."""

    credential_fields = (("username", "password_file"), ("access_key_file", "secret_key_file"))
    default_namespace = "public"
    group_separator = "@@"

    type: Literal["Nacos"]
    """`Nacos`."""
    servers: tuple[str, ...] = Field(min_length=1)
    """Addresses of its servers, with the context path: `http://nacos-0.nacos:8848/nacos`. After a failure
    the next one is asked."""
    namespace: str = ""
    """Id of the Nacos namespace, where a policy names none; empty: `public`."""
    group: str = Field(default="DEFAULT_GROUP", min_length=1)
    """Group, where a policy names none."""
    clusters: tuple[str, ...] = ()
    """Nacos clusters whose instances count; empty: all."""
    username: str = ""
    """User for the login; empty: no login."""
    password_file: str = ""
    """File with the user's password; read again when it changes."""
    access_key_file: str = ""
    """File with the access key id of a managed Nacos that signs requests."""
    secret_key_file: str = ""
    """File with the secret of that access key."""
    push: bool = True
    """Whether to subscribe by gRPC, so that changes are pushed; where that fails, services are polled."""
    grpc_port_offset: Annotated[int, Field(ge=-65535, le=65535)] = 1000
    """What to add to a server's port for gRPC."""
    admin: bool = False
    """Whether to read the lists for administrators, which show disabled instances and true health. The user needs a
    role that may read (`r`) the namespace; Nacos 2 has them from 2.2.1 on."""
    interval_seconds: Seconds = 2
    """How often each service without push is polled."""

    @property
    def access(self) -> Access:
        """TLS alone: credentials go into calls of their own."""
        return access_of(self.tls)


class EurekaRegistry(PolledRegistry):
    """Eureka, of Netflix or Spring Cloud. An instance's `hostName` and `instanceId` count as metadata here."""

    type: Literal["Eureka"]
    """`Eureka`."""
    servers: tuple[str, ...] = Field(min_length=1)
    """Addresses of the peers, with the prefix: `http://eureka-0:8761/eureka`. After a failure the next one is asked."""
    username: str = ""
    """User for HTTP basic authentication; empty: none."""
    password_file: str = ""
    """File with the user's password; read again when it changes."""
    interval_seconds: Seconds = 2
    """How often each application is polled. A server shows changes up to 30 s late unless it has
    `eureka.server.use-read-only-response-cache: false`."""


class ConsulRegistry(HttpAsked):
    """Consul."""

    credential_fields = (("token_file",),)
    default_namespace = "default"
    credential_header = "X-Consul-Token"

    type: Literal["Consul"]
    """`Consul`."""
    servers: tuple[str, ...] = Field(min_length=1)
    """Addresses of agents or servers: `http://consul.consul:8500`. After a failure the next one is asked."""
    datacenter: str = ""
    """Datacenter; empty: the agent's own."""
    namespace: str = ""
    """Namespace (Enterprise), where a policy names none."""
    partition: str = ""
    """Admin partition (Enterprise)."""
    services_per_namespace: Annotated[int, Field(ge=1)] = 100
    """As in other registries, and fewer: each service holds a connection, of which Consul gives a client 200 by
    default."""
    token_file: str = ""
    """File with an ACL token that may read services and nodes; read again when it changes."""
    warning_is_out: bool = False
    """Whether an instance with a check in state `warning` is pulled out."""
    wait_seconds: Annotated[float, Field(ge=1, le=20, allow_inf_nan=False)] = 10
    """How long one blocking query waits for a change at most; the list is confirmed as often. Each service that is
    followed holds one connection while it waits: Consul's `limits.http_max_conns_per_client` (200) must be more than
    there are services."""


class ZooKeeperRegistry(_Registry):
    """ZooKeeper, with what Dubbo or Curator keep in it. Needs the extra `zookeeper`."""

    plain_addresses = True

    type: Literal["ZooKeeper"]
    """`ZooKeeper`."""
    servers: tuple[str, ...] = Field(min_length=1)
    """Addresses as `host:port`."""
    chroot: str = ""
    """Path above all others."""
    layout: Literal["DubboInterface", "DubboApplication", "Curator"]
    """`DubboInterface`: providers below `/dubbo/<interface>`. `DubboApplication`: application-level instances of
    Dubbo 3 below `/services/<application>`. `Curator`: Curator's service discovery, as Spring Cloud uses it."""
    root: str = ""
    """The layout's root path; empty: `/dubbo` for `DubboInterface`, else `/services`."""
    rules_root: str = ""
    """Path of Dubbo's dynamic configuration, whose nodes `*.configurators` disable instances; empty:
    `/dubbo/config/dubbo`."""
    session_seconds: Annotated[float, Field(ge=1, le=600, allow_inf_nan=False)] = 10
    """Session timeout to ask for."""
    username: str = ""
    """User of digest authentication; empty: none."""
    password_file: str = ""
    """File with the user's password."""
    use_tls: bool = False
    """Whether the addresses are those of the secure client port; `tls` applies only then."""


class PolarisRegistry(PolledRegistry):
    """Polaris, by its discovery API."""

    credential_fields = (("token_file",),)
    credential_header = "X-Polaris-Token"

    type: Literal["Polaris"]
    """`Polaris`."""
    servers: tuple[str, ...] = Field(min_length=1)
    """Addresses of its HTTP port: `http://polaris:8090`. After a failure the next one is asked."""
    namespace: str = Field(default="default", min_length=1)
    """Polaris namespace, where a policy names none."""
    token_file: str = ""
    """File with an access token; read again when it changes."""


class HttpRegistry(PolledRegistry):
    """A platform of your own that is polled for which pods serve; `docs/registries-http.md` has the contract."""

    credential_fields = (("bearer_token_file",), ("username", "password_file"))
    address_field = "url"

    type: Literal["HTTP"]
    """`HTTP`."""
    url: str = ""
    """Address to poll."""
    username: str = ""
    """User for HTTP basic authentication. Not together with `bearerTokenFile`."""
    password_file: str = ""
    """File with the user's password; read again when it changes."""
    bearer_token_file: str = ""
    """File with a bearer token; read again when it changes."""
    headers: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """Further request headers."""
    header_files: Mapping[str, str] = Field(default_factory=dict)
    """The same with values from files: names of headers with the file that holds the value of each; read again when it
    changes. For values that are secrets."""


Registry = NacosRegistry | EurekaRegistry | ConsulRegistry | ZooKeeperRegistry | PolarisRegistry | HttpRegistry


def registry_faults(path: str, registry: Mapping[str, Any]) -> Iterator[Fault]:
    """What the types cannot say of one registry."""
    if registry.get("name") == "kubernetes":
        yield Fault(f"{path}.name", "kubernetes", "is what Kubernetes' own facts are called; choose another")
    for key, other in _PAIRS:
        for given, lacking in ((key, other), (other, key)):
            if registry.get(given) and not registry.get(lacking):
                yield Fault(f"{path}.{lacking}", None, f"is missing beside {given}; write both or neither")
    yield from rival_faults(path, registry, *_RIVALS)
    yield from header_faults(
        path, registry, authorized=bool(registry.get("username") or registry.get("bearerTokenFile"))
    )
    yield from _address_faults(path, registry)
    tls = raw_section(registry, "tls")
    yield from unverified_faults(f"{path}.tls", tls)
    if tls.get("keyFile") and not tls.get("certFile"):
        yield Fault(f"{path}.tls.certFile", None, "is missing beside keyFile; write both, or certFile alone")


def _address_faults(path: str, registry: Mapping[str, Any]) -> Iterator[Fault]:
    kind: type[Registry] | None = next(
        (section for section in get_args(Registry) if type_of(section) == registry.get("type")), None
    )
    servers = registry.get("servers")
    for index, server in enumerate(servers if isinstance(servers, list) else ()):
        place = f"{path}.servers[{index}]"
        if not isinstance(server, str):
            continue
        if kind is None or not kind.plain_addresses:
            yield from url_faults(place, server)
        elif not _HOST_PORT.fullmatch(server):
            yield Fault(place, server, "write host:port, an IPv6 address in brackets")
    if kind is not None and kind.address_field == "url":
        if isinstance(registry.get("url"), str) and registry["url"]:
            yield from url_faults(f"{path}.url", registry["url"])
        else:
            yield Fault(f"{path}.url", None, "is missing; write the address to ask")


def header_faults(path: str, section: Mapping[str, Any], *, authorized: bool) -> Iterator[Fault]:
    """What is wrong with `headers` and `headerFiles`. `authorized`: other keys set the header Authorization."""
    seen: set[str] = {"authorization"} if authorized else set()
    for key in ("headers", "headerFiles"):
        headers = section.get(key)
        for name, value in headers.items() if isinstance(headers, dict) else ():
            place = f"{path}.{key}[{name}]"
            if not isinstance(name, str) or not _TOKEN.fullmatch(name):
                yield Fault(place, None, "is no name of a header; write letters, digits and any of !#$%&'*+-.^_`|~")
            elif name.lower() in _FRAMING:
                yield Fault(place, None, "is set by the adapter itself; leave it away")
            elif name.lower() in seen:
                yield Fault(place, None, "is set by another key as well; keep one of them")
            elif isinstance(value, str) and not (value and value.isprintable()):
                wanted = "the path of a file" if key == "headerFiles" else "one line of printable characters"
                yield Fault(place, None, f"has no value that can be used; write {wanted}")
            seen.add(str(name).lower())


def url_faults(path: str, url: str) -> Iterator[Fault]:
    """What is wrong with the base address of an HTTP server."""
    try:
        parts = urlsplit(url)
        host = parts.hostname if parts.port is None or parts.port > 0 else None
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not host:
        # One with a user in it is not shown either.
        value = None if "@" in url else url
        yield Fault(path, value, "write http:// or https://, a host, and the port where it is not the usual one")
    elif parts.username is not None:
        # The value is not shown: it holds a password.
        yield Fault(path, None, "carries a user; write it as a key of its own, with the password in a file")
    elif parts.query or parts.fragment:
        yield Fault(
            path,
            parts._replace(query="", fragment="").geturl(),
            "ends in a query or fragment; write the address that the API's paths follow",
        )
