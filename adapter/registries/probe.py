"""One look at a registry, server by server: what each of them answers about some services, or why it does not."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from adapter.load.roster import Roster
from adapter.registries.manager import source
from adapter.registries.origin import origin
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache, Trouble
from adapter.runtime.source_errors import MissingExtra
from adapter.settings.registries import HttpRegistry, Registry
from adapter.telemetry.metrics import Metrics

MARGIN_SECONDS = 1.0
"""What a server gets beyond the settings' timeout, so that it is the source that says what timed out."""
SECOND_CHANCE_SECONDS = 1.0
"""So long an error must last: some sources have a second way to an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one server said: the rosters of the services that it answered for, and the troubles of the others."""

    server: str
    rosters: Mapping[ServiceKey, Roster]
    troubles: Mapping[ServiceKey, Trouble]


async def look(settings: Registry, keys: Collection[ServiceKey], clock: Callable[[], float]) -> list[Look]:
    """Ask every server of a registry about these services, all at once; none for a registry that only listens.

    Takes the settings' timeout and a second at most. `clock` gives epoch seconds.
    """
    return list(await asyncio.gather(*(_look_at(server, one, keys, clock) for server, one in _servers(settings))))


def _servers(settings: Registry) -> list[tuple[str, Registry]]:
    """The registry's servers, each with settings that know no other."""
    if isinstance(settings, HttpRegistry):
        return [(settings.url, settings)] if settings.url else []
    return [(server, settings.model_copy(update={"servers": (server,)})) for server in settings.servers]


async def _look_at(server: str, settings: Registry, keys: Collection[ServiceKey], clock: Callable[[], float]) -> Look:
    told = asyncio.Event()
    book = RosterCache(settings.name, lambda _: told.set(), clock, Metrics(), origin(settings))
    try:
        chosen = source(settings, book)
    except ImportError as error:
        missing = MissingExtra(settings.type.lower(), error)
        return _look(server, book, keys, Trouble(missing.reason, str(missing), missing.public))
    chosen.watch(keys)
    running = asyncio.create_task(chosen.run())
    running.add_done_callback(lambda _: told.set())
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.timeout_seconds + MARGIN_SECONDS):
                await _until_settled(book, keys, running, told)
    finally:
        broke = await _end(running)
    late = f"{server}: no answer within {settings.timeout_seconds:g} s"
    silent = Trouble("unreachable", origin(settings).about("unreachable", late), "timed out")
    return _look(server, book, keys, broke or silent)


async def _until_settled(
    book: RosterCache, keys: Collection[ServiceKey], running: asyncio.Task[None], told: asyncio.Event
) -> None:
    """Wait until every service was answered for, or is in trouble that lasts."""
    loop = asyncio.get_running_loop()
    patience: float | None = None
    while not running.done() and not all(_valid(book, key) for key in keys):
        told.clear()
        decided = all(_valid(book, key) or book.trouble(key) for key in keys)
        patience = (patience or loop.time() + SECOND_CHANCE_SECONDS) if decided else None
        async with asyncio.timeout_at(patience):
            await told.wait()


async def _end(running: asyncio.Task[None]) -> Trouble | None:
    """End a source, and say whether it broke by itself, which none should."""
    running.cancel()
    [result] = await asyncio.gather(running, return_exceptions=True)
    if isinstance(result, Exception):
        return Trouble("error", f"the adapter's own fault: {result!r}", "the adapter's own fault")
    return None


def _valid(book: RosterCache, key: ServiceKey) -> bool:
    roster = book.roster(key)
    return roster is not None and roster.valid and not roster.error


def _look(server: str, book: RosterCache, keys: Collection[ServiceKey], otherwise: Trouble) -> Look:
    known = {key: roster for key in keys if _valid(book, key) and (roster := book.roster(key)) is not None}
    troubles = {key: book.trouble(key) or otherwise for key in keys if key not in known}
    return Look(server=server, rosters=known, troubles=troubles)
