"""The service registries in the settings: one section each, told apart by `type`.

The docstring under a field is its documentation; `docs/configuration.md` is made from them. Times are seconds.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from adapter.runtime.outbound import Access
from adapter.settings.base import Mebibytes, Seconds, Section


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

    @property
    def access(self) -> Access:
        """The TLS part of an access."""
        return Access(
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
            insecure_skip_verify=self.insecure_skip_verify,
        )


class _Registry(Section):
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


class HttpAsked(_Registry):
    """A registry that is asked over HTTP."""

    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """How large an answer may be, in MiB after unpacking; an instance takes about 500 bytes. A larger one is an error,
    and the last answer counts as that of any failing registry."""

    @property
    def access(self) -> Access:
        """Credentials and TLS of the HTTP client. Nacos needs TLS alone: its credentials go into calls of their own."""
        return self.tls.access


class NacosRegistry(HttpAsked):
    """Nacos 2.x or 3.x, or a server that speaks its protocols."""

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


class EurekaRegistry(HttpAsked):
    """Eureka, of Netflix or Spring Cloud. An instance's `hostName` and `instanceId` count as metadata here."""

    type: Literal["Eureka"]
    """`Eureka`."""
    max_answer_mib: Mebibytes = Field(default=64, alias="maxAnswerMiB")
    """How large an answer may be, in MiB after unpacking. It lists all services at once; an instance takes about 830
    bytes."""
    servers: tuple[str, ...] = Field(min_length=1)
    """Addresses of the peers, with the prefix: `http://eureka-0:8761/eureka`. After a failure the next one is asked."""
    username: str = ""
    """User for HTTP basic authentication; empty: none."""
    password_file: str = ""
    """File with the user's password; read again when it changes."""
    interval_seconds: Seconds = 1
    """How often changes are polled, of all services in one request. A server shows them up to 30 s late unless it has
    `eureka.server.use-read-only-response-cache: false`."""

    @property
    def access(self) -> Access:
        """TLS, and HTTP basic authentication."""
        return replace(self.tls.access, username=self.username, password_file=self.password_file)


class ConsulRegistry(HttpAsked):
    """Consul."""

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
    wait_seconds: Annotated[float, Field(ge=1, le=240, allow_inf_nan=False)] = 55
    """How long one blocking query waits for a change at most. Each service that is followed holds one connection while
    it waits: Consul's `limits.http_max_conns_per_client` (200) must be more than there are services."""

    @property
    def access(self) -> Access:
        """TLS, and the ACL token."""
        return replace(self.tls.access, secret_headers=_header("X-Consul-Token", self.token_file))


class ZooKeeperRegistry(_Registry):
    """ZooKeeper, with what Dubbo or Curator keep in it. Needs the extra `zookeeper`."""

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


class PolarisRegistry(HttpAsked):
    """Polaris, by its discovery API."""

    type: Literal["Polaris"]
    """`Polaris`."""
    servers: tuple[str, ...] = Field(min_length=1)
    """Addresses of its HTTP port: `http://polaris:8090`. After a failure the next one is asked."""
    namespace: str = Field(default="default", min_length=1)
    """Polaris namespace, where a policy names none."""
    token_file: str = ""
    """File with an access token; read again when it changes."""
    interval_seconds: Seconds = 2
    """How often each service is polled; the default of Polaris' own clients."""

    @property
    def access(self) -> Access:
        """TLS, and the access token."""
        return replace(self.tls.access, secret_headers=_header("X-Polaris-Token", self.token_file))


class HttpRegistry(HttpAsked):
    """A platform of your own that is polled or pushes which pods serve; `docs/registries-http.md` has the contract."""

    type: Literal["HTTP"]
    """`HTTP`."""
    url: str = ""
    """Address to poll; empty: the platform pushes (`push`)."""
    push: bool = False
    """Whether the platform may push by PUT to this adapter's metrics API, as a user with the right to do so."""
    interval_seconds: Seconds = 2
    """How often each service is polled."""
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

    @property
    def access(self) -> Access:
        """TLS, basic authentication or a bearer token, and further headers."""
        return replace(
            self.tls.access,
            username=self.username,
            password_file=self.password_file,
            bearer_token_file=self.bearer_token_file,
            headers=self.headers,
            header_files=self.header_files,
        )


def _header(name: str, file: str) -> Mapping[str, str]:
    return {name: file} if file else {}


Registry = NacosRegistry | EurekaRegistry | ConsulRegistry | ZooKeeperRegistry | PolarisRegistry | HttpRegistry
