"""What the schema of the CRD bounds, `parse_policy` bounds alike: just within is taken, just beyond is refused."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.policy.field_reader import PolicyError
from adapter.policy.watermark_policy import FORMER_NAMES, parse_policy
from tests.policy.wrong import CPU, LUNCH, MEMORY, NACOS, PLAN, RPS, Object, policy

CRD = yaml.load((Path(__file__).parents[2] / "manifests/crd/watermarkpolicies.yaml").read_text(), yaml.CSafeLoader)
SPEC = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

PROMQL = {"promQL": "up", "server": "main", "relativeTo": "Limit", "resource": "memory", "containers": ["app"]}
EVERYTHING: Object = {
    "hpa": "web",
    "mode": "Active",
    "hpaConfiguration": "Report",
    "strategy": "Watermark",
    "algorithm": "Average",
    "tolerance": "1%",
    "metrics": [
        {**CPU, "resource": {"name": "cpu", "containers": ["app"], "relativeTo": None}},
        {**MEMORY, "resource": {**MEMORY["resource"], "containers": ["app"]}, "lowWatermark": "0.5"},
        {**RPS, "query": PROMQL, "highWatermark": "80%"},
        {**RPS, "name": "named", "delay": {"scaleUpSeconds": 60, "scaleDownSeconds": 300}},
        PLAN,
    ],
    "registry": {
        **NACOS,
        "namespace": "public",
        "group": "DEFAULT_GROUP",
        "registrationGraceSeconds": 180,
        "absenceConfirmationSeconds": 45,
        "treatUnhealthyAsOut": True,
        "anyInstanceOut": False,
        "match": "IPPort",
        "port": 8080,
        "podNameKey": "pod",
    },
    "pulledOut": {"replace": True, "replaceAfterSeconds": 60, "minAgeSeconds": 600, "deleteFirst": False},
    "velocity": {"scaleUpPercent": 100, "scaleDownPercent": 20},
    "delay": {"scaleUpSeconds": 30, "scaleDownSeconds": 600},
    "cooldown": {"scaleUpSeconds": 60, "scaleDownSeconds": 300},
    "schedules": [
        {**LUNCH, "timeZone": "Asia/Shanghai"},
        {"name": "night", "cron": "0 22 * * *", "durationSeconds": 3600, "maxReplicas": 5},
    ],
    "fallback": {"afterSeconds": 300, "replicas": 10},
    "minServingPercent": 50,
    "acceptZeroUsage": False,
    "saturationFactor": "1.25",
    "replicaMultiple": 1,
    "convergeTowards": "High",
    "fastScaleUp": False,
    "notify": ["oncall"],
}
TARGETS: Object = {"strategy": "Ratio", "metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "target": 60}]}
STEPS: Object = {
    "strategy": "Step",
    "step": {"tolerance": 15, "toleranceUnit": "Points", "trigger": "AnyPod", "up": 2, "down": 2, "minPods": 2},
    "metrics": [{"name": "percent", "query": {"name": "percent"}, "target": 2000}],
}
Where = tuple[str | int, ...]
JUDGED_FURTHER = {"cron", "timeZone"}
"""A text of the right length is not yet right."""


def places(schema: Object, value: Any, path: Where = ()) -> Iterator[tuple[Where, Object]]:
    """Every place of the document, with its schema."""
    yield path, schema
    if isinstance(value, dict):
        for key, inner in schema["properties"].items():
            if key in value:
                yield from places(inner, value[key], (*path, key))
    if isinstance(value, list):
        for index, one in enumerate(value):
            yield from places(schema["items"], one, (*path, index))


ONLY_STEPS = {path: schema for path, schema in places(SPEC, STEPS) if path and path[0] not in EVERYTHING}
PLACES = {**dict(places(SPEC, EVERYTHING)), **ONLY_STEPS, ("metrics", 0, "target"): {}}


def edges(schema: Object, name: str | int) -> Iterator[tuple[Any, bool]]:
    """Values at the schema's bounds, and whether they are within."""
    match schema.get("type"):
        case "integer":
            for key, beyond in (("minimum", -1), ("maximum", 1)):
                yield schema[key], True
                yield schema[key] + beyond, False
            yield from (("1", False), (1.5, False))
        case "string" if "enum" in schema:
            yield from ((one, True) for one in schema["enum"])
            yield from ((schema["enum"][0].swapcase(), False), (5, False))
        case "string":
            yield "a" * (schema["maxLength"] + 1), False
            yield from (("", False), (5, False))
            if name not in JUDGED_FURTHER:
                yield "a" * schema["maxLength"], True
        case "boolean":
            yield from ((True, True), (False, True), ("true", False), (1, False))
        case "array" if schema["items"].get("type") == "string":
            yield [f"n{index}" for index in range(schema["maxItems"])], True
            yield [f"n{index}" for index in range(schema["maxItems"] + 1)], False
            yield from ((["a", "a"], False), ([5], False), ("a", False))


EDGES = [(path, value, fits) for path, schema in PLACES.items() for value, fits in edges(schema, ("", *path)[-1])]


def with_value(path: Where, value: Any) -> Object:
    spec = copy.deepcopy(STEPS if path in ONLY_STEPS or value == "Step" else EVERYTHING)
    if value == "Ratio":
        spec = copy.deepcopy(TARGETS)
    place: Any = spec
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    if value == "Absolute":  # it goes with no metric of a ratio, which a rule across fields says
        spec["metrics"] = [CPU]
    return spec


def test_every_field_of_the_schema_is_tried() -> None:
    known = {tuple(step for step in path if isinstance(step, str)) for path in PLACES}
    inner = [(path, schema) for path, schema in PLACES.items() if "properties" in schema]
    every = {
        (*(s for s in path if isinstance(s, str)), key)
        for path, schema in inner
        for key, field in schema["properties"].items()
        if field["description"] != "Former name."
    }
    assert every <= known


def test_the_crd_refuses_former_names_with_the_readers_sentences() -> None:
    refused = {
        (name, rule["message"])
        for schema in PLACES.values()
        for name, field in schema.get("properties", {}).items()
        for rule in field.get("x-kubernetes-validations", ())
        if rule["rule"] == "false"
    }
    assert refused == {(name, f"{name} is now {present}") for name, present in FORMER_NAMES.items()}


def named(part: object) -> str:
    return str(part)[:40]


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, value, fits in EDGES if fits], ids=named)
def test_a_value_at_the_bounds_of_the_schema_is_taken(path: Where, value: Any) -> None:
    parse_policy(policy(**with_value(path, value)))


@pytest.mark.parametrize(("path", "value"), [(path, value) for path, value, fits in EDGES if not fits], ids=named)
def test_a_value_beyond_the_bounds_of_the_schema_is_a_fault(path: Where, value: Any) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(policy(**with_value(path, value)))
    assert all(fault.path.startswith(f"spec.{path[0]}") for fault in caught.value.faults)
