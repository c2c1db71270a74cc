"""Asks each server of a registry once about some services: the instance lists, or why there are none."""

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from adapter.load.roster import Roster
from adapter.registries.cache import Trouble, trouble
from adapter.registries.follow import open_source, own_fault
from adapter.registries.source import ServiceKey, Source
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


async def probe(settings: Registry, keys: Collection[ServiceKey]) -> list[ProbeResult]:
    """Ask all servers of a registry about these services concurrently.

    Takes the settings' timeout and a second at most.
    """
    return list(
        await asyncio.gather(*(_probe_server(settings.with_address(each), keys) for each in settings.addresses))
    )


async def _probe_server(settings: Registry, keys: Collection[ServiceKey]) -> ProbeResult:
    source = open_source(settings)
    try:
        found = await asyncio.gather(*(_first_answer(source, settings, key) for key in keys))
    finally:
        await source.close()
    by_key = list(zip(keys, found, strict=True))
    return ProbeResult(
        server=settings.addresses[0],
        instances={key: each for key, each in by_key if isinstance(each, Roster)},
        troubles={key: each for key, each in by_key if isinstance(each, Trouble)},
    )


async def _first_answer(source: Source, settings: Registry, key: ServiceKey) -> Roster | Trouble:
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
    return replace(answer, at=time.time())
