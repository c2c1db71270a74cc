"""The component `upstreams`: the account that the adapters behind this one are asked with."""

from pathlib import Path

import pytest
import yaml

from tests.manifests.rendering import MANIFESTS, Object, render

COMPONENT = MANIFESTS / "components" / "upstreams"
NAME = "effective-load-upstreams"
Objects = dict[tuple[str, str], Object]


@pytest.fixture
def rendered(tmp_path: Path) -> Objects:
    parts = {"resources": [str(MANIFESTS / "base")], "components": [str(COMPONENT)]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(parts))
    return {(one["kind"], one["metadata"]["name"]): one for one in render(tmp_path)}


def test_the_token_of_its_account_is_where_the_documents_say(rendered: Objects) -> None:
    secret = rendered["Secret", NAME]
    assert secret["type"] == "kubernetes.io/service-account-token"
    assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": NAME}
    pod = rendered["Deployment", "effective-load"]["spec"]["template"]["spec"]
    [volume] = [one for one in pod["volumes"] if one.get("secret", {}).get("secretName") == NAME]
    assert volume["secret"]["optional"] is True  # without the component there is none
    [mount] = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == volume["name"]]
    assert mount["readOnly"] is True
    documented = (MANIFESTS.parent / "docs" / "upstreams.md").read_text(encoding="utf-8")
    assert f"bearerTokenFile: {mount['mountPath']}/token" in documented


def test_its_account_may_read_metrics_and_nothing_else(rendered: Objects) -> None:
    groups = ["custom.metrics.k8s.io", "external.metrics.k8s.io"]
    assert rendered["ClusterRole", NAME]["rules"] == [
        {"apiGroups": groups, "resources": ["*"], "verbs": ["get", "list"]}
    ]
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": "effective-load"}
    bindings = [one for one in rendered.values() if subject in one.get("subjects", ())]
    assert [one["roleRef"]["name"] for one in bindings] == [NAME]
    assert rendered["ServiceAccount", NAME]["automountServiceAccountToken"] is False
