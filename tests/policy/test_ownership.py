"""Which pods are the target's."""

import pytest

from adapter.load.pods import Owner
from adapter.load.spec import Target
from adapter.policy.linking import owned_by
from tests.load.kit import TARGET, pod


def target(kind: str, name: str = "web", uid: str = "target", api_version: str = "apps/v1") -> Target:
    return Target(api_version=api_version, kind=kind, name=name, uid=uid)


ROLLOUT = target("Rollout", api_version="argoproj.io/v1alpha1")
CUSTOM = target("Worker", api_version="example.com/v1")
SET = target("StatefulSet")


@pytest.mark.parametrize(
    ("owner", "template_hash", "by", "owned"),
    [
        pytest.param(Owner("ReplicaSet", "web-abc"), "abc", TARGET, True, id="its replica set of the pod's template"),
        pytest.param(Owner("ReplicaSet", "web-abc"), "abc", ROLLOUT, True, id="that of an Argo rollout"),
        pytest.param(Owner("ReplicaSet", "web-canary-abc"), "abc", TARGET, False, id="that of web-canary, same labels"),
        pytest.param(Owner("ReplicaSet", "web-abc"), "xyz", TARGET, False, id="another template"),
        pytest.param(Owner("ReplicaSet", "web-abc"), "", TARGET, False, id="no template"),
        pytest.param(Owner("ReplicaSet", "other-abc"), "abc", TARGET, False, id="another deployment's"),
        pytest.param(Owner("StatefulSet", "web"), "", TARGET, False, id="a stateful set of the deployment's name"),
        pytest.param(Owner("Job", "web-abc"), "abc", TARGET, False, id="a job"),
        pytest.param(None, "abc", TARGET, False, id="no owner"),
        pytest.param(Owner("ReplicaSet", "web-abc"), "abc", SET, False, id="a replica set like the stateful set's own"),
        pytest.param(Owner("StatefulSet", "web", "earlier"), "", SET, False, id="a namesake of another life"),
        pytest.param(
            Owner("StatefulSet", "web", "earlier"), "", target("StatefulSet", uid=""), True, id="its UID is not known"
        ),
        pytest.param(None, "abc", CUSTOM, True, id="an unknown kind: the selector alone"),
        pytest.param(Owner("Job", "web"), "", CUSTOM, False, id="a job beside an unknown kind"),
        pytest.param(Owner("DaemonSet", "web"), "", CUSTOM, False, id="a daemon set beside an unknown kind"),
        pytest.param(Owner("WorkerSet", "web-1"), "", CUSTOM, True, id="an unknown kind's own controller"),
        pytest.param(
            Owner("ReplicaSet", "web-main-abc"), "abc", CUSTOM, True, id="an unknown kind by a deployment of its own"
        ),
        *(
            row
            for kind in ("StatefulSet", "ReplicaSet", "ReplicationController")
            for row in (
                pytest.param(Owner(kind, "web", "target"), "", target(kind), True, id=f"the {kind} itself"),
                pytest.param(Owner(kind, "other", "target"), "", target(kind), False, id=f"another {kind}"),
                pytest.param(None, "", target(kind), False, id=f"no {kind}"),
            )
        ),
    ],
)
def test_a_target_owns_the_pods_that_it_controls(
    owner: Owner | None, template_hash: str, by: Target, *, owned: bool
) -> None:
    assert owned_by(pod(owner=owner, template_hash=template_hash), by) is owned
