"""Credentials for the API server and its address: from a kubeconfig or from the pod's own service account.

The `kubernetes` package reads a kubeconfig (client certificates, tokens, exec plugins, OIDC); its models are not used.
Importing it takes a quarter of a second and 13 MiB, so the two files of a service account are read without it. Reading
files and running plugins blocks, so a thread does all of it.
"""

import asyncio
import hashlib
import importlib
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
import yaml

from adapter.kube.errors import CredentialsError, KubeError
from adapter.runtime.backoff import LogOnce
from adapter.runtime.concurrency import SingleFlight
from adapter.runtime.outbound import Access, tls_context
from adapter.runtime.times import parse_time

IN_CLUSTER_SECONDS = 60.0
"""How often the service account's token file is read again; the kubelet replaces it well before it expires."""
FILE_SECONDS = 300.0
"""How often a kubeconfig without a plugin is read again: its token and certificate files may be renewed."""
_CONFIG = "kubernetes.aio.config.kube_config"
_MALFORMED = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""What the package raises for a file that is no kubeconfig."""
_EARLY_SECONDS = 60.0
_LEAST_SECONDS = 5.0
_AFTER_REFUSAL_SECONDS = 5.0
_AFTER_FAILURE_SECONDS = 10.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The API server's address and the credentials for it. `authorization` is the header's value, empty for none.

    `lifetime`: seconds until they must be loaded again; None where only a refusal (401) shows it.
    """

    server: str
    authorization: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str | None = None
    proxy: str | None = None
    lifetime: float | None = None

    @property
    def auth_headers(self) -> dict[str, str]:
        """The header of the credentials; none where a certificate proves them."""
        return {"Authorization": self.authorization} if self.authorization else {}


Load = Callable[[], Awaitable[ClusterAccess]]
"""Loads the credentials. Raises CredentialsError."""


class CredentialKeeper:
    """The current credentials, loaded again before they expire and once when they are refused.

    Loading runs beside the requests, which use the current ones until they are refused.
    """

    def __init__(self, load: Load, monotonic: Callable[[], float]) -> None:
        self._load = load
        self._monotonic = monotonic
        self.renewal: SingleFlight[str, ClusterAccess] = SingleFlight()
        self._access: ClusterAccess | None = None
        self._due: float | None = None
        self._refused_at: float | None = None
        self._log_once = LogOnce()

    async def current(self) -> ClusterAccess:
        """The credentials to use now. Raises CredentialsError where none were ever loaded."""
        if self._access is None:
            return await self.renewal.join("load", self._load_again)
        if self._due is not None and self._monotonic() >= self._due:
            self.renewal.begin("load", self._load_again)
        return self._access

    async def renew(self, refused: ClusterAccess) -> ClusterAccess:
        """The credentials to use after these were refused (401): newer ones if any, else the same ones.

        Loads at most every 5 s, so that not every refusal starts an exec plugin. Raises CredentialsError.
        """
        if self._access is not None and self._access is not refused:
            return self._access
        now = self._monotonic()
        if self._refused_at is not None and now - self._refused_at < _AFTER_REFUSAL_SECONDS:
            return refused
        access = await self.renewal.join("load", self._load_again)
        self._refused_at = now
        return access

    async def close(self) -> None:
        """Cancels loading."""
        await self.renewal.close()

    async def _load_again(self) -> ClusterAccess:
        try:
            access = await self._load()
        except KubeError as error:
            self._due = self._monotonic() + _AFTER_FAILURE_SECONDS
            if self._log_once.is_new(str(error)):
                _log.warning("credentials_unusable", error=str(error))
            raise
        self._log_once.clear()
        self._access = access
        self._due = None if access.lifetime is None else self._monotonic() + access.lifetime
        return access


def choose_credentials(kubeconfig: str | None, context: str = "") -> Load:
    """Credentials as kubectl chooses them: the file named, else in-cluster, else KUBECONFIG or ~/.kube/config.

    `context` is a context of the kubeconfig; empty: its current one. With a context no in-cluster credentials are used.
    """
    contexts = TlsContexts()

    def load() -> ClusterAccess:
        if context or not _is_in_cluster(kubeconfig):
            return _kubeconfig(_paths(kubeconfig), context, contexts)
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "")
        if not port:
            raise CredentialsError("in-cluster credentials: KUBERNETES_SERVICE_PORT is not set; every pod has it")
        try:
            token = TOKEN_FILE.read_text().strip()
            tls = contexts.context(str(CA_FILE), None, None, verify=True)
        except (OSError, ValueError) as error:  # ValueError: no UTF-8 text
            raise CredentialsError(f"in-cluster credentials: {error}") from error
        if not token:
            raise CredentialsError(f"in-cluster credentials: {TOKEN_FILE} is empty")
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return ClusterAccess(server=server, authorization=f"Bearer {token}", tls=tls, lifetime=IN_CLUSTER_SECONDS)

    return lambda: asyncio.to_thread(load)


