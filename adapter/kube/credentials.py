"""Who we are to the API server and how to reach it: kubeconfig or the pod's own service account.

The `kubernetes` package reads both (client certificates, tokens, exec plugins, OIDC); none of its models are touched.
Importing it takes a third of a second, and reading files and running plugins blocks, so all of it happens in a thread.
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
from adapter.runtime.log_once import LogOnce
from adapter.runtime.single_flight import SingleFlight
from adapter.runtime.times import parse_time

IN_CLUSTER_SECONDS = 60.0
"""How often the service account's token file is read again; the kubelet replaces it well before it expires."""
FILE_SECONDS = 300.0
"""How often a kubeconfig without a plugin is read again, for token and certificate files that somebody renews."""
_CONFIG = "kubernetes.aio.config"
_MALFORMED = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""What the package lets out for a file that is none of a kubeconfig."""
_EARLY_SECONDS = 60.0
_LEAST_SECONDS = 5.0
_AFTER_REFUSAL_SECONDS = 5.0
_AFTER_FAILURE_SECONDS = 10.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The API server's address and what to show it. `authorization` is the header's value, empty for none.

    `lifetime`: seconds until it has to be loaded again, None where only a refusal (401) tells.
    """

    server: str
    authorization: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str | None = None
    proxy: str | None = None
    lifetime: float | None = None


Load = Callable[[], Awaitable[ClusterAccess]]
"""Loads credentials anew. Raises CredentialsError."""


class CredentialKeeper:
    """The current credentials. Loading runs beside the requests: those go on with what there is until it is refused."""

    def __init__(self, load: Load, monotonic: Callable[[], float]) -> None:
        self._load = load
        self._monotonic = monotonic
        self._flight: SingleFlight[str, ClusterAccess] = SingleFlight()
        self._access: ClusterAccess | None = None
        self._due: float | None = None
        self._refused_at: float | None = None
        self._log_once = LogOnce()

    async def current(self) -> ClusterAccess:
        """Credentials to use now. Raises CredentialsError where none were ever loaded."""
        if self._access is None:
            return await self._flight.join("load", self._anew)
        if self._due is not None and self._monotonic() >= self._due:
            self._flight.begin("load", self._anew)
        return self._access

    async def renew(self, refused: ClusterAccess) -> ClusterAccess:
        """Credentials after these were refused (401): others where there are any, else the same ones again.

        Loads at most every 5 s, so that refusals do not start an exec plugin each. Raises CredentialsError.
        """
        if self._access is not None and self._access is not refused:
            return self._access
        now = self._monotonic()
        if self._refused_at is not None and now - self._refused_at < _AFTER_REFUSAL_SECONDS:
            return refused
        access = await self._flight.join("load", self._anew)
        self._refused_at = now
        return access

    async def close(self) -> None:
        """Stop loading."""
        await self._flight.close()

    async def _anew(self) -> ClusterAccess:
        try:
            access = await self._load()
        except KubeError as error:
            self._due = self._monotonic() + _AFTER_FAILURE_SECONDS
            if self._log_once.is_new(str(error)):
                _log.warning("credentials cannot be loaded", error=str(error))
            raise
        self._log_once.clear()
        self._access = access
        self._due = None if access.lifetime is None else self._monotonic() + access.lifetime
        return access


def choose_credentials(kubeconfig: str | None) -> Load:
    """Credentials as kubectl chooses them: the file named, else in-cluster, else KUBECONFIG or ~/.kube/config."""
    contexts = TlsContexts()
    return lambda: asyncio.to_thread(_chosen, kubeconfig, contexts)


