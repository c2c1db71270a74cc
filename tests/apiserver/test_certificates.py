"""Our own CA and serving certificate: creation, validation, renewal."""

import datetime as dt
import ssl

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.apiserver import certificates as cs
from adapter.apiserver.certificates import DAY, CertificateBundle, KeyPair
from adapter.apiserver.status import CertificateError
from adapter.apiserver.tls import server_context
from adapter.settings.server import Tls

NOW = 1_800_000_000.0
NAMES = Tls(namespace="ns", service="svc").names


@pytest.fixture(scope="module")
def bundle() -> CertificateBundle:
    return cs.create_bundle(NAMES, NOW)


def span(certificate: x509.Certificate) -> tuple[float, float]:
    return certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()


def test_the_certificate_is_for_every_name_of_the_service(bundle: CertificateBundle) -> None:
    assert cs.dns_names(bundle.serving.leaf) == ["svc.ns.svc", "svc.ns", "svc", "svc.ns.svc.cluster.local"]


def test_keys_are_p256_and_lives_are_ten_years_and_ninety_days(bundle: CertificateBundle) -> None:
    [authority] = cs.load_certificates(bundle.ca_certificates)
    for certificate, life in ((authority, 3650 * DAY), (bundle.serving.leaf, 90 * DAY)):
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
        begin, end = span(certificate)
        assert (NOW - begin, end - NOW) == (3600, life)


