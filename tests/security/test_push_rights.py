"""A right to push a roster covers registry, namespace, group and service, and no spelling of a path gets around it."""

import json
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.apiserver.request_info import RequestInfo, RequestKind, parse_target
from tests.apiserver.cluster import REVIEWS, Cluster, Object
from tests.apiserver.conftest import Answer, RosterReceiver, Service

DOCUMENT = json.dumps({"complete": True, "instances": [], "ttlSeconds": 60})
ServiceName = tuple[str, str, str, str]


def grants(*urls: str) -> Callable[[Object], bool]:
    """RBAC with these nonResourceURLs and the verb `put`: equal, or a prefix that ends with `*`."""

    def may(spec: Object) -> bool:
        asked = spec.get("nonResourceAttributes", {})
        path = asked.get("path", "")
        return asked.get("verb") == "put" and any(
            url == path or (url.endswith("*") and path.startswith(url.rstrip("*"))) for url in urls
        )

    return may


@pytest.fixture
def service(roster_service: Service) -> Service:
    return roster_service


async def put(service: Service, target: str) -> Answer:
    return await service.ask(target, method="PUT", headers={"Authorization": "Bearer good"}, body=DOCUMENT)


PROD = "/registries/own/namespaces/prod"


@pytest.mark.parametrize(
    ("granted", "target", "expected"),
    [
        (f"{PROD}/groups/a/services/order", f"{PROD}/groups/a/services/order", ("own", "order", "prod", "a")),
        (f"{PROD}/*", f"{PROD}/services/order", ("own", "order", "prod", "")),
        (f"{PROD}/*", f"{PROD}/groups/b/services/order", ("own", "order", "prod", "b")),
        ("/registries/own/*", "/registries/own/groups/a/services/order", ("own", "order", "", "a")),
        ("/registries/own/services/order", "/registries/own/services/order", ("own", "order", "", "")),
        (f"{PROD}/services/a%2Fb", f"{PROD}/services/a%2fb", ("own", "a/b", "prod", "")),
        (f"{PROD}/services/order", f"{PROD}/services/%6Frder", ("own", "order", "prod", "")),
        (f"{PROD}/services/p:com.shop.Order:1.0", f"{PROD}/services/p%3Acom.shop.Order%3A1.0", None),
    ],
)
async def test_a_right_to_the_path_allows_the_push(
    service: Service, cluster: Cluster, rosters: RosterReceiver, granted: str, target: str, expected: ServiceName | None
) -> None:
    cluster.may = grants(granted)
    assert (await put(service, target)).status == 204
    assert rosters.services == [expected or ("own", "p:com.shop.Order:1.0", "prod", "")]


@pytest.mark.parametrize(
    "target",
    [
        "/registries/own/namespaces/test/groups/a/services/order",
        f"{PROD}/groups/b/services/order",
        f"{PROD}/groups/a/services/cart",
        f"{PROD}/services/order",
        "/registries/own/groups/a/services/order",
        "/registries/other/namespaces/prod/groups/a/services/order",
        "/registries/own/services/order",
        f"{PROD}%2Fgroups%2Fa/services/order",
        f"{PROD}/groups/a%2Fservices%2Forder/services/order",
        f"{PROD}/groups/a/services/order%2F",
        f"{PROD}/groups/a/services/order%20",
        f"{PROD}/groups/a/services/ORDER",
        f"{PROD}/groups/A/services/order",
    ],
)
async def test_a_right_for_one_service_does_not_cover_another(
    service: Service, cluster: Cluster, rosters: RosterReceiver, target: str
) -> None:
    cluster.may = grants(f"{PROD}/groups/a/services/order")
    answer = await put(service, target)
    assert (answer.status, "cannot put path" in answer.message) == (403, True)
    assert rosters.services == []


