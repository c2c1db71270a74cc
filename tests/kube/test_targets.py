"""The scale that a target's own object tells, for built-in kinds and for custom resources with unusual paths."""

from typing import Any

import msgspec
import pytest

from adapter.kube.objects import AnyObject
from adapter.kube.scale import BUILT_IN, ScalePaths, target_decoder, watched_scale
from adapter.load.spec import Scale, Target

ROLLOUT = ScalePaths(".spec.replicas", ".status.HPAReplicas", ".status.selector")
ODD = ScalePaths(".spec.size.wanted", ".status.size.seen", ".status.labelSelector")


def thing(**parts: Any) -> AnyObject:
    return msgspec.json.decode(msgspec.json.encode(parts), type=AnyObject)


IN_TIERS = {"key": "tier", "operator": "In", "values": ["y", "x"]}
HAS_APP = {"key": "app", "operator": "Exists"}


@pytest.mark.parametrize(
    ("spec", "status", "paths", "scale"),
    [
        (
            {"replicas": 5, "selector": {"matchLabels": {"b": "2", "a": "1"}}},
            {"replicas": 4},
            BUILT_IN,
            (5, 4, "a=1,b=2"),
        ),
        (
            {"replicas": 0, "selector": {"matchLabels": {"a": "1"}, "matchExpressions": [IN_TIERS]}},
            None,
            BUILT_IN,
            (0, 0, "a=1,tier in (x,y)"),
        ),
        # A built-in's replicas default to 1, and a ReplicationController's selector is a plain map.
        ({"selector": {"app": "web"}}, None, BUILT_IN, (1, 0, "app=web")),
        ({"selector": {"matchExpressions": [HAS_APP]}}, None, BUILT_IN, (1, 0, "app")),
        (
            {"replicas": 5},
            {"HPAReplicas": 6, "selector": "tier in (b,a),app=web"},
            ROLLOUT,
            (5, 6, "app=web,tier in (a,b)"),
        ),
        ({"size": {"wanted": 2}}, {"size": {"seen": 1}, "labelSelector": "app=web"}, ODD, (2, 1, "app=web")),
        # A custom resource that its controller has not seen yet: the API server answers 0 and no selector.
        ({"replicas": 2}, None, ROLLOUT, (2, 0, "")),
        ({"replicas": 2}, {"selector": "a=b"}, ScalePaths(".spec.replicas", ".status.replicas"), (2, 0, "")),
        # A text that is no selector is passed on; who reads it says so.
        ({"replicas": 2}, {"selector": "not a selector"}, ROLLOUT, (2, 0, "not a selector")),
    ],
)
def test_the_scale_is_what_the_scale_subresource_would_answer(
    spec: Any, status: Any, paths: ScalePaths, scale: tuple[int, int, str]
) -> None:
    found = watched_scale(thing(spec=spec) if status is None else thing(spec=spec, status=status), paths)
    assert found is not None
    assert (found.replicas, found.status_replicas, found.selector) == scale


@pytest.mark.parametrize(
    ("parts", "paths"),
    [
        ({"spec": {"replicas": 2}}, None),
        ({"spec": {}}, ROLLOUT),
        ({}, ROLLOUT),
        ({"spec": {"replicas": "two"}}, ROLLOUT),
        ({"spec": {"replicas": True}}, ROLLOUT),
        ({"spec": {"replicas": -1}}, ROLLOUT),
        ({"spec": {"size": 5}}, ODD),
        ({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}}, BUILT_IN),
        ({"spec": {"selector": {"matchExpressions": ["a"]}}}, BUILT_IN),
        ({"spec": {"selector": {"matchExpressions": [{"operator": "In"}]}}}, BUILT_IN),
    ],
)
def test_where_the_object_does_not_tell_there_is_no_scale(parts: dict[str, Any], paths: ScalePaths | None) -> None:
    assert watched_scale(thing(**parts), paths) is None


def decode(kind: str, parts: dict[str, Any], paths: ScalePaths | None = BUILT_IN) -> Any:
    return target_decoder("apps/v1", kind, paths)(msgspec.json.encode(parts))


def test_a_target_is_named_by_the_kind_that_was_asked_for() -> None:
    """Items of a list carry neither kind nor apiVersion."""
    found = decode(
        "Deployment",
        {
            "metadata": {"name": "web", "namespace": "shop", "uid": "d-1", "labels": {"team": "x"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}},
            "status": {
                "replicas": 3,
                "conditions": [
                    {"type": "Available", "status": "True"},
                    {
                        "type": "Progressing",
                        "status": "True",
                        "reason": "NewReplicaSetAvailable",
                        "lastUpdateTime": "2026-01-01T12:00:00Z",
                        "lastTransitionTime": "2025-01-01T12:00:00Z",
                    },
                ],
            },
        },
    )
    assert found.target == Target(
        api_version="apps/v1",
        kind="Deployment",
        name="web",
        uid="d-1",
        progressing="NewReplicaSetAvailable",
        progressing_since=1767268800.0,
    )
    assert (found.namespace, found.labels) == ("shop", {"team": "x"})
    assert found.scale == Scale(replicas=3, status_replicas=3, selector="app=web")


@pytest.mark.parametrize(
    "conditions", [None, [], [{"type": "Available"}], "none", [5], {"Progressing": True}, [{"type": 5}]]
)
def test_a_target_without_a_usable_condition_does_not_progress(conditions: Any) -> None:
    found = decode("StatefulSet", {"metadata": {"name": "db"}, "status": {"conditions": conditions}})
    assert (found.target.progressing, found.target.progressing_since) == ("", None)
