"""Every field of an original has an effect, or is named; and what comes out is valid for our own readers."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.commands.migrate.migration import Migration, as_json, as_yaml, migrate
from adapter.commands.migrate.original import MigrationError
from adapter.commands.migrate.pair import Style
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from adapter.runtime.document_text import read_documents
from tests.fuzz.spoil import mutate, places
from tests.migrate.kit import EVERYTHING, changed, leaves, migrated, text_of

IGNORED = {"uid", "finalizers"}
"""Metadata that belongs to the original alone."""

PLACES = {
    source: [
        (number, path)
        for number, one in enumerate(objects)
        for path in leaves(one)
        if path[0] not in {"apiVersion", "kind", "status"} and path[1] not in IGNORED
    ]
    for source, objects in EVERYTHING.items()
}


def outcome(objects: list[Any]) -> object:
    """All that a migration says: faults, or its output."""
    try:
        return as_json(migrated(*objects))
    except MigrationError as error:
        return error.faults


@pytest.mark.parametrize("source", EVERYTHING)
def test_every_field_has_an_effect_or_is_named(source: str) -> None:
    objects = EVERYTHING[source]
    expected = outcome(objects)
    for number, path in PLACES[source]:
        # Its absence may be the default; then another value shows.
        others = (
            [changed(one, *path, to=value) if index == number else one for index, one in enumerate(objects)]
            for value in (None, "other", 1)
        )
        assert any(outcome(other) != expected for other in others), path


@pytest.mark.parametrize("source", EVERYTHING)
def test_an_unknown_field_is_named(source: str) -> None:
    for number, one in enumerate(EVERYTHING[source]):
        mappings = {path[:-1] for path in leaves(one) if isinstance(path[-1], str)}
        for path in mappings:
            if path[:1] in {("metadata",), ("status",)} or "matchLabels" in path or "overrides" in path[-1:]:
                continue  # not read, or names of labels
            objects = [changed(other, *path, "unheardOf", to="x") if index == number else other
                       for index, other in enumerate(EVERYTHING[source])]  # fmt: skip
            assert "unheardOf" in json.dumps(as_json(migrated(*objects))), path


def valid(migration: Migration) -> None:
    """Both our readers and a second look at the YAML agree with what was migrated."""
    written = [one for one in read_documents(as_yaml(migration)) if one]
    expected: list[Any] = [part for pair in migration.pairs for part in (dict(pair.policy), dict(pair.hpa))]
    assert written == expected
    for pair in migration.pairs:
        policy, hpa = parse_policy(pair.policy), parse_hpa(pair.hpa)
        assert hpa.asks_for(policy.name)
        assert (policy.namespace, policy.hpa) == (hpa.namespace, hpa.name)
        assert not hpa.scale_up.tolerance
        assert not hpa.scale_down.tolerance
    json.dumps(as_json(migration), allow_nan=False)


@pytest.mark.parametrize("low_percent", [None, 70])
@pytest.mark.parametrize("source", EVERYTHING)
def test_what_comes_out_is_valid(source: str, low_percent: int | None) -> None:
    valid(migrated(*EVERYTHING[source], low_percent=low_percent))


@given(st.data())
def test_a_spoilt_original_is_refused_or_becomes_a_valid_pair(data: st.DataObject) -> None:
    source = data.draw(st.sampled_from(sorted(EVERYTHING)))
    root = {"all": json.loads(json.dumps(EVERYTHING[source]))}
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(data.draw(st.sampled_from([1, 1, 2, 4]))):
        if any(places(root)):
            mutate(root, chance)
    style = Style(low_percent=data.draw(st.sampled_from([None, 60])))
    objects = root.get("all")
    try:
        text = text_of(*objects) if isinstance(objects, list) else text_of(root)
        migration = migrate([("it.yaml", "---\n" + text)], style)
    except MigrationError:
        return
    valid(migration)
