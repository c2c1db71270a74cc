"""A request head is limited while it arrives, so that endless lines do not fill the memory."""

import asyncio
import gc
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import trustme
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.http_parser import HttpRequestParser

from adapter.inbound.connections import ConnectionLimits, InboundConnections
from adapter.inbound.parser import HEAD_BYTES, BoundedParser, HeadTooLargeError
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.server import listen
from tests.apiserver.conftest import HPA, Service
from tests.apiserver.metric_requests import POLICY

METRIC = f"{POLICY}/effective_cpu"
START = f"GET {METRIC} HTTP/1.1\r\nHost: x\r\nX-Remote-User: {HPA}\r\n".encode()
GROUPS = b"".join(b"X-Remote-Group: some-group-of-a-large-directory-%03d\r\n" % index for index in range(600))
MIB = 1024 * 1024

Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def padded(start: bytes, size: int) -> bytes:
    """A head of this size, of lines far below their own limit."""
    lines, room = [start], size - len(start) - 2
    while room:
        length = room if room < 40_000 else 20_000
        lines.append(b"X-Padding: " + b"p" * (length - 13) + b"\r\n")
        room -= length
    return b"".join(lines) + b"\r\n"


async def opened(service: Service, leaf: trustme.LeafCert | None = None) -> Wire:
    return await asyncio.open_connection("127.0.0.1", service.server.port, ssl=service.context(leaf), limit=MIB)


