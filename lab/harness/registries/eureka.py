"""A real Eureka server on loopback: Spring Cloud's, in a program of one class that Maven builds once into the cache."""

import base64
import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from lab.harness import binaries
from lab.harness.processes import free_ports
from lab.harness.registries import LOOPBACK, HttpServer
from lab.harness.workloads import until

SPRING_CLOUD = "2024.0.1"
"""The release train of pom.xml; it brings Netflix' Eureka 2.0.4."""
SOURCE = Path(__file__).resolve().parent / "spring-eureka"
USER, PASSWORD = "reader", "correct horse"

_JAR = "eureka-server.jar"
_ARCHIVE = "application.jsa"
_FLAGS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xlog:cds=off")
_QUIET = {
    "eureka.client.register-with-eureka": "false",
    "eureka.client.fetch-registry": "false",
    "eureka.dashboard.enabled": "false",
    "eureka.server.wait-time-in-ms-when-sync-empty": "0",
    "eureka.server.eviction-interval-timer-in-ms": "500",
    "spring.main.banner-mode": "off",
}


@functools.cache
def ensure(announce: Callable[[str], None] = binaries.print_to_stderr) -> Path:
    """The folder of the built program; builds it first if it is missing (one to two minutes, 120 MB)."""
    name = f"eureka-{SPRING_CLOUD}-{_digest()}"
    return binaries.kept(name, f"building eureka {SPRING_CLOUD} once, one to two minutes", _build, announce)


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(SOURCE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:10]


def _build(scratch: Path) -> Path:
    if not shutil.which("java") or not shutil.which("mvn"):
        raise binaries.BuildError("building Eureka needs Java 17 and Maven")
    source, app = scratch / "source", scratch / "app"
    shutil.copytree(SOURCE, source)
    binaries.run(["mvn", "-q", "-B", "-DskipTests", "package"], source, attempts=3)
    binaries.run(["java", "-Djarmode=tools", "-jar", f"target/{_JAR}", "extract", "--destination", str(app)], source)
    # A class data archive halves the start time; this run ends by itself once the context is complete.
    archive = [f"-XX:ArchiveClassesAtExit={_ARCHIVE}", "-Dspring.context.exit=onRefresh", "-jar", _JAR]
    binaries.run(["java", *_FLAGS, *archive, "--server.port=0", *_options(_QUIET)], app)
    return app


def _options(values: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


class EurekaServer(HttpServer):
    """A Eureka server. Its registry is only in memory: after a restart it is empty.

    with EurekaServer() as eureka:
        eureka.register("shop", "shop-1", "10.0.0.1")
        eureka.set_status("shop", "shop-1", "OUT_OF_SERVICE")

    `cache_ms`: the interval at which it renews its response cache, 0 for none (Eureka's default is 30 s). `guarded`: it
    requires `USER` and `PASSWORD`. `tls`: certificate, key and CA as PEM files. `settings` are Spring's own.
    """

    name, prefix, ready_seconds = "eureka", "/eureka", 180.0

    def __init__(
        self,
        *,
        cache_ms: int = 1000,
        self_preservation: bool = False,
        guarded: bool = False,
        tls: tuple[Path, Path, Path] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.tls, self.guarded = tls, guarded
        [self.port] = free_ports(1)
        self.settings = {
            **_QUIET,
            "server.address": LOOPBACK,
            "server.port": str(self.port),
            "eureka.server.enable-self-preservation": str(self_preservation).lower(),
            "eureka.server.use-read-only-response-cache": str(cache_ms > 0).lower(),
            "eureka.server.response-cache-update-interval-ms": str(cache_ms or 1000),
            # A change that arrives while the server builds an answer leaves the old answer in the cache, by default
            # until the next change or for 180 s. So the cache is off.
            "eureka.server.response-cache-auto-expiration-in-seconds": "0",
            **(settings or {}),
        }
        if guarded:
            self.settings |= {"spring.security.user.name": USER, "spring.security.user.password": PASSWORD}
        if tls:
            certificate, key, _ = tls
            self.settings |= {"server.ssl.certificate": f"file:{certificate}"}
            self.settings |= {"server.ssl.certificate-private-key": f"file:{key}"}

    def command(self) -> list[str | Path]:
        self.cwd = ensure()
        archive = f"-XX:SharedArchiveFile={_ARCHIVE}"
        return ["/usr/bin/env", "java", archive, *_FLAGS, "-jar", _JAR, *_options(self.settings)]

    def is_ready(self) -> bool:
        return self.request("GET", "/apps/")[0] == 200

    def headers(self) -> Mapping[str, str]:
        password = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return {"Authorization": f"Basic {password}"} if self.guarded else {}

    # --- calls of instances and operators ---

    def register(self, app: str, name: str, ip: str, *, status: str = "UP", lease: int = 90, **metadata: str) -> None:
        """Registers an instance, as its start does; `lease` in seconds."""
        port = {"$": 8080, "@enabled": True}, {"$": 8443, "@enabled": False}
        instance = {
            "instanceId": name,
            "hostName": name,
            "app": app,
            "ipAddr": ip,
            "status": status,
            "port": port[0],
            "securePort": port[1],
            "vipAddress": app,
            "dataCenterInfo": {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"},
            "leaseInfo": {"renewalIntervalInSecs": 30, "durationInSecs": lease},
            "metadata": metadata,
        }
        self.call("POST", f"/apps/{app}", {"instance": instance})

    def renew(self, app: str, name: str) -> None:
        """Sends a heartbeat."""
        self.call("PUT", f"/apps/{app}/{name}")

    def deregister(self, app: str, name: str) -> None:
        """Deregisters an instance, as its orderly end does."""
        self.call("DELETE", f"/apps/{app}/{name}")

    def set_status(self, app: str, name: str, status: str) -> None:
        """Overrides the instance's status, as an operator does to pull it out."""
        self.call("PUT", f"/apps/{app}/{name}/status?value={status}")

    def clear_status(self, app: str, name: str) -> None:
        """Removes the override."""
        self.call("DELETE", f"/apps/{app}/{name}/status?value=UP")

    def listed(self, app: str) -> dict[str, str]:
        """The status of each instance by id, as clients see it now."""
        status, body = self.request("GET", f"/apps/{app}")
        if status == 404:
            return {}
        return {one["instanceId"]: one["status"] for one in json.loads(body)["application"]["instance"]}

    def wait_listed(self, app: str, expected: Mapping[str, str], timeout: float = 20) -> None:
        """Waits until clients see exactly these instances."""
        until(lambda: self.listed(app) == expected, timeout, lambda: f"{self.listed(app)} instead of {expected}", 0.05)
