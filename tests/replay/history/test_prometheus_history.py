"""A history from Prometheus: gaps stay gaps, an interrupted run goes on, and errors name the query."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter.commands.replay.history.prometheus import HistoryUnavailable, PrometheusHistory
from adapter.commands.replay.history.queries import HistoryQueries, Overrides, choose_sources, derive_queries
from adapter.commands.replay.history.span import Span
from adapter.usage import prometheus_api
from tests.replay.history.kit import WEB, FakePrometheus, always, policy

DAY = 86_400_000
LATER = 10 * DAY / 1000
"""Now, in seconds: all spans here are settled."""
SHORT = Span(0, 60_000, 15_000)
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
    ticks = list(history(fake, tmp_path, SHORT))
    assert [tick.at for tick in ticks] == [15, 30, 45]  # without the gaps at the ends
    assert [dict(tick.load) for tick in ticks] == [{"cpu": 250_000_000}, {}, {"cpu": 250_000_000}]
    assert [tick.pulled_out for tick in ticks] == [2, 2, 2]
    assert [tick.replicas for tick in ticks] == [7, 7, None]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_what_is_no_load_is_a_gap(fake: FakePrometheus, tmp_path: Path, value: str) -> None:
    fake.answer = lambda text, moments: {at: value if text == "load" and at == 15_000 else "1" for at in moments}
    assert [dict(tick.load) for tick in history(fake, tmp_path, Span(0, 30_000, 15_000))][1] == {}


def cut(folder: Path) -> None:
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:-5])


def emptied(folder: Path) -> None:
    for file in folder.iterdir():
        file.write_bytes(b"")


def exchanged(folder: Path) -> None:
    files = sorted(folder.iterdir())
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, [*contents[1:], contents[0]], strict=True):
        file.write_bytes(content)


@pytest.mark.parametrize("damage", [cut, emptied, exchanged])
def test_a_damaged_part_and_one_under_another_name_do_not_count(fake: FakePrometheus, tmp_path: Path, damage) -> None:
    list(history(fake, tmp_path, SHORT))
    damage(tmp_path)
    fake.answer = always("5")
    assert {tick.load["cpu"] for tick in history(fake, tmp_path, SHORT)} == {5 * 10**9}


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


def test_what_may_still_change_is_read_again(fake: FakePrometheus, tmp_path: Path) -> None:
    list(history(fake, tmp_path, SHORT, now=70))
    fake.asked[:] = []
    list(history(fake, tmp_path, SHORT, now=70))
    assert len(fake.asked) == 3


def test_pulled_out_pods_that_nobody_recorded_are_none_and_asked_for_again(
    fake: FakePrometheus, tmp_path: Path
) -> None:
    fake.answer = lambda text, moments: dict.fromkeys(moments, "1") if text == "load" else {}
    assert {(tick.pulled_out, tick.replicas) for tick in history(fake, tmp_path, SHORT)} == {(0, None)}
    fake.answer = always("3")
    ticks = list(history(fake, tmp_path, SHORT))
    assert {(tick.load["cpu"], tick.pulled_out, tick.replicas) for tick in ticks} == {(10**9, 3, 3)}


def test_a_failing_server_is_asked_again(fake: FakePrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapter.runtime.backoff.FIRST_SECONDS", 0.01)
    failures = iter([None, None])
    fake.answer = lambda text, moments: next(failures, dict.fromkeys(moments, "1"))
    assert len(list(history(fake, tmp_path, SHORT))) == 5


def matrix(*result: dict[str, Any], **more: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"status": "success", **more, "data": {"resultType": "matrix", "result": list(result)}}


ONE: dict[str, Any] = {"metric": {}, "values": [[0, "1"]]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(matrix(), r"no value of it.*--query cpu='PROMQL'", id="a load that nobody recorded"),
        pytest.param(
            matrix(ONE, {**ONE, "metric": {"a": "b"}}),
            r"2 series where one number is wanted; put sum\(…\) around it",
            id="several series",
        ),
        pytest.param(matrix(warnings=["store 2 is away"]), "store 2 is away", id="a warning"),
        pytest.param(  # the queries are sent at once, and any of them may be the first to fail
            (422, {"status": "error", "errorType": "execution", "error": "too many samples"}),
            r"(cpu|pulled-out pods|replicas), 1970-01-01T00:00:00Z to .*too many samples.*is (load|out|replicas)",
            id="a refusal",
        ),
    ],
)
def test_an_answer_that_is_none_is_an_error_that_says_what_to_do(
    fake: FakePrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, Any], said: str
) -> None:
    monkeypatch.setattr(prometheus_api, "RANGE_ATTEMPTS", 1)
    fake.respond = lambda form: answer
    with pytest.raises(HistoryUnavailable, match=said):
        list(history(fake, tmp_path, SHORT))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, fake: FakePrometheus) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryUnavailable, match=r"--cache .*file"):
        history(fake, tmp_path / "file", SHORT)