async def answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of the next answer."""
    async with asyncio.timeout(30):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        return head, await reader.readexactly(length)


@contextmanager
def memory() -> Iterator[Callable[[], int]]:
    """The bytes that Python has allocated since the start."""
    gc.collect()
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


# --- the API port


async def test_a_head_of_256_kib_with_hundreds_of_groups_is_answered(service: Service, proxy: trustme.LeafCert) -> None:
    reader, writer = await opened(service, proxy)
    for _ in range(2):  # each head has the whole bound to itself
        writer.write(padded(START + GROUPS, HEAD_BYTES))
        head, _ = await answer(reader)
        assert head.startswith(b"HTTP/1.1 200 OK")
    writer.close()


async def test_a_head_one_byte_larger_is_a_431_in_json_and_ends_the_connection(
    service: Service, proxy: trustme.LeafCert
) -> None:
    reader, writer = await opened(service, proxy)
    writer.write(padded(START + GROUPS, HEAD_BYTES + 1))
    head, body = await answer(reader)
    assert head.split()[1] == b"431"
    told = json.loads(body)
    assert (told["kind"], told["code"], told["reason"]) == ("Status", 431, "RequestHeaderFieldsTooLarge")
    assert told["message"] == "the request's line and headers are larger than 256 KiB"
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    "line",
    [b"GET /" + b"a" * 70_000, b"GET / HTTP/1.1\r\nHost: x\r\nX-A: " + b"a" * 70_000, START + 2100 * b"a: b\r\n"],
    ids=["target", "field", "number of fields"],
)
async def test_one_line_too_long_and_too_many_of_them_are_a_431_too(service: Service, line: bytes) -> None:
    reader, writer = await opened(service)
    writer.write(line + b"\r\n\r\n")
    head, _ = await answer(reader)
    assert head.split()[1] == b"431"
    writer.close()


async def test_unfinished_heads_of_unknown_clients_take_little_memory(
    service: Service, proxy: trustme.LeafCert
) -> None:
    fields = b"".join(b"a%d:b\r\n" % index for index in range(2000))
    unfinished = (START + fields, padded(START, HEAD_BYTES)[:-2])
    await service.ask(METRIC, leaf=proxy, headers={"X-Remote-User": HPA})
    with memory() as taken:
        wires = []
        for index in range(64):
            reader, writer = await opened(service)
            writer.write(unfinished[index % 2])
            wires.append((reader, writer))
        async with asyncio.timeout(30):
            answered = await service.ask(METRIC, leaf=proxy, headers={"X-Remote-User": HPA})
            await asyncio.wait([asyncio.create_task(one.read()) for one, _ in wires], return_when="FIRST_COMPLETED")
        assert taken() < 24 * MIB
        assert answered.status == 200
        for _, writer in wires:
            writer.transport.abort()


# --- where a head ends


def parser(limit: int = 1000) -> BoundedParser:
    loop = asyncio.get_running_loop()
    protocol = web.RequestHandler(web.Server(nothing), loop=loop)
    plain = HttpRequestParser(protocol, loop, 2**20, max_headers=10_000)
    return BoundedParser(plain, limit, lambda: None)


async def nothing(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response()


def fed(bounded: BoundedParser, data: bytes, size: int) -> int:
    """Feed pieces of this size; returns the number of parsed requests."""
    return sum(len(bounded.feed_data(data[at : at + size])[0]) for at in range(0, len(data), size))


GET = padded(b"GET / HTTP/1.1\r\nHost: x\r\n", 1000)
PUT = padded(b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n", 1000)
CHUNKED = padded(b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n", 1000)


@pytest.mark.parametrize("size", [1, 7, 500, 999, 1000, 1001, 4096, 1 << 20])
async def test_heads_bodies_and_the_heads_after_them_pass_in_pieces_of_any_size(size: int) -> None:
    bounded = parser()
    chunks = 500 * b"a\r\n0123456789\r\n"
    assert fed(bounded, GET + PUT + 5000 * b"b" + GET + CHUNKED + chunks + b"0\r\nX-Sum: 1\r\n\r\n" + GET, size) == 5
    assert not bounded.in_body


@pytest.mark.parametrize("size", [1, 500, 1000, 1001, 1 << 20])
async def test_a_head_beyond_the_bound_is_refused_in_pieces_of_any_size(size: int) -> None:
    with pytest.raises(HeadTooLargeError):
        fed(parser(), padded(b"GET / HTTP/1.1\r\nHost: x\r\n", 1001), size)


@pytest.mark.parametrize("before", [GET, PUT + 5000 * b"b", CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"])
async def test_a_later_head_of_the_same_connection_is_bounded_too(before: bytes) -> None:
    bounded = parser()
    assert fed(bounded, before, 4096) == 1
    with pytest.raises(HeadTooLargeError):
        fed(bounded, b"GET / HTTP/1.1\r\nHost: x\r\n" + 2000 * b"a: b\r\n", 100)


@pytest.mark.parametrize("after", [b"0\r\n" + 2000 * b"a: b\r\n", b"1;" + 2000 * b"x", b"0" * 2000])
async def test_trailers_extensions_and_lengths_without_end_are_refused(after: bytes) -> None:
    bounded = parser()
    with pytest.raises((HeadTooLargeError, BadHttpMessage)):
        fed(bounded, CHUNKED + b"5\r\nhello\r\n" + after, 100)


async def test_after_a_refusal_nothing_more_is_parsed() -> None:
    bounded = parser()
    with pytest.raises(HeadTooLargeError):
        fed(bounded, 2 * GET[:-2], 100)
    assert fed(bounded, GET, 100) == 0


# --- over a socket


@asynccontextmanager
async def listening(handle: Callable[[web.BaseRequest], object], **limits: float) -> AsyncIterator[int]:
    connections = InboundConnections(handle, ConnectionLimits(**limits))  # type: ignore[arg-type]
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await connections.finish(1)


async def test_a_body_of_a_mebibyte_that_comes_with_its_head_and_before_the_next_one_passes() -> None:
    async def length(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=str(len(await request.read())))

    async with listening(length) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        whole = b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048576\r\n\r\n" + MIB * b"b"
        writer.write(whole + whole + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert [(await answer(reader))[1] for _ in range(3)] == [b"1048576", b"1048576", b"0"]
        writer.close()


async def test_requests_of_a_client_that_reads_no_answer_are_not_read_either() -> None:
    answers = 0

    async def long(_: web.BaseRequest) -> web.StreamResponse:
        nonlocal answers
        answers += 1
        return web.Response(body=MIB // 4 * b"x")

    async with listening(long, stall_seconds=0.3, sweep_seconds=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.transport.set_write_buffer_limits(0)
        writer.write(400_000 * b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(30):
                await writer.drain()
        assert answers < 500
        del reader
        writer.transport.abort()


async def test_the_telemetry_port_bounds_heads_likewise() -> None:
    async with listen(Metrics(), "127.0.0.1", 0) as port:
        for size, code in ((HEAD_BYTES, b"200"), (HEAD_BYTES + 1, b"431")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(padded(b"GET /healthz HTTP/1.1\r\nHost: x\r\n", size))
            head, _ = await answer(reader)
            assert head.split()[1] == code
            writer.close()
