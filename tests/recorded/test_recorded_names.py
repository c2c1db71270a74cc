"""What users depend on by name is what it was when it was recorded."""

import difflib

import pytest

from tests.recorded.collect import LISTS, collected, file_of, recorded

ADVICE = """
A line with + is a new name: users will rely on it, so see that it is meant, and record it with
    python -m tests.recorded --write
A line with - was released: dashboards, manifests, scripts or log queries of users break without it. Put it back, or
change it on purpose: with an entry in CHANGELOG.md, and recorded in a commit of its own.
"""


@pytest.mark.parametrize("name", LISTS)
def test_the_released_names_are_those_that_were_recorded(name: str) -> None:
    before, now = recorded(name), collected(name)
    changes = [
        line for line in difflib.unified_diff(before, now, n=0, lineterm="") if line[:2] not in {"--", "++", "@@"}
    ]
    assert before == now, "\n".join([f"{file_of(name).name} is not what the code says:", *changes, ADVICE])