def _chosen(kubeconfig: str | None, contexts: "TlsContexts") -> ClusterAccess:
    if _is_in_cluster(kubeconfig):
        return _in_cluster(contexts)
    return _kubeconfig(kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config"), contexts)


class TlsContexts:
    """The TLS context for given files, built anew only when their content changes, so that connections are reused."""

    def __init__(self) -> None:
        self._digest = b""
        self._context: ssl.SSLContext | None = None

    def context(self, ca: str | None, certificate: str | None, key: str | None, *, verify: bool) -> ssl.SSLContext:
        """Blocking. Raises OSError for files that cannot be read or hold no certificates (ssl.SSLError too)."""
        digest = _digest(ca, certificate, key, verify)
        if self._context is None or digest != self._digest:
            self._context = _build(ca, certificate, key, verify=verify)
            self._digest = digest
        return self._context


def _build(ca: str | None, certificate: str | None, key: str | None, *, verify: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The CAs of managed clouds lack key identifiers, which the strict flag demands.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if ca:
        context.load_verify_locations(cafile=ca)
    else:
        context.load_default_certs()
    if certificate:
        context.load_cert_chain(certificate, key)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _digest(ca: str | None, certificate: str | None, key: str | None, verify: bool) -> bytes:
    digest = hashlib.sha256(b"verify" if verify else b"")
    for path in (ca, certificate, key):
        digest.update(hashlib.sha256(Path(path).read_bytes()).digest() if path else b"none")
    return digest.digest()


def _package() -> Any:
    """The names of the `kubernetes` package that are used; it is untyped, and imported only here, in a thread."""
    return importlib.import_module(f"{_CONFIG}.kube_config")


_TOKEN_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def service_account_token_file(kubeconfig: str | None) -> str:
    """The file of this pod's service account token where `choose_credentials` uses it; else an empty text."""
    return str(_TOKEN_FILE) if _is_in_cluster(kubeconfig) else ""


def _is_in_cluster(kubeconfig: str | None) -> bool:
    return kubeconfig is None and bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and _TOKEN_FILE.is_file()


def _in_cluster(contexts: TlsContexts) -> ClusterAccess:
    package = _package()
    configuration = package.Configuration()
    try:
        importlib.import_module(f"{_CONFIG}.incluster_config").load_incluster_config(
            configuration, try_refresh_token=False
        )
        return _access(configuration, contexts, IN_CLUSTER_SECONDS)
    except (package.ConfigException, OSError) as error:
        raise CredentialsError(f"in-cluster credentials: {error}") from error


def _kubeconfig(paths: str, contexts: TlsContexts) -> ClusterAccess:
    package = _package()
    configuration = package.Configuration()
    try:
        # The loader is async and reads files between its awaits: it gets a loop of its own in this thread.
        lifetime = asyncio.run(_load(package, paths, configuration))
        return _access(configuration, contexts, lifetime)
    except (package.ConfigException, yaml.YAMLError, *_MALFORMED) as error:
        raise CredentialsError(f"kubeconfig {paths}: {error}") from error


async def _load(package: Any, paths: str, configuration: Any) -> float | None:
    """Fill in the configuration; the seconds after which to do so again."""
    merger = package.KubeConfigMerger(paths)
    if merger.config is None:
        raise CredentialsError(f"kubeconfig {paths}: no such file")
    loader = package.KubeConfigLoader(
        config_dict=merger.config, config_base_path=None, config_persister=lambda _: merger.save_changes()
    )
    plugin = _plugin_of(merger.config)
    if plugin is not None:
        loader.load_from_exec_plugin = lambda: _run_plugin(package, loader, plugin)
    await loader.load_and_set(configuration)
    return FILE_SECONDS if plugin is None else getattr(loader, "plugin_lifetime", None)


def _plugin_of(config: Any) -> Any:
    context = config["contexts"].get_with_name(config["current-context"])["context"]
    user = config["users"].get_with_name(context["user"], safe=True) if context.safe_get("user") else None
    return user["user"].safe_get("exec") and user["user"]["exec"] if user else None


async def _run_plugin(package: Any, loader: Any, plugin: Any) -> bool:
    """The loader's own method logs a failing plugin and goes on as nobody; here it is an error, and expiry counts."""
    status = await package.ExecProvider(plugin).run()
    if "token" in status:
        loader.token = f"Bearer {status['token']}"
    elif "clientCertificateData" in status and "clientKeyData" in status:
        loader.cert_file = _held(package, status["clientCertificateData"])
        loader.key_file = _held(package, status["clientKeyData"])
    else:
        raise CredentialsError(f"exec plugin {plugin['command']}: it returned neither a token nor a certificate")
    loader.plugin_lifetime = _lifetime(status.get("expirationTimestamp"))
    return True


def _held(package: Any, pem: str) -> str:
    """A file with this content, in the package's care: it removes its temporary files at exit."""
    path = package.FileOrData({"pem-data": pem}, "pem", base64_file_content=False).as_file()
    assert isinstance(path, str)
    return path


def _lifetime(expires: str | None) -> float | None:
    if not expires:
        return None
    at = parse_time(expires)
    if at is None:
        raise ValueError(f"{str(expires)[:40]!r} is no RFC 3339 time; an exec plugin writes 2026-01-01T12:00:00Z")
    left = at - time.time()
    return max(left - _EARLY_SECONDS, left * 0.8, _LEAST_SECONDS)


def _access(configuration: Any, contexts: TlsContexts, lifetime: float | None) -> ClusterAccess:
    secure = configuration.host.startswith("https")
    verify = bool(configuration.verify_ssl)
    files = (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    return ClusterAccess(
        server=configuration.host.rstrip("/"),
        authorization=_authorization(configuration.api_key.get("BearerToken", "")),
        tls=contexts.context(*files, verify=verify) if secure else None,
        server_name=getattr(configuration, "tls_server_name", None),
        proxy=getattr(configuration, "proxy", None),
        lifetime=lifetime,
    )


def _authorization(value: str) -> str:
    """The header's value: `Bearer` as the RFC writes it, and no line end from the token's file."""
    scheme, _, secret = value.strip().partition(" ")
    return f"{scheme.capitalize()} {secret.strip()}" if secret else ""
