"""Sockets, TLS and connections of the metrics API."""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import trustme

from adapter.kube.session import Session
from adapter.settings.server import ServerSettings, Tls
from tests.apiserver.cluster import SECRET, Cluster
from tests.apiserver.conftest import Service, as_user, made, pem, running
from tests.apiserver.raw import METRIC, Streams, as_proxy, asked, drop, head, opened, statuses
from tests.waiting import eventually

REQUEST = head(METRIC, *as_proxy())
LAST = head(METRIC, *as_proxy("Connection: close"))


async def test_a_user_of_another_alphabet_is_reviewed_by_name_and_one_that_is_not_utf8_is_a_401(
    service: Service, proxy: trustme.LeafCert
) -> None:
    named = LAST.replace(b"bob", "王小明".encode())
    assert await statuses(service, proxy, named) == [200]
    assert service.cluster.bodies[-1][1]["spec"]["user"] == "王小明"
    assert await statuses(service, proxy, LAST.replace(b"bob", b"\xff\xfe")) == [401]


def shown(wire: Streams) -> bytes:
    """The server's certificate on this connection."""
    found = wire[1].get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert isinstance(found, bytes)
    return found


async def test_files_given_are_served_and_reloaded_under_standing_connections(
    cluster: Cluster,
    session: Session,
    options: ServerSettings,
    front_proxy: trustme.CA,
    proxy: trustme.LeafCert,
    tmp_path: Path,
) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write() -> bytes:
        leaf = trustme.CA().issue_cert("effective-load.adapter.svc")
        key.write_bytes(leaf.private_key_pem.bytes())
        certificate.write_bytes(leaf.cert_chain_pems[0].bytes())
        return ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())

    first = write()
    cluster.trust(pem(front_proxy))
    tls = Tls(mode="Files", namespace="adapter", cert_file=str(certificate), key_file=str(key))
    async with running(made(cluster, session, options.model_copy(update={"tls": tls}))) as service:
        await service.ready()
        wire = await opened(service, proxy)
        assert shown(wire) == first
        second, served = write(), service.server.door.in_use
        await eventually(lambda: service.server.door.in_use != served)
        other = await opened(service, proxy)
        assert shown(other) == second
        assert (await asked(wire, REQUEST)).startswith(b"HTTP/1.1 200"), "it changes under standing connections"
        drop(wire, other)
    assert "data" not in cluster.objects[SECRET]


async def test_no_connection_is_lost_while_certificates_change(service: Service, proxy: trustme.LeafCert) -> None:
    lost: list[str] = []

    async def keep_asking(stop: asyncio.Event) -> int:
        count = 0
        while not stop.is_set():
            connector = aiohttp.TCPConnector(ssl=service.context(proxy), force_close=True)
            async with aiohttp.ClientSession(connector=connector) as client:
                try:
                    async with client.get(service.url + METRIC, headers=as_user()) as response:
                        assert response.status == 200
                except aiohttp.ClientError as error:
                    lost.append(repr(error))
            count += 1
        return count

    stop = asyncio.Event()
    asking = [asyncio.create_task(keep_asking(stop)) for _ in range(4)]
    for _ in range(20):
        served = service.server.door.in_use
        service.cluster.put(SECRET, {})
        await eventually(lambda served=served: service.server.door.in_use != served)  # type: ignore[misc]
    stop.set()
    assert sum(await asyncio.gather(*asking)) > 20
    assert lost == []
