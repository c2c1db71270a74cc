"""Authentication by the front proxy's certificate and headers."""

import datetime as dt

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver.authentication import (
    Identity,
    RawHeaders,
    RequestheaderConfig,
    identity_of,
    parse_config_map,
)
from tests.apiserver.cluster import CONFIG_MAP, REVIEWS, Cluster
from tests.apiserver.conftest import Ask, Service, as_user, pem
from tests.apiserver.raw import METRIC, as_proxy, exchanged, head, statuses


@pytest.fixture(scope="module")
def known(front_proxy: trustme.CA) -> RequestheaderConfig:
    data = {
        "requestheader-client-ca-file": pem(front_proxy),
        "requestheader-username-headers": '["X-Remote-User","X-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    return parse_config_map(data)


def raw(*pairs: tuple[str, str]) -> RawHeaders:
    return tuple((name.encode(), value.encode()) for name, value in pairs)


USER = ("X-Remote-User", "u")
AUTHENTICATED = ("system:authenticated",)


@pytest.mark.parametrize(
    ("pairs", "found"),
    [
        ([USER], Identity("u", "", AUTHENTICATED)),  # discovery's callers come without a group
        ([("X-Remote-User", "system:anonymous")], Identity("system:anonymous")),
        ([("x-user", "second"), ("X-REMOTE-USER", "u")], Identity("u", "", AUTHENTICATED)),
        ([("X-User", "second"), ("X-Remote-User", "")], Identity("second", "", AUTHENTICATED)),
        ([USER, ("X-Remote-Uid", "42"), ("X-Uid", "1")], Identity("u", "42", AUTHENTICATED)),
        (
            [USER, ("X-Remote-Extra-a%62", "1"), ("X-Remote-Extra-ab", "2")],
            Identity("u", "", AUTHENTICATED, (("ab", ("1", "2")),)),
        ),
        ([("X-Remote-User", "")], None),
        ([("X-Remote-Group", "system:masters")], None),
        (
            [
                ("Accept", "*/*"),
                USER,
                ("X-Remote-Group", "system:serviceaccounts"),
                ("X-Remote-Group", "other"),
                ("X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id", "JTI=1"),
                ("X-Remote-Extra-Scopes", "a"),
                ("X-Remote-Extra-Scopes", "b"),
            ],
            Identity(
                "u",
                "",
                ("system:serviceaccounts", "other", *AUTHENTICATED),
                (("authentication.kubernetes.io/credential-id", ("JTI=1",)), ("scopes", ("a", "b"))),
            ),
        ),
    ],
)
def test_the_identity_is_the_first_user_with_groups_and_extra(
    known: RequestheaderConfig, pairs: list[tuple[str, str]], found: Identity | None
) -> None:
    assert identity_of(known, raw(*pairs)) == found


@given(st.lists(st.tuples(st.text(st.characters(codec="ascii")), st.text(st.characters(codec="utf-8"))), max_size=20))
def test_no_header_makes_the_decoder_fail(pairs: list[tuple[str, str]]) -> None:
    assert identity_of(RequestheaderConfig(), raw(*pairs)) is None


async def test_a_certificate_that_expires_on_an_open_connection_is_rejected(
    service: Service, front_proxy: trustme.CA
) -> None:
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    brief = front_proxy.issue_cert("brief.test", common_name="front-proxy-client", not_after=moment)
    assert (await service.ask(METRIC, leaf=brief, headers=as_user())).status == 200
    service.clock.wall = moment.timestamp() + 1
    answer = await service.ask(METRIC, leaf=brief, headers=as_user())
    assert (answer.status, answer.json()["reason"]) == (401, "Unauthorized")


async def test_a_config_map_that_breaks_or_vanishes_changes_nothing(ask: Ask, cluster: Cluster) -> None:
    def spoil(key: str, text: str) -> None:
        data = cluster.objects[CONFIG_MAP]["data"] | {f"requestheader-{key}": text}
        cluster.put(CONFIG_MAP, {"kind": "ConfigMap", "data": data})

    for breaking in (
        lambda: spoil("client-ca-file", "no certificate"),
        lambda: spoil("allowed-names", "front-proxy-client"),
        lambda: spoil("username-headers", '{"a": 1}'),
        lambda: cluster.objects.pop(CONFIG_MAP),
    ):
        seen = cluster.asked[f"GET {CONFIG_MAP}"]
        breaking()
        await cluster.until(lambda seen=seen: cluster.asked[f"GET {CONFIG_MAP}"] >= seen + 2)  # type: ignore[misc]
        assert (await ask(METRIC)).status == 200


CLOSE = "Connection: close"


def asked_about(service: Service) -> list[dict[str, object]]:
    return [body["spec"] for path, body in service.cluster.bodies if path == REVIEWS]


@pytest.mark.parametrize(
    ("field", "groups"),
    [
        pytest.param("X-Remote-User: system:admin", [], id="a second user: the first counts"),
        pytest.param("X_Remote_Group: system:masters", [], id="an underscore is no hyphen"),
        pytest.param("X-Remote-Group: a, system:masters", ["a, system:masters"], id="a comma joins no groups"),
        pytest.param("X-Remote-Group: system:masters2", ["system:masters2"], id="a group that begins as the masters'"),
        pytest.param("Impersonate-User: system:admin", [], id="no user is impersonated"),
        pytest.param("Impersonate-Group: system:masters", [], id="no group is impersonated"),
    ],
)
async def test_a_header_adds_nothing_to_the_identity_but_the_group_that_it_names(
    service: Service, proxy: trustme.LeafCert, field: str, groups: list[str]
) -> None:
    assert await statuses(service, proxy, head(METRIC, *as_proxy(field, CLOSE))) == [200]
    [spec] = asked_about(service)
    assert (spec["user"], spec["groups"]) == ("bob", [*groups, "system:authenticated"])


async def test_an_unknown_forged_or_expired_certificate_gets_no_answer_whatever_its_name(
    service: Service, front_proxy: trustme.CA, client_authority: trustme.CA
) -> None:
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    forged = trustme.CA()
    forged._certificate = front_proxy._certificate  # noqa: SLF001  what it signs names the real one as its issuer
    for authority, until in ((trustme.CA(), None), (client_authority, None), (forged, None), (front_proxy, past)):
        leaf = authority.issue_cert("x.test", common_name="front-proxy-client", not_after=until)
        assert await exchanged(service, leaf, head(METRIC, *as_proxy(CLOSE))) == b""
    assert asked_about(service) == []


# --- what is remembered of one identity is never another's


@pytest.mark.parametrize(
    ("allowed", "other"),
    [
        (as_user("bob", "a"), as_user("bob", "b")),
        (as_user("bob", "a"), as_user("bo", "ba")),
        (as_user("bob"), as_user("bob", "a")),
        (as_user("bob", **{"X-Remote-Extra-A": "b"}), as_user("bob", **{"X-Remote-Extra-Ab": ""})),
        (as_user("bob"), as_user("bob ")),
    ],
)
async def test_a_right_is_not_given_to_a_similar_identity(
    service: Service, proxy: trustme.LeafCert, allowed: dict[str, str], other: dict[str, str]
) -> None:
    assert (await service.ask(METRIC, leaf=proxy, headers=allowed)).status == 200
    [first] = asked_about(service)
    service.cluster.may = lambda spec: all(spec[key] == first[key] for key in ("user", "groups", "extra"))
    same = {key: value.strip() for key, value in other.items()} == allowed  # white space around it is no part of it
    assert (await service.ask(METRIC, leaf=proxy, headers=other)).status == (200 if same else 403)


async def test_a_user_of_another_alphabet_is_reviewed_by_name_and_one_that_is_not_utf8_is_a_401(
    service: Service, proxy: trustme.LeafCert
) -> None:
    request = head(METRIC, *as_proxy(CLOSE))
    named = request.replace(b"bob", "王小明".encode())
    assert await statuses(service, proxy, named) == [200]
    assert service.cluster.bodies[-1][1]["spec"]["user"] == "王小明"
    assert await statuses(service, proxy, request.replace(b"bob", b"\xff\xfe")) == [401]
