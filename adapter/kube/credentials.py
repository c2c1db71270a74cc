"""Credentials for the API server and its address: the service account of the pod, or a kubeconfig.

The `kubernetes` package reads a kubeconfig (client certificates, tokens, exec plugins, OIDC); its models are not used.
Importing it takes a quarter of a second and 13 MiB, so the two files of a service account are read without it. Reading
files and running plugins blocks, so a thread does all of it.
"""

import asyncio
import importlib
import math
import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
import yaml

from adapter.kube.errors import CredentialsError, KubeError
from adapter.runtime.backoff import LogOnce
from adapter.runtime.http import Access, Opened, open_access, tls_context
from adapter.runtime.source_errors import SourceUnreachable

IN_CLUSTER_SECONDS = 60.0
"""How often the service account's token file is read again; the kubelet replaces it well before it expires."""
KUBECONFIG_SECONDS = 300.0
"""How often a kubeconfig is read again, and its exec plugin run: what they hold may expire. A 401 does the same."""
_CONFIG = "kubernetes.aio.config.kube_config"
_MALFORMED = (OSError, ValueError, LookupError, TypeError, AttributeError)
"""What the package raises for a file that is no kubeconfig."""
_AFTER_REFUSAL_SECONDS = 5.0
_AFTER_FAILURE_SECONDS = 10.0

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_FILE, CA_FILE = _ACCOUNT / "token", _ACCOUNT / "ca.crt"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The API server's address and the credentials for it. `authorization` is the header's value, empty for none.

    `lifetime`: seconds until they are loaded again.
    """

    server: str
    authorization: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str | None = None
    proxy: str | None = None
    namespace: str = "default"
    """What kubectl uses without `-n`: the context's own."""
    lifetime: float = math.inf

    @property
    def auth_headers(self) -> dict[str, str]:
        """The header of the credentials; none where a certificate proves them."""
        return {"Authorization": self.authorization} if self.authorization else {}


Load = Callable[[], Awaitable[ClusterAccess]]
"""Loads the credentials. Raises CredentialsError."""


class CredentialKeeper:
    """The current credentials, loaded again when their time is over or when they are refused."""

    def __init__(self, load: Load, monotonic: Callable[[], float]) -> None:
        self._load, self._monotonic, self._lock = load, monotonic, asyncio.Lock()
        self._access: ClusterAccess | None = None
        self._due = self._refused_at = -math.inf
        self._log_once = LogOnce()

    async def current(self, refused: ClusterAccess | None = None) -> ClusterAccess:
        """The credentials to use now: after a refusal (401) newer ones, if there are any.

        They are loaded at most every 5 s: not every refusal starts an exec plugin. Raises CredentialsError without any.
        """
        async with self._lock:
            now = self._monotonic()
            if refused is not None and refused is self._access and now - self._refused_at >= _AFTER_REFUSAL_SECONDS:
                self._refused_at = self._due = now
            if self._access is not None and now < self._due:
                return self._access
            try:
                self._access = await self._load()
            except KubeError as error:
                if self._log_once.is_new(str(error)):
                    _log.warning("credentials_unusable", error=str(error))
                if self._access is None:
                    raise
                self._due = now + _AFTER_FAILURE_SECONDS
            else:
                self._log_once.clear()
                self._due = now + self._access.lifetime
            return self._access


def choose_credentials(kubeconfig: str | None, context: str = "") -> Load:
    """Credentials as kubectl chooses them: the file named, else in-cluster, else KUBECONFIG or ~/.kube/config.

    `context` is a context of the kubeconfig; empty: its current one. With a context no in-cluster credentials are used.
    """
    opened: Opened | None = None

    def load() -> ClusterAccess:
        nonlocal opened
        host, port = (os.environ.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
        if context or kubeconfig is not None or not host or not TOKEN_FILE.is_file():
            default = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
            return _kubeconfig(kubeconfig or default, context)
        if not port:
            raise CredentialsError("in-cluster credentials: KUBERNETES_SERVICE_PORT is not set; every pod has it")
        try:
            # The same TLS context until a file changes, so that connections are reused.
            opened = open_access(Access(bearer_token_file=str(TOKEN_FILE), ca_file=str(CA_FILE)), opened, secure=True)
        except SourceUnreachable as error:
            raise CredentialsError(f"in-cluster {error}") from error
        authorization = opened.headers["Authorization"]
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        return ClusterAccess(server=server, authorization=authorization, tls=opened.tls, lifetime=IN_CLUSTER_SECONDS)

    return lambda: asyncio.to_thread(load)


def _kubeconfig(paths: str, context: str) -> ClusterAccess:
    package: Any = importlib.import_module(_CONFIG)  # untyped, and slow: in a thread
    config = package.Configuration()
    try:
        merger = package.KubeConfigMerger(paths)
        if merger.config is None:
            raise CredentialsError(f"kubeconfig {paths}: no such file")
        loader = package.KubeConfigLoader(
            config_dict=merger.config,
            active_context=context or None,
            config_base_path=None,
            config_persister=lambda _: merger.save_changes(),  # a renewed OIDC token
        )
        # The loader is async but blocks on files: it runs in a loop of its own in this thread.
        asyncio.run(loader.load_and_set(config))
        files = {"ca_file": config.ssl_ca_cert, "cert_file": config.cert_file, "key_file": config.key_file}
        given = {name: file for name, file in files.items() if file}
        access = Access(**given, insecure_skip_verify=not config.verify_ssl)
        # The header's value: `Bearer` capitalised as in the RFC, without the line end of the token's file.
        scheme, _, secret = config.api_key.get("BearerToken", "").strip().partition(" ")
        return ClusterAccess(
            server=config.host.rstrip("/"),
            authorization=f"{scheme.capitalize()} {secret.strip()}" if secret else "",
            tls=tls_context(access) if config.host.startswith("https") else None,
            server_name=config.tls_server_name,
            proxy=config.proxy,
            namespace=str(loader.current_context["context"].get("namespace") or "default"),
            lifetime=KUBECONFIG_SECONDS,
        )
    except (package.ConfigException, yaml.YAMLError) as error:
        raise CredentialsError(f"kubeconfig {paths}: {' '.join(str(error).split())}") from error
    except _MALFORMED as error:
        lack = "it is empty, or its clusters, users or contexts are not as `kubectl config view` shows them"
        raise CredentialsError(f"kubeconfig {paths}: {lack}") from error
