"""Follows ConfigMap extension-apiserver-authentication, which names the front proxy's CA and the client CA."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from adapter.apiserver.authentication.requestheader import (
    CONFIG_MAP,
    CONFIG_NAMESPACE,
    AuthenticationConfig,
    parse_config_map,
)
from adapter.apiserver.status import CertificateError
from adapter.kube.api import CONFIG_MAPS
from adapter.kube.errors import KubeError
from adapter.kube.session import Session
from adapter.runtime.backoff import exponential
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
_PATH = CONFIG_MAPS.path(CONFIG_NAMESPACE, CONFIG_MAP)
_DEADLINE = 5.0
_FIRST_RETRY = 1.0


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class RequestheaderWatch:
    """Polls the ConfigMap every few seconds and applies changes.

    It is one small object that changes once in years: polling costs less than a watch, and a watch can stall unnoticed.
    """

    def __init__(
        self,
        api: Session,
        metrics: Metrics,
        apply: Callable[[AuthenticationConfig], None],
        *,
        seconds: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._errors = metrics.errors
        self._apply = apply
        self._seconds = seconds
        self._sleep = sleep
        self._config: AuthenticationConfig | None = None
        self._error = ""

    def pending_reason(self) -> str | None:
        """Why the front proxy is not known yet, None once it is. Safe to show to unauthenticated clients."""
        return f"ConfigMap {CONFIG_NAMESPACE}/{CONFIG_MAP} has not been read yet" if self._config is None else None

    def check(self) -> str | None:
        """Why no request can be authenticated, None once the front proxy is known."""
        sentence = self.pending_reason()
        return f"{sentence}: {self._error}" if sentence and self._error else sentence

    async def run(self) -> None:
        """Poll until cancelled; while reading fails, the last configuration stays in use."""
        retries = 0
        while True:
            if await self._try_read():
                retries = 0
                await self._sleep(self._seconds)
            else:
                await self._sleep(exponential(retries, _FIRST_RETRY, self._seconds))
                retries += 1

    async def read_once(self) -> None:
        """Read and apply the ConfigMap. Raises KubeError, and CertificateError for invalid content."""
        body = await self._api.get(_PATH, timeout=_DEADLINE)
        config = parse_config_map(msgspec.json.decode(body, type=_ConfigMap).data or {})
        if config == self._config:
            return
        self._config = config
        self._apply(config)
        _log.info(
            "front_proxy_known",
            authorities=len(config.requestheader_certificates),
            allowed=sorted(config.allowed_names),
            client_authorities=len(config.client_ca_certificates),
        )
        if config.client_ca_error:
            self._errors.labels("authentication_config").inc()
            _log.warning("client_certificates_unusable", error=config.client_ca_error)

    async def _try_read(self) -> bool:
        try:
            await self.read_once()
        except (KubeError, CertificateError, msgspec.MsgspecError) as error:
            self._errors.labels("authentication_config").inc()
            _log.warning("front_proxy_unknown", error=str(error))
            self._error = str(error)
            return False
        return True
