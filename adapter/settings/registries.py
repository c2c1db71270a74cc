"""The service registries in the settings: one section each, told apart by `type`."""

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field
from pydantic.alias_generators import to_camel

from adapter.runtime.faults import Fault
from adapter.runtime.http import Access
from adapter.settings.base import (
    ClientTls,
    Credentials,
    HttpCredentials,
    Login,
    Mebibytes,
    Seconds,
    Section,
    Url,
    access_of,
    refuse,
)

_HOST_PORT = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:/@\[\]]+):([1-9][0-9]{0,4})", re.ASCII)


def _address_faults(address: str) -> Iterator[Fault]:
    if not _HOST_PORT.fullmatch(address):
        yield Fault("", address, "write host:port, an IPv6 address in brackets")


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


class _Registry(Credentials):
    address_field: ClassVar[str] = "servers"
    default_namespace: ClassVar[str] = ""
    """The registry's own namespace if neither policy nor settings name one."""
    group_separator: ClassVar[str] = ""
    """What ends a group within the name of a service: Nacos splits `group@@service` at the first one."""

    name: str = Field(min_length=1)
    """The name that policies refer to."""
    allow: tuple[AllowedServices, ...] = ()
    """Which services policies may name, by namespace; empty: all. Others are never requested from the registry."""
    services_per_namespace: Annotated[int, Field(ge=1)] = 500
    """How many services the policies of one Kubernetes namespace may follow; the oldest policies come first."""
    pod_name_key: str = ""
    """Metadata key that holds an instance's pod name; a policy may name another. Empty: pods are found by address."""
    timeout_seconds: Seconds = 5
    """How long one request may take."""
    tls: ClientTls = ClientTls()
    """TLS: for addresses that begin with `https`; for ZooKeeper if `useTls` is true."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses to connect to."""
        given = getattr(self, self.address_field)
        return given if isinstance(given, tuple) else (given,)

    def with_address(self, address: str) -> Self:
        """These settings with one of their addresses alone."""
        chosen: Any = (address,) if isinstance(getattr(self, self.address_field), tuple) else address
        return self.model_copy(update={self.address_field: chosen})

    @property
    def credentials(self) -> str:
        """The keys of the credentials to fix if they are refused: those that are set, else those of the first kind."""
        kinds = self.credential_fields
        fields = next((kind for kind in kinds if getattr(self, kind[0])), kinds[0])
        return ", ".join(f"`{to_camel(field)}`" for field in fields)

    def place(self, namespace: str, group: str) -> tuple[str, str]:
        """The registry's namespace and group of a service: the policy's, else those of the settings."""
        namespace = namespace or getattr(self, "namespace", "") or self.default_namespace
        return namespace, group or getattr(self, "group", "")

    def _faults(self) -> Iterator[Fault]:
        if self.name == "kubernetes":
            yield Fault("name", "kubernetes", "is the name of Kubernetes' own evidence; choose another")
        yield from super()._faults()


class HttpAsked(_Registry):
    """A registry with an HTTP API."""

    max_answer_mib: Mebibytes = Field(default=32, alias="maxAnswerMiB")
    """The largest answer in MiB, unpacked; a larger one is an error. An instance takes about 500 bytes."""


class PolledRegistry(HttpAsked):
    """A registry that is polled for each service."""

    interval_seconds: Seconds = 2
    """How often each service is polled."""


class NacosRegistry(PolledRegistry, Login):
    """Nacos 2.x or 3.x, or a server that speaks its HTTP API."""

    credential_fields = (("username", "password_file"), ("access_key_file", "secret_key_file"))
    default_namespace = "public"
    group_separator = "@@"

    type: Literal["Nacos"]
    servers: tuple[Url, ...] = Field(min_length=1)
    """Addresses with the context path: `http://nacos-0.nacos:8848/nacos`. After a failure the next one is used."""
    namespace: str = ""
    """Id of the Nacos namespace for policies that name none; empty: `public`."""
    group: str = Field(default="DEFAULT_GROUP", min_length=1)
    """Group for policies that name none."""
    clusters: tuple[str, ...] = ()
    """Nacos clusters whose instances count; empty: all."""
    access_key_file: str = ""
    """File with the access key id of a managed Nacos that signs requests."""
    secret_key_file: str = ""
    """File with the secret of that access key."""
    admin: bool = False
    """Whether to read the lists for administrators (from 2.2.1 on), which show disabled instances and true health."""

    @property
    def access(self) -> Access:
        """TLS alone: credentials are sent in requests of their own."""
        return access_of(self.tls)


