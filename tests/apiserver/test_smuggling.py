"""Two readings of one stream of bytes, or of one path: each is refused, and ends the connection.

The front proxy's connections carry many users' requests, so a request hidden in another one's body would be answered to
somebody else, or as somebody else.
"""

import pytest
import trustme

from tests.apiserver.conftest import Service
from tests.apiserver.raw import METRIC, as_proxy, head, reviewed, statuses

HIDDEN = head("/version", *as_proxy("Connection: close", user="hidden"))


def carrying(body: bytes, *fields: str, method: str = "POST", version: str = "HTTP/1.1") -> bytes:
    return head(METRIC, *as_proxy(*fields), method=method, version=version) + body


CHUNKED = b"0\r\n\r\n" + HIDDEN
AMBIGUOUS = {
    "length and chunks": carrying(CHUNKED, f"Content-Length: {len(CHUNKED)}", "Transfer-Encoding: chunked"),
    "two lengths that differ": carrying(HIDDEN, "Content-Length: 0", f"Content-Length: {len(HIDDEN)}"),
    "a list of lengths": carrying(HIDDEN, f"Content-Length: 0, {len(HIDDEN)}"),
    "a negative length": carrying(HIDDEN, "Content-Length: -1"),
    "a length of other digits": carrying(HIDDEN, "Content-Length: \xb2"),
    "white space before the colon": carrying(HIDDEN, "Content-Length : 0"),
    "chunks that are not the last coding": carrying(CHUNKED, "Transfer-Encoding: chunked, identity"),
    "two fields of coding": carrying(CHUNKED, "Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
    "a chunk's size with a sign": carrying(b"+0\r\n\r\n" + HIDDEN, "Transfer-Encoding: chunked"),
    "a bare line feed in a chunk": carrying(b"0\n\n" + HIDDEN, "Transfer-Encoding: chunked"),
    "a null in a field": head(METRIC, *as_proxy("X-A: a\x00b")) + HIDDEN,
}


@pytest.mark.parametrize("sent", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
async def test_a_request_that_can_be_read_in_two_ways_hides_no_other(
    service: Service, proxy: trustme.LeafCert, sent: bytes
) -> None:
    found = await statuses(service, proxy, sent)
    assert found in ([], [400], [405])
    assert not list(reviewed(service, "nonResourceAttributes"))


@pytest.mark.parametrize(
    "fields",
    [(f"Content-Length: {len(HIDDEN)}",), ("Transfer-Encoding: chunked",)],
    ids=["by length", "in chunks"],
)
async def test_a_body_is_never_taken_for_the_next_request(
    service: Service, proxy: trustme.LeafCert, fields: tuple[str, ...]
) -> None:
    body = HIDDEN if "Length" in fields[0] else f"{len(HIDDEN):x}\r\n".encode() + HIDDEN + b"\r\n0\r\n\r\n"
    honest = head("/apis", *as_proxy("Connection: close"))
    for method in ("GET", "POST", "CONNECT"):
        found = await statuses(service, proxy, carrying(body, *fields, method=method) + honest)
        assert found in ([200, 200], [405, 200], [200], [405])
    assert {one["path"] for one in reviewed(service, "nonResourceAttributes")} <= {"/apis"}


@pytest.mark.parametrize("user", ["eve", ""])
async def test_a_trailer_adds_nothing_to_its_request_or_the_next_one(
    service: Service, proxy: trustme.LeafCert, user: str
) -> None:
    """aiohttp 3.14.5 adds the last trailer to the headers of the next request, which may be another user's."""
    service.cluster.may = lambda _: False
    trailer = b"0\r\nX-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n\r\n"
    fields = (f"X-Remote-User: {user}", "Transfer-Encoding: chunked", "Trailer: X-Remote-User")
    assert await statuses(service, proxy, head("/version", *fields) + trailer + HIDDEN) == [403 if user else 401]


@pytest.mark.parametrize("version", ["HTTP/2.0", "HTTP/1.0", "HTTP/1.10"])
async def test_other_protocols_are_not_spoken(service: Service, proxy: trustme.LeafCert, version: str) -> None:
    found = await statuses(service, proxy, head("/version", *as_proxy("Connection: close"), version=version))
    assert found in ([400], [505])


# --- paths

CLOSE = "Connection: close"
METRIC_OF_SHOP = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop"
TWISTED = [
    "//apis/custom.metrics.k8s.io/v1beta2",
    f"/livez/..{METRIC}",
    f"/livez/%2e%2e{METRIC}",
    f"/livez%2f..{METRIC}",
    "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/../../../../version",
    f"{METRIC_OF_SHOP}/pods/%2e%2e/effective_cpu",
    f"{METRIC_OF_SHOP}%2f..%2fother/pods/%2A/effective_cpu",
    f"{METRIC_OF_SHOP}/pods/a%2Fb/effective_cpu",
    f"{METRIC_OF_SHOP}/pods/%2A/effective_cpu%00",
    f"{METRIC_OF_SHOP}/pods/%252e%252e/effective_cpu",
]


@pytest.mark.parametrize("target", TWISTED)
async def test_a_manipulated_path_reaches_nothing_with_every_right(
    service: Service, proxy: trustme.LeafCert, target: str
) -> None:
    assert await statuses(service, proxy, head(target, *as_proxy(CLOSE))) in ([400], [404])


async def test_what_is_authorized_is_what_is_answered(service: Service, proxy: trustme.LeafCert) -> None:
    """Escapes are decoded once, before authorization: the reviewed namespace is the one that is read."""
    service.cluster.may = lambda spec: spec.get("resourceAttributes", {}).get("namespace") == "shop"
    escaped = METRIC.replace("/shop/", "/%73hop/")
    assert await statuses(service, proxy, head(escaped, *as_proxy(CLOSE))) == [200]
    assert await statuses(service, proxy, head(METRIC.replace("/shop/", "/%2573hop/"), *as_proxy(CLOSE))) == [403]
    assert [one["namespace"] for one in reviewed(service)] == ["shop", "%73hop"]


@pytest.mark.parametrize("name", ["X-Original-URL", "X-HTTP-Method-Override"])
async def test_no_header_changes_the_requested_path(service: Service, proxy: trustme.LeafCert, name: str) -> None:
    service.cluster.may = lambda spec: "nonResourceAttributes" not in spec
    for value in (METRIC, "PUT"):
        assert await statuses(service, proxy, head("/version", *as_proxy(f"{name}: {value}", CLOSE))) == [403]
