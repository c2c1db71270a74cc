"""A history from Prometheus: gaps stay gaps, an interrupted run goes on, and errors name the query."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.commands.replay.history.prometheus import HistoryUnavailable, PrometheusHistory
from adapter.commands.replay.history.queries import HistoryQueries, Overrides, choose_sources, derive_queries
from adapter.commands.replay.history.span import Span
from adapter.commands.terminal.waiting import Progress
from adapter.usage import prometheus_api
from tests.replay.history.kit import WEB, FakePrometheus, always, policy

DAY = 86_400_000
LATER = 10 * DAY / 1000
"""Now, in seconds: all spans here are settled."""
OVERRIDES = Overrides(loads={"cpu": "load"}, pulled_out="out", replicas="replicas")


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with FakePrometheus(always("1")) as server:
        yield server


def queries(fake: FakePrometheus) -> HistoryQueries:
    return derive_queries(policy(), WEB, choose_sources(None, "", fake.url), OVERRIDES)


def history(fake: FakePrometheus, folder: Path, span: Span, now: float = LATER) -> PrometheusHistory:
    return PrometheusHistory(queries(fake), span, folder, now=now)


def test_a_gap_is_a_tick_without_the_metric_and_no_zero(fake: FakePrometheus, tmp_path: Path) -> None:
    fake.answer = lambda text, moments: {
        at: {"load": "0.25", "out": "2", "replicas": "7"}[text]
        for at in moments
        if not (text == "load" and at in {0, 30_000, 60_000}) and not (text != "load" and at == 45_000)
    }
    ticks = list(history(fake, tmp_path, Span(0, 60_000, 15_000)))
    assert [tick.at for tick in ticks] == [15, 30, 45]  # without the gaps at the ends
    assert [dict(tick.load) for tick in ticks] == [{"cpu": 250_000_000}, {}, {"cpu": 250_000_000}]
    assert [tick.pulled_out for tick in ticks] == [2, 2, 2]
    assert [tick.replicas for tick in ticks] == [7, 7, None]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_what_is_no_load_is_a_gap(fake: FakePrometheus, tmp_path: Path, value: str) -> None:
    fake.answer = lambda text, moments: {at: value if text == "load" and at == 15_000 else "1" for at in moments}
    assert [dict(tick.load) for tick in history(fake, tmp_path, Span(0, 30_000, 15_000))][1] == {}


def test_each_question_stays_within_the_points_that_prometheus_answers(fake: FakePrometheus, tmp_path: Path) -> None:
    span = Span(DAY - 3_000, DAY + 24_000_000, 1_000)
    assert len(list(history(fake, tmp_path, span))) == len(span)
    asked = [moments for text, moments in fake.asked if text == "load"]
    assert all(len(moments) <= prometheus_api.MOST_POINTS for moments in asked)
    assert [at for moments in asked for at in moments] == [*range(span.first, span.last + 1, span.step)]


def test_an_interrupted_run_asks_only_for_what_it_lacks(
    fake: FakePrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_api, "RANGE_ATTEMPTS", 1)
    span = Span(0, 3 * DAY, 60_000)
    fake.answer = lambda text, moments: None if moments[0] >= 2 * DAY else dict.fromkeys(moments, "1")
    with pytest.raises(HistoryUnavailable, match="the store is loading"):
        list(history(fake, tmp_path, span))
    fake.answer, fake.asked[:] = always("1"), []
    assert len(list(history(fake, tmp_path, span))) == len(span)
    assert {moments[0] for _, moments in fake.asked} == {2 * DAY, 3 * DAY}
    fake.asked[:] = []
    assert len(list(history(fake, tmp_path, span))) == len(span)
    assert fake.asked == []


def test_a_later_run_uses_the_days_that_both_cover(fake: FakePrometheus, tmp_path: Path) -> None:
    list(history(fake, tmp_path, Span(0, 3 * DAY, 60_000)))
    fake.asked[:] = []
    list(history(fake, tmp_path, Span(DAY, 4 * DAY - 60_000, 60_000)))
    assert {moments[0] for _, moments in fake.asked} == {3 * DAY}


@pytest.mark.parametrize("damage", [lambda content: content[:-5], lambda content: b"", lambda content: b"x" + content])
def test_a_half_written_or_damaged_part_does_not_count(fake: FakePrometheus, tmp_path: Path, damage) -> None:
    span = Span(0, 60_000, 15_000)
    list(history(fake, tmp_path, span))
    for file in tmp_path.iterdir():
        file.write_bytes(damage(file.read_bytes()))
    fake.answer = always("5")
    assert {tick.load["cpu"] for tick in history(fake, tmp_path, span)} == {5 * 10**9}


def test_a_part_under_another_name_does_not_count(fake: FakePrometheus, tmp_path: Path) -> None:
    span = Span(0, 60_000, 15_000)
    list(history(fake, tmp_path, span))
    one, other, *_ = sorted(tmp_path.iterdir())
    one.write_bytes(other.read_bytes())
    fake.asked[:] = []
    list(history(fake, tmp_path, span))
    assert len(fake.asked) == 1


def test_what_may_still_change_is_read_again(fake: FakePrometheus, tmp_path: Path) -> None:
    span = Span(0, 60_000, 15_000)
    list(history(fake, tmp_path, span, now=70))
    fake.asked[:] = []
    list(history(fake, tmp_path, span, now=70))
    assert len(fake.asked) == 3


def test_an_answer_without_values_is_asked_for_again(fake: FakePrometheus, tmp_path: Path) -> None:
    fake.answer = lambda text, moments: dict.fromkeys(moments, "1") if text == "load" else {}
    list(history(fake, tmp_path, Span(0, 60_000, 15_000)))
    fake.answer = always("3")
    ticks = list(history(fake, tmp_path, Span(0, 60_000, 15_000)))
    assert {(tick.load["cpu"], tick.pulled_out, tick.replicas) for tick in ticks} == {(10**9, 3, 3)}


def test_a_failing_server_is_asked_again_and_a_refusal_is_not(
    fake: FakePrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapter.runtime.backoff.FIRST_SECONDS", 0.01)
    failures = iter([None, None])
    fake.answer = lambda text, moments: next(failures, dict.fromkeys(moments, "1"))
    assert len(list(history(fake, tmp_path, Span(0, 60_000, 15_000)))) == 5


def test_an_error_names_the_query_the_time_and_what_the_server_said(fake: FakePrometheus, tmp_path: Path) -> None:
    fake.respond = lambda form: (422, {"status": "error", "errorType": "execution", "error": "too many samples"})
    # The queries are sent at once, and any of them may be the first to fail.
    named = r"(cpu|pulled-out pods|replicas), 1970-01-01T00:00:00Z to .*too many samples.*is (load|out|replicas)"
    with pytest.raises(HistoryUnavailable, match=named):
        list(history(fake, tmp_path, Span(0, 60_000, 15_000)))
    assert not list(tmp_path.iterdir())


def test_a_load_that_nobody_recorded_is_an_error_and_pulled_out_pods_are_not(
    fake: FakePrometheus, tmp_path: Path
) -> None:
    fake.answer = lambda text, moments: dict.fromkeys(moments, "1") if text == "load" else {}
    ticks = list(history(fake, tmp_path, Span(0, 60_000, 15_000)))
    assert {(tick.pulled_out, tick.replicas) for tick in ticks} == {(0, None)}
    fake.answer = lambda text, moments: {}
    with pytest.raises(HistoryUnavailable, match=r"no value of it.*--query cpu='PROMQL'"):
        list(history(fake, tmp_path / "other", Span(0, 60_000, 15_000)))


def test_several_series_are_an_error_that_says_what_to_write(fake: FakePrometheus, tmp_path: Path) -> None:
    one = {"metric": {}, "values": [[0, "1"]]}
    fake.respond = lambda form: (
        200,
        {"status": "success", "data": {"resultType": "matrix", "result": [one, {**one, "metric": {"a": "b"}}]}},
    )
    with pytest.raises(HistoryUnavailable, match=r"2 series where one number is wanted; put sum\(…\) around it"):
        list(history(fake, tmp_path, Span(0, 60_000, 15_000)))


def test_a_warning_of_the_server_is_no_answer(
    fake: FakePrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus_api, "RANGE_ATTEMPTS", 1)
    body = {"status": "success", "warnings": ["store 2 is away"], "data": {"resultType": "matrix", "result": []}}
    fake.respond = lambda form: (200, body)
    with pytest.raises(HistoryUnavailable, match="store 2 is away"):
        list(history(fake, tmp_path, Span(0, 60_000, 15_000)))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_progress_is_a_bar_on_a_terminal_and_lines_elsewhere() -> None:
    times = iter([0.0, 1.0, 2.0, 12.0, 13.0])
    lines = io.StringIO()
    progress = Progress("parts", 4, stream=lines, clock=lambda: next(times))
    for _ in range(4):
        progress.advance()
    progress.close()
    assert lines.getvalue() == "parts 3 of 4, 4 s to go\n"
    bar = Terminal()
    progress = Progress("parts", 2, stream=bar, clock=iter([0.0, 1.0, 2.0, 3.0]).__next__)
    progress.advance()
    progress.advance()
    progress.close()
    assert bar.getvalue().count("\r[") == 3
    assert bar.getvalue().endswith("parts 2 of 2\x1b[K\n")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, fake: FakePrometheus) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryUnavailable, match=r"--cache .*file"):
        history(fake, tmp_path / "file", Span(0, 60_000, 15_000))
