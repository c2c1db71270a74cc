"""What `run_checks` says of a whole cluster."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.commands.check.command import run_checks
from adapter.commands.check.installation import CUSTOM
from adapter.commands.check.report import report_lines
from adapter.policy.behavior import count_metric
from adapter.settings import Settings, parse_settings
from tests.check.test_cluster import APPS, SCALABLE, deployment, hpa, items
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


Checked = Callable[..., Awaitable[list[str]]]
"""The lines that a check of the whole cluster, or of one policy, prints."""


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


@pytest.fixture
def checked(kubeconfig: str) -> Checked:
    async def run(settings: Settings | None = None, policy: str = "", verbose: bool = False) -> list[str]:
        return list(report_lines(await run_checks(settings, policy, kubeconfig), verbose=verbose))

    return run


async def test_a_silent_watch_is_reported_once_with_the_policies_that_report_it(api: FakeApi, checked: Checked) -> None:
    api.answers[POLICIES] = items(policy("p1", SILENT), policy("p2", SILENT), policy("well"))
    found = await checked(Settings(), verbose=True)
    told = f"  wrong  {SILENT} (reported by the status of shop/p1, shop/p2)"
    assert [line for line in found if "has shown no life" in line] == [told]
    assert [line for line in found if "it has all " in line]


async def test_without_settings_those_of_the_installation_count_and_its_registries_are_not_asked(
    api: FakeApi, checked: Checked
) -> None:
    registry = {"name": "main", "type": "Consul", "servers": ["http://127.0.0.1:1"], "timeoutSeconds": 1}
    text_of_settings = json.dumps({"registries": [registry]})
    api.answers[CONFIG_MAP] = text(json.dumps({"data": {"settings.yaml": text_of_settings}}))
    api.answers[POLICIES] = items()
    found = await checked(verbose=True)
    assert "  ok     they are those of ConfigMap effective-load/effective-load-settings" in found
    assert found[found.index("registry main (Consul)") + 1].startswith("  skip   not checked: what the cluster's")
    assert not [line for line in found if "127.0.0.1:1" in line]
    found = await checked(parse_settings(text_of_settings))
    assert [line for line in found if line.startswith("  wrong  http://127.0.0.1:1 cannot be reached: ")]


ETCD_FAILS = "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n[+]poststarthook ok\nreadyz check failed\n"


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"/version": hang_up}, "GET /version: "),
        ({"/version": text("{}"), "/readyz": text(ETCD_FAILS, 500)}, "its etcd fails"),
    ],
    ids=["no answer", "no storage"],
)
async def test_a_cluster_that_does_not_work_is_one_finding(
    api: FakeApi, checked: Checked, answers: dict[str, Any], reason: str
) -> None:
    api.answers |= answers
    (line, _) = (await checked())[1:]
    assert line.startswith(f"  wrong  the cluster does not answer, so no policy is checked: {reason}")


async def test_a_definition_that_is_missing_is_said(api: FakeApi, checked: Checked) -> None:
    api.answers[POLICIES] = status(404, "NotFound")
    assert [
        line for line in await checked(Settings()) if "apply the definition (kubectl apply -k manifests/crd)" in line
    ]


async def test_nothing_that_may_be_seen_is_no_fault(api: FakeApi, checked: Checked) -> None:
    api.answers.clear()
    api.otherwise = status(403, "Forbidden", 'User "bob" cannot list resource "pods" in API group ""')
    found = await checked()
    assert not [line for line in found if line.startswith("  wrong")]
    assert [line for line in found if line.startswith("  skip")]


def failing_hpa(message: str, metric: str = "desired_replicas") -> dict[str, Any]:
    failing = {"type": "ScalingActive", "status": "False", "reason": "FailedGetObjectMetric", "message": message}
    asking = count_metric("web")
    asking["object"]["metric"]["name"] = metric
    return {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 5,
            "metrics": [asking],
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
ONE_POLICY = POLICIES.replace("v1alpha1/", f"v1alpha1/{IN_SHOP}")


async def test_an_error_of_an_hpa_is_explained_by_a_fault_of_its_policy(api: FakeApi, checked: Checked) -> None:
    api.answers |= {HPAS.format(""): items(failing_hpa("no pod serves")), POLICIES: items(policy("web"))}
    found = await checked(Settings())
    assert found[found.index("policy shop/web") + 1].startswith("  wrong  ")  # its HPA cannot be read there
    assert not [line for line in found if "it does not act" in line]
    api.answers[POLICIES] = items()
    assert [line for line in await checked(Settings()) if "WatermarkPolicy web, which does not exist" in line]


async def test_one_policy_is_checked_with_its_hpas_own_condition_and_with_all_that_it_shares_with_others(
    api: FakeApi, kubeconfig: str
) -> None:
    api.answers |= {
        HPAS.format(IN_SHOP): items(failing_hpa("no server answers"), hpa("beside", "beside")),
        ONE_POLICY: items(policy("web")),
        APPS: text(json.dumps(SCALABLE)),
        f"{APPS}/{IN_SHOP}deployments": items(deployment({"app": "web"})),
        f"/api/v1/{IN_SHOP}pods": items(),
    }
    api.answers |= {f"/apis/apiregistration.k8s.io/v1/apiservices/{name}": text(json.dumps(OURS)) for name in CUSTOM}
    sections = await run_checks(Settings(), "shop/web", kubeconfig)
    found = list(report_lines(sections, verbose=True))
    assert "  wrong  it does not act (FailedGetObjectMetric): no server answers" in found
    (section,) = (one for one in sections if one.about.startswith("HPA shop/web"))
    assert section.about == "HPA shop/web of policy web", "the error stands with the other faults of the HPA"
    assert section.findings[-1].text.endswith("no server answers")
    assert not [line for line in found if "beside" in line or "it sets the count" in line]
    about = {section.about.partition(" ")[0] for section in sections}
    assert {"API", "rights", "installation", "APIService", "certificates", "servers"} <= about


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
    sections = await run_checks(Settings(), "shop/web", kubeconfig)
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
    assert "  wrong  it does not act (FailedGetObjectMetric): no server answers" in found


async def test_settings_that_this_account_may_not_read_lack_nothing(api: FakeApi, checked: Checked) -> None:
    of_tenant = policy("web")
    of_tenant["spec"]["registry"] = {"name": "main", "service": "web"}
    of_tenant["spec"]["metrics"].append({"name": "queue", "query": {"name": "length"}, "highWatermark": "1"})
    api.answers |= {CONFIG_MAP: status(403, "Forbidden"), ONE_POLICY: items(of_tenant)}
    found = await checked(policy="shop/web")
    assert found[found.index("policy shop/web") + 1].endswith(
        "not checked: whether the settings have its registry and queries, for they are not known"
    )
    assert not [line for line in found if "registry 'main'" in line or "no such query" in line]


async def test_a_namespace_that_the_settings_leave_out_is_said_of_its_policy(api: FakeApi, checked: Checked) -> None:
    api.answers[ONE_POLICY] = items(policy("web"))
    found = await checked(parse_settings('{"kubernetes": {"namespaces": ["elsewhere"]}}'), policy="shop/web")
    told = found[found.index("policy shop/web") + 1]
    assert told == "  wrong  the settings leave namespace shop out (kubernetes.namespaces)"


async def test_of_one_policy_the_hpas_own_error_is_told_under_a_misspelt_metric_too(
    api: FakeApi, checked: Checked
) -> None:
    api.answers |= {
        ONE_POLICY: items(policy("web")),
        HPAS.format(IN_SHOP): items(failing_hpa("none", "desired_replica")),
    }
    api.answers |= {f"/apis/apiregistration.k8s.io/v1/apiservices/{name}": text(json.dumps(OURS)) for name in CUSTOM}
    found = await checked(Settings(), policy="shop/web")
    of_hpa = found[found.index("HPA shop/web of policy web") + 1 :]
    assert of_hpa[0].startswith("  wrong  HPA web does not ask for desired_replicas")
    assert "  wrong  it does not act (FailedGetObjectMetric): none" in of_hpa


@pytest.mark.parametrize("metric", ["desired_replicas", "desired_replica"])
@pytest.mark.parametrize("exists", [True, False])
async def test_an_hpa_has_its_own_error_told_though_its_policy_is_missing_or_not_valid(
    api: FakeApi, kubeconfig: str, exists: bool, metric: str
) -> None:
    faulty = policy("web")
    del faulty["spec"]["metrics"]
    api.answers |= {ONE_POLICY: items(*[faulty] * exists), HPAS.format(IN_SHOP): items(failing_hpa("none", metric))}
    sections = await run_checks(Settings(), "shop/web", kubeconfig)
    (of_hpa,) = [one for one in sections if one.about == "HPA shop/web"]
    assert of_hpa.findings[-1].text.endswith(": none")
    found = list(report_lines(sections))
    told = found[found.index("cluster") + 1 :]
    if exists:
        assert told[0].startswith("  wrong  policy shop/web is not valid: spec.metrics: ")
        assert told[1] == "  skip   not checked: its HPA, pods, sources and registry, which wait for a valid policy"
    else:
        assert told[0] == "  wrong  policies cannot be read: there is no WatermarkPolicy web in namespace shop"
