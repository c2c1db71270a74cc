"""A real Consul on loopback: a cluster of one server, and agents that join it."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.harness import binaries
from lab.harness.processes import free_ports
from lab.harness.registries import LOOPBACK, HttpServer
from lab.harness.workloads import until


class Consul(HttpServer):
    """A Consul server; a restart keeps its ports, and its data unless they are wiped.

    with Consul() as consul:
        consul.register("web", "web-1", "10.0.0.1")
        consul.call("PUT", "/v1/agent/service/maintenance/web-1?enable=true")

    `deny`: ACLs are on and deny by default; `root` is then the token with all rights. `tls`: certificate, key and CA as
    PEM files; with `mutual` clients need a certificate of that CA too. `joins`: an agent of that cluster, or with
    `server` its second server. `limits`: Consul's configuration section of that name.
    """

    name = "consul"

    def __init__(
        self,
        *,
        deny: bool = False,
        tls: tuple[Path, Path, Path] | None = None,
        mutual: bool = False,
        joins: "Consul | None" = None,
        server: bool = False,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        self.tls, self.mutual, self.limits = tls, mutual, dict(limits or {})
        self.joins, self.server = joins, server
        self.root = str(uuid.uuid4()) if deny else ""
        self.port, self.serf_port, self.server_port = free_ports(3)

    def command(self) -> list[str | Path]:
        (self.folder / "config.json").write_text(json.dumps(self._config()))
        return [binaries.ensure("consul")["consul"], "agent", "-config-file", self.folder / "config.json"]

    def is_ready(self) -> bool:
        """Whether its own catalog lists it: the catalog follows a moment after the election of a leader."""
        status, body = self.request("GET", "/v1/health/service/consul")
        return status == 200 and len(json.loads(body)) > 0

    def headers(self) -> Mapping[str, str]:
        return {"X-Consul-Token": self.root} if self.root else {}

    # --- its API ---

    def register(self, service: str, id: str, ip: str, port: int = 8080, **more: object) -> None:  # noqa: A002 - Consul's own name
        """Registers an instance with this agent; `more` are further fields of Consul's API."""
        content = {"Name": service, "ID": id, "Address": ip, "Port": port, **more}
        self.call("PUT", "/v1/agent/service/register", content)

    def check(self, id: str, status: str) -> None:  # noqa: A002 - Consul's own name
        """Reports the result of a TTL check: `pass`, `warn` or `fail`. A service's only check is `service:<id>`."""
        self.call("PUT", f"/v1/agent/check/{status}/{id}")

    def maintenance(self, id: str, *, on: bool) -> None:  # noqa: A002 - Consul's own name
        """Puts a service into maintenance mode, or takes it out."""
        self.call("PUT", f"/v1/agent/service/maintenance/{id}?enable={str(on).lower()}")

    def deregister(self, id: str) -> None:  # noqa: A002 - Consul's own name
        """Removes an instance from the catalog."""
        self.call("PUT", f"/v1/agent/service/deregister/{id}")

    def token(self, rules: str) -> tuple[str, str]:
        """Creates a token with a policy of these rules: its accessor id and its secret."""
        policy = self.call("PUT", "/v1/acl/policy", {"Name": uuid.uuid4().hex, "Rules": rules})
        made = self.call("PUT", "/v1/acl/token", {"Policies": [{"ID": policy["ID"]}]})
        return made["AccessorID"], made["SecretID"]

    def wait_listed(self, service: str, count: int, timeout: float = 20) -> None:
        """Waits until the catalog has `count` instances of a service; agents synchronize with a delay."""

        def listed() -> int:
            return len(self.call("GET", f"/v1/health/service/{service}"))

        until(lambda: listed() == count, timeout, lambda: f"{listed()} instances of {service} instead of {count}", 0.05)

    def wait_voters(self, count: int, timeout: float = 60) -> None:
        """Waits until `count` servers vote; a new one is on probation for 10 s."""

        def voters() -> int:
            return sum(one["Voter"] for one in self.call("GET", "/v1/operator/raft/configuration")["Servers"])

        until(lambda: voters() >= count, timeout, lambda: f"fewer than {count} servers vote")

    def _config(self) -> dict[str, Any]:
        off = {"dns": -1, "grpc": -1, "serf_wan": -1, "http": -1, "https": -1}
        api = {"https" if self.tls else "http": self.port}
        config: dict[str, Any] = {
            "node_name": f"node-{self.port}",
            "data_dir": str(self.folder / "data"),
            "bind_addr": LOOPBACK,
            "client_addr": LOOPBACK,
            "ports": {**off, **api, "serf_lan": self.serf_port, "server": self.server_port},
            "limits": self.limits,
            "log_level": "warn",
            "disable_update_check": True,
        }
        if self.joins is not None:
            config["server"] = self.server
            return {**config, "retry_join": [f"{LOOPBACK}:{self.joins.serf_port}"], "retry_interval": "1s"}
        config |= {"server": True, "bootstrap": True, "performance": {"raft_multiplier": 1}}
        if self.root:
            tokens = {"initial_management": self.root, "agent": self.root}
            config["acl"] = {"enabled": True, "default_policy": "deny", "tokens": tokens}
        if self.tls:
            certificate, key, authority = map(str, self.tls)
            https = {"cert_file": certificate, "key_file": key, "ca_file": authority, "verify_incoming": self.mutual}
            config["tls"] = {"https": https}
        return config
