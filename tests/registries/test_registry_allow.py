"""`registries[].allow` and the limit on services: forbidden services are not queried, and no namespace starves."""

from collections.abc import Iterable

import pytest

from adapter.registries.service_allowlist import ServiceAllowlist
from adapter.registries.source import Claim, ServiceKey
from adapter.registries.zookeeper.source import invalid_key_reason
from adapter.settings.registries import (
    AllowedServices,
    HttpRegistry,
    NacosRegistry,
    PolarisRegistry,
    Registry,
    ZooKeeperRegistry,
)
from tests.engine.kit import DESIRED, Service, running, standing
from tests.registries.test_follow import ONE, Stand

OWN = Service("shop", "own", "deployments", "cpu", "first")
SPY = Service("evil", "spy", "deployments", "cpu", "first")
POLARIS = PolarisRegistry(name="one", type="Polaris", servers=("http://p:8090",))
NACOS = NacosRegistry(name="one", type="Nacos", servers=("http://nacos:8848/nacos",))


def rule(**more: Iterable[str]) -> AllowedServices:
    given = {"namespaces": ["shop"], "services": ["*"], **more}
    return AllowedServices.model_validate({name: tuple(value) for name, value in given.items()})


def named(namespace: str, *services: str, registry: str = "one") -> list[Claim]:
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


@pytest.mark.parametrize(
    ("registry", "rules", "key", "allowed"),
    [
        (NACOS, {}, ("web", "", ""), True),
        (NACOS, {}, ("web", "pay", "G"), True),
        (NACOS, {"registry_namespaces": ["shop"]}, ("web", "pay", ""), False),
        (NACOS, {"registry_namespaces": ["shop"]}, ("web", "Shop", ""), False),
        (NACOS, {"registry_namespaces": ["shop"]}, ("web", "", ""), False),
        (NACOS, {"registry_namespaces": ["shop-?"]}, ("web", "shop-ab", ""), False),
        (NACOS.model_copy(update={"namespace": "shop"}), {"registry_namespaces": ["shop"]}, ("web", "", ""), True),
        (NACOS, {"groups": ["DEFAULT_GROUP"]}, ("web", "", ""), True),
        (NACOS, {"groups": ["SHOP_*"]}, ("web", "", "SHOP_EU"), True),
        (NACOS, {"groups": ["SHOP_*"]}, ("web", "", "shop_eu"), False),
        (NACOS, {"groups": ["SHOP"]}, ("PAY@@web", "", "SHOP"), False),
        (NACOS, {"groups": ["SHOP*"]}, ("web", "", "SHOP@@x"), False),
        (NACOS, {"groups": ["SHOP?"]}, ("web", "", "SHOP@"), False),  # SHOP@@@web is @web of SHOP
        (NACOS, {"services": ["com.shop.*"]}, ("Com.shop.web", "", ""), False),
        (POLARIS, {"registry_namespaces": ["default"]}, ("web", "", ""), True),
        (POLARIS, {"registry_namespaces": ["default"]}, ("web", "pay", ""), False),
        (HttpRegistry(name="one", type="HTTP", url="http://a"), {"groups": ["g"]}, ("web", "", ""), False),
    ],
)
def test_rule_covers_namespace_and_group_of_the_registry(
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


async def test_namespace_beyond_its_limit_has_its_oldest_services_followed() -> None:
    stand, other, evil = Stand(), named("cart", "api", "db"), named("evil", "web", "w1", "w2", "w3")
    keys = {service: ServiceKey("one", service) for service in ("web", "w1", "w2", "api", "db")}
    stand.manager.reload([ONE.model_copy(update={"services_per_namespace": 2})])
    async with stand.running():
        stand.manager.watch([*reversed(evil), *other])
        await stand.until_followed(*(keys[service] for service in ("web", "w1", "api", "db")))
        refused = [claim.key.service for claim in evil if stand.manager.over_limit_message(claim.key, "evil")]
        assert refused == ["w2", "w3"]
        assert "name more than 2 of its services" in stand.manager.over_limit_message(keys["w2"], "evil")
        stand.changes.clear()
        stand.manager.watch([*evil[1:], *other])
        await stand.until_followed(*(keys[service] for service in ("w1", "w2", "api", "db")))
        assert keys["w2"] in stand.changes, "its policies are assessed again"
        assert stand.manager.over_limit_message(keys["w2"], "evil") == ""


@pytest.mark.parametrize(
    ("key", "words"),
    [
        *(
            (ServiceKey("zk", service), "is not a valid node name")
            for service in ("", "..", "..:1.0", ":1.0", "a/../b", "a/providers", "a:1/b", "a\nb")
        ),
        (ServiceKey("zk", "order", namespace="prod"), "has no namespaces"),
    ],
)
def test_a_service_is_never_another_node_of_zookeeper(key: ServiceKey, words: str) -> None:
    settings = ZooKeeperRegistry(name="zk", type="ZooKeeper", layout="DubboInterface", servers=("zk:2181",))
    assert words in invalid_key_reason(key, settings)
    curator = settings.model_copy(update={"layout": "Curator"})
    assert "has no groups" in invalid_key_reason(ServiceKey("zk", "order", group="blue"), curator)