@pytest.mark.parametrize(
    "target",
    [
        "/registries/own/namespaces/prod%2F..%2Ftest/services/order",
        "/registries/own/namespaces/prod%2Fx/services/order",
        "/registries/own/namespaces/prod-2/services/order",
        "/registries/own/namespaces/prod*/services/order",
    ],
)
async def test_a_right_for_all_of_a_namespace_ends_with_the_namespace(
    service: Service, cluster: Cluster, rosters: RosterReceiver, target: str
) -> None:
    cluster.may = grants(f"{PROD}/*")
    assert (await put(service, target)).status == 403
    assert rosters.services == []


@pytest.mark.parametrize(
    ("target", "code"),
    [
        (f"{PROD}/../test/services/order", 400),
        (f"{PROD}/%2e%2e/test/services/order", 400),
        (f"{PROD}/services/%2e", 400),
        (f"{PROD}/services/%zz", 400),
        (f"{PROD}/services/%ff", 400),
        (f"{PROD}/services/order?namespace=test", 400),
        (f"{PROD}/services/order?group=a", 400),
        (f"{PROD}//services/order", 404),
        (f"{PROD}/services/", 404),
        (f"{PROD}/services/order/more", 404),
        (f"{PROD}/Services/order", 404),
        ("/registries/own/groups/a/namespaces/prod/services/order", 404),
        ("/registries//services/order", 404),
    ],
)
async def test_a_path_without_a_service_is_rejected_even_with_every_right(
    service: Service, rosters: RosterReceiver, target: str, code: int
) -> None:
    answer = await put(service, target)
    assert (answer.status, rosters.services) == (code, [])


@pytest.mark.parametrize("target", ["/registries/own/order?namespace=prod", "/registries/own/order"])
async def test_the_former_path_is_answered_with_the_current_one(
    service: Service, rosters: RosterReceiver, target: str
) -> None:
    answer = await put(service, target)
    assert (answer.status, answer.json()["reason"]) == (HTTPStatus.NOT_FOUND, "NotFound")
    assert "/registries/REGISTRY/namespaces/NAMESPACE/groups/GROUP/services/SERVICE" in answer.message
    assert rosters.services == []


def test_a_path_that_is_not_utf8_is_rejected() -> None:
    found = parse_target("/registries/own/services/\udcff")  # as aiohttp hands on a byte that is no UTF-8
    assert found.error is not None
    assert found.error.code == 400


async def test_a_wildcard_in_a_name_is_no_wildcard_in_a_rule(service: Service, cluster: Cluster) -> None:
    await put(service, f"{PROD}/services/*")
    asked = [body["spec"]["nonResourceAttributes"]["path"] for path, body in cluster.bodies if path == REVIEWS]
    assert asked == [f"{PROD}/services/%2A"]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(
    ["services", "namespaces", "groups", "a/services/b", "a%2Fb", "*", "a*", "%", "?", "#", "..a", "ö", "a b"]
)


def asked(registry: str, namespace: str, group: str, service: str, *, safe: str = "") -> RequestInfo:
    """The parsed target of a client that encodes all characters but `safe`."""
    words = {"namespaces": namespace, "groups": group, "services": service}
    below = "".join(f"/{word}/{quote(name, safe=safe)}" for word, name in words.items() if name)
    return parse_target(f"/registries/{quote(registry, safe=safe)}{below}")


TARGETS = st.tuples(NAMES, NAMES | st.just(""), NAMES | st.just(""), NAMES)


@given(TARGETS, TARGETS)
def test_no_two_targets_share_an_authorized_path(one: ServiceName, other: ServiceName) -> None:
    assume(not {".", ".."} & {*one, *other})
    assume(one != other)
    found = [asked(*one), asked(*other)]
    assert [each.error for each in found] == [None, None]
    assert found[0].attributes.path != found[1].attributes.path


@given(TARGETS)
def test_all_spellings_of_a_target_have_one_authorized_path(names: ServiceName) -> None:
    assume(not {".", ".."} & set(names))
    plain, encoded = asked(*names, safe="!$&'()*+,;=:@"), asked(*names)
    assert encoded.kind is RequestKind.REGISTRY
    assert (encoded.resource, encoded.namespace, encoded.registry_group, encoded.name) == names
    assert plain.attributes == encoded.attributes
    assert parse_target(encoded.attributes.path).attributes == encoded.attributes
