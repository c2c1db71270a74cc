"""Follows the ConfigMap in which the API server tells who its front proxy is, and whose CA users' certificates are."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from adapter.apiserver.authentication.requestheader import CONFIG_MAP, CONFIG_NAMESPACE, Trust, read
from adapter.apiserver.ports import Api
from adapter.apiserver.status import CertificateError
from adapter.kube.api import CONFIG_MAPS
from adapter.kube.errors import KubeError
from adapter.runtime.backoff import exponential
from adapter.telemetry.metrics import Metrics

_log = structlog.get_logger(__name__)
_PATH = CONFIG_MAPS.path(CONFIG_NAMESPACE, CONFIG_MAP)
_DEADLINE = 5.0
_FIRST_RETRY = 1.0


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class RequestheaderWatch:
    """Reads the ConfigMap every few seconds and hands on what changed.

    One small object that changes once in years: reading it costs less than a watch, and cannot go silent unnoticed.
    """

    def __init__(
        self,
        api: Api,
        metrics: Metrics,
        apply: Callable[[Trust], None],
        *,
        seconds: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._errors = metrics.errors
        self._apply = apply
        self._seconds = seconds
        self._sleep = sleep
        self._known: Trust | None = None
        self._fault = ""

    def unread(self) -> str | None:
        """What is still to be read, None where the front proxy is known. Strangers may be told this much."""
        return f"ConfigMap {CONFIG_NAMESPACE}/{CONFIG_MAP} has not been read yet" if self._known is None else None

    def check(self) -> str | None:
        """Why nobody can be authenticated, None where the front proxy is known."""
        sentence = self.unread()
        return f"{sentence}: {self._fault}" if sentence and self._fault else sentence

    async def run(self) -> None:
        """Follow until cancelled; what is known stays while reading fails."""
        retries = 0
        while True:
            if await self._succeeds():
                retries = 0
                await self._sleep(self._seconds)
            else:
                await self._sleep(exponential(retries, _FIRST_RETRY, self._seconds))
                retries += 1

    async def look(self) -> None:
        """Read once. Raises KubeError, and CertificateError for a ConfigMap that makes no sense."""
        body = await self._api.get(_PATH, timeout=_DEADLINE)
        trust = read(msgspec.json.decode(body, type=_ConfigMap).data or {})
        if trust == self._known:
            return
        self._known = trust
        self._apply(trust)
        _log.info(
            "front_proxy_known",
            authorities=len(trust.roots),
            allowed=sorted(trust.allowed),
            client_authorities=len(trust.client_roots),
        )
        if trust.client_fault:
            self._errors.labels("authentication_config").inc()
            _log.warning("client_certificates_unusable", error=trust.client_fault)

    async def _succeeds(self) -> bool:
        try:
            await self.look()
        except (KubeError, CertificateError, msgspec.MsgspecError) as error:
            self._errors.labels("authentication_config").inc()
            _log.warning("front_proxy_unknown", error=str(error))
            self._fault = str(error)
            return False
        return True
