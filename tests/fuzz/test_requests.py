"""Faulty requests over TLS to the real server: each is refused with a cause, and the next request works."""

import asyncio
import contextlib
import json
import socket
import ssl
from typing import Any

import trustme
from hypothesis import strategies as st

from adapter.apiserver.request_info import parse_target
from adapter.apiserver.status import StatusError
from adapter.kube import selectors
from adapter.kube.selectors import SelectorError
from tests.apiserver.conftest import HPA, Service
from tests.apiserver.metric_requests import CUSTOM, EXTERNAL, PODS, POLICY
from tests.fuzz.kit import FUZZ_SECONDS, fuzz, fuzzed
from tests.fuzz.spoil import TEXTS

LONGEST_TARGET = 64 * 1024
"""The server's limit on a request line (bytes)."""
SILENCE_SECONDS = 1.0
HANG_SECONDS = 30.0
"""For a request that is answered and ends its connection, however slow the processor."""
TARGETS = [
    f"{POLICY}/desired_replicas",
    f"{PODS}/effective_cpu?labelSelector=app%3Dweb%2Ctier+in+(a,b)",
    f"{CUSTOM}/deployments.apps/web/desired_replicas?metricLabelSelector=a!%3Db",
    f"{EXTERNAL}/desired_replicas?labelSelector=policy%3Dcheckout",
    "/apis/custom.metrics.k8s.io/v1beta2",
    "/apis",
    "/openapi/v3",
    "/version",
    "/readyz?verbose",
    "/livez/ping",
    "/registries/main/shop?namespace=public&group=g",
    "/",
]
PIECES = [
    *"/?&=%+#;:@,.!*'()[]~ \t", "//", "/../", "/./", "%2F", "%2e%2e", "%00", "%", "%ff", "%C0%AF", "%ud800", "%25",
    "%zz", "*", "é", "\x00", "\x7f", "\r", "apis", "custom.metrics.k8s.io", "v1beta1", "namespaces", "pods",
    "labelSelector=", "watch=true", "fieldSelector=a", "verbose", "&a=b" * 40, "http://other/", "[::1]", "a" * 3000,
    "%41" * 1000, "+" * 3000,
]  # fmt: skip
NAMES = [
    "X-Remote-User", "X-Remote-Group", "X-Remote-Extra-Scopes", "x-remote-user", "X_Remote_User", "Authorization",
    "Accept", "If-None-Match", "Content-Length", "Transfer-Encoding", "Expect", "Connection", "Upgrade",
    "Content-Encoding", "Host", "Range", "Content-Type", "Cookie", "X-Forwarded-For", "", " ", "A B", "X\x00", "é",
    "X:",
]  # fmt: skip
VALUES = [
    HPA, "system:masters", "admin", "", " ", "\t", "Bearer", "Bearer ", "Bearer x", "Basic !!",
    "Bearer " + "a." * 2000, "*/*", "application/json;q=" + "9" * 400, "application/json," * 500, "W/" * 500, "0",
    "5", "-1", "+5", "9" * 5000, "0x5", "1e3", "chunked", "chunked, chunked", "gzip", "identity", "100-continue",
    "close", "keep-alive", "websocket", "h2c", "é", "\x00", "\x80", "\r", "a" * 5000, ";" * 3000, '"' * 3000, "%00",
    "%zz", "a,b" * 1000,
]  # fmt: skip
TOKEN = st.sampled_from([*PIECES, *(text for text in TEXTS if "\n" not in text)])


@st.composite
def targets(draw: st.DrawFn) -> str:
    """Strategy: a known request target with an insertion."""
    target = draw(st.sampled_from(TARGETS))
    for _ in range(draw(st.integers(0, 3))):
        start, cut = draw(st.integers(0, len(target))), draw(st.sampled_from([0, 0, 1, 5, 30]))
        target = target[:start] + draw(TOKEN) + target[start + cut :]
    return target[:LONGEST_TARGET]


METHODS = ["GET", "GET", "GET", "PUT", "POST", "OPTIONS", "CONNECT", "get", "G T", "", "GET" * 500, "G\x00"]
VERSIONS = ["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2", "HTTP/1.9", "HTTP/", "", "HTTP/1.1 x", "HTTP/11"]
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=5)
ENDS = ["\r\n", "\r\n", "\r\n", "\n", "\r", "\r\n ", "\0"]
BODIES = [
    b"",
    b"",
    b"{}",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"0\r\n\r\n",
    b"g\r\n",
    b"F" * 20 + b"\r\n",
    b"\x16\x03\x01",
    b"\0" * 300,
]


