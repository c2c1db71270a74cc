"""One Prometheus server over HTTP, with errors of this room."""

import asyncio

from adapter.outbound import AT_ONCE, LARGEST_ANSWER, Access, Client, OutboundError, TooLarge
from adapter.settings import PrometheusServer
from adapter.usage.errors import SourceUnreachable, WrongAnswer
from adapter.usage.outage import Outage
from adapter.usage.wire import refusal

SLOW_AT_ONCE = AT_ONCE - 2
"""So many of the questions that are slow, however many there are: the others need not wait for them."""

_OK = range(200, 300)


class Server:
    """Asks one server. Must be made where an event loop runs; `settings` are those of one server."""

    def __init__(self, settings: PrometheusServer) -> None:
        self.settings = settings
        self.turn = asyncio.Semaphore(AT_ONCE)
        self.slow_turn = asyncio.Semaphore(SLOW_AT_ONCE)
        self.outage = Outage()
        self._url = settings.url.rstrip("/") + "/api/v1/query"
        self._client = Client(_access(settings), timeout=settings.timeout_seconds, largest=LARGEST_ANSWER)

    async def query(self, text: str, *, max_age: float, at: float | None = None) -> bytes:
        """The answer to an instant query, as it came; `at` is its moment (default: the server's own now), in seconds.

        Instant selectors find no sample older than `max_age` seconds. Raises UsageError.
        """
        form = {"query": text, "lookback_delta": f"{max_age:.3f}", "timeout": f"{self.settings.timeout_seconds:.3f}"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        try:
            reply = await self._client.send("POST", self._url, data=form)
        except TooLarge as error:
            raise WrongAnswer(str(error)) from error
        except OutboundError as error:
            raise SourceUnreachable(str(error)) from error
        if reply.status not in _OK:
            raise refusal(reply.status, reply.body)
        return reply.body

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _access(settings: PrometheusServer) -> Access:
    basic = settings.basic_auth
    return Access(
        username=basic.username if basic else "",
        password_file=basic.password_file if basic else "",
        bearer_token_file=settings.bearer_token_file,
        ca_file=settings.ca_file,
        insecure_skip_verify=settings.insecure_skip_verify,
        headers=settings.headers,
    )
