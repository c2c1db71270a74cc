"""A gRPC connection to a Nacos server, over which the server reports that a service changed. Needs the extra `nacos`.

Pushes carry the new state, too. It is not read: lists show more. The protobuf envelope is encoded and decoded here:

    Payload  { Metadata metadata = 2; Any body = 3; }
    Metadata { string type = 3; map<string, string> headers = 7; }
    Any      { bytes value = 2; }                                    # JSON
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]
import msgspec

from adapter.runtime.decoding import Decoder
from adapter.runtime.source_errors import NotAllowed, NotAuthenticated, SourceFailing, SourceUnreachable
from adapter.settings.registries import NacosRegistry

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # Nacos knows a client by its TCP connection: no channel reuses one
)
_REGISTRATION_POLL_SECONDS = 0.05


class _Unregistered(SourceUnreachable):
    """The server does not know the connection: not yet, or no longer."""


_ERRORS = {301: _Unregistered, 401: NotAuthenticated, 403: NotAllowed}


class _ServiceInfo(msgspec.Struct, rename="camel"):
    name: str = ""
    group_name: str = ""


class _Message(msgspec.Struct, rename="camel"):
    """What a server sends: a response, or a request; `service_info` is the changed service, without its namespace."""

    result_code: int = 0
    error_code: int = 0
    message: str | None = None
    request_id: str | None = None
    service_info: _ServiceInfo | None = None


_MESSAGE = Decoder(_Message)


def grpc_address(server: str, port_offset: int) -> str:
    """The gRPC address `host:port` of a server with this HTTP address."""
    parts = urlsplit(server)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{host}:{(parts.port or (443 if parts.scheme == 'https' else 80)) + port_offset}"


class PushConnection:
    """A connection to a server (its HTTP address) from `open` to `close`. Every method raises SourceError."""

    def __init__(self, settings: NacosRegistry, server: str) -> None:
        self._settings = settings
        self._is_secure = server.startswith("https:")
        self._address = grpc_address(server, settings.grpc_port_offset)
        self._channel: Any = None
        self._stream: Any = None

    async def open(self) -> None:
        """Connect, open the stream, and wait until the server has registered the connection."""
        if self._is_secure:
            tls = self._settings.tls
            files = (tls.ca_file, tls.key_file or tls.cert_file, tls.cert_file)
            with self._translated():
                pems = await asyncio.to_thread(lambda: [Path(file).read_bytes() if file else None for file in files])
            secured = grpc.ssl_channel_credentials(*pems)
            self._channel = grpc.aio.secure_channel(self._address, secured, options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        await self.request("ServerCheckRequest", {})
        self._stream = self._channel.stream_stream("/BiRequestStream/requestBiStream")()
        labels = {"source": "sdk", "module": "naming", "AppName": "effective-load"}
        client = {"clientVersion": "effective-load", "tenant": self._settings.place("", "")[0], "labels": labels}
        await self._write("ConnectionSetupRequest", client)
        with self._translated():
            async with asyncio.timeout(self._settings.timeout_seconds):
                while True:
                    with contextlib.suppress(_Unregistered):
                        return await self.request("HealthCheckRequest", {})
                    await asyncio.sleep(_REGISTRATION_POLL_SECONDS)

    async def changes(self) -> AsyncIterator[str]:
        """The changed services as `group@@service`. The server's other requests are acknowledged."""
        while True:
            with self._translated():
                kind, body = decode_payload(await self._stream.read() or b"")
                request = _MESSAGE.decode(body)
            # XRequest is acknowledged by an XResponse with the same id.
            done = {"resultCode": 200, "errorCode": 0, "success": True, "requestId": request.request_id}
            await self._write(kind.removesuffix("Request") + "Response", done)
            if kind == "ConnectResetRequest":
                raise SourceUnreachable(f"gRPC {self._address}: the server asked for a new connection")
            if (service := request.service_info) is not None:
                # Some servers write the group into the name.
                yield service.name if "@@" in service.name else f"{service.group_name}@@{service.name}"

    async def request(self, kind: str, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> None:
        """Send a request and check its response. `headers` go into the envelope."""
        message = encode_payload(kind, msgspec.json.encode({**body, "module": "naming"}), headers or {})
        with self._translated():
            call = self._channel.unary_unary("/Request/request")
            answer = _MESSAGE.decode(decode_payload(await call(message, timeout=self._settings.timeout_seconds))[1])
        if answer.result_code != 200:
            code = answer.error_code or answer.result_code
            failure = _ERRORS.get(code, SourceFailing)
            raise failure(f"gRPC {self._address}: {answer.message or 'no reason given'} (code {code})")

    async def close(self) -> None:
        """Close the stream and the connection."""
        # gRPC closes the TCP connection once the channel is unreferenced: errors that are kept refer to this object.
        channel, self._channel, self._stream = self._channel, None, None
        if channel is not None:
            await channel.close()

    async def _write(self, kind: str, body: Mapping[str, object]) -> None:
        with self._translated():
            async with asyncio.timeout(self._settings.timeout_seconds):
                await self._stream.write(encode_payload(kind, msgspec.json.encode(body), {}))

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Faults of the connection, of files and of messages become SourceUnreachable."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            details = " ".join((error.details() or "").split())
            raise SourceUnreachable(f"gRPC {self._address}: {error.code().name}: {details}") from error
        except (OSError, TimeoutError, ValueError, msgspec.MsgspecError, asyncio.InvalidStateError) as error:
            raise SourceUnreachable(f"gRPC {self._address}: {error or type(error).__name__}") from error


def encode_payload(kind: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """The envelope of a message: the name of its type, its body in JSON, and headers."""
    entries = b"".join(_field(7, _field(1, key.encode()) + _field(2, value.encode())) for key, value in headers.items())
    return _field(2, _field(3, kind.encode()) + entries) + _field(3, _field(2, body))


def decode_payload(data: bytes) -> tuple[str, bytes]:
    """The name of a message's type, and its body. Raises ValueError for anything else."""
    parts = dict(_fields(data))
    metadata, body = dict(_fields(parts.get(2, b""))), dict(_fields(parts.get(3, b"")))
    if 3 not in metadata:
        raise ValueError("the server ended the stream, or does not speak Nacos' gRPC")
    return metadata[3].decode(), body.get(2, b"")


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited field: tag, length as a varint, value."""
    head, left = bytearray([number << 3 | 2]), len(value)
    while left > 0x7F:
        head.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*head, left]) + value


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of an envelope by number: all are length-delimited. Raises ValueError."""
    while data:
        tag = data[0]
        end = next((at for at in range(1, min(len(data), 6)) if data[at] < 0x80), 0)
        size = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[1 : end + 1]))
        if tag & 0x87 != 2 or not end or len(data) < end + 1 + size:
            raise ValueError("a message that Nacos does not send")
        yield tag >> 3, data[end + 1 : end + 1 + size]
        data = data[end + 1 + size :]