class Client:
    """A blocking client with the front proxy's certificate, in a thread of its own."""

    def __init__(self, service: Service, proxy: trustme.LeafCert) -> None:
        self._port, self._context = service.server.port, service.context(proxy)

    def send(self, request: bytes, silence: float = SILENCE_SECONDS) -> bytes:
        """The server's bytes until it closes the connection or sends nothing for `silence` seconds."""
        found = b""
        with (
            contextlib.suppress(TimeoutError, ConnectionError, ssl.SSLError),
            socket.create_connection(("127.0.0.1", self._port), timeout=silence) as bare,
            self._context.wrap_socket(bare) as line,
        ):
            line.sendall(request)
            while chunk := line.recv(65_536):
                found += chunk
        return found


def told(data: bytes) -> list[tuple[int, bytes]]:
    """Splits the bytes into answers (status and body); fails if they are not HTTP."""
    found = []
    while data:
        top, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = top.split(b"\r\n")
        assert first.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ", b"HTTP/0.9 505 ")), data[:200]
        code = int(first.split(b" ")[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        length = 0 if code in {100, 204, 304} else int(headers[b"content-length"])
        assert len(rest) >= length, "an answer was cut off"
        if code != 100:
            found.append((code, rest[:length]))
        data = rest[length:]
    return found


def written(method: str, target: str, version: str, headers: list[tuple[str, str]], end: str, body: bytes) -> bytes:
    lines = [f"{method} {target} {version}".rstrip(), "Host: a", f"X-Remote-User: {HPA}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers]
    return (end.join(lines) + end * 2).encode("utf-8", "surrogatepass") + body


GOOD = written("GET", "/apis/custom.metrics.k8s.io/v1beta2", "HTTP/1.1", [], "\r\n", b"")


def check(client: Client, request: bytes) -> None:
    """The request is answered or ends the connection; a good one is answered after it."""
    answers = told(client.send(request + b"\r\n\r\n" + GOOD))
    for code, body in answers:
        assert code != 500, body
        if code >= 400 and body.startswith(b"{"):
            status = json.loads(body)
            assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", code)
            assert status["message"]
        elif code >= 400:
            assert code == 400, "aiohttp answers what it cannot read in plain text"
    assert [code for code, _ in told(client.send(GOOD, HANG_SECONDS))] == [200]


@FUZZ_SECONDS
async def test_whatever_is_asked_is_answered_and_so_is_the_next_request(
    service: Service, proxy: trustme.LeafCert
) -> None:
    client = Client(service, proxy)

    def ask(**parts: Any) -> None:
        check(client, written(**parts))

    await asyncio.to_thread(
        fuzzed,
        ask,
        120,
        method=st.sampled_from(METHODS),
        target=targets(),
        version=st.sampled_from(VERSIONS),
        headers=HEADERS,
        end=st.sampled_from(ENDS),
        body=st.sampled_from(BODIES),
    )


@FUZZ_SECONDS
async def test_bytes_of_any_kind_are_answered_or_end_the_connection(service: Service, proxy: trustme.LeafCert) -> None:
    client = Client(service, proxy)
    await asyncio.to_thread(fuzzed, lambda request: check(client, request), 60, request=st.binary(max_size=200))


# --- parsed alone, where more can be tried ---


@fuzz(400, target=targets())
def test_any_target_has_a_route_or_a_fault(target: str) -> None:
    with contextlib.suppress(StatusError):
        found = parse_target(target)
        hash(found)
        str(found.labels)


@fuzz(
    400,
    text=st.lists(
        st.sampled_from([*"=!<>(),/.- \t\n", "in", "notin", "a", "b1", "é", "\x00", "9" * 70]), max_size=60
    ).map("".join),
)
def test_any_selector_is_read_and_means_the_same_in_canonical_form_or_is_refused(text: str) -> None:
    try:
        found = selectors.parse_selector(text)
    except SelectorError as error:
        str(error)
        return
    assert selectors.parse_selector(str(found)) == found
    for labels in ({}, {"a": "b1"}, {"in": "5"}):
        found.matches(labels)
