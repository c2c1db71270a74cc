"""`registries[].allow` and the limit on services: forbidden services are not queried, and no namespace starves."""

import asyncio
from collections.abc import Iterable

import pytest

from adapter.commands.check.command import asked_services
from adapter.load.spec import Registry as Named
from adapter.registries.consul import wire as consul_wire
from adapter.registries.source import ServiceKey
from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.registries.zookeeper.readers import invalid_key_reason
from adapter.runtime.fairness import Claim, grant_slots
from adapter.runtime.source_errors import SourceError
from adapter.settings.registries import (
    AllowedServices,
    HttpRegistry,
    NacosRegistry,
    PolarisRegistry,
    Registry,
    ZooKeeperRegistry,
)
from tests.engine.kit import DESIRED, Service, running, standing
from tests.load.kit import policy
from tests.registries.test_manager import API, ONE, WEB, Stand

OWN = Service("shop", "own", "deployments", "cpu", "first")
SPY = Service("evil", "spy", "deployments", "cpu", "first")
NACOS = NacosRegistry(name="one", type="Nacos", servers=("http://nacos:8848/nacos",))


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(monkeypatch)


def rule(**more: Iterable[str]) -> AllowedServices:
    given = {"namespaces": ["shop"], "services": ["*"], **more}
    return AllowedServices.model_validate({name: tuple(value) for name, value in given.items()})


def named(namespace: str, *services: str, registry: str = "one") -> list[Claim[ServiceKey]]:
    """Policies of a namespace that name these services, the oldest first."""
    return [Claim(namespace, (f"{age:03}", one), ServiceKey(registry, one)) for age, one in enumerate(services)]


async def test_a_service_that_no_policy_may_name_is_never_asked_for() -> None:
    rules = [{"namespaces": ["shop"], "services": ["own"]}]
    registry = {"name": "first", "type": "HTTP", "interval_seconds": 0.05, "allow": rules}
    async with standing() as stand:
        stand.engine.registries.reload([HttpRegistry.model_validate({**registry, "url": stand.platforms["first"].url})])
        stand.add(OWN)
        stand.add(SPY)
        async with running(stand):
            await stand.until_answered(["own"])
            await stand.until_refused(["spy"], "policies in namespace evil may not name service 'spy'")
            asked = await stand.platforms["first"].questions(10)
            assert {one.query["service"] for one in (*asked, *stand.platforms["first"].asked)} == {"own"}
            assert await stand.answer(OWN) == DESIRED


async def test_a_registry_of_which_nothing_may_be_named_is_not_connected_to(stand: Stand) -> None:
    stand.hub.reload([ONE.model_copy(update={"allow": (rule(),)})])
    async with stand.running():
        stand.hub.watch(named("evil", "web"))
        await asyncio.sleep(0.05)
        assert stand.made == []
        stand.hub.watch([*named("evil", "web"), *named("shop", "web")])
        await stand.changes.until(lambda: stand.hub.roster(WEB) is not None)
        assert stand.hub.refusal(WEB, "evil")
        assert not stand.hub.refusal(WEB, "shop")


async def test_new_rules_hold_at_once_and_do_not_end_the_connection(stand: Stand) -> None:
    async with stand.running(WEB, API):
        source = stand.made[0]
        stand.hub.reload([ONE.model_copy(update={"allow": (rule(services=["other"]),)}), stand.made[1].settings])
        assert source.book.keys == set()
        await source.ended.wait()
        stand.hub.watch([*named("shop", "web", "other"), *named("shop", "api", registry="two")])
        await stand.changes.until(lambda: stand.hub.roster(ServiceKey("one", "other")) is not None)
        following = stand.made[-1]
        allowed = (rule(services=["other"]), rule(services=["web"]))
        stand.hub.reload([ONE.model_copy(update={"allow": allowed}), stand.made[1].settings])
        assert following.book.keys == {WEB, ServiceKey("one", "other")}
        await asyncio.sleep(0.05)
        assert not following.ended.is_set()


