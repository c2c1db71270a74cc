"""A history from CSV: what a line means, and what is said of a wrong one."""

import pytest

from adapter.commands.replay.csv_history import CsvHistory
from adapter.commands.replay.service import Tick
from adapter.runtime.faults import FaultyDocument
from tests.replay.services import POD, START


def read(*lines: str) -> list[Tick]:
    return list(CsvHistory(iter(lines), "week.csv"))


def fault(*lines: str) -> str:
    with pytest.raises(FaultyDocument) as caught:
        read(*lines)
    return str(caught.value)


def test_a_line_is_a_tick_in_nano_units() -> None:
    ticks = read("time,cpu,calls,pulled_out,replicas", "2026-01-01T00:00:00Z,1.5,20,2,10")
    assert ticks == [Tick(START, {"cpu": 3 * POD // 2, "calls": 20 * POD}, 2, 10)]


@pytest.mark.parametrize(
    ("cell", "nano"),
    [("12", 12 * POD), ("0.000000001", 1), ("1500m", 3 * POD // 2), ("1e3", 1000 * POD), ("2Ki", 2048 * POD),
     ("0.1234567891", 123456790), ("1.10", 11 * POD // 10), (" 7 ", 7 * POD)],
)  # fmt: skip
def test_cells_are_quantities(cell: str, nano: int) -> None:
    assert read("time,cpu", f"0,{cell}")[0].load == {"cpu": nano}


@pytest.mark.parametrize("cell", ["", "NaN", " "])
def test_an_empty_cell_is_a_moment_at_which_nobody_knew(cell: str) -> None:
    assert read("time,cpu,calls,pulled_out,replicas", f"0,{cell},1,{cell},{cell}") == [
        Tick(0.0, {"calls": POD}, 0, None)
    ]


def test_columns_may_come_in_any_order_and_lines_may_be_empty() -> None:
    assert read("replicas,cpu,time", "3,1,10", "", "4,2,20") == [
        Tick(10.0, {"cpu": POD}, 0, 3),
        Tick(20.0, {"cpu": 2 * POD}, 0, 4),
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "line 1: the first line must name the columns, time among them"),
        (("Time,cpu",), "time among them, so rename Time to time"),
        (("time;cpu",), "time among them, with commas between them, not ';'"),
        (("time,cpu,cpu",), "each column needs a name of its own"),
        (("time,cpu", "0,1", "15"), "line 3: 1: must have 2 cells"),
        (("time,cpu", "yesterday,1"), "line 2, time: 'yesterday': must be a time"),
        (("time,cpu", "15,1", "15,1"), "line 3, time: '15': must be later than in the line before"),
        (("time,cpu", "0,-1"), "line 2, cpu: '-1': -1 is negative"),
        (("time,cpu", "0,many"), "line 2, cpu: 'many': 'many' is not a quantity"),
        (("time,cpu", "0,1", "15,+Inf"), "line 3, cpu: '+Inf': '+Inf' is not a number"),
        (("time,cpu,replicas", "0,1,-3"), "line 2, replicas: '-3': must be a whole number"),
        (("time,cpu,pulled_out", "0,1,9999999999"), "line 2, pulled_out: '9999999999': must be a whole number"),
        (("time,cpu", '0,"1'), "line 2: is not CSV"),
    ],
)
def test_a_wrong_line_is_named_with_its_column(lines: tuple[str, ...], said: str) -> None:
    assert said in fault(*lines)


@pytest.mark.parametrize(
    ("columns", "advice"), [("time,cpus", "did you mean cpus"), ("time,CPU", "so rename CPU to cpu")]
)
def test_a_missing_metric_is_named_with_what_needs_it(columns: str, advice: str) -> None:
    with pytest.raises(FaultyDocument, match=f"column cpu: is missing; policy web needs it, {advice}"):
        CsvHistory(iter([columns]), "week.csv").require({"cpu": "policy web"})


def test_a_column_that_nothing_needs_is_not_read() -> None:
    history = CsvHistory(iter(["time,cpu,remark", "0,1,busy"]), "week.csv")
    history.require({"cpu": "policy web"})
    assert list(history) == [Tick(0.0, {"cpu": POD}, 0, None)]


def test_lines_are_read_one_by_one() -> None:
    def lines() -> object:
        yield "time,cpu"
        yield "0,1"
        raise AssertionError("read too far")

    assert next(iter(CsvHistory(lines(), "week.csv"))).load == {"cpu": POD}
