"""Asks each server of a registry once about some services: the instance lists, or why there are none."""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from adapter.load.roster import Roster
from adapter.registries.cache import Trouble, trouble
from adapter.registries.follow import open_source, own_fault
from adapter.registries.source import ServiceKey, Source, UnreadableRegistrations
from adapter.runtime.source_errors import SourceError, SourceUnreachable
from adapter.settings.registries import Registry

MARGIN_SECONDS = 1.0
"""Seconds beyond the settings' timeout, so that the source itself reports what timed out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One server's instance lists of the services that it answered for, and the troubles of the others."""

    server: str
    instances: Mapping[ServiceKey, Roster]
    troubles: Mapping[ServiceKey, Trouble]


async def probe(
    settings: Registry,
    keys: Collection[ServiceKey],
    clock: Callable[[], float],
    opener: Callable[[Registry], Source] = open_source,
) -> list[ProbeResult]:
    """Ask all servers of a registry about these services concurrently.

    Takes the settings' timeout and a second at most. `clock` gives epoch seconds; `opener` makes a server's source.
    """
    return list(
        await asyncio.gather(
            *(_probe_server(settings.with_address(each), keys, clock, opener) for each in settings.addresses)
        )
    )


async def _probe_server(
    settings: Registry, keys: Collection[ServiceKey], clock: Callable[[], float], opener: Callable[[Registry], Source]
) -> ProbeResult:
    source, ordered = opener(settings), sorted(keys)
    try:
        found = await asyncio.gather(*(_first_answer(source, settings, key, clock) for key in ordered))
    finally:
        await source.close()
    by_key = list(zip(ordered, found, strict=True))
    return ProbeResult(
        server=settings.addresses[0],
        instances={key: each for key, each in by_key if isinstance(each, Roster)},
        troubles={key: each for key, each in by_key if isinstance(each, Trouble)},
    )


async def _first_answer(
    source: Source, settings: Registry, key: ServiceKey, clock: Callable[[], float]
) -> Roster | Trouble:
    seconds = settings.timeout_seconds
    try:
        async with asyncio.timeout(seconds + MARGIN_SECONDS), contextlib.aclosing(source.instances(key)) as answers:
            answer = await anext(answers)
    except TimeoutError:
        late = f"{settings.addresses[0]}: no answer within {seconds:g} s"
        return trouble(SourceUnreachable(late, public="timed out"), settings)
    except SourceError as error:
        return trouble(error, settings)
    except Exception as error:  # noqa: BLE001  a fault of this program is a finding, too
        return trouble(own_fault(error), settings)
    unreadable = answer.unreadable and trouble(UnreadableRegistrations(answer.unreadable), settings).sentence
    return replace(answer, at=clock(), error=unreadable or None)
