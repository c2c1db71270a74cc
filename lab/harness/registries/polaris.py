"""A real Polaris on loopback. Besides its own protocol it speaks Nacos (HTTP and gRPC) and Eureka."""

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.harness import binaries
from lab.harness.processes import ComponentError, free_ports
from lab.harness.registries import LOOPBACK, HttpServer

NACOS_GRPC_OFFSET = 1000
_CHECKER = "polaris.checker"
_BATCH = {"open": True, "queueSize": 10240, "waitTime": "32ms", "maxBatchCount": 128, "concurrency": 16}


class Polaris(HttpServer):
    """A Polaris server; a restart keeps its ports, and its data unless they are wiped.

    with Polaris() as polaris:
        polaris.call("POST", "/naming/v1/instances", [{"service": "shop", "namespace": "default", "host": "10.0.0.1"}])

    `tls`: certificate, key and (for gRPC clients) CA as PEM files; then all its URLs are `https`. `client_auth`:
    whether clients need a token too, not only its console.
    """

    name = "polaris"

    def __init__(self, *, tls: tuple[Path, Path, Path] | None = None, client_auth: bool = False) -> None:
        self.tls, self.client_auth = tls, client_auth
        self.port, self.grpc_port, self.eureka_port = free_ports(3)
        [self.nacos_port] = free_ports(1, offset=NACOS_GRPC_OFFSET)
        self._token = ""

    @property
    def http(self) -> str:
        """The URL of its own API: discovery for clients, and all functions of its console."""
        return self.url

    @property
    def eureka(self) -> str:
        """The URL of its Eureka protocol, with the prefix that clients use."""
        return f"{self.scheme}://{LOOPBACK}:{self.eureka_port}/eureka"

    @property
    def nacos(self) -> str:
        """The URL of its Nacos protocol, with the context path. Nacos clients add 1000 to the port for gRPC."""
        return f"{self.scheme}://{LOOPBACK}:{self.nacos_port}/nacos"

    @property
    def token(self) -> str:
        """The access token of its first user, `polaris`."""
        if not self._token:
            login = {"name": "polaris", "password": "polaris"}
            status, answer = self.request("POST", "/core/v1/user/login", login, {})
            if status != 200:
                raise RuntimeError(f"Polaris: login: HTTP {status}: {answer!r}")
            self._token = json.loads(answer)["loginResponse"]["token"]
        return self._token

    def headers(self) -> Mapping[str, str]:
        return {"X-Polaris-Token": self.token}

    def command(self) -> list[str | Path]:
        config = self.folder / "conf" / "polaris-server.yaml"
        config.parent.mkdir()
        config.write_text(yaml.safe_dump(self._config()))
        return [binaries.ensure("polaris")["polaris"], "start", "-c", config]

    def is_ready(self) -> bool:
        nacos_grpc = self.nacos_port + NACOS_GRPC_OFFSET
        for port in (self.port, self.grpc_port, self.eureka_port, self.nacos_port, nacos_grpc):
            with socket.create_connection((LOOPBACK, port), timeout=2):
                pass
        return True

    def resume(self) -> None:
        """Starts the program: now and then it dies of a race in its own caches (singleflight), and then once more."""
        try:
            super().resume()
        except ComponentError:
            if self.component.running:
                raise
            super().resume()

    def wipe(self) -> None:
        """Removes all data; the process must have ended."""
        self._database.unlink()
        self._token = ""

    @property
    def _database(self) -> Path:
        return self.folder / "polaris.bolt"

    def _config(self) -> dict[str, Any]:
        """The required part of its configuration file, on loopback."""
        return {
            "bootstrap": {
                "logger": {
                    "default": {"outputPaths": ["stdout"], "errorOutputPaths": ["stderr"], "outputLevel": "warn"}
                },
                "startInOrder": {"open": True, "key": "sz"},
                # The server must be listed as a checker, or no instance is health-checked.
                "polaris_service": {
                    "enable_register": True,
                    "self_address": LOOPBACK,
                    "services": [{"name": _CHECKER, "protocols": ["service-grpc"]}],
                },
            },
            "apiservers": self._servers(),
            "auth": self._auth(),
            "namespace": {"autoCreate": True},
            "naming": {"autoCreate": True, "batch": {"register": _BATCH, "deregister": _BATCH}},
            "healthcheck": {
                "open": True,
                "service": _CHECKER,
                "slotNum": 30,
                "minCheckInterval": "1s",
                "maxCheckInterval": "30s",
                "clientReportInterval": "120s",
                "batch": {"heartbeat": {**_BATCH, "maxBatchCount": 32}},
                "checkers": [{"name": "heartbeatMemory"}],
            },
            "config": {"open": True, "contentMaxLength": 20000},
            # The age of changes that are read again. A deregistration does not change the time of the last change.
            "cache": {"diffTime": "1h"},
            "store": {"name": "boltdbStore", "option": {"path": str(self._database)}},
            "plugin": {
                "crypto": {"entries": [{"name": "AES"}]},
                "cmdb": {"name": "memory", "option": {"url": "", "interval": "60s"}},
                "history": {"entries": [{"name": "HistoryLogger"}]},
                "discoverEvent": {"entries": [{"name": "discoverEventLocal"}]},
                "statis": {"entries": [{"name": "local", "option": {"interval": 60}}]},
                "ratelimit": {"name": "token-bucket", "option": {"enable": False}},
            },
        }

    def _servers(self) -> list[dict[str, Any]]:
        """One server section for each protocol."""
        every = ["discover", "register", "healthcheck"]
        api: dict[str, Any] = {
            "admin": {"enable": True},
            "console": {"enable": True, "include": ["default", "service", "config"]},
            "client": {"enable": True, "include": [*every, "config"]},
        }
        grpc = {"client": {"enable": True, "include": every}}
        eureka = {"namespace": "default", "refreshInterval": 1, "deltaExpireInterval": 60}
        return [
            {"name": "service-eureka", "option": self._option(self.eureka_port, **eureka)},
            {"name": "api-http", "option": self._option(self.port), "api": api},
            {"name": "service-grpc", "option": self._option(self.grpc_port), "api": grpc},
            {"name": "service-nacos", "option": self._option(self.nacos_port, defaultNamespace="default")},
        ]

    def _option(self, port: int, **more: object) -> dict[str, Any]:
        option: dict[str, Any] = {"listenIP": LOOPBACK, "listenPort": port, **more}
        if self.tls is not None:
            certificate, key, authority = (str(path) for path in self.tls)
            option["tls"] = {"certFile": certificate, "keyFile": key, "trustedCAFile": authority}
        return option

    def _auth(self) -> dict[str, Any]:
        switches = {"consoleOpen": True, "consoleStrict": True}
        return {
            "user": {"name": "defaultUser", "option": {"salt": "polarismesh@2021"}},
            "strategy": {
                "name": "defaultStrategy",
                "option": {**switches, "clientOpen": self.client_auth, "clientStrict": self.client_auth},
            },
        }
