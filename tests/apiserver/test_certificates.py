"""The serving certificate: our own CA and leaf in one Secret for all replicas, the CA in the APIServices, or files."""

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
import threading
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.apiserver import certificates as cs
from adapter.apiserver.certificates import DAY, CertificateManager, Data, KeyPair, pairs
from adapter.apiserver.door import server_context
from adapter.apiserver.status import CertificateError
from adapter.kube.session import Session
from adapter.settings.server import ServerSettings, Tls
from adapter.telemetry.metrics import Metrics
from tests.apiserver.cluster import SECRET, SERVICES, Cluster

NOW = 1_800_000_000.0
NAMES = Tls(namespace="ns", service="svc").names
V2, V1 = "v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io"
SETTINGS = ServerSettings(tls=Tls(namespace="adapter"))


@pytest.fixture(scope="module")
def data() -> Data:
    return cs.renewed({}, NAMES, NOW)


def span(certificate: x509.Certificate) -> tuple[float, float]:
    return certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()


# --- the certificates themselves


def test_strict_client_that_trusts_the_ca_trusts_the_server_under_every_name_of_the_service() -> None:
    serving, authority = pairs(cs.renewed({}, NAMES, dt.datetime.now(dt.UTC).timestamp()))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_verify_locations(cadata=authority.certificate.decode())
    proxies = trustme.CA()
    proxies.issue_cert("proxy.test").configure_cert(client)
    server = server_context(serving, proxies.cert_pem.bytes().decode())
    for name in ("svc.ns.svc", "svc.ns", "svc", "svc.ns.svc.cluster.local"):
        shake(server, client, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server, client, "other.ns.svc")
    usage = serving.leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """A handshake over a pair of sockets."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with contextlib.suppress(OSError), server.wrap_socket(ours, server_side=True):
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(theirs, server_hostname=name):
            pass
    finally:
        theirs.close()
        thread.join()
        ours.close()


@given(st.floats(-9000 * DAY, 9000 * DAY))  # earlier: a clock that was ahead made the first
@settings(max_examples=25, deadline=None)
def test_served_certificate_is_valid_at_any_time_and_ends_before_its_ca(data: Data, later: float) -> None:
    now = NOW + later
    after = cs.renewed(data, NAMES, now)
    serving, authority = pairs(after)
    (begin, end), (first, last) = span(serving.leaf), span(authority.leaf)
    assert max(begin, first) <= now < end <= last
    assert cs.renewed(after, NAMES, now) is after


def test_leaf_is_renewed_after_two_thirds_of_its_life_or_for_another_name(data: Data) -> None:
    due = NOW + 60 * DAY
    assert cs.renewed(data, NAMES, due - 7200) is cs.renewed(data, ["svc"], NOW) is data
    for after in (cs.renewed(data, NAMES, due + 1), cs.renewed(data, ["other"], NOW)):
        assert (after["ca.crt"], after["ca.key"]) == (data["ca.crt"], data["ca.key"])
        assert after["tls.key"] != data["tls.key"]


def test_certificate_or_ca_that_a_wrong_clock_dated_ahead_is_replaced(data: Data) -> None:
    day_ahead = cs.renewed(data, ["other"], NOW + DAY)  # of the same CA
    assert cs.renewed(day_ahead, ["other"], NOW) is not day_ahead
    ahead = cs.renewed({}, NAMES, NOW + DAY)
    assert cs.renewed(ahead, NAMES, NOW)["ca.crt"] != ahead["ca.crt"]
    assert span(pairs(data)[0].leaf)[0] <= NOW - 3600  # the clocks of clients differ


def test_invalid_data_are_replaced_with_their_ca(data: Data) -> None:
    other = cs.renewed({}, NAMES, NOW)
    for broken in (
        {"tls.crt": b""},
        {"tls.key": b"x"},
        {"tls.key": other["tls.key"]},
        {"ca.key": other["ca.key"]},
        {"tls.crt": other["tls.crt"], "tls.key": other["tls.key"]},
    ):
        assert cs.renewed({**data, **broken}, NAMES, NOW)["ca.crt"] not in (data["ca.crt"], other["ca.crt"])
    assert cs.renewed({"tls.crt": data["tls.crt"]}, NAMES, NOW).keys() == data.keys()


# --- one Secret for all replicas


class Replica:
    """A manager that records what it publishes."""

    def __init__(self, session: Session, settings: ServerSettings = SETTINGS) -> None:
        self.published: list[KeyPair] = []
        self.metrics = Metrics()
        self.manager = CertificateManager(session, settings, self.metrics, self._changed)

    def _changed(self) -> None:
        assert self.manager.current is not None
        self.published.append(self.manager.current)


@pytest.fixture
def replica(session: Session) -> Replica:
    return Replica(session)


def later(session: Session, seconds: float) -> None:
    """Move the API server's clock."""
    shown = session.now() + seconds
    session.now = lambda: shown  # type: ignore[method-assign]


