"""A right to push a roster covers registry, namespace, group and service, and no spelling of a path gets around it."""

import json
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from urllib.parse import quote

import pytest
import trustme
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.apiserver.routes import Kind, Route, route
from adapter.apiserver.server import ServerOptions
from adapter.kube.session import Session
from harness import snapshots
from tests.apiserver.cluster import REVIEWS, Cluster, Object
from tests.apiserver.conftest import Answer, Service, pem, running

USER = "system:serviceaccount:platform:teller"
DOCUMENT = json.dumps({"complete": True, "instances": [], "ttlSeconds": 60})
Told = tuple[str, str, str, str]


class Listener:
    """Takes every roster, and notes whose it is: registry, service, namespace, group."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    async def push(self, registry: str, service: str, namespace: str, group: str, _document: bytes) -> None:
        self.told.append((registry, service, namespace, group))


def grants(*urls: str) -> Callable[[Object], bool]:
    """RBAC with these nonResourceURLs and the verb `put`: equal, or below one that ends with `*`."""

    def may(spec: Object) -> bool:
        asked = spec.get("nonResourceAttributes", {})
        path = asked.get("path", "")
        return asked.get("verb") == "put" and any(
            url == path or (url.endswith("*") and path.startswith(url.rstrip("*"))) for url in urls
        )

    return may


@pytest.fixture
async def listener() -> Listener:
    return Listener()


@pytest.fixture
async def service(
    cluster: Cluster, session: Session, options: ServerOptions, front_proxy: trustme.CA, listener: Listener
) -> AsyncIterator[Service]:
    """A ready server that hands rosters to `listener`; the token `good` is a platform's."""
    cluster.trust(pem(front_proxy))
    cluster.tokens["good"] = {"username": USER, "groups": []}
    service = Service(cluster, session, options, listener)
    service.picture.swap(snapshots.snapshot(snapshots.view(at=session.now())))
    async with running(service):
        await service.ready()
        yield service


async def put(service: Service, target: str) -> Answer:
    return await service.ask(target, method="PUT", headers={"Authorization": "Bearer good"}, body=DOCUMENT)


PROD = "/registries/own/namespaces/prod"


@pytest.mark.parametrize(
    ("granted", "target", "told"),
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
async def test_who_has_the_right_tells(
    service: Service, cluster: Cluster, listener: Listener, granted: str, target: str, told: Told | None
) -> None:
    cluster.may = grants(granted)
    assert (await put(service, target)).status == 204
    assert listener.told == [told or ("own", "p:com.shop.Order:1.0", "prod", "")]


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
async def test_a_right_for_one_service_is_none_for_another(
    service: Service, cluster: Cluster, listener: Listener, target: str
) -> None:
    cluster.may = grants(f"{PROD}/groups/a/services/order")
    answer = await put(service, target)
    assert (answer.status, "cannot put path" in answer.message) == (403, True)
    assert listener.told == []


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
    service: Service, cluster: Cluster, listener: Listener, target: str
) -> None:
    cluster.may = grants(f"{PROD}/*")
    assert (await put(service, target)).status == 403
    assert listener.told == []


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
async def test_a_path_that_names_no_service_is_refused_even_where_the_right_is_for_everything(
    service: Service, listener: Listener, target: str, code: int
) -> None:
    answer = await put(service, target)
    assert (answer.status, listener.told) == (code, [])


@pytest.mark.parametrize("target", ["/registries/own/order?namespace=prod", "/registries/own/order"])
async def test_the_former_path_says_which_one_it_is_now(service: Service, listener: Listener, target: str) -> None:
    answer = await put(service, target)
    assert (answer.status, answer.json()["reason"]) == (HTTPStatus.NOT_FOUND, "NotFound")
    assert "/registries/REGISTRY/namespaces/NAMESPACE/groups/GROUP/services/SERVICE" in answer.message
    assert listener.told == []


def test_bytes_that_are_no_text_name_no_service() -> None:
    found = route("/registries/own/services/\udcff")  # as aiohttp hands on a byte that is no UTF-8
    assert found.fault is not None
    assert found.fault.code == 400


async def test_a_wildcard_in_a_name_is_no_wildcard_in_a_rule(service: Service, cluster: Cluster) -> None:
    await put(service, f"{PROD}/services/*")
    asked = [body["spec"]["nonResourceAttributes"]["path"] for path, body in cluster.bodies if path == REVIEWS]
    assert asked == [f"{PROD}/services/%2A"]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.sampled_from(
    ["services", "namespaces", "groups", "a/services/b", "a%2Fb", "*", "a*", "%", "?", "#", "..a", "ö", "a b"]
)


def asked(registry: str, namespace: str, group: str, service: str, *, safe: str = "") -> Route:
    """The route of a client that encodes all but `safe`."""
    words = {"namespaces": namespace, "groups": group, "services": service}
    below = "".join(f"/{word}/{quote(name, safe=safe)}" for word, name in words.items() if name)
    return route(f"/registries/{quote(registry, safe=safe)}{below}")


TARGETS = st.tuples(NAMES, NAMES | st.just(""), NAMES | st.just(""), NAMES)


@given(TARGETS, TARGETS)
def test_no_two_targets_share_an_authorized_path(one: Told, other: Told) -> None:
    assume(not {".", ".."} & {*one, *other})
    assume(one != other)
    found = [asked(*one), asked(*other)]
    assert [each.fault for each in found] == [None, None]
    assert found[0].attributes.path != found[1].attributes.path


@given(TARGETS)
def test_the_authorized_path_is_one_however_the_target_is_spelled(names: Told) -> None:
    assume(not {".", ".."} & set(names))
    plain, encoded = asked(*names, safe="!$&'()*+,;=:@"), asked(*names)
    assert encoded.kind is Kind.REGISTRY
    assert (encoded.resource, encoded.namespace, encoded.registry_group, encoded.name) == names
    assert plain.attributes == encoded.attributes
    assert route(encoded.attributes.path).attributes == encoded.attributes