def default_namespace(kubeconfig: str | None, context: str = "") -> str:
    """The namespace that kubectl uses without `-n`: the context's own, else `default`. Blocks on files.

    Raises CredentialsError.
    """
    if not context and _is_in_cluster(kubeconfig):
        return "default"
    package: Any = importlib.import_module(_CONFIG)
    paths = _paths(kubeconfig)
    try:
        config = package.KubeConfigMerger(paths).config
        named = config["contexts"].get_with_name(context or config["current-context"])["context"]
        return str(named.safe_get("namespace") or "default")
    except (package.ConfigException, yaml.YAMLError, *_MALFORMED) as error:
        raise CredentialsError(f"kubeconfig {paths}: {error}") from error


def _paths(kubeconfig: str | None) -> str:
    return kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


class TlsContexts:
    """The TLS context for given files, rebuilt only when their content changes, so that connections are reused."""

    def __init__(self) -> None:
        self._digest = b""
        self._context: ssl.SSLContext | None = None

    def context(self, ca: str | None, certificate: str | None, key: str | None, *, verify: bool) -> ssl.SSLContext:
        """Blocks. Raises OSError (ssl.SSLError too) for files that cannot be read or hold no certificates."""
        hashed = hashlib.sha256(b"verify" if verify else b"")
        for path in (ca, certificate, key):
            hashed.update(hashlib.sha256(Path(path).read_bytes()).digest() if path else b"none")
        digest = hashed.digest()
        if self._context is None or digest != self._digest:
            access = Access(
                ca_file=ca or "", cert_file=certificate or "", key_file=key or "", insecure_skip_verify=not verify
            )
            self._context, self._digest = tls_context(access), digest
        return self._context


_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_FILE, CA_FILE = _ACCOUNT / "token", _ACCOUNT / "ca.crt"


def _is_in_cluster(kubeconfig: str | None) -> bool:
    return kubeconfig is None and bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and TOKEN_FILE.is_file()


def _kubeconfig(paths: str, context: str, contexts: TlsContexts) -> ClusterAccess:
    package: Any = importlib.import_module(_CONFIG)  # untyped, and slow: in a thread
    configuration = package.Configuration()
    try:
        # The loader is async but blocks on files: it runs in a loop of its own in this thread.
        lifetime = asyncio.run(_load(package, paths, context, configuration))
        tls = None
        if configuration.host.startswith("https"):
            files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
            tls = contexts.context(*files, verify=bool(configuration.verify_ssl))
        # The header's value: `Bearer` capitalised as in the RFC, without the line end of the token's file.
        scheme, _, secret = configuration.api_key.get("BearerToken", "").strip().partition(" ")
        return ClusterAccess(
            server=configuration.host.rstrip("/"),
            authorization=f"{scheme.capitalize()} {secret.strip()}" if secret else "",
            tls=tls,
            server_name=getattr(configuration, "tls_server_name", None),
            proxy=getattr(configuration, "proxy", None),
            lifetime=lifetime,
        )
    except (package.ConfigException, yaml.YAMLError, *_MALFORMED) as error:
        raise CredentialsError(f"kubeconfig {paths}: {error}") from error


async def _load(package: Any, paths: str, context: str, configuration: Any) -> float | None:
    """Fills in the configuration; returns the seconds until it must be loaded again."""
    merger = package.KubeConfigMerger(paths)
    if merger.config is None:
        raise CredentialsError(f"kubeconfig {paths}: no such file")
    loader = package.KubeConfigLoader(
        config_dict=merger.config,
        active_context=context or None,
        config_base_path=None,
        config_persister=lambda _: merger.save_changes(),
    )
    selected = merger.config["contexts"].get_with_name(context or merger.config["current-context"])["context"]
    user = merger.config["users"].get_with_name(selected["user"], safe=True) if selected.safe_get("user") else None
    plugin = user["user"]["exec"] if user and user["user"].safe_get("exec") else None
    if plugin is not None:
        loader.load_from_exec_plugin = lambda: _run_plugin(package, loader, plugin)
    await loader.load_and_set(configuration)
    return FILE_SECONDS if plugin is None else getattr(loader, "plugin_lifetime", None)


async def _run_plugin(package: Any, loader: Any, plugin: Any) -> bool:
    """Runs the exec plugin. The loader's own method only logs a failure and continues without credentials."""
    status = await package.ExecProvider(plugin).run()
    if status.get("token"):
        loader.token = f"Bearer {status['token']}"
    elif status.get("clientCertificateData") and status.get("clientKeyData"):
        for name, pem in (("cert_file", status["clientCertificateData"]), ("key_file", status["clientKeyData"])):
            # A temporary file, which the package removes at exit.
            file = package.FileOrData({"pem-data": pem}, "pem", base64_file_content=False).as_file()
            setattr(loader, name, file)
    else:
        raise CredentialsError(f"exec plugin {plugin['command']}: it returned neither a token nor a certificate")
    loader.plugin_lifetime = None
    if expires := status.get("expirationTimestamp"):
        at = parse_time(expires)
        if at is None:
            raise ValueError(f"{str(expires)[:40]!r} is no RFC 3339 time; an exec plugin writes 2026-01-01T12:00:00Z")
        left = at - time.time()
        loader.plugin_lifetime = max(left - _EARLY_SECONDS, left * 0.8, _LEAST_SECONDS)
    return True
