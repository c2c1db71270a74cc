"""Keeps credentials usable: loads them again before they expire and once when they are refused."""

from collections.abc import Callable

import structlog

from adapter.kube.credentials import ClusterAccess, Load
from adapter.kube.errors import KubeError
from adapter.runtime.log_once import LogOnce
from adapter.runtime.single_flight import SingleFlight

_AFTER_REFUSAL_SECONDS = 5.0
_AFTER_FAILURE_SECONDS = 10.0

_log = structlog.get_logger(__name__)


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
