"""Our own authority and certificate: made, judged, renewed."""

import datetime as dt
import ssl

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.apiserver.serving import certificates as cs
from adapter.apiserver.serving.certificate_manager import TlsOptions
from adapter.apiserver.serving.certificates import DAY, KeyPair, Stock
from adapter.apiserver.serving.tls import server_context
from adapter.apiserver.status import CertificateError

NOW = 1_800_000_000.0
NAMES = TlsOptions(namespace="ns", service="svc", secret="tls").names


@pytest.fixture(scope="module")
def stock() -> Stock:
    return cs.create(NAMES, NOW)


def span(certificate: x509.Certificate) -> tuple[float, float]:
    return certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()


def test_the_certificate_is_for_every_name_of_the_service(stock: Stock) -> None:
    assert cs.dns_names(stock.serving.leaf) == ["svc.ns.svc", "svc.ns", "svc", "svc.ns.svc.cluster.local"]


def test_keys_are_p256_and_lives_are_ten_years_and_ninety_days(stock: Stock) -> None:
    [authority] = cs.certificates(stock.authorities)
    for certificate, life in ((authority, 3650 * DAY), (stock.serving.leaf, 90 * DAY)):
        key = certificate.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"
        begin, end = span(certificate)
        assert (NOW - begin, end - NOW) == (3600, life)


def test_the_certificate_is_a_servers_and_no_authority(stock: Stock) -> None:
    extensions = stock.serving.leaf.extensions
    assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    usage = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_strict_client_that_trusts_the_authority_trusts_the_server() -> None:
    stock = cs.create(NAMES, dt.datetime.now(dt.UTC).timestamp())
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    client.load_verify_locations(cadata=stock.authorities)
    shake(server_context(stock.serving, ""), client, "svc.ns.svc")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server_context(stock.serving, ""), client, "other.ns.svc")


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
def test_whenever_a_round_is_made_what_is_served_is_valid_and_announced(stock: Stock, later: float) -> None:
    now = NOW + later
    try:
        known = cs.judged(stock, now)
    except CertificateError:
        known = cs.create(NAMES, now)
    after = cs.with_new_leaf(cs.with_new_authority(known, now), NAMES, now)
    begin, end = span(after.serving.leaf)
    assert begin <= now < end
    assert after.is_current
    assert cs.judged(after, now) == after


def test_nothing_changes_before_two_thirds_of_a_life_are_over(stock: Stock) -> None:
    now = NOW + 60 * DAY - 7200
    assert cs.with_new_leaf(cs.with_new_authority(stock, now), NAMES, now) is stock


def test_the_certificate_is_renewed_after_two_thirds_of_its_life_from_the_same_authority(stock: Stock) -> None:
    now = NOW + 60 * DAY + 1
    after = cs.with_new_leaf(cs.with_new_authority(stock, now), NAMES, now)
    assert after.authorities == stock.authorities
    assert after.serving != stock.serving
    assert after.serving.key != stock.serving.key


def test_another_name_makes_another_certificate(stock: Stock) -> None:
    assert cs.dns_names(cs.with_new_leaf(stock, ["other"], NOW).serving.leaf) == ["other"]
    assert cs.with_new_leaf(stock, ["svc"], NOW) is stock


def test_a_new_authority_is_announced_before_it_signs(stock: Stock) -> None:
    now = NOW + 2500 * DAY
    announced = cs.with_new_authority(stock, now)
    fresh, old = cs.certificates(announced.authorities)
    assert [old] == cs.certificates(stock.authorities)
    assert fresh.subject != old.subject
    assert announced.serving == stock.serving
    assert not announced.is_current
    assert cs.judged(announced, now) is announced
    after = cs.with_new_leaf(announced, NAMES, now)
    assert after.is_current
    after.serving.leaf.verify_directly_issued_by(fresh)


def test_an_expired_authority_is_announced_no_more(stock: Stock) -> None:
    now = NOW + 2500 * DAY
    both = cs.with_new_authority(stock, now)
    later = cs.with_new_authority(both, NOW + 3651 * DAY)
    assert len(cs.certificates(both.authorities)) == 2
    assert cs.certificates(later.authorities) == cs.certificates(both.authorities)[:1]


def test_a_leaf_never_outlives_its_authority(stock: Stock) -> None:
    now = NOW + 3640 * DAY
    after = cs.with_new_leaf(stock, NAMES, now)
    [authority] = cs.certificates(after.authorities)
    assert span(after.serving.leaf)[1] <= span(authority)[1]


def test_what_cannot_be_served_is_named(stock: Stock) -> None:
    other = cs.create(NAMES, NOW)
    cases = {
        "no certificate can be read": Stock(KeyPair("", stock.serving.key), stock.authorities, stock.authority_key),
        "private key cannot be read": Stock(
            KeyPair(stock.serving.certificate, "x"), stock.authorities, stock.authority_key
        ),
        "does not belong to the certificate": Stock(
            KeyPair(stock.serving.certificate, other.serving.key), stock.authorities, stock.authority_key
        ),
        "authority's key does not belong": Stock(stock.serving, stock.authorities, other.authority_key),
        "from none of the authorities": Stock(other.serving, stock.authorities, stock.authority_key),
    }
    for sentence, broken in cases.items():
        with pytest.raises(CertificateError, match=sentence):
            cs.judged(broken, NOW)
    with pytest.raises(CertificateError, match="has expired"):
        cs.judged(stock, NOW + 3651 * DAY)


def test_pairs_of_others_are_checked_whatever_their_keys() -> None:
    for kind in (trustme.KeyType.RSA, trustme.KeyType.ECDSA):
        leaf = trustme.CA().issue_cert("a.test", key_type=kind)
        pair = KeyPair(leaf.cert_chain_pems[0].bytes().decode(), leaf.private_key_pem.bytes().decode())
        assert cs.check(pair) is pair
        server_context(pair, "")


def test_contexts_offer_no_way_to_resume_a_session_by_ticket(stock: Stock) -> None:
    context = server_context(stock.serving, stock.authorities)
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_OPTIONAL
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT


def test_without_an_authority_no_certificate_is_asked_for(stock: Stock) -> None:
    assert server_context(stock.serving, "").verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("broken", ["", "no pem"])
def test_what_cannot_be_loaded_is_an_error_of_our_own(stock: Stock, broken: str) -> None:
    with pytest.raises(CertificateError):
        server_context(KeyPair(broken, stock.serving.key), "")
    if broken:
        with pytest.raises(CertificateError):
            server_context(stock.serving, broken)


def test_a_young_certificate_moves_to_the_new_authority_too(stock: Stock) -> None:
    young = cs.with_new_leaf(stock, NAMES, NOW + 2430 * DAY)
    now = NOW + 2440 * DAY
    announced = cs.with_new_authority(young, now)
    assert (announced.serving, announced.is_current) == (young.serving, False)
    after = cs.with_new_leaf(announced, NAMES, now)
    assert after.is_current
    assert after.serving != young.serving
