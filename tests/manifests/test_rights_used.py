"""Every right to read in the manifests is used, by the audit log of a real API server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from lab.harness import objects
from lab.harness.adapter import NAMESPACE, AdapterProcess, account_kubeconfig, install_crds
from lab.harness.companion import CompanionProcess, account_of, companion_kubeconfig, reset_lease
from lab.harness.control_plane import ControlPlane
from lab.harness.workloads import Workloads, cpu_watermarks, until
from tests.kinds import scalable
from tests.manifests.confinement import bound
from tests.manifests.rendering import MANIFESTS, documents, grants, render

pytestmark = pytest.mark.integration

TARGETS = {
    "web": ("apps/v1", "Deployment"),
    "db": ("apps/v1", "StatefulSet"),
    "set": ("apps/v1", "ReplicaSet"),
    "old": ("v1", "ReplicationController"),
    "roll": ("argoproj.io/v1alpha1", "Rollout"),
}


class Right(NamedTuple):
    """A verb on a resource, with its subresource behind a slash."""

    group: str
    resource: str
    verb: str


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, Path]]:
    """An API server with an audit log."""
    folder = tmp_path_factory.mktemp("audit")
    rule = {"level": "Metadata", "omitStages": ["RequestReceived"]}
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [rule]}
    (folder / "policy.yaml").write_text(yaml.safe_dump(policy))
    flags = {"audit-policy-file": str(folder / "policy.yaml"), "audit-log-path": str(folder / "audit.log")}
    with ControlPlane.api_server_only(apiserver_flags=flags) as cluster:
        install_crds(cluster)
        yield cluster, folder / "audit.log"


ROLLOUTS = scalable("argoproj.io", "Rollout", "v1alpha1")


def populate(cluster: ControlPlane) -> None:
    """Creates a target of every scalable kind, each with a policy."""
    client = cluster.client
    client.apply(ROLLOUTS)
    cluster.client.wait_for("/apis/argoproj.io/v1alpha1", timeout=30)
    client.apply(objects.namespace("shop"))
    made = Workloads(cluster, "shop")
    for name, (version, kind) in TARGETS.items():
        pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
        selector: Any = {"app": name} if version == "v1" else {"matchLabels": {"app": name}}
        item = made.item(version, kind, name, {"replicas": 1, "selector": selector, "template": pod})
        client.create(item)
        if kind == "Rollout":
            client.patch_status(client.path(item), {"replicas": 1, "selector": f"app={name}"})
        made.policy(name, [cpu_watermarks("1200m", "400m")])
        made.hpa(name, target=(version, kind, name))
    for item in documents(MANIFESTS / "examples" / "rbac-argo-rollouts.yaml"):
        for subject in item.get("subjects", ()):
            if subject["name"] != "effective-load":
                subject["name"] = account_of(())
        client.apply(item)


def ask(cluster: ControlPlane, adapter: AdapterProcess) -> None:
    """Requests every policy's count, which reads its scale."""
    proxy = cluster.as_aggregator(adapter.port, "bob", "system:authenticated")
    base = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/watermarkpolicies.effective-load.io"
    cluster.client.apply(bound("bob", "effective-load-metrics-reader"))
    until(lambda: proxy.raw(f"{base}/web/effective_pods").status == 200, 30, adapter.logs)
    for name in TARGETS:
        until(lambda: "has not been" not in proxy.raw(f"{base}/{name}/desired_replicas").text, 30, adapter.logs)  # noqa: B023


def granted(account: str, folder: str) -> set[Right]:
    """The rights of an account by the roles of these manifests, without Kubernetes' own roles."""
    objects = [*render(MANIFESTS / folder), *documents(MANIFESTS / "examples" / "rbac-argo-rollouts.yaml")]
    return {
        Right(group, resource, verb)
        for named, _, rule in grants(objects)
        if named == account
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule.get("verbs", ())
    }


def asked(log: Path, account: str) -> tuple[set[Right], set[str]]:
    """The rights that an account's requests used, and the requests that were forbidden."""
    used, forbidden = set[Right](), set[str]()
    for event in map(json.loads, log.read_text().splitlines()):
        if event["user"]["username"] != f"system:serviceaccount:{NAMESPACE}:{account}":
            continue
        if event.get("responseStatus", {}).get("code") == 403:
            forbidden.add(f"{event['verb']} {event['requestURI']}")
        elif ref := event.get("objectRef"):
            resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
            used.add(Right(ref.get("apiGroup", ""), resource, event["verb"]))
    return used, forbidden


def test_server_and_companion_use_every_right_that_they_have_and_want_for_none(
    audited: tuple[ControlPlane, Path],
) -> None:
    cluster, log = audited
    server_rights = account_kubeconfig(cluster)
    companion_rights = companion_kubeconfig(cluster, ())
    reset_lease(cluster)
    populate(cluster)
    features = dict.fromkeys(("status", "events"), False)
    server = AdapterProcess(cluster, kubeconfig=server_rights, name="audited-server")
    companion = CompanionProcess(
        cluster, {"companion": {"features": features}}, kubeconfig=companion_rights, name="audited-companion"
    )
    with server, companion:
        ask(cluster, server)
        companion.wait_leading()
    # Without metrics-server its API is not found, but the API server authorizes the request before.
    for account, as_user, folder in (
        ("effective-load", "effective-load", "base"),
        ("effective-load-companion", account_of(()), "overlays/default"),
    ):
        used, forbidden = asked(log, as_user)
        writes = {"create", "patch"} if folder != "base" else set()
        assert {one for one in granted(account, folder) - used if one.verb not in writes} == set()
        assert forbidden == set()
