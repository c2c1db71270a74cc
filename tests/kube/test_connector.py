"""What is left of connections after `close`: nothing, whatever the other side does."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from adapter.kube.errors import TimedOut
from adapter.runtime import outbound
from tests.kube.fake import session_to


class Mute:
    """Shakes hands in TLS, and then says nothing any more: no answer, and no goodbye."""

    def __init__(self, authority: trustme.CA) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        self.known, self.ended = asyncio.Event(), asyncio.Event()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self._context.wrap_bio(incoming, outgoing, server_side=True)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                if not (received := await reader.read(65536)):
                    return
                incoming.write(received)
        writer.write(outgoing.read())
        self.known.set()
        while await reader.read(65536):
            pass
        self.ended.set()
        writer.close()


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def mute(authority: trustme.CA) -> AsyncIterator[Mute]:
    found = Mute(authority)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield found


async def test_a_session_leaves_no_connection_on_which_a_request_was_given_up(
    mute: Mute, authority: trustme.CA
) -> None:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    async with session_to(mute.url, tls=context) as session:
        with pytest.raises(TimedOut):
            await session.get("/api", timeout=1)
    assert mute.known.is_set()
    await asyncio.wait_for(mute.ended.wait(), 10)


async def test_a_client_leaves_no_connection_on_which_a_request_was_given_up(
    mute: Mute, authority: trustme.CA, tmp_path: Path
) -> None:
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    client = outbound.Client(outbound.Access(ca_file=str(tmp_path / "ca.pem")), timeout=30)
    asking = asyncio.create_task(client.send("GET", mute.url))
    await mute.known.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await client.close()
    await asyncio.wait_for(mute.ended.wait(), 10)
