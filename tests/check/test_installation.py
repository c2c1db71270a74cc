"""What is installed: Deployments, settings, APIServices and their CA, clocks and versions, ready servers."""

from collections.abc import Iterable
from typing import Any

import pytest

from adapter.commands.check.installation import (
    CUSTOM,
    EXTERNAL,
    check_api_server,
    check_api_services,
    check_deployments,
    check_servers,
    find_installation,
    installed_settings,
)
from adapter.commands.check.report import Finding
from adapter.kube.session import Session
from adapter.settings import Settings, parse_settings
from tests.explain.kit import answer
from tests.kube.fake import FakeApi, status, text

DEPLOYMENTS = "/apis/apps/v1/deployments"
IN_NAMESPACE = "/apis/apps/v1/namespaces/effective-load/deployments"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
CONFIG_MAP = "/api/v1/namespaces/metrics/configmaps/el-settings"
OURS = ("effective-load", "effective-load")


def lines(findings: Iterable[Finding]) -> list[str]:
    return [f"{one.level.value}: {one}" for one in findings]


def deployment(component: str = "server", namespace: str = "metrics", **more: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "effective-load", "app.kubernetes.io/component": component}
    pod = {
        "serviceAccountName": f"el-{component}",
        "containers": [{"image": "effective-load:0.0.1", "args": ["serve", "--settings=/etc/el/el.yaml"]}],
        "volumes": [{"name": "settings", "configMap": {"name": "el-settings"}}],
    }
    return {
        "metadata": {"name": f"el-{component}", "namespace": namespace, "labels": labels},
        "spec": {"replicas": 2, "template": {"spec": pod}},
        "status": {"readyReplicas": 2},
        **more,
    }


async def test_the_installation_is_found_by_its_labels(api: FakeApi, session: Session) -> None:
    api.answers[DEPLOYMENTS] = answer({"items": [deployment(), deployment("companion")]})
    api.answers[CONFIG_MAP] = answer({"data": {"el.yaml": "server: {externalMetrics: true}"}})
    found = await find_installation(session, Settings())
    assert (found.namespace, found.accounts) == ("metrics", {"server": "el-server", "companion": "el-companion"})
    settings, found_settings = await installed_settings(session, found)
    assert settings is not None
    assert settings.server.external_metrics
    assert lines(found_settings) == ["ok: they are those of ConfigMap metrics/el-settings"]


async def test_the_deployment_behind_the_apiservice_is_preferred(api: FakeApi, session: Session) -> None:
    api.answers[DEPLOYMENTS] = answer({"items": [deployment(namespace="tenant"), deployment()]})
    api.answers[f"{API_SERVICES}/{CUSTOM[0]}"] = api_service(("metrics", "effective-load"))
    assert (await find_installation(session, Settings())).namespace == "metrics"


async def test_deployments_that_may_not_be_read_are_skipped(api: FakeApi, session: Session) -> None:
    api.answers |= {DEPLOYMENTS: status(403, "Forbidden"), IN_NAMESPACE: status(403, "Forbidden")}
    found = await find_installation(session, Settings())
    assert lines(check_deployments(found))[0].startswith("skipped: its Deployments, for ")
    assert found.accounts["companion"] == "effective-load-companion"


@pytest.mark.parametrize(
    ("config_map", "says"),
    [
        (answer({"data": {"el.yaml": "server: {prot: 1}"}}), "error: ConfigMap metrics/el-settings: server.prot"),
        (answer({"data": {"other": ""}}), "error: ConfigMap metrics/el-settings has no key el.yaml"),
        (status(404, "NotFound"), "error: ConfigMap metrics/el-settings does not exist, so no new pod"),
        (status(403, "Forbidden", "no"), "skipped: the settings in ConfigMap metrics/el-settings, for "),
    ],
)
async def test_settings_that_cannot_be_used_say_why(api: FakeApi, session: Session, config_map: Any, says: str) -> None:
    api.answers |= {DEPLOYMENTS: answer({"items": [deployment()]}), CONFIG_MAP: config_map}
    settings, found_settings = await installed_settings(session, await find_installation(session, Settings()))
    assert settings is None
    assert lines(found_settings)[0].startswith(says)


