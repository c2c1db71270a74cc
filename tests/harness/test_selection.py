"""What `make test` leaves out."""

from typing import Any, NamedTuple

import pytest

from tests import selection
from tests.conftest import IDLE_ROWS


class Item(NamedTuple):
    """A collected test, as far as the selection reads it."""

    nodeid: str


def collected(path: str, count: int) -> list[Any]:
    return [Item(f"tests/{path}[{number}]") for number in range(count)]


@pytest.fixture
def rows() -> list[selection.Left]:
    return [selection.Left(r"load/test_a\.py::test_many", "alike", keep=3), selection.Left(r"e2e/test_b\.py", "slow")]


def test_a_row_leaves_out_all_or_keeps_some_at_even_distances(rows: list[selection.Left]) -> None:
    many, slow, other = (
        collected(path, 5) for path in ("load/test_a.py::test_many", "e2e/test_b.py::t", "e2e/test_c.py::t")
    )
    found = selection.left_out([*many, *slow, *other], named=["tests"], rows=rows)
    assert found == {rows[0]: [many[1], many[3]], rows[1]: slow}


def test_a_file_that_is_named_on_the_command_line_runs_whole(rows: list[selection.Left]) -> None:
    slow = collected("e2e/test_b.py::t", 5)
    assert selection.left_out(slow, named=["tests/e2e/test_b.py"], rows=rows) == {rows[0]: [], rows[1]: []}
    assert selection.left_out(slow, named=["tests/e2e"], rows=rows) == {rows[0]: [], rows[1]: slow}


@pytest.mark.parametrize(
    ("count", "keep", "expected"),
    [(5, 0, []), (5, 1, [0]), (5, 2, [0, 4]), (5, 3, [0, 2, 4]), (2, 3, [0, 1]), (0, 3, [])],
)
def test_the_first_and_the_last_are_kept(count: int, keep: int, expected: list[int]) -> None:
    assert selection.spread(count, keep) == expected


def test_each_row_leaves_something_out_of_a_whole_run(request: pytest.FixtureRequest) -> None:
    assert request.config.stash.get(IDLE_ROWS, []) == []
