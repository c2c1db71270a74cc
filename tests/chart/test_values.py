"""What the chart's values do, and that wrong ones are refused with a sentence that names them."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from adapter.settings import Settings, parse_settings
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


def settings(objects: list[Object]) -> Settings:
    return parse_settings(one(objects, "ConfigMap", "effective-load-settings")["data"]["settings.yaml"])


def refused(given: dict[str, Any]) -> str:
    done = kit.run("template", "release", CHART, values=given)
    assert done.returncode == 1
    assert "nil pointer" not in done.stderr
    return done.stderr


def test_helm_lint_finds_nothing_with_the_defaults_and_with_everything() -> None:
    for given in ({}, kit.values_of(frozenset(kit.SWITCHES))):
        done = kit.run("lint", "--strict", CHART, values=given)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "effective-load:0.1.0"),
        (
            {"repository": "registry.example.com/a/effective-load", "tag": "2"},
            "registry.example.com/a/effective-load:2",
        ),
        ({"repository": "r/e", "tag": "2", "digest": DIGEST}, f"r/e@{DIGEST}"),
        ({"repository": "registry.local:5000/a/e", "tag": "2"}, "registry.local:5000/a/e:2"),
    ],
)
def test_an_image_is_named_by_tag_or_by_digest_for_both(image: dict[str, Any], expected: str) -> None:
    objects = kit.rendered({"image": image})
    for name in ("effective-load", "effective-load-companion"):
        assert pod(objects, name)["containers"][0]["image"] == expected


def test_values_of_a_workload_reach_its_pods_and_no_other() -> None:
    own = {
        "replicas": 3,
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
        "priorityClassName": "",
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "podLabels": {"team": "a"},
        "podAnnotations": {"note": "b"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "company-ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/company-ca"}],
        "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
        "hostNetwork": True,
    }
    default, changed = kit.rendered(), kit.rendered({"server": own, "image": {"pullSecrets": ["a", "b"]}})
    server = one(changed, "Deployment")["spec"]
    spec = server["template"]["spec"]
    assert server["replicas"] == 3
    assert spec["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "192Mi"}
    assert "priorityClassName" not in spec
    assert spec["nodeSelector"] == {"pool": "system", "kubernetes.io/os": "linux"}
    assert (spec["tolerations"], spec["affinity"]) == (own["tolerations"], own["affinity"])
    assert server["template"]["metadata"]["labels"] == {
        **one(default, "Deployment")["spec"]["template"]["metadata"]["labels"],
        "team": "a",
    }
    assert server["template"]["metadata"]["annotations"]["note"] == "b"
    container = spec["containers"][0]
    assert [*own["extraEnv"], *own["extraVolumeMounts"], *own["extraVolumes"]] == [
        container["env"][-1], container["volumeMounts"][-1], spec["volumes"][-1],
    ]  # fmt: skip
    assert (spec["dnsConfig"], spec["hostNetwork"]) == (own["dnsConfig"], True)
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert spec["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    theirs = [one(objects, "Deployment", "effective-load-companion") for objects in (default, changed)]
    for companion in theirs:
        companion["spec"]["template"]["spec"].pop("imagePullSecrets", None)
    assert theirs[0] == theirs[1]


def test_common_labels_and_annotations_are_on_every_object_beside_its_own() -> None:
    given = merged(
        kit.values_of(frozenset(kit.SWITCHES)), {"commonLabels": {"team": "a"}, "commonAnnotations": {"b": "c"}}
    )
    objects = kit.rendered(given)
    assert len(objects) > 50
    for item in objects:
        metadata = item["metadata"]
        assert (metadata["labels"]["team"], metadata["annotations"]["b"]) == ("a", "c"), metadata["name"]
        assert metadata["labels"]["app.kubernetes.io/part-of"] == "effective-load"
    plain = kit.by_name(kit.rendered(kit.values_of(frozenset(kit.SWITCHES))))
    for key, item in kit.by_name(objects).items():
        for kept in ("labels", "annotations"):
            own = plain[key]["metadata"].get(kept, {})
            assert own.items() <= item["metadata"][kept].items()
    for name in ("effective-load", "effective-load-companion"):
        spec = one(objects, "Deployment", name)["spec"]
        assert spec["template"]["metadata"]["labels"]["team"] == "a"
        assert "team" not in spec["selector"]["matchLabels"]
    said = refused({"commonLabels": {"app.kubernetes.io/name": "mine"}})
    assert "invalid propertyName 'app.kubernetes.io/name'" in said


def test_budgets_accounts_and_the_interval_of_scrapes_are_values() -> None:
    given = {
        name: {
            "podDisruptionBudget": {"maxUnavailable": "50%"},
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": f"arn:{name}"}},
        }
        for name in ("server", "companion")
    }
    objects = kit.rendered({**given, "monitoring": {"enabled": True, "interval": "15s"}})
    for name, component in (("effective-load", "server"), ("effective-load-companion", "companion")):
        assert one(objects, "PodDisruptionBudget", name)["spec"]["maxUnavailable"] == "50%"
        annotations = one(objects, "ServiceAccount", name)["metadata"]["annotations"]
        assert annotations == {"eks.amazonaws.com/role-arn": f"arn:{component}"}
    (endpoint,) = one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["interval"] == "15s"
    without = {name: {"podDisruptionBudget": {"enabled": False}} for name in ("server", "companion")}
    assert not [item for item in kit.rendered(without) if item["kind"] == "PodDisruptionBudget"]


def test_without_its_rights_nothing_else_is_missing() -> None:
    everything = kit.values_of(frozenset(kit.SWITCHES))
    whole, bare = (kit.by_name(kit.rendered(merged(everything, {"rbac": {"create": on}}))) for on in (True, False))
    missing = {kind for kind, *_ in whole.keys() - bare.keys()}
    assert missing == {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} - {kind for kind, *_ in bare}
    assert len(missing) == 4


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
        "effective-load-companion-deletion-cost", "effective-load-companion-hpa-wiring",
    }  # fmt: skip
    assert bound == {(name, namespace) for name in names for namespace in ("shop", "pay")}
    in_the_cluster = {item["metadata"]["name"] for item in objects if item["kind"] == "ClusterRoleBinding"}
    assert in_the_cluster == {
        "effective-load-authorization", "effective-load-hpa-controller", "effective-load-companion-namespaces",
        "effective-load-upstreams",
    }  # fmt: skip
    said = refused({"rbac": {"namespaced": True}})
    assert "settings.kubernetes.namespaces is empty: name the namespaces that are watched" in said


def test_no_user_is_fixed_where_the_platform_gives_one() -> None:
    nobody = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))
    objects = kit.rendered({"podSecurityContext": nobody})
    for name in ("effective-load", "effective-load-companion"):
        context = pod(objects, name)["securityContext"]
        assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_labels_that_select_the_pods_cannot_be_taken_over() -> None:
    said = refused({"server": {"podLabels": {"app.kubernetes.io/component": "companion"}}})
    assert "at '/server/podLabels/app.kubernetes.io~1component': value must be 'server'" in said


def test_existing_secrets_are_mounted_under_the_names_that_the_settings_know() -> None:
    objects = kit.rendered({"secrets": {"registries": "mine", "notifications": "theirs"}})
    for name, expected in (
        ("effective-load", ["mine", "effective-load-upstreams"]),
        ("effective-load-companion", ["mine", "theirs"]),
    ):
        mounted = [one["secret"] for one in pod(objects, name)["volumes"] if "secret" in one]
        assert [one["secretName"] for one in mounted] == expected
        assert all(one["optional"] for one in mounted)


def test_an_existing_certificate_is_served_and_no_right_to_write_one_is_left() -> None:
    tls = {"source": "Secret", "secret": "mine", "caBundle": PEM}
    objects = kit.rendered({"tls": tls, "settings": {"server": {"externalMetrics": True}}})
    served = settings(objects).server.tls
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


def test_an_issuer_of_the_cluster_signs_instead_of_a_ca_of_its_own() -> None:
    issuer = {"kind": "ClusterIssuer", "name": "internal"}
    objects = kit.rendered({"tls": {"source": "CertManager", "issuerRef": issuer}})
    made = [item for item in objects if item["apiVersion"].startswith("cert-manager.io/")]
    assert [(item["kind"], item["spec"]["issuerRef"]) for item in made] == [("Certificate", issuer)]


def test_settings_are_merged_over_the_charts_and_lists_are_replaced() -> None:
    server = {"name": "main", "url": "http://prometheus.monitoring:9090"}
    given = {"prometheus": {"servers": [server]}, "companion": {"writesPerSecond": 40}, "logging": {"level": "debug"}}
    read = settings(kit.rendered({"settings": given}))
    assert [one.url for one in read.prometheus.servers] == [server["url"]]
    assert (read.companion.writes_per_second, read.companion.features.status) == (40, True)
    assert (read.logging.level, read.logging.format) == ("debug", "json")


def test_without_values_the_settings_are_the_adapters_defaults() -> None:
    assert settings(kit.rendered()) == parse_settings("")


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


def test_rules_for_sources_and_notifications_become_policies() -> None:
    rules = [{"to": [{"namespaceSelector": {}}], "ports": [{"port": 9090}]}]
    peers = {"enabled": True, "apiServers": {"from": kit.NOBODY, "to": kit.NOBODY}}
    objects = kit.rendered({"networkPolicies": {**peers, "sources": rules, "notifications": rules}})
    for name in ("effective-load-to-sources", "effective-load-to-notifications"):
        assert one(objects, "NetworkPolicy", name)["spec"]["egress"] == rules


def test_the_definition_is_kept_when_the_release_goes_unless_that_is_switched_off() -> None:
    name = "watermarkpolicies.effective-load.io"
    kept, not_kept = (
        one(kit.rendered({"crds": {"keep": keep}}), "CustomResourceDefinition", name) for keep in (True, False)
    )
    assert kept["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "annotations" not in not_kept["metadata"]


def test_what_others_select_by_label_gets_theirs_and_runbooks_are_where_they_are_said_to_be() -> None:
    given: dict[str, Any] = {
        name: {"enabled": True, "labels": {"of": name}} for name in ("monitoring", "alerts", "dashboards")
    }
    given["alerts"]["runbooks"] = "https://wiki.example.com/load"
    given["dashboards"]["annotations"] = {"grafana_folder": "Scaling"}
    objects = kit.rendered(given)
    labelled = {
        (item["kind"], item["metadata"]["labels"]["of"]) for item in objects if "of" in item["metadata"]["labels"]
    }
    assert labelled == {("PodMonitor", "monitoring"), ("PrometheusRule", "alerts"), ("ConfigMap", "dashboards")}
    folders = [
        item["metadata"].get("annotations") for item in objects if item["metadata"]["labels"].get("of") == "dashboards"
    ]
    assert folders == [given["dashboards"]["annotations"]] * 2
    groups = one(objects, "PrometheusRule")["spec"]["groups"]
    for rule in (rule for group in groups for rule in group["rules"] if "alert" in rule):
        assert rule["annotations"]["runbook_url"] == f"https://wiki.example.com/load/{rule['alert']}/"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"image": {"tagg": "1"}}, "at '/image': additional properties 'tagg' not allowed"),
        ({"imagee": {}}, "additional properties 'imagee' not allowed"),
        ({"image": {"repository": "r/e:1.2"}}, "/image/repository"),
        ({"image": {"repository": f"r/e@{DIGEST}"}}, "/image/repository"),
        ({"image": {"digest": "sha256:1"}}, "at '/image/digest': 'sha256:1' does not match pattern"),
        ({"server": {"replicas": 0}}, "at '/server/replicas': minimum: got 0, want 1"),
        ({"server": None}, "missing property 'server'"),
        ({"tls": {"source": "Let's Encrypt"}}, "value must be one of 'SelfSigned', 'CertManager', 'Secret'"),
        ({"tls": {"source": "Secret"}}, "tls.source Secret needs tls.secret, the name of an existing Secret"),
        ({"tls": {"source": "Secret", "secret": "a"}}, "tls.source Secret needs tls.caBundle, the CA as PEM"),
        ({"tls": {"issuerRef": {"name": "a"}}}, "at '/tls/issuerRef': missing property 'kind'"),
        ({"networkPolicies": {"enabled": True}}, "networkPolicies.apiServers.from is empty: name the API servers'"),
        ({"settings": {"server": {"prt": 1}}}, "at '/settings/server': additional properties 'prt' not allowed"),
        ({"settings": {"server": {"port": 0}}}, "at '/settings/server/port': minimum: got 0, want 1"),
        ({"settings": {"server": {"tls": {}}}}, "additional properties 'tls' not allowed"),
        ({"settings": {"companion": {"lease": "a"}}}, "additional properties 'lease' not allowed"),
        ({"settings": {"companion": None}}, "at '/settings': missing property 'companion'"),
        ({"settings": {"registries": [{"type": "Foo"}]}}, "at '/settings/registries/0/type': value must be one of"),
        ({"settings": {"registries": [{"type": "HTTP", "name": "a", "pusch": True}]}}, "'pusch' not allowed"),
        ({"settings": {"prometheus": {"queries": [{"name": "a"}]}}}, "missing properties 'server', 'query'"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path(given: dict[str, Any], says: str) -> None:
    assert says in refused(given)


# --- what is made from values.yaml ---


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


def test_the_schema_takes_the_defaults_and_describes_every_setting() -> None:
    schema = json.loads(chart_values.schema())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.Draft7Validator(schema).validate(chart_values.defaults())
    for name, section in schema["$defs"].items():
        if section.get("type") == "object":
            assert section["additionalProperties"] is False, name
            assert [key for key, one in section["properties"].items() if "description" not in one] in ([], ["type"]), (
                name
            )


def test_the_versions_of_chart_package_and_image_are_one() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    (version,) = re.findall(r'^version = "(.+)"', text, re.MULTILINE)
    assert (chart["version"], chart["appVersion"]) == (version, version)


@pytest.mark.parametrize(
    ("prometheus", "says"),
    [
        ({"servers": [{"name": "main", "url": "ftp://here"}]}, "prometheus.servers[0].url: 'ftp://here'"),
        ({"queries": [{"name": "a", "server": "nobody", "query": "up"}]}, "'nobody': is not among prometheus.servers"),
        ({}, ""),
    ],
    ids=["a scheme", "an unknown server", "nothing"],
)
def test_what_no_schema_tells_check_says_of_what_helm_renders(prometheus: dict[str, Any], says: str) -> None:
    rendered = kit.run("template", "release", CHART, values={"settings": {"prometheus": prometheus}})
    command = (sys.executable, "-m", "adapter.cli", "check", "--manifests", "-")
    done = subprocess.run(command, input=rendered.stdout, capture_output=True, text=True, check=False)
    assert (done.returncode, says in done.stdout) == (1 if says else 0, True)