async def test_missing_secret_is_an_error_with_the_remedy(replica: Replica, cluster: Cluster) -> None:
    assert replica.manager.check() == "there is no serving certificate yet"
    del cluster.objects[SECRET]
    with pytest.raises(CertificateError, match="does not exist, and the server may not create it: apply the manifests"):
        await replica.manager.sync_secret()


async def test_replicas_that_start_together_end_with_one_certificate_and_then_write_nothing(
    session: Session, cluster: Cluster
) -> None:
    cluster.register(V2)
    replicas = [Replica(session) for _ in range(5)]
    await asyncio.gather(*(each.manager.sync_secret() for each in replicas))
    assert {each.published[-1].certificate.decode() for each in replicas} == {cluster.secret("tls.crt")}
    written = cluster.objects[SECRET], cluster.objects[f"{SERVICES}/{V2}"]
    for each in replicas:
        await each.manager.sync_secret()
    assert (cluster.objects[SECRET], cluster.objects[f"{SERVICES}/{V2}"]) == written


async def test_empty_secret_of_a_manifest_keeps_its_type_and_labels(replica: Replica, cluster: Cluster) -> None:
    await replica.manager.sync_secret()
    found = cluster.objects[SECRET]
    assert (found["type"], found["metadata"]["labels"]) == ("Opaque", {"app": "x"})
    assert cluster.secret("tls.crt") == replica.published[0].certificate.decode()


@pytest.mark.parametrize("days", [61, 100], ids=["past two thirds of its life", "expired, and a replica wakes up"])
async def test_due_certificate_is_renewed_by_the_same_ca(
    replica: Replica, cluster: Cluster, session: Session, days: int
) -> None:
    cluster.register(V2)
    await replica.manager.sync_secret()
    authority = cluster.bundle(V2)
    later(session, days * DAY)
    await replica.manager.sync_secret()
    old, new = replica.published
    assert new.expires_at > max(old.expires_at, session.now())
    assert (cluster.secret("tls.crt"), cluster.bundle(V2)) == (new.certificate.decode(), authority)


# --- the CA in the APIServices


async def test_ca_is_in_our_api_services_whoever_changed_them_and_in_no_others(
    replica: Replica, cluster: Cluster
) -> None:
    cluster.register(V2, caBundle="b3RoZXI=", groupPriorityMinimum=100)
    cluster.register(V1, insecureSkipTLSVerify=True)
    await replica.manager.sync_secret()
    assert cluster.bundle(V2) == cluster.bundle(V1) == cluster.secret("ca.crt")
    assert cluster.objects[f"{SERVICES}/{V2}"]["spec"]["groupPriorityMinimum"] == 100
    assert "insecureSkipTLSVerify" not in cluster.objects[f"{SERVICES}/{V1}"]["spec"]
    cluster.register(V2, caBundle="b3RoZXI=", service="prometheus-adapter")
    cluster.put(f"{SERVICES}/{V1}", {"spec": {"group": "a local one"}})
    await replica.manager.sync_secret()
    assert cluster.bundle(V2) == "other"
    assert "caBundle" not in cluster.objects[f"{SERVICES}/{V1}"]["spec"]


async def test_changed_files_are_served_once_the_key_fits(session: Session, cluster: Cluster, tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write() -> KeyPair:
        leaf = trustme.CA().issue_cert("effective-load.adapter.svc")
        key.write_bytes(leaf.private_key_pem.bytes())
        certificate.write_bytes(leaf.cert_chain_pems[0].bytes())
        return KeyPair(certificate.read_bytes(), key.read_bytes())

    tls = Tls(mode="Files", namespace="adapter", cert_file=str(certificate), key_file=str(key))
    given = Replica(session, ServerSettings(tls=tls))
    first = write()
    await given.manager.sync_files()
    second = write()
    key.write_bytes(first.key)
    with pytest.raises(CertificateError):
        await given.manager.sync_files()
    assert given.manager.current == first
    key.write_bytes(second.key)
    await given.manager.sync_files()
    assert given.published == [first, second]
    assert not cluster.asked
