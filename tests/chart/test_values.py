"""Values of the chart that decide about rights and addresses, and that wrong ones are refused with their path."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.settings import RESTART, parse_settings
from lab.harness.adapter import merged
from tests.chart import kit
from tests.manifests.rendering import Object
from tools import chart_values
from tools.chart_templates import CHART

pytestmark = [pytest.mark.integration, pytest.mark.builds("helm")]

DIGEST = "sha256:" + "a" * 64
PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def one(objects: list[Object], kind: str, name: str = "effective-load") -> Object:
    (found,) = [item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


def pod(objects: list[Object], name: str = "effective-load") -> dict[str, Any]:
    return dict(one(objects, "Deployment", name)["spec"]["template"]["spec"])


def test_helm_lint_finds_nothing_with_the_defaults_and_with_everything() -> None:
    for given in ({}, kit.values_of(frozenset(kit.SWITCHES))):
        done = kit.run("lint", "--strict", CHART, values=given)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "[WARNING]" not in done.stdout


def test_an_image_with_a_digest_is_named_by_it_for_both() -> None:
    objects = kit.rendered({"image": {"repository": "registry.local:5000/e", "tag": "2", "digest": DIGEST}})
    for name in ("effective-load", "effective-load-companion"):
        assert pod(objects, name)["containers"][0]["image"] == f"registry.local:5000/e@{DIGEST}"


def test_values_of_a_workload_reach_its_pods_and_no_other() -> None:
    own: dict[str, Any] = {
        "replicas": 3,
        "resources": {"requests": {"cpu": "1"}},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "podLabels": {"team": "a"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "hostNetwork": True,
    }
    # The platform gives the user.
    changed = kit.rendered({"server": own, "podSecurityContext": dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))})
    spec = one(changed, "Deployment")["spec"]
    inner = spec["template"]["spec"]
    (container,) = inner["containers"]
    assert (spec["replicas"], spec["template"]["metadata"]["labels"]["team"]) == (3, "a")
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "192Mi"}
    assert (inner["tolerations"], container["env"][-1:]) == (own["tolerations"], own["extraEnv"])
    assert (inner["hostNetwork"], inner["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    of_both = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    companion, usual = (pod(objects, "effective-load-companion") for objects in (changed, kit.rendered()))
    assert (inner["securityContext"], companion.pop("securityContext")) == (of_both, of_both)
    assert companion == {key: value for key, value in usual.items() if key != "securityContext"}


def test_rights_are_bound_in_the_namespaces_that_are_watched_and_the_rest_in_the_cluster() -> None:
    everything = kit.values_of(frozenset(kit.SWITCHES))
    watched = {"rbac": {"namespaced": True}, "settings": {"kubernetes": {"namespaces": ["shop", "pay"]}}}
    objects = kit.rendered(merged(everything, watched))
    bound = {
        (item["metadata"]["name"], item["metadata"]["namespace"])
        for item in objects
        if item["kind"] == "RoleBinding" and item["roleRef"]["kind"] == "ClusterRole"
    }
    names = {
        "effective-load-server", "effective-load-scales", "effective-load-companion", "effective-load-companion-status",
        "effective-load-companion-events", "effective-load-companion-fast-scale-up",
        "effective-load-companion-deletion-cost", "effective-load-companion-hpa-configuration",
    }  # fmt: skip
    assert bound == {(name, namespace) for name in names for namespace in ("shop", "pay")}
    in_the_cluster = {item["metadata"]["name"] for item in objects if item["kind"] == "ClusterRoleBinding"}
    assert in_the_cluster == {
        "effective-load-authorization", "effective-load-hpa-controller", "effective-load-upstreams",
    }  # fmt: skip


def test_an_existing_certificate_is_served_and_no_right_to_write_one_is_left() -> None:
    tls = {"source": "Secret", "secret": "mine", "caBundle": PEM}
    objects = kit.rendered({"tls": tls, "settings": {"server": {"externalMetrics": True}}})
    served = parse_settings(one(objects, "ConfigMap", "effective-load-settings")["data"]["settings.yaml"]).server.tls
    assert (served.mode, served.cert_file, served.inject_ca_bundle) == ("Files", f"{kit.SERVING}/tls.crt", False)
    volumes = {one["name"]: one for one in pod(objects)["volumes"]}
    assert volumes["serving"]["secret"]["secretName"] == "mine"
    bundles = [item["spec"]["caBundle"] for item in objects if item["kind"] == "APIService"]
    assert len(bundles) == 3
    assert set(bundles) == {"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="}
    kinds = {item["kind"] for item in objects}
    assert not kinds & {"Secret", "Certificate", "Issuer"}
    rules = [rule for item in objects for rule in item.get("rules", ())]
    assert rules
    assert not [rule for rule in rules if {"secrets", "apiservices"} & {*rule.get("resources", ())}]


BY_THE_CHART = {"server.tls", "companion.namespace", "companion.lease"}
AT_START: dict[str, Any] = {
    "server.address": {"server": {"address": "127.0.0.1"}},
    "server.port": {"server": {"port": 7443}},
    "telemetry": {"telemetry": {"port": 9000}},
    "kubernetes": {"kubernetes": {"watchSilenceSeconds": 120}},
    "upstreams": {"upstreams": {"external": {"url": "https://keda.keda.svc"}}},
    "companion.leaseSeconds": {"companion": {"leaseSeconds": 60}},
}


def test_pods_are_replaced_where_a_setting_changes_that_is_read_at_the_start_and_by_no_other() -> None:
    def template(settings: dict[str, Any]) -> dict[str, Any]:
        return dict(one(kit.rendered({"settings": settings}), "Deployment")["spec"]["template"])

    before = template({})
    assert AT_START.keys() == set(RESTART) - BY_THE_CHART
    same = [key for key, changed in AT_START.items() if template(changed)["metadata"] == before["metadata"]]
    assert same == []
    assert template({"server": {"externalMetrics": True}, "resourceMetrics": {"intervalSeconds": 20}}) == before


def test_ports_of_the_settings_are_those_of_containers_and_network_policies() -> None:
    peers = {"apiServers": {"from": kit.NOBODY, "to": kit.NOBODY}, "enabled": True}
    ports = {"server": {"port": 7443}, "telemetry": {"port": 9090}}
    objects = kit.rendered({"settings": ports, "networkPolicies": peers})
    assert [one["containerPort"] for one in pod(objects)["containers"][0]["ports"]] == [7443, 9090]
    opened = {
        item["metadata"]["name"]: item["spec"].get("ingress") for item in objects if item["kind"] == "NetworkPolicy"
    }
    assert opened["effective-load-from-control-plane"][0]["ports"] == [{"port": 7443}, {"port": 9090}]
    assert opened["effective-load-from-monitoring"][0]["ports"] == [{"port": 9090}]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"image": {"tagg": "1"}}, "at '/image': additional properties 'tagg' not allowed"),
        ({"image": {"repository": "r/e:1.2"}}, "/image/repository"),
        ({"server": {"replicas": 0}}, "at '/server/replicas': minimum: got 0, want 1"),
        ({"server": {"podLabels": {"app.kubernetes.io/component": "x"}}}, "component': value must be 'server'"),
        ({"commonLabels": {"app.kubernetes.io/name": "x"}}, "invalid propertyName 'app.kubernetes.io/name'"),
        ({"tls": {"source": "Secret"}}, "tls.source Secret needs tls.secret, the name of an existing Secret"),
        ({"tls": {"source": "Secret", "secret": "a"}}, "tls.source Secret needs tls.caBundle, the CA as PEM"),
        ({"networkPolicies": {"enabled": True}}, "networkPolicies.apiServers.from is empty: name the API servers'"),
        ({"rbac": {"namespaced": True}}, "settings.kubernetes.namespaces is empty: name the namespaces"),
        ({"settings": {"server": {"prt": 1}}}, "at '/settings/server': additional properties 'prt' not allowed"),
        ({"settings": {"server": {"tls": {}}}}, "additional properties 'tls' not allowed"),
        ({"settings": {"registries": [{"type": "HTTP", "name": "a", "pusch": True}]}}, "'pusch' not allowed"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(given: dict[str, Any], says: str) -> None:
    done = kit.run("template", "release", CHART, values=given)
    assert done.returncode == 1
    assert says in done.stderr


def test_every_value_is_described_and_has_a_schema() -> None:
    described = chart_values.comments()

    def leaves(section: dict[str, Any], prefix: str) -> list[str]:
        found = []
        for key, value in section.items():
            path = f"{prefix}{key}"
            is_leaf = path in chart_values.TYPES or not isinstance(value, dict) or not value
            found += [path] if is_leaf else [path, *leaves(value, f"{path}.")]
        return found

    paths = leaves(chart_values.defaults(), "")
    assert [path for path in paths if path not in described] == []
    assert [path for path in chart_values.TYPES if path not in paths] == []


def test_the_versions_of_chart_package_and_image_are_one() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.+)"', text, re.MULTILINE)
    assert (chart["version"], chart["appVersion"]) == (version, version)
