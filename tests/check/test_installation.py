"""What `check` finds out about an installation: settings, APIServices, certificates, versions and clocks."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from adapter.commands.check.cluster_checks import certificate_section, control_plane_section
from adapter.commands.check.installation import (
    api_service_sections,
    find_installation,
    installation_section,
    installed_settings,
)
from adapter.commands.check.report import ReportSection
from adapter.commands.check.rights import Account
from adapter.kube.session import Session
from adapter.policy.hpa import parse_hpa
from adapter.settings import Settings, parse_settings
from tests.kube.fake import FakeApi, status, text
from tests.render.kit import stock

DEPLOYMENTS = "/apis/apps/v1/deployments"
IN_NAMESPACE = "/apis/apps/v1/namespaces/effective-load/deployments"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
V1BETA2, V1BETA1 = "v1beta2.custom.metrics.k8s.io", "v1beta1.custom.metrics.k8s.io"
EXTERNAL = "v1beta1.external.metrics.k8s.io"
OURS = ("effective-load", "effective-load")


def lines(section: ReportSection) -> list[str]:
    return [f"{one.verdict.value}: {one.text}" for one in section.findings]


# --- Deployments and settings ---


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


def answer(body: Any) -> Any:
    return text(json.dumps(body))


def items(*deployments: dict[str, Any]) -> Any:
    return answer({"items": deployments})


async def test_the_installation_is_found_by_its_labels_with_its_accounts_and_settings(
    api: FakeApi, session: Session
) -> None:
    api.answers[DEPLOYMENTS] = items(deployment(), deployment("companion"))
    config = {"el.yaml": "server: {externalMetrics: true}"}
    api.answers["/api/v1/namespaces/metrics/configmaps/el-settings"] = answer({"data": config})
    found = await find_installation(session, Settings())
    assert found.accounts() == {Account.SERVER: "el-server", Account.COMPANION: "el-companion"}
    settings, known, section = await installed_settings(session, found)
    assert known
    assert settings.server.external_metrics
    assert (settings.server.tls.namespace, settings.companion.namespace) == ("metrics", "metrics")
    assert lines(section) == ["ok: they are those of ConfigMap metrics/el-settings"]


async def test_of_several_deployments_with_the_labels_the_one_that_serves_the_api_is_taken(
    api: FakeApi, session: Session
) -> None:
    api.answers[DEPLOYMENTS] = items(deployment(namespace="a-tenants"), deployment(namespace="metrics"))
    api.answers[f"{API_SERVICES}/{V1BETA2}"] = api_service(("metrics", "effective-load"))
    assert (await find_installation(session, Settings())).namespace == "metrics"


async def test_where_only_the_namespace_may_be_read_it_is_looked_for_there(api: FakeApi, session: Session) -> None:
    api.answers[DEPLOYMENTS] = status(403, "Forbidden")
    api.answers[IN_NAMESPACE] = items(deployment(namespace="effective-load"))
    assert (await find_installation(session, Settings())).namespace == "effective-load"


@pytest.mark.parametrize(
    ("config_map", "says"),
    [
        (answer({"data": {"el.yaml": "server: {prot: 1}"}}), "wrong: ConfigMap metrics/el-settings: server.prot"),
        (answer({"data": {"other": ""}}), "wrong: ConfigMap metrics/el-settings has no"),
        (
            status(404, "NotFound"),  # pods do not start without the ConfigMap of their volume
            "wrong: ConfigMap metrics/el-settings does not exist, so no new pod of Deployment ",
        ),
        (
            status(
                403, "Forbidden", 'User "x" cannot get resource "configmaps" in API group "" in the namespace "metrics"'
            ),
            "for this account may not get configmaps in namespace metrics; give --settings; every default",
        ),
    ],
    ids=["a wrong key", "another file", "none", "no right"],
)
async def test_settings_that_cannot_be_used_are_told_with_what_is_wrong(
    api: FakeApi, session: Session, config_map: Any, says: str
) -> None:
    api.answers |= {DEPLOYMENTS: items(deployment()), "/api/v1/namespaces/metrics/configmaps/el-settings": config_map}
    _, known, section = await installed_settings(session, await find_installation(session, Settings()))
    (line,) = lines(section)
    assert says in line
    assert not known


async def test_a_deployment_without_ready_pods_is_wrong(api: FakeApi, session: Session) -> None:
    api.answers[DEPLOYMENTS] = items(deployment(status={}))
    section = installation_section(await find_installation(session, Settings()))
    first, second = section.findings
    assert first.text.startswith("Deployment metrics/el-server has none of its 2 pods ready")
    assert second.text.startswith("Deployment metrics/el-server runs version 0.0.1, and this program is ")


async def test_deployments_that_may_not_be_read_are_not_checked(api: FakeApi, session: Session) -> None:
    api.answers |= {DEPLOYMENTS: status(403, "Forbidden"), IN_NAMESPACE: status(403, "Forbidden")}
    found = await find_installation(session, Settings())
    assert lines(installation_section(found))[0].startswith("skip: not checked: its Deployments, for ")
    assert found.accounts()[Account.COMPANION] == "effective-load-companion"


# --- APIServices ---


def api_service(service: tuple[str, str] = OURS, authority: bytes = b"", **condition: str) -> Any:
    available = {"type": "Available", "status": "True", **condition}
    spec = {
        "service": {"namespace": service[0], "name": service[1]},
        "caBundle": base64.b64encode(authority).decode(),
    }
    return answer({"spec": spec, "status": {"conditions": [available]}})


async def found_services(session: Session, settings: str = "", *, known: bool = True) -> dict[str, list[str]]:
    sections, _ = await api_service_sections(session, parse_settings(settings), settings_known=known)
    return {one.about.removeprefix("APIService "): lines(one) for one in sections}


async def test_our_apiservices_are_in_order(api: FakeApi, session: Session) -> None:
    api.answers |= {f"{API_SERVICES}/{name}": api_service() for name in (V1BETA2, V1BETA1)}
    found = await found_services(session)
    assert found[V1BETA2] == ["ok: it is available, served by Service effective-load/effective-load"]
    assert EXTERNAL not in found


KEDA = api_service(("keda", "keda-operator-metrics-apiserver"))
UNTRUSTED = {"status": "False", "reason": "FailedDiscoveryCheck", "message": "x509: signed by unknown authority"}
GONE = {"status": "False", "reason": "ServiceNotFound", "message": "service/nowhere is not present"}
WANTED = "server: {externalMetrics: true}"


@pytest.mark.parametrize(
    ("name", "service", "settings", "says"),
    [
        pytest.param(
            V1BETA1,
            api_service(("monitoring", "prometheus-adapter")),
            "",
            "wrong: it is served by Service monitoring/prometheus-adapter (prometheus-adapter), not by Service ",
            id="another adapter that has the group",
        ),
        pytest.param(
            V1BETA2,
            api_service(("effective-load", "nowhere"), **GONE),
            "",
            "which does not answer (ServiceNotFound)",
            id="a Service that does not exist, which is not said to answer",
        ),
        pytest.param(EXTERNAL, KEDA, "", "(KEDA), and the settings do not want it", id="KEDA's external metrics"),
        pytest.param(EXTERNAL, KEDA, WANTED, "wrong: it is served by Service keda/", id="which the settings want"),
        pytest.param(
            EXTERNAL, api_service(), "", "wrong: it names Service effective-load/", id="ours, without the setting"
        ),
        pytest.param(EXTERNAL, api_service(), None, "ok: ", id="ours, where the settings are not known"),
        pytest.param(V1BETA1, api_service(**UNTRUSTED), "", "its caBundle does not fit", id="ours, not trusted"),
        pytest.param(  # it looks like a wrong certificate: the server writes the caBundle of what it serves
            EXTERNAL,
            api_service(**UNTRUSTED),
            WANTED,
            "they have not read server.externalMetrics yet: a ConfigMap reaches the pods within two minutes",
            id="ours, not served beside custom metrics",
        ),
    ],
)
async def test_an_apiservice_is_told_with_who_serves_it(
    api: FakeApi, session: Session, name: str, service: Any, settings: str | None, says: str
) -> None:
    api.answers |= {f"{API_SERVICES}/{each}": api_service() for each in (V1BETA2, V1BETA1)}
    api.answers[f"{API_SERVICES}/{name}"] = service
    (line,) = (await found_services(session, settings or "", known=settings is not None))[name]
    assert says in line
    assert ("caBundle" in line) is ("caBundle" in says)


@pytest.mark.parametrize(
    ("reason", "message", "remedy"),
    [
        ("MissingEndpoints", "no addresses", "the Service has no ready pod"),
        ("FailedDiscoveryCheck", "x509: certificate signed by unknown authority", "its caBundle does not fit"),
        ("FailedDiscoveryCheck", "context deadline exceeded", "open the pods' port to the control plane"),
        ("Odd", "?", "look at kubectl describe apiservice"),
    ],
)
async def test_an_apiservice_that_is_not_available_says_what_to_do(
    api: FakeApi, session: Session, reason: str, message: str, remedy: str
) -> None:
    down = api_service(status="False", reason=reason, message=message)
    api.answers |= {f"{API_SERVICES}/{name}": down for name in (V1BETA2, V1BETA1)}
    (line,) = (await found_services(session))[V1BETA2]
    assert line.startswith(f"wrong: it is not available ({reason}: {message}): {remedy}")


# --- certificates ---


def pem(*, days: float, begins: float = -1) -> bytes:
    """A certificate that ends in so many days."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ca")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = (
        made.serial_number(1).not_valid_before(now + timedelta(days=begins)).not_valid_after(now + timedelta(days=days))
    )
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize(
    ("days", "begins", "says"),
    [
        (300, -1, " is valid until "),
        (5.5, -1, " ends in 5 days ("),
        (-0.5, -1, " has expired on "),
        (9, 1, " is valid from "),
    ],
)
async def test_the_end_of_a_ca_is_judged(api: FakeApi, session: Session, days: float, begins: float, says: str) -> None:
    bundle = api_service(authority=pem(days=days, begins=begins))
    api.answers |= {f"{API_SERVICES}/{name}": bundle for name in (V1BETA2, V1BETA1)}
    _, services = await api_service_sections(session, Settings(), settings_known=True)
    (line,) = lines(certificate_section(session, services))
    assert f"the CA in the caBundle of APIService {V1BETA2} and {V1BETA1}{says}" in line
    assert line.startswith({300: "ok", 5.5: "note"}.get(days, "wrong"))


