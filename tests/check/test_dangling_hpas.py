"""HPAs that name a policy which does not exist, in every form in which one can be named."""

from typing import Any

import pytest

from adapter.commands.check.findings import dangling_hpas
from adapter.commands.check.report import ReportSection
from adapter.commands.cluster import ListedPolicy
from adapter.policy.hpa import Hpa, parse_hpa
from tests.load.kit import cpu, policy

WMP = {"apiVersion": "effective-load.io/v1alpha1", "kind": "WatermarkPolicy"}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}


def described(reference: dict[str, str], metric: str = "desired_replicas") -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": "1"}
    return {"type": "Object", "object": {"describedObject": reference, "metric": {"name": metric}, "target": target}}


def external(metric: str = "desired_replicas", **labels: str) -> dict[str, Any]:
    identifier = {"name": metric, "selector": {"matchLabels": labels}}
    return {"type": "External", "external": {"metric": identifier, "target": {"type": "AverageValue"}}}


def hpa(name: str, *metrics: dict[str, Any], target: str = "", namespace: str = "shop") -> Hpa:
    scaled = DEPLOYMENT | {"name": target or name}
    spec = {"scaleTargetRef": scaled, "maxReplicas": 9, "metrics": list(metrics)}
    return parse_hpa({"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def known(name: str, of: str = "", namespace: str = "shop") -> ListedPolicy:
    return ListedPolicy(namespace, name, policy(cpu(), namespace=namespace, name=name, hpa=of or name))


def found(hpas: list[Hpa], policies: list[ListedPolicy]) -> dict[str, list[str]]:
    def texts(section: ReportSection) -> list[str]:
        return [one.text for one in section.findings]

    return {section.about: texts(section) for section in dangling_hpas(hpas, policies)}


NO_POLICY = (
    "it asks for desired_replicas of WatermarkPolicy wbe, which does not exist in namespace shop; create that policy, "
    "or name one that exists (cart, order)"
)
NO_TARGET = (
    "it asks for desired_replicas of Deployment web, which no WatermarkPolicy in namespace shop scales; create a "
    "policy that names this HPA"
)


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        pytest.param(described(WMP | {"name": "wbe"}), NO_POLICY, id="as an object"),
        pytest.param(external(policy="wbe"), NO_POLICY, id="by label"),
        pytest.param(described(DEPLOYMENT | {"name": "web"}), NO_TARGET, id="a target"),
    ],
)
def test_a_policy_that_does_not_exist_is_named_with_those_that_do(metric: dict[str, Any], told: str) -> None:
    others = [known("cart"), known("order"), known("wbe", namespace="elsewhere")]
    assert found([hpa("web", metric)], others) == {"HPA shop/web": [told]}


def test_a_scale_target_of_a_policy_under_any_name_is_no_stray() -> None:
    assert found([hpa("web", described(DEPLOYMENT | {"name": "web"}))], [known("any", of="web")]) == {}


@pytest.mark.parametrize(
    "metric",
    [
        described(WMP | {"name": "web"}),
        described(WMP | {"name": "web"}, "effective_cpu"),
        external(policy="web"),
        described(DEPLOYMENT | {"name": "web"}),
        external("queue_length", policy="wbe"),
        described({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"}, "requests"),
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
    ],
)
def test_an_hpa_of_a_policy_and_what_is_not_ours_are_no_strays(metric: dict[str, Any]) -> None:
    assert found([hpa("web", metric)], [known("web")]) == {}


def test_a_policy_that_is_not_valid_exists_and_what_it_scales_is_not_known() -> None:
    broken = [ListedPolicy("shop", "web", None, "highWatermark: 'much' is no quantity")]
    by_name, by_target = described(WMP | {"name": "web"}), described(DEPLOYMENT | {"name": "web"})
    assert found([hpa("web", by_name, by_target)], broken) == {}


def test_every_hpa_that_asks_for_no_policy_is_a_stray_and_of_many_policies_some_are_named() -> None:
    hpas = [hpa(name, described(WMP | {"name": name})) for name in ("web", "cart")]
    assert list(found(hpas, [])) == ["HPA shop/cart", "HPA shop/web"]
    assert found(hpas, [])["HPA shop/web"][0].endswith("or name one that exists (none)")
    ((text,),) = found(hpas[:1], [known(f"p{number}") for number in range(2000)]).values()
    assert "and 1980 more)" in text
    assert len(text) < 500
