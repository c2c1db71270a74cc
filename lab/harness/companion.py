"""The companion as a subprocess against a control plane, with the rights that the manifests give it."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.harness import objects
from lab.harness.adapter import NAMESPACE, ProgramProcess, manifests
from lab.harness.control_plane import ControlPlane
from lab.harness.processes import free_ports
from lab.harness.workloads import until

ACCOUNT = "effective-load-companion"
DEFAULT_RIGHTS = ("events", "status")
"""The features whose rights the overlay manifests/overlays/default grants."""
LEASE_PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/effective-load-companion"
_COMMON = ("ClusterRole", "Lease", "Role")
_CONFINING = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
_OWN = (*_CONFINING, "ServiceAccount", "ClusterRoleBinding", "RoleBinding")


def account_of(features: Iterable[str]) -> str:
    """The name of the account that has exactly the rights for these features."""
    return "-".join((ACCOUNT, "with", *(sorted(features) or ["nothing"])))


def companion_kubeconfig(cluster: ControlPlane, features: Iterable[str] = DEFAULT_RIGHTS) -> Path:
    """A kubeconfig with the rights of the component companion and of companion-<feature> for these, and no other.

    Each set of features has its own account, so that tests do not lend each other rights. The admission policies of
    these features confine that account, as they confine the account of the manifests.
    """
    wanted = sorted(features)
    suffix = account_of(wanted).removeprefix(f"{ACCOUNT}-")
    cluster.client.apply(objects.namespace(NAMESPACE))
    parts = ["components/companion", *(f"components/companion-{one}" for one in wanted)]
    for item in sorted(_rights(parts), key=lambda one: (*_COMMON, *_OWN).index(one["kind"])):
        cluster.client.apply(_own(item, suffix) if item["kind"] in _OWN else item)
    account = account_of(wanted)
    return cluster.kubeconfig_with_token(cluster.token(NAMESPACE, account), f"kubeconfig-{account}")


def _rights(parts: Iterable[str]) -> Iterator[dict[str, Any]]:
    yield from manifests("ClusterRole", folders=["base"])  # the companion reads with the server's role
    yield from manifests(*_COMMON, *_OWN, folders=parts)


def _own(item: dict[str, Any], suffix: str) -> dict[str, Any]:
    """The account, binding or admission policy under its own name, for the account with that suffix."""
    item["metadata"]["name"] += f"-{suffix}"
    if item["kind"] == "ValidatingAdmissionPolicyBinding":
        item["spec"]["policyName"] += f"-{suffix}"
        item["spec"]["paramRef"]["name"] += f"-{suffix}"
    for subject in item.get("subjects", ()):
        assert subject["name"] == ACCOUNT, f"{item['metadata']['name']} binds {subject['name']}"
        subject["name"] += f"-{suffix}"
    return item


def reset_lease(cluster: ControlPlane) -> None:
    """Resets the Lease to its state in the manifests: without a holder."""
    cluster.client.delete(LEASE_PATH)
    cluster.client.apply(objects.namespace(NAMESPACE))
    for lease in manifests("Lease", folders=["components/companion"]):
        cluster.client.apply(lease)


class CompanionProcess(ProgramProcess):
    """One companion process: its settings file and its life cycle.

    with CompanionProcess(cluster, {"companion": {"features": {"fastScaleUp": True}}}, kubeconfig=rights) as companion:
        companion.wait_leading()
        companion.kill()
        companion.restart()
    """

    def __init__(
        self,
        cluster: ControlPlane,
        settings: Mapping[str, Any] | None = None,
        *,
        kubeconfig: Path | None = None,
        name: str = "companion",
        env: Mapping[str, str] | None = None,
        command: tuple[str, ...] = ("-m", "adapter.cli", "companion"),
    ) -> None:
        """`kubeconfig` defaults to the admin's; `companion_kubeconfig` makes one with the manifests' rights."""
        (self.metrics_port,) = free_ports(1)
        self.defaults = {}
        super().__init__(cluster, name, command, "/healthz", settings, kubeconfig, env)

    def start(self, timeout: float = 60) -> None:
        """Starts the process and waits until it answers; it may not lead yet."""
        self.component.start()
        self.component.wait_ready(timeout)

    def restart(self, timeout: float = 60) -> None:
        """Stops the process, which releases the Lease, and starts again with the current settings."""
        self.stop()
        self.start(timeout)

    @property
    def leads(self) -> bool:
        return self.metric("effective_load_companion_leader") == 1

    def wait_leading(self, timeout: float = 60) -> None:
        """Waits until it leads."""
        until(lambda: self.leads, timeout, lambda: f"{self.name} does not lead{self.logs()}")

    def writes(self, action: str, result: str = "done") -> float:
        """The number of actions of a class (of adapter/companion/state.py) with this result."""
        return self.metric(f'effective_load_companion_writes_total{{action="{action}",result="{result}"}}') or 0.0
