"""Receives rosters that platforms push by PUT: reads the document within limits and passes it to its registry."""

import asyncio
from http import HTTPStatus

from aiohttp import StreamReader

from adapter.apiserver import status
from adapter.apiserver.request_info import RequestInfo
from adapter.registries.manager import RegistryManager

MAX_DOCUMENT_BYTES = 1024 * 1024
"""Bytes; an instance takes about 100."""
DOCUMENT_SECONDS = 5.0

_REFUSALS = {
    HTTPStatus.BAD_REQUEST: status.bad_request,
    HTTPStatus.NOT_FOUND: status.not_found,
    HTTPStatus.CONFLICT: status.conflict,
}


class RosterPush:
    """Passes pushed documents to the registries; None rejects every push."""

    def __init__(self, registries: RegistryManager | None) -> None:
        self._registries = registries

    async def receive(self, info: RequestInfo, content: StreamReader) -> None:
        """Read a document and pass it on. Raises StatusError: 400, 404, 408, 409 or 413."""
        if self._registries is None:
            raise status.not_found("no registry takes a platform's word here")
        document = await _read(content)
        refusal = await self._registries.push(info.resource, info.name, info.namespace, info.registry_group, document)
        if refusal is not None:
            code, sentence = refusal
            raise _REFUSALS[code](sentence)


async def _read(content: StreamReader) -> bytes:
    document = bytearray()
    try:
        async with asyncio.timeout(DOCUMENT_SECONDS):
            async for chunk in content.iter_any():
                document += chunk
                if len(document) > MAX_DOCUMENT_BYTES:
                    raise status.entity_too_large(f"the document is larger than {MAX_DOCUMENT_BYTES >> 20} MiB")
    except TimeoutError:
        raise status.timed_out(f"the document did not come within {DOCUMENT_SECONDS:g} s") from None
    return bytes(document)
