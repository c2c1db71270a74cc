"""Our own CA and serving certificate: creation, validation, renewal."""

import contextlib
import datetime as dt
import socket
import ssl
import threading
from dataclasses import replace

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.apiserver import certificates as cs
from adapter.apiserver.certificates import DAY, CertificateBundle, KeyPair
from adapter.apiserver.door import server_context
from adapter.apiserver.status import CertificateError
from adapter.settings.server import Tls

NOW = 1_800_000_000.0
NAMES = Tls(namespace="ns", service="svc").names


@pytest.fixture(scope="module")
def bundle() -> CertificateBundle:
    return cs.create_bundle(NAMES, NOW)


def span(certificate: x509.Certificate) -> tuple[float, float]:
    return certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()


def test_keys_are_p256_and_lives_are_ten_years_and_ninety_days(bundle: CertificateBundle) -> None:
    for certificate, life in ((bundle.authority.leaf, 3650 * DAY), (bundle.serving.leaf, 90 * DAY)):
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
        begin, end = span(certificate)
        assert (NOW - begin, end - NOW) == (3600, life)


def test_the_certificate_is_for_every_name_of_the_service_for_servers_and_not_a_ca(bundle: CertificateBundle) -> None:
    leaf = bundle.serving.leaf
    assert cs.dns_names(leaf) == ["svc.ns.svc", "svc.ns", "svc", "svc.ns.svc.cluster.local"]
    assert leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_strict_client_that_trusts_the_authority_trusts_the_server() -> None:
    bundle = cs.create_bundle(NAMES, dt.datetime.now(dt.UTC).timestamp())
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_verify_locations(cadata=bundle.authority.certificate)
    proxies = trustme.CA()
    proxies.issue_cert("proxy.test").configure_cert(client)
    server = server_context(bundle.serving, proxies.cert_pem.bytes().decode())
    shake(server, client, "svc.ns.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server, client, "other.ns.svc")


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


@given(st.floats(0, 4000 * DAY))
@settings(max_examples=25, deadline=None)
def test_at_any_time_the_served_certificate_is_valid_and_ends_before_its_ca(
    bundle: CertificateBundle, later: float
) -> None:
    now = NOW + later
    try:
        known = cs.validated(bundle, now)
    except CertificateError:
        known = cs.create_bundle(NAMES, now)
    after = cs.with_new_leaf(known, NAMES, now)
    begin, end = span(after.serving.leaf)
    assert begin <= now < end <= span(after.authority.leaf)[1]
    assert cs.validated(after, now) == after


def test_the_certificate_is_renewed_from_two_thirds_of_its_life_on_by_the_same_authority(
    bundle: CertificateBundle,
) -> None:
    due = NOW + 60 * DAY
    assert cs.with_new_leaf(bundle, NAMES, due - 7200) is bundle
    after = cs.with_new_leaf(bundle, NAMES, due + 1)
    assert after.authority == bundle.authority
    assert after.serving != bundle.serving
    assert after.serving.key != bundle.serving.key


def test_a_new_dns_name_makes_a_new_certificate(bundle: CertificateBundle) -> None:
    assert cs.dns_names(cs.with_new_leaf(bundle, ["other"], NOW).serving.leaf) == ["other"]
    assert cs.with_new_leaf(bundle, ["svc"], NOW) is bundle


def test_an_invalid_bundle_is_rejected_with_the_reason(bundle: CertificateBundle) -> None:
    (certificate, key), other = (bundle.serving.certificate, bundle.serving.key), cs.create_bundle(NAMES, NOW)
    cases = {
        "no certificate can be read": replace(bundle, serving=KeyPair("", key)),
        "private key cannot be read": replace(bundle, serving=KeyPair(certificate, "x")),
        "does not belong to the certificate": replace(bundle, serving=KeyPair(certificate, other.serving.key)),
        "key does not belong": replace(bundle, authority=replace(bundle.authority, key=other.authority.key)),
        "the CA did not issue": replace(bundle, serving=other.serving),
    }
    for sentence, broken in cases.items():
        with pytest.raises(CertificateError, match=sentence):
            cs.validated(broken, NOW)
    with pytest.raises(CertificateError, match="ends before"):
        cs.validated(bundle, NOW + 3561 * DAY)


def test_given_pairs_are_verified_with_any_kind_of_key_and_those_that_openssl_rejects_are_certificate_errors(
    bundle: CertificateBundle,
) -> None:
    for kind in (trustme.KeyType.RSA, trustme.KeyType.ECDSA):
        leaf = trustme.CA().issue_cert("a.test", key_type=kind)
        pair = KeyPair(leaf.cert_chain_pems[0].bytes().decode(), leaf.private_key_pem.bytes().decode())
        assert cs.verify_pair(pair) is pair
        server_context(pair, pair.certificate)
    for broken in (KeyPair("", bundle.serving.key), KeyPair("no pem", bundle.serving.key)):
        with pytest.raises(CertificateError):
            server_context(broken, bundle.authority.certificate)
    with pytest.raises(CertificateError):
        server_context(bundle.serving, "no pem")


def test_contexts_offer_no_way_to_resume_a_session_by_ticket(bundle: CertificateBundle) -> None:
    context = server_context(bundle.serving, bundle.authority.certificate)
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
