"""Raw requests that no client library would send."""

import asyncio
import re
from collections.abc import Iterable

import trustme

from tests.apiserver.conftest import Service
from tests.apiserver.metric_requests import POLICY

METRIC = f"{POLICY}/effective_cpu"
_STATUS = re.compile(rb"HTTP/\d\.\d (\d{3}) [A-Za-z -]+\r\n")  # it follows the body before it without a break


def head(target: str, *fields: str, method: str = "GET", version: str = "HTTP/1.1") -> bytes:
    """A request head with exactly these fields."""
    return "\r\n".join([f"{method} {target} {version}", "Host: x", *fields, "", ""]).encode("latin-1")


def as_proxy(*fields: str, user: str = "bob") -> tuple[str, ...]:
    """The fields of a request that the front proxy sends for a user."""
    return (f"X-Remote-User: {user}", *fields)


async def exchanged(service: Service, leaf: trustme.LeafCert | None, sent: bytes) -> bytes:
    """All bytes received on a new connection until the server closes it or is silent for a while."""
    found = b""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.server.port, ssl=service.context(leaf))
    except OSError:  # the handshake failed
        return found
    try:
        writer.write(sent)
        async with asyncio.timeout(5):
            while piece := await reader.read(65536):
                found += piece
    except (OSError, TimeoutError):
        pass
    finally:
        writer.close()
    return found


async def statuses(service: Service, leaf: trustme.LeafCert | None, sent: bytes) -> list[int]:
    """The status codes of all answers on one connection, which the last request has to end."""
    return [int(code) for code in _STATUS.findall(await exchanged(service, leaf, sent))]


def reviewed(service: Service, kind: str = "resourceAttributes") -> Iterable[dict[str, str]]:
    """The attributes of all SubjectAccessReviews."""
    return [body["spec"][kind] for path, body in service.cluster.bodies if kind in body.get("spec", {})]
