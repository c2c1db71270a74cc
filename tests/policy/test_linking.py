"""policy → HPA → target → pods: what the server, `check` and `decide` have in common."""

from dataclasses import replace

import pytest

from adapter.kube.selectors import parse_selector
from adapter.load.pods import Owner
from adapter.load.spec import Target
from adapter.policy.hpa import CrossVersionReference
from adapter.policy.linking import (
    MAX_SELECTOR_REQUIREMENTS,
    Links,
    Neighbours,
    owned_by,
    selector_fault,
    target_pods,
)
from tests.evaluation.kit import hpa
from tests.load.kit import TARGET, pod, policy

WEB = Target(api_version="apps/v1", kind="Deployment", name="web")


def links(**policies: str) -> Links:
    """Policies by name, each with the HPA that it names."""
    made = Links()
    for name, named in policies.items():
        made.put_policy(name, policy(name=name, hpa=named))
    return made


class TestLinks:
    @pytest.mark.parametrize(
        ("version", "kind", "name", "same"),
        [
            ("apps/v1", "Deployment", "web", True),
            ("apps/v1beta2", "deployment", "web", True),
            ("extensions/v1beta1", "Deployment", "web", False),
            ("v1", "Deployment", "web", False),
            ("apps/v1", "StatefulSet", "web", False),
            ("apps/v1", "Deployment", "api", False),
        ],
    )
    def test_group_kind_and_name_identify_a_target(self, version: str, kind: str, name: str, *, same: bool) -> None:
        made = links(web="web", other="other")
        made.put_hpa("web", hpa())
        made.put_hpa("other", replace(hpa("other"), target=CrossVersionReference(version, kind, name)))
        expected = Neighbours(hpas="other", policies="other") if same else Neighbours()
        assert made.neighbours("web") == expected

    @pytest.mark.parametrize("version", ["apps/..", "apps/", "apps/v1 "])
    def test_a_policy_whose_reference_is_faulty_is_no_rival_though_its_hpa_scales_the_target(
        self, version: str
    ) -> None:
        made = links(web="web", odd="odd", third="web")
        made.put_hpa("web", hpa())
        made.put_hpa("odd", replace(hpa("odd"), target=CrossVersionReference(version, "Deployment", "web")))
        made.put_policy("later", policy(name="later", hpa="odd"))
        assert made.neighbours("web") == Neighbours(hpas="odd", policies="third")
        assert made.neighbours("odd") == Neighbours(hpas="web", policies="later")

    def test_of_many_neighbours_the_first_are_named_and_the_others_counted(self) -> None:
        made = links(**{f"p{number}": "web" for number in range(8)})
        made.put_hpa("web", hpa())
        assert made.neighbours("p0") == Neighbours(policies="p1, p2, p3, p4, p5 and 2 more")

    def test_policies_and_hpas_of_one_target_are_neighbours_until_they_are_removed(self) -> None:
        made = links(web="web", other="web", spare="spare", distant="distant")
        for name, target in (("web", "web"), ("spare", "web"), ("distant", "distant")):
            made.put_hpa(name, hpa(name, target))
        assert made.neighbours("web") == Neighbours(hpas="spare", policies="other, spare")
        assert made.neighbours("distant") == Neighbours()
        for name in ("other", "spare"):
            made.put_policy(name, None)
        assert made.neighbours("web") == Neighbours(hpas="spare")
        made.put_hpa("spare", None)
        assert made.neighbours("web") == Neighbours()
        for name in ("web", "distant"):
            made.put_hpa(name, None)
            made.put_policy(name, None)
        assert not made