async def test_of_a_bundle_the_ca_that_ends_last_counts(api: FakeApi, session: Session) -> None:
    bundle = api_service(authority=pem(days=-0.5) + pem(days=300))
    api.answers |= {f"{API_SERVICES}/{name}": bundle for name in (V1BETA2, V1BETA1)}
    _, services = await api_service_sections(session, Settings(), settings_known=True)
    first = lines(certificate_section(session, services))[0]
    assert first.startswith(f"ok: the CA in the caBundle of APIService {V1BETA2} and {V1BETA1} is valid until")


# --- the API server ---


async def control_plane(session: Session, *hpas: Any) -> tuple[list[str], bool | None]:
    section, has_tolerance = await control_plane_section(session, [parse_hpa(one) for one in hpas])
    return [line for line in lines(section) if "clock" not in line], has_tolerance


@pytest.mark.parametrize(
    ("version", "has", "says"),
    [
        ("v1.36.3", True, "ok: it is Kubernetes v1.36.3, whose HPAs have a tolerance"),
        ("v1.34.0-gke.5", False, "note: it is Kubernetes v1.34.0-gke.5, whose HPAs have no tolerance"),
        ("v1.22.1", False, "wrong: it is Kubernetes v1.22.1, which has no autoscaling/v2"),
        ("who knows", None, "note: it says no version that can be read"),
    ],
)
async def test_the_version_tells_whether_hpas_have_a_tolerance(
    api: FakeApi, session: Session, version: str, has: bool | None, says: str
) -> None:
    api.answers["/version"] = answer({"gitVersion": version})
    (line,), has_tolerance = await control_plane(session)
    assert line.startswith(says)
    assert has_tolerance is has