class EurekaRegistry(PolledRegistry, Login):
    """Eureka, of Netflix or Spring Cloud. An instance's `hostName` and `instanceId` count as metadata here."""

    type: Literal["Eureka"]
    servers: tuple[Url, ...] = Field(min_length=1)
    """Addresses of the peers with the prefix: `http://eureka-0:8761/eureka`. After a failure the next one is used."""
    interval_seconds: Seconds = 2
    """How often each application is polled. Servers lag by up to 30 s unless `use-read-only-response-cache: false`."""


class ConsulRegistry(HttpAsked):
    """Consul."""

    credential_fields = (("token_file",),)
    default_namespace = "default"
    credential_header = "X-Consul-Token"

    type: Literal["Consul"]
    servers: tuple[Url, ...] = Field(min_length=1)
    """Addresses of agents or servers: `http://consul.consul:8500`. After a failure the next one is used."""
    datacenter: str = ""
    """Datacenter; empty: the agent's own."""
    namespace: str = ""
    """Namespace (Enterprise) for policies that name none."""
    partition: str = ""
    """Admin partition (Enterprise)."""
    services_per_namespace: Annotated[int, Field(ge=1)] = 100
    """As elsewhere. Each service holds one of the 200 connections of Consul's `limits.http_max_conns_per_client`."""
    token_file: str = ""
    """File with an ACL token that may read services and nodes; read again when it changes."""
    warning_is_out: bool = False
    """Whether an instance with a check in state `warning` is pulled out."""
    wait_seconds: Annotated[float, Field(ge=1, le=20, allow_inf_nan=False)] = 10
    """How long one blocking query waits for a change at most, and so how often the list is confirmed."""


class ZooKeeperRegistry(_Registry, Login):
    """ZooKeeper with the data of Dubbo or Curator. Needs the extra `zookeeper`."""

    type: Literal["ZooKeeper"]
    servers: tuple[Annotated[str, refuse(_address_faults)], ...] = Field(min_length=1)
    """Addresses as `host:port`. User and password are for digest authentication."""
    chroot: str = ""
    """Path above all others."""
    layout: Literal["DubboInterface", "DubboApplication", "Curator"]
    """`DubboInterface`: providers below `/dubbo/<interface>`. `DubboApplication`: application-level instances of
    Dubbo 3 below `/services/<application>`. `Curator`: Curator's service discovery, as Spring Cloud uses it."""
    root: str = ""
    """The layout's root path; empty: `/dubbo` for `DubboInterface`, else `/services`."""
    rules_root: str = ""
    """Path of Dubbo's dynamic configuration, which disables instances; empty: `/dubbo/config/dubbo`."""
    session_seconds: Annotated[float, Field(ge=1, le=600, allow_inf_nan=False)] = 10
    """Session timeout to request."""
    use_tls: bool = False
    """Whether the addresses are those of the secure client port; `tls` applies only then."""


class PolarisRegistry(PolledRegistry):
    """Polaris, by its discovery API."""

    credential_fields = (("token_file",),)
    credential_header = "X-Polaris-Token"

    type: Literal["Polaris"]
    servers: tuple[Url, ...] = Field(min_length=1)
    """Addresses of its HTTP port: `http://polaris:8090`. After a failure the next one is used."""
    namespace: str = Field(default="default", min_length=1)
    """Polaris namespace for policies that name none."""
    token_file: str = ""
    """File with an access token; read again when it changes."""


class HttpRegistry(PolledRegistry, HttpCredentials):
    """A platform of your own that is polled for which pods serve; `docs/registries-http.md` has the contract."""

    address_field = "url"

    type: Literal["HTTP"]
    url: Url
    """Address to poll."""


Registry = NacosRegistry | EurekaRegistry | ConsulRegistry | ZooKeeperRegistry | PolarisRegistry | HttpRegistry