def test_the_certificate_is_for_servers_and_not_a_ca(bundle: CertificateBundle) -> None:
    extensions = bundle.serving.leaf.extensions
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_strict_client_that_trusts_the_authority_trusts_the_server() -> None:
    bundle = cs.create_bundle(NAMES, dt.datetime.now(dt.UTC).timestamp())
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_verify_locations(cadata=bundle.ca_certificates)
    proxies = trustme.CA()
    proxies.issue_cert("proxy.test").configure_cert(client)
    server = server_context(bundle.serving, proxies.cert_pem.bytes().decode())
    shake(server, client, "svc.ns.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server, client, "other.ns.svc")


def shake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """A handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done: set[int] = set()
    while len(done) < 2:
        for number, end in enumerate(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            done.add(number)
    return ends[1]


@given(st.floats(0, 4000 * DAY))
@settings(max_examples=25, deadline=None)
def test_at_any_time_the_served_certificate_is_valid_and_its_ca_published(
    bundle: CertificateBundle, later: float
) -> None:
    now = NOW + later
    try:
        known = cs.validated(bundle, now)
    except CertificateError:
        known = cs.create_bundle(NAMES, now)
    after = cs.with_new_leaf(cs.with_new_authority(known, now), NAMES, now)
    begin, end = span(after.serving.leaf)
    assert begin <= now < end
    assert after.is_current
    assert cs.validated(after, now) == after


def test_nothing_changes_before_two_thirds_of_the_lifetime(bundle: CertificateBundle) -> None:
    now = NOW + 60 * DAY - 7200
    assert cs.with_new_leaf(cs.with_new_authority(bundle, now), NAMES, now) is bundle


def test_the_certificate_is_renewed_after_two_thirds_of_its_life_from_the_same_authority(
    bundle: CertificateBundle,
) -> None:
    now = NOW + 60 * DAY + 1
    after = cs.with_new_leaf(cs.with_new_authority(bundle, now), NAMES, now)
    assert after.ca_certificates == bundle.ca_certificates
    assert after.serving != bundle.serving
    assert after.serving.key != bundle.serving.key


def test_a_new_dns_name_makes_a_new_certificate(bundle: CertificateBundle) -> None:
    assert cs.dns_names(cs.with_new_leaf(bundle, ["other"], NOW).serving.leaf) == ["other"]
    assert cs.with_new_leaf(bundle, ["svc"], NOW) is bundle


def test_a_new_ca_is_published_before_it_signs(bundle: CertificateBundle) -> None:
    now = NOW + 2500 * DAY
    announced = cs.with_new_authority(bundle, now)
    fresh, old = cs.load_certificates(announced.ca_certificates)
    assert [old] == cs.load_certificates(bundle.ca_certificates)
    assert fresh.subject != old.subject
    assert announced.serving == bundle.serving
    assert not announced.is_current
    assert cs.validated(announced, now) is announced
    after = cs.with_new_leaf(announced, NAMES, now)
    assert after.is_current
    after.serving.leaf.verify_directly_issued_by(fresh)


def test_an_expired_ca_is_dropped(bundle: CertificateBundle) -> None:
    now = NOW + 2500 * DAY
    both = cs.with_new_authority(bundle, now)
    later = cs.with_new_authority(both, NOW + 3651 * DAY)
    assert len(cs.load_certificates(both.ca_certificates)) == 2
    assert cs.load_certificates(later.ca_certificates) == cs.load_certificates(both.ca_certificates)[:1]


def test_a_leaf_never_outlives_its_authority(bundle: CertificateBundle) -> None:
    now = NOW + 3640 * DAY
    after = cs.with_new_leaf(bundle, NAMES, now)
    [authority] = cs.load_certificates(after.ca_certificates)
    assert span(after.serving.leaf)[1] <= span(authority)[1]


def test_an_invalid_bundle_is_rejected_with_the_reason(bundle: CertificateBundle) -> None:
    other = cs.create_bundle(NAMES, NOW)
    cases = {
        "no certificate can be read": CertificateBundle(
            KeyPair("", bundle.serving.key), bundle.ca_certificates, bundle.ca_key
        ),
        "private key cannot be read": CertificateBundle(
            KeyPair(bundle.serving.certificate, "x"), bundle.ca_certificates, bundle.ca_key
        ),
        "does not belong to the certificate": CertificateBundle(
            KeyPair(bundle.serving.certificate, other.serving.key), bundle.ca_certificates, bundle.ca_key
        ),
        "CA's key does not belong": CertificateBundle(bundle.serving, bundle.ca_certificates, other.ca_key),
        "none of the CA certificates issued": CertificateBundle(other.serving, bundle.ca_certificates, bundle.ca_key),
    }
    for sentence, broken in cases.items():
        with pytest.raises(CertificateError, match=sentence):
            cs.validated(broken, NOW)
    with pytest.raises(CertificateError, match="has expired"):
        cs.validated(bundle, NOW + 3651 * DAY)


def test_given_pairs_are_verified_with_any_kind_of_key() -> None:
    for kind in (trustme.KeyType.RSA, trustme.KeyType.ECDSA):
        leaf = trustme.CA().issue_cert("a.test", key_type=kind)
        pair = KeyPair(leaf.cert_chain_pems[0].bytes().decode(), leaf.private_key_pem.bytes().decode())
        assert cs.verify_pair(pair) is pair
        server_context(pair, pair.certificate)


def test_contexts_offer_no_way_to_resume_a_session_by_ticket(bundle: CertificateBundle) -> None:
    context = server_context(bundle.serving, bundle.ca_certificates)
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


@pytest.mark.parametrize("broken", ["", "no pem"])
def test_a_pair_that_openssl_rejects_is_a_certificate_error(bundle: CertificateBundle, broken: str) -> None:
    with pytest.raises(CertificateError):
        server_context(KeyPair(broken, bundle.serving.key), bundle.ca_certificates)
    if broken:
        with pytest.raises(CertificateError):
            server_context(bundle.serving, broken)


def test_a_young_certificate_is_reissued_by_the_new_ca_too(bundle: CertificateBundle) -> None:
    young = cs.with_new_leaf(bundle, NAMES, NOW + 2430 * DAY)
    now = NOW + 2440 * DAY
    announced = cs.with_new_authority(young, now)
    assert (announced.serving, announced.is_current) == (young.serving, False)
    after = cs.with_new_leaf(announced, NAMES, now)
    assert after.is_current
    assert after.serving != young.serving
