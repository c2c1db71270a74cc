"""The chart renders the objects of the manifests, whatever is switched on."""

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from typing import Any

import pytest

from tests.chart import kit
from tests.manifests.rendering import MANIFESTS, render

pytestmark = [pytest.mark.integration, pytest.mark.builds("helm")]


def differences(ours: dict[Any, Any], theirs: dict[Any, Any]) -> list[str]:
    """What is in one rendering and not in the other one, by object."""
    kept = ours.keys() & theirs.keys()
    missing = [
        f"{key} is rendered by {'Helm' if key in theirs else 'kustomize'} alone" for key in ours.keys() ^ theirs.keys()
    ]
    return missing + [f"{key} differs: {ours[key]} != {theirs[key]}" for key in kept if ours[key] != theirs[key]]


def test_the_chart_renders_equal_objects_for_the_switches_in_all_combinations_of_three() -> None:
    chosen = kit.combinations()
    assert all(
        len({tuple(name in one for name in three) for one in chosen}) == 8 for three in combinations(kit.SWITCHES, 3)
    )
    with ThreadPoolExecutor(2) as pool:
        all_theirs = pool.map(kit.rendered, map(kit.values_of, chosen))
        for combination, theirs in zip(chosen, all_theirs, strict=True):
            said = differences(kit.by_name(kit.overlay(combination)), kit.by_name(theirs))
            assert not said, f"with {sorted(combination)}: {said[:5]}"


def test_without_values_it_renders_the_default_overlay_but_for_the_namespace() -> None:
    ours = kit.by_name(render(MANIFESTS / "overlays" / "default"))
    theirs = kit.by_name(kit.rendered())
    assert differences(ours, theirs) == [f"{('Namespace', '', 'effective-load')} is rendered by kustomize alone"]


def test_in_another_namespace_nothing_is_left_of_the_first() -> None:
    values = kit.values_of(frozenset(kit.SWITCHES))
    here, there = (kit.rendered(values, namespace=one) for one in ("effective-load", "elsewhere"))
    assert len(here) == len(there)
    assert not re.search(r"serviceaccount:effective-load:|\.effective-load\.svc", str(there))
    named = {item["metadata"].get("namespace", "-") for item in there}
    named |= {subject["namespace"] for item in there for subject in item.get("subjects", ())}
    named |= {item["spec"]["service"]["namespace"] for item in there if item["kind"] == "APIService"}
    assert named == {"-", "elsewhere", "kube-system"}