@pytest.mark.parametrize(
    ("registry", "rules", "key", "allowed"),
    [
        (NACOS, {}, ("web", "", ""), True),
        (NACOS, {}, ("web", "pay", "G"), True),
        (NACOS, {"registry_namespaces": ["shop"]}, ("web", "shop", ""), True),
        (NACOS, {"registry_namespaces": ["shop"]}, ("web", "pay", ""), False),
        (NACOS, {"registry_namespaces": ["shop"]}, ("web", "Shop", ""), False),
        (NACOS, {"registry_namespaces": ["shop"]}, ("web", "", ""), False),
        (NACOS, {"registry_namespaces": ["public"]}, ("web", "", ""), True),
        (NACOS, {"registry_namespaces": ["shop-?"]}, ("web", "shop-a", ""), True),
        (NACOS, {"registry_namespaces": ["shop-?"]}, ("web", "shop-ab", ""), False),
        (NACOS.model_copy(update={"namespace": "shop"}), {"registry_namespaces": ["shop"]}, ("web", "", ""), True),
        (NACOS, {"groups": ["DEFAULT_GROUP"]}, ("web", "", ""), True),
        (NACOS, {"groups": ["DEFAULT_GROUP"]}, ("web", "", "PAY"), False),
        (NACOS, {"groups": ["SHOP_*"]}, ("web", "", "SHOP_EU"), True),
        (NACOS, {"groups": ["SHOP_*"]}, ("web", "", "shop_eu"), False),
        (NACOS, {"groups": ["SHOP"]}, ("PAY@@web", "", "SHOP"), False),
        (NACOS, {"groups": ["SHOP*"]}, ("web", "", "SHOP@@x"), False),
        (NACOS, {"groups": ["SHOP?"]}, ("web", "", "SHOP@"), False),  # SHOP@@@web is @web of SHOP
        (NACOS, {"services": ["com.shop.*"]}, ("Com.shop.web", "", ""), False),
        (
            PolarisRegistry(name="one", type="Polaris", servers=("http://p:8090",)),
            {"registry_namespaces": ["default"]},
            ("web", "", ""),
            True,
        ),
        (
            PolarisRegistry(name="one", type="Polaris", servers=("http://p:8090",)),
            {"registry_namespaces": ["default"]},
            ("web", "pay", ""),
            False,
        ),
        (HttpRegistry(name="one", type="HTTP", url="http://a"), {"groups": ["g"]}, ("web", "", ""), False),
    ],
)
def test_a_rule_covers_the_registrys_own_namespace_and_group(
    registry: Registry, rules: dict[str, list[str]], key: tuple[str, str, str], allowed: bool
) -> None:
    admission = ServiceAllowlist([registry.model_copy(update={"allow": (rule(**rules),)})])
    service, namespace, group = key
    refusal = admission.refusal(ServiceKey("one", service, namespace, group), "shop")
    assert bool(refusal) is not allowed
    if refusal:
        assert f"may not name service {service!r}" in refusal
        assert repr(namespace) in refusal or not namespace
        assert repr(group) in refusal or not group


def test_the_rules_of_one_registry_are_not_those_of_another() -> None:
    free = HttpRegistry(name="two", type="HTTP", url="http://a", allow=(rule(),))
    admission = ServiceAllowlist([ONE.model_copy(update={"allow": (rule(services=["api"]),)}), free])
    assert not admission.refusal(ServiceKey("two", "web"), "shop")
    assert admission.refusal(ServiceKey("one", "web"), "shop")


async def test_beyond_its_bound_a_namespace_has_only_its_oldest_services_followed_and_the_others_are_untouched(
    stand: Stand,
) -> None:
    stand.hub.reload([ONE.model_copy(update={"services_per_namespace": 2})])
    other = named("cart", "api", "db")
    evil = named("evil", "web", "w1", "w2", "w3")
    async with stand.running():
        stand.hub.watch([*reversed(evil), *other])
        await stand.changes.until(lambda: stand.hub.roster(WEB) is not None)
        assert {key.service for key in stand.made[0].book.keys} == {"web", "w1", "api", "db"}
        refused = [claim.item.service for claim in evil if stand.hub.over_limit_message(claim.item, "evil")]
        assert refused == ["w2", "w3"]
        assert "name more than 2 of its services" in stand.hub.over_limit_message(evil[2].item, "evil")
        stand.changes.received.clear()
        stand.hub.watch([*evil[1:], *other])
        assert {key.service for key in stand.made[0].book.keys} == {"w1", "w2", "api", "db"}
        assert evil[2].item in [service for service, _ in stand.changes.received]  # whoever named it is looked at again
        assert stand.hub.over_limit_message(evil[2].item, "evil") == ""


def test_places_are_the_same_in_whatever_order_the_claims_come() -> None:
    claims = [*named("evil", *(f"s{number}" for number in range(30))), *named("shop", "web"), *named("cart", "api")]
    kept = grant_slots(claims, 5, 6)
    assert kept == grant_slots(reversed(claims), 5, 6)
    assert {item.service for _, item in kept} == {"web", "api", "s0", "s1", "s2", "s3"}


def test_a_service_named_by_two_namespaces_takes_one_place() -> None:
    claims = [*named("shop", "web", "api"), *named("cart", "web", "api")]
    assert {item.service for _, item in grant_slots(claims, 2, 2)} == {"web", "api"}


def test_a_service_that_a_greedy_namespace_names_too_stays_that_of_its_own_namespace() -> None:
    claims = [*named("evil", "web", "w1", "w2"), *named("shop", "web")]
    followed = ServiceAllowlist([ONE]).choose(claims).followed["one"]
    assert (followed[WEB], followed[ServiceKey("one", "w1")]) == ("shop", "evil")


@pytest.mark.parametrize("service", ["", ".", ".."])
def test_a_service_is_never_another_path_of_consul(service: str) -> None:
    with pytest.raises(SourceError, match="cannot be the name of a service"):
        consul_wire.path(service)
    assert consul_wire.path("a/../b?c#d%2e") == "/v1/health/service/a%2F..%2Fb%3Fc%23d%252e"


@pytest.mark.parametrize("service", ["", "..", "..:1.0", ":1.0", "a/../b", "a/providers", "a:1/b", "a\nb"])
def test_a_service_is_never_another_node_of_zookeeper(service: str) -> None:
    settings = ZooKeeperRegistry(name="zk", type="ZooKeeper", layout="DubboInterface", servers=("zk:2181",))
    assert "is not a valid node name" in invalid_key_reason(ServiceKey("zk", service), settings)


def test_check_asks_for_no_service_that_the_policy_may_not_name() -> None:
    settings = ONE.model_copy(update={"allow": (rule(services=["web"]),)})
    policies = [
        policy(name=service, namespace=namespace, registry=Named(name="one", service=service))
        for namespace, service in (("shop", "web"), ("shop", "secret"), ("evil", "other"))
    ]
    assert asked_services({"one": settings}, policies) == {"one": {WEB}}
