"""A history from Prometheus: gaps stay gaps, and errors name the query."""

from collections.abc import Iterator

import pytest

from adapter.commands.replay.history import range_client
from adapter.commands.replay.history.prometheus import HistoryUnavailable, PrometheusHistory
from adapter.commands.replay.history.queries import HistoryQueries, Overrides, choose_sources, derive_queries
from adapter.commands.replay.history.span import Span
from tests.replay.history.kit import WEB, FakePrometheus, always, policy

DAY = 86_400_000
OVERRIDES = Overrides(loads={"cpu": "load"}, pulled_out="out")


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    with FakePrometheus(always("1")) as server:
        yield server


def queries(fake: FakePrometheus) -> HistoryQueries:
    return derive_queries(policy(), WEB, choose_sources(None, fake.url), OVERRIDES)


def history(fake: FakePrometheus, span: Span) -> PrometheusHistory:
    return PrometheusHistory(queries=queries(fake), span=span, is_quiet=True)


def test_a_gap_is_a_tick_without_the_metric_and_no_zero(fake: FakePrometheus) -> None:
    fake.answer = lambda text, moments: {
        at: {"load": "0.25", "out": "2"}.get(text, "7")
        for at in moments
        if not (text == "load" and at in {0, 30_000, 60_000}) and not (text != "load" and at == 45_000)
    }
    ticks = list(history(fake, Span(0, 60_000, 15_000)))
    assert [tick.at for tick in ticks] == [15, 30, 45]  # without the gaps at the ends
    assert [dict(tick.load) for tick in ticks] == [{"cpu": 250_000_000}, {}, {"cpu": 250_000_000}]
    assert [tick.pulled_out for tick in ticks] == [2, 2, 2]
    assert [tick.replicas for tick in ticks] == [7, 7, None]


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
def test_what_is_no_load_is_a_gap(fake: FakePrometheus, value: str) -> None:
    fake.answer = lambda text, moments: {at: value if text == "load" and at == 15_000 else "1" for at in moments}
    assert [dict(tick.load) for tick in history(fake, Span(0, 30_000, 15_000))][1] == {}


def test_each_question_stays_within_the_points_that_prometheus_answers(fake: FakePrometheus) -> None:
    span = Span(DAY - 3_000, DAY + 24_000_000, 1_000)
    assert len(list(history(fake, span))) == len(span)
    asked = [moments for text, moments in fake.asked if text == "load"]
    assert all(len(moments) <= range_client.MOST_POINTS for moments in asked)
    assert [at for moments in asked for at in moments] == [*range(span.first, span.last + 1, span.step)]


def test_a_failing_server_is_asked_again_and_a_refusal_is_not(
    fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapter.runtime.backoff.FIRST_SECONDS", 0.01)
    failures = iter([None, None])
    fake.answer = lambda text, moments: next(failures, dict.fromkeys(moments, "1"))
    assert len(list(history(fake, Span(0, 60_000, 15_000)))) == 5


def test_an_error_names_the_query_the_time_and_what_the_server_said(fake: FakePrometheus) -> None:
    fake.respond = lambda form: (422, {"status": "error", "errorType": "execution", "error": "too many samples"})
    # The queries are sent at once, and any of them may be the first to fail.
    named = r"(cpu|pulled-out pods|replicas), 1970-01-01T00:00:00Z to .*too many samples.*is (load|out|max)"
    with pytest.raises(HistoryUnavailable, match=named):
        list(history(fake, Span(0, 60_000, 15_000)))


def test_a_load_that_nobody_recorded_is_an_error_and_pulled_out_pods_are_not(fake: FakePrometheus) -> None:
    fake.answer = lambda text, moments: dict.fromkeys(moments, "1") if text == "load" else {}
    ticks = list(history(fake, Span(0, 60_000, 15_000)))
    assert {(tick.pulled_out, tick.replicas) for tick in ticks} == {(0, None)}
    fake.answer = lambda text, moments: {}
    with pytest.raises(HistoryUnavailable, match=r"no value of it.*--query cpu='PROMQL'"):
        list(history(fake, Span(0, 60_000, 15_000)))


def test_several_series_are_an_error_that_says_what_to_write(fake: FakePrometheus) -> None:
    one = {"metric": {}, "values": [[0, "1"]]}
    fake.respond = lambda form: (
        200,
        {"status": "success", "data": {"resultType": "matrix", "result": [one, {**one, "metric": {"a": "b"}}]}},
    )
    with pytest.raises(HistoryUnavailable, match=r"2 series where one number is wanted; put sum\(…\) around it"):
        list(history(fake, Span(0, 60_000, 15_000)))


def test_a_warning_of_the_server_is_no_answer(fake: FakePrometheus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_client, "ATTEMPTS", 1)
    body = {"status": "success", "warnings": ["store 2 is away"], "data": {"resultType": "matrix", "result": []}}
    fake.respond = lambda form: (200, body)
    with pytest.raises(HistoryUnavailable, match="store 2 is away"):
        list(history(fake, Span(0, 60_000, 15_000)))
