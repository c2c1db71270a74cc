"""Finished parts of histories on disk: one compact file each, so that an interrupted run goes on where it stopped."""

import hashlib
import json
import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec

from adapter.commands.replay.history.queries import RangeQuery
from adapter.commands.replay.history.span import Span

Values = list[str | None]
"""Values as Prometheus writes them, one for each moment of a span; None where there is none."""
_VERSION = 1
_LEVEL = 6


class _Chunk(msgspec.Struct, array_like=True):
    """`key` is the file's own: a file under a wrong name does not count."""

    key: Annotated[str, msgspec.Meta(max_length=64)]
    values: Values


_DECODER = msgspec.msgpack.Decoder(_Chunk)


class ChunkCache:
    """A folder of chunks; it is made where it does not exist. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def load(self, query: RangeQuery, span: Span) -> Values | None:
        """The values of a finished part; None where there is no whole file of it."""
        key = _key(query, span)
        try:
            content = (self._folder / f"{key}.chunk").read_bytes()
            chunk = _DECODER.decode(zlib.decompress(content))
        except (FileNotFoundError, zlib.error, msgspec.MsgspecError):
            return None
        return chunk.values if chunk.key == key and len(chunk.values) == len(span) else None

    def store(self, query: RangeQuery, span: Span, values: Values) -> None:
        """Keeps a finished part: the file gets its name only when it is whole."""
        key = _key(query, span)
        content = zlib.compress(msgspec.msgpack.encode(_Chunk(key, values)), _LEVEL)
        part = self._folder / f"{key}.{os.getpid()}.part"
        try:
            part.write_bytes(content)
            part.replace(self._folder / f"{key}.chunk")
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _key(query: RangeQuery, span: Span) -> str:
    """A digest of all that the values depend on; secrets of the address do not show."""
    server = query.server
    source = [server.url, sorted(server.headers.items()), sorted(server.header_files.items()), query.text]
    text = json.dumps([_VERSION, *source, query.pick, query.namespace, query.namespace_label, *span])
    return hashlib.sha256(text.encode()).hexdigest()
