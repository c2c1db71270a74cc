"""Asks each server of a registry once about some services: the rosters, or why there are none."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from adapter.load.roster import Roster
from adapter.registries.manager import source
from adapter.registries.roster import ServiceKey
from adapter.registries.roster_cache import RosterCache, Trouble, origin
from adapter.settings.registries import Registry
from adapter.telemetry.metrics import Metrics

MARGIN_SECONDS = 1.0
"""Seconds beyond the settings' timeout, so that the source itself reports what timed out."""
SECOND_CHANCE_SECONDS = 1.0
"""How long an error must last: some sources have a second way to an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One server's rosters of the services that it answered for, and the troubles of the others."""

    server: str
    rosters: Mapping[ServiceKey, Roster]
    troubles: Mapping[ServiceKey, Trouble]


async def probe(settings: Registry, keys: Collection[ServiceKey], clock: Callable[[], float]) -> list[ProbeResult]:
    """Ask all servers of a registry about these services concurrently.

    Takes the settings' timeout and a second at most. `clock` gives epoch seconds.
    """
    probes = (_probe_server(address, settings.with_address(address), keys, clock) for address in settings.addresses)
    return list(await asyncio.gather(*probes))


async def _probe_server(
    server: str, settings: Registry, keys: Collection[ServiceKey], clock: Callable[[], float]
) -> ProbeResult:
    changed = asyncio.Event()
    cache = RosterCache(settings.name, lambda _: changed.set(), clock, Metrics(), origin(settings))
    cache.follow(dict.fromkeys(keys, ""))
    late = f"{server}: no answer within {settings.timeout_seconds:g} s"
    otherwise = Trouble("unreachable", origin(settings).about("unreachable", late), "timed out")
    probed = source(settings, cache)
    probed.refresh()
    running = asyncio.create_task(probed.run())
    running.add_done_callback(lambda _: changed.set())
    try:
        loop, lasts_until = asyncio.get_running_loop(), None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.timeout_seconds + MARGIN_SECONDS):
                while not running.done() and not all(_valid_roster(cache, key) for key in keys):
                    changed.clear()
                    decided = all(_valid_roster(cache, key) or cache.trouble(key) for key in keys)
                    lasts_until = (lasts_until or loop.time() + SECOND_CHANCE_SECONDS) if decided else None
                    async with asyncio.timeout_at(lasts_until):
                        await changed.wait()
    finally:
        running.cancel()
        [result] = await asyncio.gather(running, return_exceptions=True)
    if isinstance(result, Exception):  # it broke by itself, which none should
        otherwise = Trouble("error", f"the adapter's own fault: {result!r}", "the adapter's own fault")
    rosters = {key: roster for key in keys if (roster := _valid_roster(cache, key)) is not None}
    troubles = {key: cache.trouble(key) or otherwise for key in keys if key not in rosters}
    return ProbeResult(server=server, rosters=rosters, troubles=troubles)


def _valid_roster(cache: RosterCache, key: ServiceKey) -> Roster | None:
    roster = cache.roster(key)
    return roster if roster is not None and roster.valid and not roster.error else None
