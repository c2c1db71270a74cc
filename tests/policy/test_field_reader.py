"""Reading a mapping key by key: each reader's default, its value, its fault."""

from collections.abc import Callable
from enum import StrEnum
from fractions import Fraction
from typing import Any

import pytest

from adapter.policy.field_reader import FieldReader, percent_as_quantity
from adapter.runtime.faults import Fault, FaultyDocument, closest, path_of, shorten


class Colour(StrEnum):
    RED = "Red"


def form(data: Any) -> FieldReader:
    return FieldReader(data, "spec", [])


@pytest.mark.parametrize(
    ("read", "absent", "good", "bad"),
    [
        (lambda f: f.text("k"), "", ("a", "a"), (5, "", [])),
        (lambda f: f.integer("k", 7, 1, 9), 7, (9, 9), (10, 0, "1", 1.0, True)),
        (lambda f: f.optional_integer("k", 1, 9), None, (1, 1), (10, "x")),
        (lambda f: f.flag("k", default=True), True, (False, False), (0, "no")),
        (lambda f: f.optional_flag("k"), None, (False, False), (0, "no")),
        (lambda f: f.choice("k", Colour), None, ("Red", Colour.RED), ("red", 5)),
        (lambda f: f.texts("k", 2), (), (["a", "b"], ("a", "b")), ("a", [1], ["a", "a"], ["a", "b", "c"])),
        (lambda f: f.nano("k"), None, ("1500m", 1_500_000_000), ("x", "-1", 1.5, True)),
        (lambda f: f.ratio("k"), None, ("12.5%", Fraction(1, 8)), ("x", "%", 0.5)),
    ],
)
def test_a_reader_gives_its_default_its_value_or_a_fault(
    read: Callable[[FieldReader], Any], absent: Any, good: tuple[Any, Any], bad: tuple[Any, ...]
) -> None:
    for data in ({}, {"k": None}):
        empty = form(data)
        assert (read(empty), empty.faults) == (absent, [])
    written, value = good
    right = form({"k": written})
    assert (read(right), right.faults) == (value, [])
    for wrong in bad:
        faulty = form({"k": wrong})
        read(faulty)
        (fault,) = faulty.faults
        assert fault.path == "spec.k"


def test_a_required_text_is_missed_with_the_advice_given() -> None:
    for data in ({}, {"k": ""}):
        faulty = form(data)
        faulty.text("k", required="write it")
        assert faulty.faults == [Fault("spec.k", None, "write it")]


def test_a_text_is_not_longer_than_it_may_be() -> None:
    faulty = form({"k": "abcd"})
    assert faulty.text("k", longest=3) == ""
    assert "at most 3" in faulty.faults[0].advice


def test_keys_that_nobody_asked_for_are_faults_with_the_nearest_known_one() -> None:
    read = form({"lowWatermrk": 1, "zzz": 2, "name": "a"})
    read.text("name")
    read.get("lowWatermark")
    read.close()
    assert [fault.path for fault in read.faults] == ["spec.lowWatermrk", "spec.zzz"]
    assert "did you mean lowWatermark?" in read.faults[0].advice
    assert "did you mean" not in read.faults[1].advice


def test_sections_carry_their_path_and_share_the_faults() -> None:
    root = form({"a": {"b": [{"c": 1}, 5]}})
    for one in root.section("a").sections("b", 5):
        one.text("c")
    assert [fault.path for fault in root.faults] == ["spec.a.b[0].c", "spec.a.b[1]"]


def test_a_fault_reads_as_path_value_advice_in_a_line() -> None:
    assert str(Fault("a.b", 5, "write more")) == "a.b: 5: write more"
    assert str(Fault("", None, "is no YAML")) == "is no YAML"
    assert str(FaultyDocument([Fault("a", 1, "x"), Fault("b", 2, "y")], "title")) == "title: a: 1: x; b: 2: y"
    assert len(shorten("x" * 500)) == 81
    assert [path_of(keys) for keys in ((), ("spec", "metrics", 0, "name"))] == ["", "spec.metrics[0].name"]


def test_the_closest_key_is_found_whatever_its_case_and_underscores() -> None:
    assert closest("max_age_seconds", ["maxAgeSeconds", "name"]) == ", did you mean maxAgeSeconds?"
    assert closest("colour", ["maxAgeSeconds"]) == ""


def test_a_percentage_is_an_exact_quantity() -> None:
    assert percent_as_quantity("82.5%") == "82.5e-2"
    assert percent_as_quantity("800m") == "800m"