class TestTargetPods:
    def test_custom_target_that_controls_pods_has_only_those(self) -> None:
        clone_set = Target(api_version="apps.kruise.io/v1alpha1", kind="CloneSet", name="web", uid="u1")
        own = pod("own", labels={"app": "web"}, owner=Owner("CloneSet", "web", "u1"))
        owners = Owner("ReplicaSet", "api-abc"), Owner("StatefulSet", "web"), Owner("CloneSet", "web", "u0")
        foreign = [replace(own, name=f"foreign{number}", owner=owner) for number, owner in enumerate(owners)]
        job, selects = replace(own, name="job", owner=Owner("Job", "web")), parse_selector("app=web").matches
        assert list(target_pods([*foreign, job, own], selects, clone_set)) == [own]
        assert list(target_pods([*foreign, job], selects, clone_set)) == foreign[:2]

    def test_of_partial_pods_only_what_they_state_excludes_them(self) -> None:
        bare = pod("bare", labels={}, owner=None)
        other = replace(bare, name="other", labels={"app": "api"})
        assert list(target_pods((bare, other), parse_selector("app=web").matches, WEB)) == []
        assert list(target_pods((bare, other), parse_selector("app=web").matches, WEB, partial=True)) == [bare]

    def test_a_selector_must_identify_pods_and_be_cheap_to_test(self) -> None:
        most = ",".join(f"k{number}" for number in range(MAX_SELECTOR_REQUIREMENTS))
        assert "has no selector" in selector_fault(parse_selector("").requirements)
        assert selector_fault(parse_selector(most).requirements) == ""
        more = parse_selector(f"{most},one-more").requirements
        assert f"{MAX_SELECTOR_REQUIREMENTS + 1} requirements" in selector_fault(more)


# --- which pods are the target's


def target(kind: str, name: str = "web", uid: str = "target", api_version: str = "apps/v1") -> Target:
    return Target(api_version=api_version, kind=kind, name=name, uid=uid)


ROLLOUT = target("Rollout", api_version="argoproj.io/v1alpha1")
CUSTOM = target("Worker", api_version="example.com/v1")
SET = target("StatefulSet")
OWNERS = ("StatefulSet", "ReplicaSet", "ReplicationController")


OWNED = {
    "its replica set of the pod's template": (Owner("ReplicaSet", "web-abc"), "abc", TARGET, True),
    "that of a reference in other letters": (Owner("ReplicaSet", "web-abc"), "abc", target("deployment"), True),
    "a stateful set in other letters": (Owner("StatefulSet", "web"), "", target("STATEFULSET"), True),
    "another one in other letters": (Owner("StatefulSet", "web-canary"), "", target("statefulset"), False),
    "that of an Argo rollout": (Owner("ReplicaSet", "web-abc"), "abc", ROLLOUT, True),
    "that of web-canary, same labels": (Owner("ReplicaSet", "web-canary-abc"), "abc", TARGET, False),
    "another template": (Owner("ReplicaSet", "web-abc"), "xyz", TARGET, False),
    "no template": (Owner("ReplicaSet", "web-abc"), "", TARGET, False),
    "a stateful set of the deployment's name": (Owner("StatefulSet", "web"), "", TARGET, False),
    "a job": (Owner("Job", "web-abc"), "abc", TARGET, False),
    "no owner": (None, "abc", TARGET, False),
    "a replica set like the stateful set's own": (Owner("ReplicaSet", "web-abc"), "abc", SET, False),
    "a namesake of another life": (Owner("StatefulSet", "web", "earlier"), "", SET, False),
    "its UID is not known": (Owner("StatefulSet", "web", "earlier"), "", target("StatefulSet", uid=""), True),
    "an unknown kind: the selector alone": (None, "abc", CUSTOM, True),
    "a job beside an unknown kind": (Owner("Job", "web"), "", CUSTOM, False),
    "a daemon set beside an unknown kind": (Owner("DaemonSet", "web"), "", CUSTOM, False),
    "an unknown kind's own controller": (Owner("WorkerSet", "web-1"), "", CUSTOM, True),
    "an unknown kind by a deployment of its own": (Owner("ReplicaSet", "web-main-abc"), "abc", CUSTOM, True),
    **{f"the {kind} itself": (Owner(kind, "web", "target"), "", target(kind), True) for kind in OWNERS},
    **{f"another {kind}": (Owner(kind, "other", "target"), "", target(kind), False) for kind in OWNERS},
    **{f"no {kind}": (None, "", target(kind), False) for kind in OWNERS},
}


@pytest.mark.parametrize(("owner", "template_hash", "by", "owned"), OWNED.values(), ids=OWNED.keys())
def test_a_target_owns_the_pods_that_it_controls(
    owner: Owner | None, template_hash: str, by: Target, *, owned: bool
) -> None:
    assert owned_by(pod(owner=owner, template_hash=template_hash), by) is owned
