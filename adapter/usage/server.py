"""One Prometheus server over HTTP, with errors of this room."""

import asyncio
import contextlib
from collections.abc import Callable

from prometheus_client import Histogram

from adapter.runtime.answer_budget import MIB, Limit
from adapter.runtime.outbound import AT_ONCE, Client
from adapter.runtime.slices import Slices
from adapter.runtime.source_errors import SourceError
from adapter.settings import PrometheusServer
from adapter.usage.circuit_breaker import CircuitBreaker
from adapter.usage.wire import Sample, read_samples, refusal

SLOW_AT_ONCE = AT_ONCE - 2
"""So many of the questions that are slow, however many there are: the others need not wait for them."""

_REFUSAL_BYTES = 64 * 1024
_OK = range(200, 300)


class Server:
    """Asks one server. Must be made where an event loop runs; `settings` are those of one server."""

    def __init__(self, settings: PrometheusServer) -> None:
        self.settings = settings
        self.turn = asyncio.Semaphore(AT_ONCE)
        self.slow_turn = asyncio.Semaphore(SLOW_AT_ONCE)
        self.outage = CircuitBreaker()
        self._url = settings.url.rstrip("/") + "/api/v1/query"
        self._client = Client(
            settings.access,
            timeout=settings.timeout_seconds,
            source=f"prometheus/{settings.name}",
            limit=Limit(settings.max_answer_mib * MIB, f"maxAnswerMiB of Prometheus server {settings.name}"),
        )

    async def read(
        self,
        text: str,
        take: Callable[[Sample], None],
        slices: Slices,
        *,
        max_age: float,
        at: float | None = None,
        duration: Histogram | None = None,
    ) -> None:
        """Hand over the samples that an instant query answers; `at` is its moment (default: the server's own now).

        Instant selectors find no sample older than `max_age` seconds. `duration` observes the seconds until the answer
        has come, or the failure. Raises SourceError; samples that were handed over before are to be dropped then.
        """
        form = {"query": text, "lookback_delta": f"{max_age:.3f}", "timeout": f"{self.settings.timeout_seconds:.3f}"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        try:
            async with contextlib.AsyncExitStack() as reading:
                with duration.time() if duration is not None else contextlib.nullcontext():
                    reply = await reading.enter_async_context(self._client.answer("POST", self._url, data=form))
                if reply.status not in _OK:
                    raise refusal(reply.status, reply.body.start(_REFUSAL_BYTES))
                await read_samples(reply.body, take, slices)
        except SourceError as error:
            raise error.at(self._url) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
