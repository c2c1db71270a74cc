"""A real ZooKeeper on loopback: Java with the server's jars, which Maven downloads once into the cache."""

import contextlib
import functools
import hashlib
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization

from lab.harness import binaries
from lab.harness.processes import LocalServer, free_ports
from lab.harness.registries import LOOPBACK

VERSION = "3.9.5"
SOURCE = Path(__file__).resolve().parent / "zookeeper-server"
TICK_MS = 200
"""The server ends a session within a tick after its timeout."""

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_FLAGS = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


@functools.cache
def ensure(announce: Callable[[str], None] = binaries.print_to_stderr) -> Path:
    """The folder of the jars; downloads them first if they are missing (half a minute, 10 MB)."""
    digest = hashlib.sha256((SOURCE / "pom.xml").read_bytes()).hexdigest()[:10]
    name = f"zookeeper-{VERSION}-{digest}"
    return binaries.kept(name, f"downloading zookeeper {VERSION} once, half a minute", _bring, announce)


def _bring(scratch: Path) -> Path:
    shutil.copy(SOURCE / "pom.xml", scratch)
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={scratch / 'jars'}"]
    binaries.run(command, scratch, attempts=3)
    return scratch / "jars"


class ZooKeeper(LocalServer):
    """A ZooKeeper server; a restart keeps its ports, and its data unless they are wiped.

    with ZooKeeper() as zookeeper, zookeeper.session() as client:
        client.create("/services/shop/1", b"{}", ephemeral=True, makepath=True)

    `tls`: a PEM file with certificate and key, and one with the CA of clients' certificates; then there is also a
    secure client port, for clients with a certificate.
    """

    name = "zookeeper"

    def __init__(self, *, tls: tuple[Path, Path] | None = None) -> None:
        self.tls = tls
        self.port, self.secure_port = free_ports(2)

    @property
    def address(self) -> str:
        """The address of the port without TLS."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def secure_address(self) -> str:
        """The address of the port with TLS, by the host name of the certificates."""
        return f"localhost:{self.secure_port}"

    def command(self) -> list[str | Path]:
        jars, config = ensure(), self.folder / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in self._config().items()))
        return ["/usr/bin/env", "java", *_FLAGS, "-cp", f"{jars}/*", _MAIN, config]

    def is_ready(self) -> bool:
        with socket.create_connection((LOOPBACK, self.port), timeout=2) as connection:
            connection.sendall(b"srvr")
            return connection.recv(9) == b"Zookeeper"  # before it serves, its answer differs

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops the process with SIGSTOP meanwhile: connections stay, answers do not arrive."""
        self.component.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.component.signal(signal.SIGCONT)

    @contextlib.contextmanager
    def session(self, timeout: float = 10, *, address: str = "", **more: Any) -> Iterator[Any]:
        """A blocking client with its own session, like a process that registers; `address`: what stands before it."""
        # The demo builds its programs with `lab.harness.build`, and has no ZooKeeper client installed.
        from kazoo.client import KazooClient  # type: ignore[import-untyped]

        # Named four times, because it waits for a server's answer to its greeting for a fourth of the session then: one
        # that is lost while the server starts would cost the session.
        hosts = ",".join(4 * [address or self.address])
        client = KazooClient(hosts, timeout=timeout, connection_retry={"max_tries": -1, "max_delay": 0.5}, **more)
        client.start(timeout=20)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def _key_store(self, certificate: Path) -> Path:
        """A copy of the file with the key as PKCS 8, the only form that ZooKeeper reads."""
        content = certificate.read_bytes()
        key = serialization.load_pem_private_key(content, None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        store = self.folder / "server.pem"
        store.write_bytes(key + content[content.index(b"-----BEGIN CERTIFICATE") :])
        return store

    def _config(self) -> dict[str, str]:
        config = {
            "tickTime": str(TICK_MS),
            "minSessionTimeout": str(2 * TICK_MS),
            "maxSessionTimeout": "60000",
            "dataDir": str(self.folder / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": LOOPBACK,
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr",
        }
        if self.tls:
            certificate, authority = self.tls
            config |= {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": str(self.secure_port),
                "secureClientPortAddress": LOOPBACK,
                "ssl.keyStore.location": str(self._key_store(certificate)),
                "ssl.trustStore.location": str(authority),
                "ssl.clientAuth": "need",
                "ssl.hostnameVerification": "false",
            }
        return config
