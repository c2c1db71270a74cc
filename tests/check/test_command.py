"""What `run_checks` says of a whole cluster."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.commands.check.command import Scope, run_checks
from adapter.commands.check.installation import CUSTOM
from adapter.commands.check.report import report_lines
from adapter.policy.behavior import count_metric
from adapter.settings import Settings, parse_settings
from tests.check.test_cluster import hpa, items
from tests.check.test_rights import IDENTITY, OTHERS, SELF, Rights, identity
from tests.kube.fake import FakeApi, hang_up, status, text

CONFIG_MAP = "/api/v1/namespaces/effective-load/configmaps/effective-load-settings"
POLICIES = "/apis/effective-load.io/v1alpha1/watermarkpolicies"
SILENT = "the watch of widgets.example.com has shown no life since 2026-01-01T00:00:00Z"


def policy(name: str, message: str = "") -> dict[str, Any]:
    condition = {"type": "InputsFresh", "status": "False", "reason": "WatchSilent", "message": message}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "1"}]},
        "status": {"conditions": [condition] if message else []},
    }


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        api.answers |= {SELF: Rights().answer, OTHERS: Rights().answer, IDENTITY: identity}
        yield api


@pytest.fixture
def kubeconfig(api: FakeApi, tmp_path: Path) -> str:
    named = {"name": "tests"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{**named, "cluster": {"server": api.url}}],
        "users": [{**named, "user": {"token": "t"}}],
        "contexts": [{**named, "context": {"cluster": "tests", "user": "tests"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def test_a_silent_watch_is_reported_once_with_the_policies_that_report_it(api: FakeApi, kubeconfig: str) -> None:
    silent = [policy(f"p{number}", SILENT) for number in range(7)]
    api.answers[POLICIES] = text(json.dumps({"items": [*silent, policy("well")]}))
    found = list(report_lines(await run_checks(Settings(), Scope(), kubeconfig), verbose=True))
    told = f"  wrong  {SILENT} (reported by the status of shop/p0, shop/p1, shop/p2, shop/p3, shop/p4 and 2 more)"
    assert [line for line in found if "has shown no life" in line] == [told]
    assert [line for line in found if "it has all " in line]


async def test_without_settings_those_of_the_installation_count_and_its_registries_are_not_asked_may_contact_sources(
    api: FakeApi, kubeconfig: str
) -> None:
    registry = {"name": "main", "type": "Consul", "servers": ["http://127.0.0.1:1"], "timeoutSeconds": 1}
    config = {"data": {"settings.yaml": json.dumps({"registries": [registry]})}}
    api.answers[CONFIG_MAP] = text(json.dumps(config))
    api.answers[POLICIES] = text(json.dumps({"items": []}))
    found = list(report_lines(await run_checks(None, Scope(), kubeconfig), verbose=True))
    assert "  ok     they are those of ConfigMap effective-load/effective-load-settings" in found
    assert found[found.index("registry main (Consul)") + 1].startswith("  skip   not checked: what the cluster's")
    assert not [line for line in found if "127.0.0.1:1" in line]
    found = list(report_lines(await run_checks(given(registry), Scope(), kubeconfig)))
    assert [line for line in found if line.startswith("  wrong  http://127.0.0.1:1 cannot be reached: ")]


def given(registry: dict[str, Any]) -> Settings:
    return parse_settings(json.dumps({"registries": [registry]}))


async def test_a_cluster_that_does_not_answer_is_one_finding(kubeconfig: str, api: FakeApi) -> None:
    api.answers["/version"] = hang_up
    (line, _) = list(report_lines(await run_checks(None, Scope(), kubeconfig)))[1:]
    assert line.startswith("  wrong  the cluster does not answer, so no policy is checked: GET /version: ")


async def test_a_definition_that_is_missing_is_said(api: FakeApi, kubeconfig: str) -> None:
    api.answers[POLICIES] = status(404, "NotFound")
    found = list(report_lines(await run_checks(Settings(), Scope(), kubeconfig)))
    assert [line for line in found if "apply the definition (kubectl apply -k manifests/crd)" in line]


async def test_nothing_that_may_be_seen_is_no_fault_and_each_refusal_is_said_once(
    api: FakeApi, kubeconfig: str
) -> None:
    api.answers.clear()
    api.otherwise = status(403, "Forbidden", 'User "bob" cannot list resource "pods" in API group ""')
    sections = await run_checks(None, Scope(), kubeconfig)
    found = list(report_lines(sections))
    assert not [line for line in found if line.startswith("  wrong")]
    assert [line for line in found if line.startswith("  skip")]


def failing_hpa(message: str) -> dict[str, Any]:
    failing = {"type": "ScalingActive", "status": "False", "reason": "FailedGetObjectMetric", "message": message}
    return {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            "metrics": [count_metric("web")],
        },
        "status": {"conditions": [failing]},
    }


OURS = {
    "spec": {"service": dict.fromkeys(("namespace", "name"), "effective-load")},
    "status": {"conditions": [{"type": "Available", "status": "True"}]},
}
"""An APIService as it should be."""
HPAS = "/apis/autoscaling/v2/{}horizontalpodautoscalers"
IN_SHOP = "namespaces/shop/"


async def test_an_error_of_an_hpa_is_explained_by_a_fault_of_its_policy(api: FakeApi, kubeconfig: str) -> None:
    hpas = text(json.dumps({"items": [failing_hpa("no pod serves")]}))
    api.answers |= {HPAS.format(""): hpas, POLICIES: text(json.dumps({"items": [policy("web")]}))}
    found = list(report_lines(await run_checks(Settings(), Scope(), kubeconfig)))
    assert found[found.index("policy shop/web") + 1].startswith("  wrong  ")  # its HPA cannot be read there
    assert not [line for line in found if "it does not act" in line]
    api.answers[POLICIES] = text(json.dumps({"items": []}))
    found = list(report_lines(await run_checks(Settings(), Scope(), kubeconfig)))
    assert [line for line in found if "WatermarkPolicy web, which does not exist" in line]


async def test_one_policy_is_checked_with_its_hpas_own_condition_and_with_all_that_it_shares_with_others(
    api: FakeApi, kubeconfig: str
) -> None:
    api.answers[HPAS.format(IN_SHOP)] = text(
        json.dumps({"items": [failing_hpa("no server answers"), hpa("beside", "beside")]})
    )
    api.answers[POLICIES.replace("v1alpha1/", f"v1alpha1/{IN_SHOP}")] = items(policy("web"))
    labels = {"matchLabels": {"app": "web"}}
    spec = {"replicas": 1, "selector": labels, "template": {"metadata": {"labels": {"app": "web"}}}}
    deployment = {"metadata": {"name": "web", "namespace": "shop", "uid": "u"}, "spec": spec, "status": {}}
    scalable = [
        {"name": name, "kind": "Deployment", "namespaced": True} for name in ("deployments", "deployments/scale")
    ]
    api.answers |= {
        "/apis/apps/v1": text(json.dumps({"resources": scalable})),
        f"/apis/apps/v1/{IN_SHOP}deployments": items(deployment),
        f"/api/v1/{IN_SHOP}pods": items(),
    }
    api.answers |= {f"/apis/apiregistration.k8s.io/v1/apiservices/{name}": text(json.dumps(OURS)) for name in CUSTOM}
    sections = await run_checks(Settings(), Scope(policy="shop/web"), kubeconfig)
    found = list(report_lines(sections, verbose=True))
    assert "  wrong  it does not act (FailedGetObjectMetric): no server answers" in found
    (section,) = (one for one in sections if one.about.startswith("HPA shop/web"))
    assert section.about == "HPA shop/web of policy web", "the error stands with the other faults of the HPA"
    assert section.findings[-1].text.endswith("no server answers")
    assert not [line for line in found if "beside" in line or "it sets the count" in line]
    about = {section.about.partition(" ")[0] for section in sections}
    assert {"API", "rights", "installation", "APIService", "certificates", "servers"} <= about


ONE_POLICY = POLICIES.replace("v1alpha1/", f"v1alpha1/{IN_SHOP}")


async def test_of_one_policy_every_broken_link_is_told_and_the_others_say_what_they_wait_for(
    api: FakeApi, kubeconfig: str
) -> None:
    broken = policy("web")
    broken["spec"]["registry"] = {"name": "elsewhere", "service": "web"}
    broken["spec"]["metrics"].append({"name": "queue", "query": {"name": "unknown"}, "highWatermark": "1"})
    api.answers[ONE_POLICY] = items(broken)
    api.answers[HPAS.format(IN_SHOP)] = items(failing_hpa("no server answers"))
    api.answers["/apis/apps/v1"] = status(503, "ServiceUnavailable", "no discovery")
    api.answers[f"/apis/metrics.k8s.io/v1beta1/{IN_SHOP}pods"] = status(503, "ServiceUnavailable", "gone")
    sections = await run_checks(Settings(), Scope(policy="shop/web"), kubeconfig)
    found = list(report_lines(sections))
    of_policy = found[found.index("policy shop/web") + 1 :]
    assert of_policy[0].startswith("  wrong  registry 'elsewhere' is not in the adapter's settings")
    assert "no discovery" in of_policy[1]
    assert of_policy[2] == (
        "  skip   not checked: its pods, and what the registry and the sources know of them, which wait for that"
    )
    assert of_policy[3].startswith("  wrong  metric queue: the settings define no such query")
    assert found[found.index("metrics.k8s.io") + 1].startswith("  wrong  it does not answer, so policies on cpu")
    assert [line for line in found if line.startswith("  wrong  it does not exist, so no HPA is answered")]
    explained = {name for section in sections for one in section.findings for name in one.explains}
    assert {"HPA shop/web of policy web", "policy shop/web"} <= explained


async def test_settings_that_this_account_may_not_read_lack_nothing(api: FakeApi, kubeconfig: str) -> None:
    of_tenant = policy("web")
    of_tenant["spec"]["registry"] = {"name": "main", "service": "web"}
    of_tenant["spec"]["metrics"].append({"name": "queue", "query": {"name": "length"}, "highWatermark": "1"})
    api.answers[CONFIG_MAP] = status(403, "Forbidden")
    api.answers[ONE_POLICY] = items(of_tenant)
    (section,) = (
        one for one in await run_checks(None, Scope(policy="shop/web"), kubeconfig) if one.about == "policy shop/web"
    )
    told = [one.text for one in section.findings]
    assert told[0] == "not checked: whether the settings have its registry and queries, for they are not known"
    assert not [one for one in told if "registry 'main'" in one or "no such query" in one]


async def test_a_namespace_that_the_settings_leave_out_is_said_of_its_policy(api: FakeApi, kubeconfig: str) -> None:
    api.answers[ONE_POLICY] = items(policy("web"))
    elsewhere = parse_settings('{"kubernetes": {"namespaces": ["elsewhere"]}}')
    found = list(report_lines(await run_checks(elsewhere, Scope(policy="shop/web"), kubeconfig)))
    told = found[found.index("policy shop/web") + 1]
    assert told == "  wrong  the settings leave namespace shop out (kubernetes.namespaces)"


async def test_of_one_policy_the_hpas_own_error_is_told_under_a_misspelt_metric_too(
    api: FakeApi, kubeconfig: str
) -> None:
    misspelt = failing_hpa("no such metric")
    misspelt["spec"]["metrics"][0]["object"]["metric"]["name"] = "desired_replica"
    api.answers[ONE_POLICY] = items(policy("web"))
    api.answers[HPAS.format(IN_SHOP)] = items(misspelt)
    api.answers |= {f"/apis/apiregistration.k8s.io/v1/apiservices/{name}": text(json.dumps(OURS)) for name in CUSTOM}
    found = list(report_lines(await run_checks(Settings(), Scope(policy="shop/web"), kubeconfig)))
    of_hpa = found[found.index("HPA shop/web of policy web") + 1 :]
    assert of_hpa[0].startswith("  wrong  HPA web does not ask for desired_replicas")
    assert "  wrong  it does not act (FailedGetObjectMetric): no such metric" in of_hpa


@pytest.mark.parametrize("metric", ["desired_replicas", "desired_replica"])
@pytest.mark.parametrize("exists", [True, False])
async def test_an_hpa_has_its_own_error_told_though_its_policy_is_missing_or_not_valid(
    api: FakeApi, kubeconfig: str, exists: bool, metric: str
) -> None:
    faulty = policy("web")
    del faulty["spec"]["metrics"]
    api.answers[ONE_POLICY] = items(*[faulty] * exists)
    asking = failing_hpa("no server answers")
    asking["spec"]["metrics"][0]["object"]["metric"]["name"] = metric
    api.answers[HPAS.format(IN_SHOP)] = items(asking)
    sections = await run_checks(Settings(), Scope(policy="shop/web"), kubeconfig)
    (_, section) = [one for one in sections if one.about in {"cluster", "HPA shop/web"}]
    assert section.is_explained, "by the APIServices, which do not exist"
    found = list(report_lines(sections))
    told = found[found.index("cluster") + 1 :]
    if exists:
        fault = "spec.metrics: should have at least 1 items: a policy needs a metric"
        assert told[0] == f"  wrong  policy shop/web is not valid: {fault}"
        assert told[1] == "  skip   not checked: its HPA, pods, sources and registry, which wait for a valid policy"
    else:
        assert told[0] == "  wrong  policies cannot be read: there is no WatermarkPolicy web in namespace shop"


async def test_a_policy_is_not_called_well_while_no_hpa_is_answered(api: FakeApi, kubeconfig: str) -> None:
    api.answers[POLICIES] = items(policy("web"))
    api.answers[HPAS.format("")] = items()
    found = list(report_lines(await run_checks(Settings(), Scope(), kubeconfig)))
    assert [line for line in found if line.startswith("  wrong  it does not exist, so no HPA is answered")]
    assert not [line for line in found if line.startswith("ok ")]


async def test_an_api_server_without_its_storage_is_one_finding_at_once(api: FakeApi, kubeconfig: str) -> None:
    body = "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n[+]poststarthook ok\nreadyz check failed\n"
    api.answers["/version"] = text("{}")
    api.answers["/readyz"] = text(body, 500)
    sections = await run_checks(None, Scope(), kubeconfig)
    (line,) = list(report_lines(sections, verbose=True))[1:-1]
    assert line.startswith("  wrong  the cluster does not answer, so no policy is checked: its etcd fails")
