"""What `make test` leaves out."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests import selection
from tests.conftest import IDLE_ROWS

ROWS = [selection.Left(r"load/test_a\.py::test_many", "alike", keep=3), selection.Left(r"e2e/test_b\.py", "slow")]


def collected(path: str) -> list[Any]:
    return [SimpleNamespace(nodeid=f"tests/{path}[{number}]") for number in range(5)]


def test_a_row_leaves_out_all_or_keeps_some_at_even_distances_but_of_a_file_that_is_named_nothing() -> None:
    many, slow, other = map(collected, ("load/test_a.py::test_many", "e2e/test_b.py::t", "e2e/test_c.py::t"))
    found = selection.left_out([*many, *slow, *other], named=["tests"], rows=ROWS)
    assert found == {ROWS[0]: [many[1], many[3]], ROWS[1]: slow}
    assert selection.left_out(slow, named=["tests/e2e/test_b.py"], rows=ROWS) == {ROWS[0]: [], ROWS[1]: []}


@pytest.mark.parametrize(
    ("count", "keep", "expected"),
    [(5, 0, []), (5, 1, [0]), (5, 2, [0, 4]), (5, 3, [0, 2, 4]), (2, 3, [0, 1]), (0, 3, [])],
)
def test_the_first_and_the_last_are_kept(count: int, keep: int, expected: list[int]) -> None:
    assert selection.spread(count, keep) == expected


def test_each_row_leaves_something_out_of_a_whole_run(request: pytest.FixtureRequest) -> None:
    assert request.config.stash.get(IDLE_ROWS, []) == []