async def test_a_deployment_without_ready_pods_is_an_error(api: FakeApi, session: Session) -> None:
    api.answers[DEPLOYMENTS] = answer({"items": [deployment(status={})]})
    first, second = lines(check_deployments(await find_installation(session, Settings())))
    assert first.startswith("error: Deployment metrics/el-server has none of its 2 pods ready")
    assert second.startswith("warning: Deployment metrics/el-server runs version 0.0.1, and this program is ")


def api_service(service: tuple[str, str] = OURS, **condition: str) -> Any:
    available = {"type": "Available", "status": "True", **condition}
    spec = {"service": {"namespace": service[0], "name": service[1]}}
    return answer({"spec": spec, "status": {"conditions": [available]}})


async def found_services(session: Session, settings: Settings | None = None) -> dict[str, list[str]]:
    installation = await find_installation(session, Settings())
    found: dict[str, list[str]] = {}
    for one in check_api_services(installation, settings):
        found.setdefault(one.about.removeprefix("APIService "), []).append(f"{one.level.value}: {one}")
    return found


@pytest.mark.parametrize(
    ("given", "settings", "name", "says"),
    [
        (None, "", CUSTOM[0], "error: it does not exist, so no HPA is answered; apply"),
        (
            api_service(("monitoring", "prometheus-adapter")), "", CUSTOM[0],
            "error: it is served by Service monitoring/prometheus-adapter, not by",
        ),
        (
            api_service(status="False", reason="MissingEndpoints", message="no endpoints"), "", CUSTOM[1],
            "error: it is not available (MissingEndpoints): no endpoints; the Service has no ready pod: kubectl -n eff",
        ),
        (
            api_service(status="False", reason="FailedDiscoveryCheck", message="tls: x509: unknown authority"), "",
            CUSTOM[0], "error: it is not available (FailedDiscoveryCheck): tls: x509: unknown authority; its caBundle",
        ),
        (api_service(status="Unknown", reason="New"), "", CUSTOM[0], "error: it is not available (New)"),
        (api_service(), "", EXTERNAL, "error: it names Service effective-load/effective-load, and the settings do not"),
        (api_service(("keda", "keda-metrics-apiserver")), "", EXTERNAL, "ok: it is served by Service keda/keda-metric"),
        (None, "server: {externalMetrics: true}", EXTERNAL, "error: it does not exist"),
        (status(403, "Forbidden", "no"), "", CUSTOM[0], "skipped: who serves it, for "),
    ],
)  # fmt: skip
async def test_an_apiservice_says_who_serves_it_and_what_to_do(
    api: FakeApi, session: Session, given: Any, settings: str, name: str, says: str
) -> None:
    api.answers |= {f"{API_SERVICES}/{name}": given} if given is not None else {}
    (line, *_) = (await found_services(session, parse_settings(settings)))[name]
    assert line.startswith(says)


@pytest.mark.parametrize(
    ("version", "says", "has_tolerance"),
    [
        ("v1.35.2", "ok: it is Kubernetes v1.35.2, whose HPAs have a tolerance of their own", True),
        ("v1.30.0-gke.5", "warning: it is Kubernetes v1.30.0-gke.5, whose HPAs have no tolerance", False),
    ],
)
async def test_the_version_decides_on_the_tolerance(
    api: FakeApi, session: Session, version: str, says: str, has_tolerance: bool
) -> None:
    api.answers["/version"] = answer({"gitVersion": version})
    findings, found = await check_api_server(session)
    assert lines(findings)[0].startswith(says)
    assert found is has_tolerance


async def test_a_server_that_is_not_ready_says_why(api: FakeApi, session: Session) -> None:
    api.answers["/api/v1/namespaces/metrics/pods"] = answer({"items": [{"metadata": {"name": "el-1"}}]})
    readyz = "/api/v1/namespaces/metrics/pods/el-1:8080/proxy/readyz"
    api.answers[readyz] = text("[+]sync ok\n[-]watches failed: no life since 12:00\n[!]tls: old\nreadyz check failed\n")
    assert lines(await check_servers(session, "metrics", Settings())) == [
        "error: it is not ready (watches): no life since 12:00",
        "error: old",
    ]
    api.answers[readyz] = text("[+]sync ok\nreadyz check passed\n")
    assert lines(await check_servers(session, "metrics", Settings())) == ["ok: it is ready"]
