"""The word of platforms that tell by PUT which pods of a service serve: read within limits, and handed on."""

import asyncio
from http import HTTPStatus

from aiohttp import StreamReader

from adapter.apiserver import status
from adapter.apiserver.ports import Registries
from adapter.apiserver.routes import Route

LARGEST_DOCUMENT = 1024 * 1024
"""Bytes; an instance takes about 100."""
READ_SECONDS = 5.0

_REFUSALS = {
    HTTPStatus.BAD_REQUEST: status.bad_request,
    HTTPStatus.NOT_FOUND: status.not_found,
    HTTPStatus.CONFLICT: status.conflict,
}


class RosterPush:
    """Hands documents to the registries; None where there are none to hand them to."""

    def __init__(self, registries: Registries | None) -> None:
        self._registries = registries

    async def hear(self, asked: Route, content: StreamReader) -> None:
        """Read a document and hand it on. Raises StatusError: 400, 404, 408, 409 or 413."""
        if self._registries is None:
            raise status.not_found("no registry takes a platform's word here")
        document = await _read(content)
        refusal = await self._registries.push(
            asked.resource, asked.name, asked.namespace, asked.registry_group, document
        )
        if refusal is not None:
            code, sentence = refusal
            raise _REFUSALS[code](sentence)


async def _read(content: StreamReader) -> bytes:
    document = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for chunk in content.iter_any():
                document += chunk
                if len(document) > LARGEST_DOCUMENT:
                    raise status.too_large(f"the document is larger than {LARGEST_DOCUMENT >> 20} MiB")
    except TimeoutError:
        raise status.timed_out(f"the document did not come within {READ_SECONDS:g} s") from None
    return bytes(document)