async def test_an_hpa_with_a_tolerance_or_the_feature_gate_proves_more_than_the_version(
    api: FakeApi, session: Session
) -> None:
    api.answers["/version"] = answer({"gitVersion": "v1.34.1"})
    assert (await control_plane(session, stock(behavior={"scaleUp": {"tolerance": "0"}})))[1] is True
    gate = 'kubernetes_feature_enabled{name="HPAConfigurableTolerance",stage="ALPHA"} 1\n'
    api.answers["/metrics"] = text(f"# HELP x\n{gate}")
    assert (await control_plane(session))[1] is True
    api.answers |= {
        "/version": answer({"gitVersion": "v1.36.0"}),
        "/metrics": text(gate.replace("} 1", "} 0")),
    }
    assert (await control_plane(session))[1] is False


async def test_clocks_that_differ_are_told(api: FakeApi, session: Session) -> None:
    async def late(_request: web.Request) -> web.StreamResponse:
        answer = web.json_response({"gitVersion": "v1.36.0"})
        answer.headers["Date"] = "Thu, 01 Jan 2026 00:00:00 GMT"
        return answer

    api.answers["/version"] = late
    section, _ = await control_plane_section(session, None)
    (line,) = [line for line in lines(section) if "clock" in line]
    assert line.startswith("wrong: the clock here is ")
    assert "ahead of the API server's" in line
