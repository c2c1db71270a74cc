"""Dating and grouping against their literal model, over several answers; and which times are asked for."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.runtime.concurrency import Slices
from adapter.usage import sample_times
from adapter.usage.promql import INPUT_LABEL, parse_inputs
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.query_results import QueryResult, Vector, build_result, new_table
from adapter.usage.sample_times import SampleTimes
from tests.usage import literal_results as literal
from tests.usage.fakes import PlainSample, raw_sample

NOW = 1_767_268_800.0
MAX_AGE = 90.0
NAMESPACES, PODS = ["shop", "other", ""], ["a", "b", "c.d", ""]
TEXTS = ["x", "x or y", "x / y", "rate(x[1m])", "rate(x[1m]) or rate(y[1m])", "rate(x[1m]) / y", "vector(1)"]
VALUES = st.sampled_from(["0", "1", "2.5", "1e-07", "NaN", "-1", "+Inf", "nonsense", "1,2", "0.1234567891"])


def labels(namespace: str, pod: str, **more: str) -> dict[str, str]:
    return {key: value for key, value in {"namespace": namespace, "pod": pod, **more}.items() if value}


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[PlainSample], list[tuple[int, str, str, float]]]:
    """Series, some of them with equal labels, and the times of some places."""
    places = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(PODS))
    rows = draw(st.lists(st.tuples(places, st.sampled_from(["", "v1"]), VALUES), max_size=6))
    keys = st.tuples(st.integers(0, 1), places)
    times = draw(st.dictionaries(keys, st.floats(NOW - 100, NOW), max_size=10))
    found = [PlainSample(labels(*place, version=version), NOW, value) for place, version, value in rows]
    return found, [(number, *place, at) for (number, place), at in times.items()]


def rows_of(inputs: Any, times: literal.Times) -> list[PlainSample]:
    count = len(inputs.selectors)
    return [
        PlainSample(labels(ns, pod, **({INPUT_LABEL: str(number)} if count > 1 else {})), NOW, repr(at))
        for number, ns, pod, at in times
        if number < count
    ]


def asked_for(text: str, by_pod: bool | None) -> InstantQuery:
    return InstantQuery(server="main", text=text, by_pod=by_pod, max_age=MAX_AGE)  # window 0: no value is kept


@given(st.sampled_from(TEXTS), st.sampled_from([True, False, None]), st.lists(answers(), min_size=1, max_size=4))
async def test_every_answer_reads_as_the_literal_model_reads_it(
    text: str, by_pod: bool | None, polls: list[tuple[list[PlainSample], list[tuple[int, str, str, float]]]]
) -> None:
    """Over several answers with one table: what it remembers of earlier ones changes nothing."""
    asked, inputs = asked_for(text, by_pod), parse_inputs(text)
    table, last = new_table(asked), None
    for found, drawn in polls:
        placed = [one if by_pod is not False else (one[0], one[1], "", one[3]) for one in drawn if inputs.selectors]
        times = list({one[:3]: one for one in placed}.values())
        vector = Vector(table)
        vector.add([raw_sample(*one) for one in found])
        await vector.separate(Slices())
        dates = SampleTimes(inputs, table, NOW)
        dates.add([raw_sample(*one) for one in rows_of(inputs, times)])
        last = await build_result(asked, vector, dates, NOW, Slices(), last=last)
        _check(asked, inputs, found, times, last)


def _check(
    asked: InstantQuery, inputs: Any, found: list[PlainSample], times: literal.Times, result: QueryResult
) -> None:
    if not inputs.selectors:
        assert {series.at for one in result.series.values() for series in one} <= {NOW}
        return
    for namespace in NAMESPACES[:2]:
        expected = literal.samples(asked, inputs, found, times, namespace)
        assert literal.plainly(result.of(namespace, MAX_AGE)) == expected
    expected_series = literal.series(asked, inputs, found, times)
    assert result.series.keys() >= expected_series.keys()
    for namespace, series in result.series.items():
        read = [(frozenset(one.labels.items()), one.value, one.at) for one in series]
        assert sorted(map(repr, read)) == sorted(repr(one[1:]) for one in expected_series.get(namespace, ()))
        assert len(series) == len(read)


@dataclass(frozen=True)
class Input:
    """A series that a selector reads: where it belongs, its newest sample, and whether it has ended."""

    selector: int
    namespace: str
    pod: str
    at: float
    ended: bool


class Server:
    """Answers the queries for times from these series, as Prometheus would."""

    def __init__(self, inputs: list[Input], names: str, *, by_pod: bool) -> None:
        self.inputs, self.names, self.by_pod = inputs, names, by_pod
        self.asked: list[str] = []

    def answer(self, text: str) -> list[PlainSample]:
        self.asked.append(text)
        rows: dict[tuple[str, str, int], float] = {}
        for part in text.split("\nor "):
            number = int(match[1]) if (match := re.search(rf'"{INPUT_LABEL}", "(\d+)"', part)) else 0
            named = re.search(r'pod=~"([^"]*)"', part)
            for each in self.inputs:
                chosen = named is None or re.fullmatch(named[1].replace("\\\\", "\\"), each.pod)
                seen = not each.ended or "max_over_time" in part
                if each.selector == number and chosen and seen:
                    key = (each.namespace, each.pod if self.by_pod else "", number)
                    rows[key] = max(each.at, rows.get(key, each.at))
        number_of = (lambda n: {INPUT_LABEL: str(n)}) if INPUT_LABEL in text else (lambda _: {})
        return [PlainSample(labels(ns, pod, **number_of(n)), NOW, repr(at)) for (ns, pod, n), at in rows.items()]


INPUTS = st.builds(
    Input,
    st.integers(0, 1),
    st.sampled_from(NAMESPACES),
    st.sampled_from(PODS),
    st.sampled_from([NOW - 60, NOW - 40, NOW - 10, NOW - 1]),
    st.booleans(),
)


async def dates_of(
    text: str, by_pod: bool, values: list[tuple[str, str]], server: Server, *, all_at_once: bool
) -> dict[tuple[str, str], float | None]:
    asked, inputs = asked_for(text, by_pod), parse_inputs(text)
    vector = Vector(new_table(asked))
    vector.add([raw_sample(labels(*place), NOW, "1") for place in values])
    times = SampleTimes(inputs, vector.table, NOW)

    async def ask(query: str) -> None:
        times.add([raw_sample(*one) for one in server.answer(query)])

    await times.fetch(ask, asked, vector.sets, Slices(), all_at_once=all_at_once)
    column = await times.column(vector.sets, Slices())
    return dict(zip(values, column, strict=True))


@given(
    st.sampled_from([text for text in TEXTS if "rate" in text]),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(NAMESPACES), st.sampled_from(PODS)), min_size=1, max_size=6, unique=True),
    st.lists(INPUTS, max_size=10),
    st.sampled_from([0, 1, 500]),
)
async def test_no_time_is_newer_than_that_of_all_samples_and_none_is_lost(
    text: str, by_pod: bool, values: list[tuple[str, str]], inputs: list[Input], most: int
) -> None:
    """Times of live series and of ended ones by name, against those of all series."""
    ranged = ["rate(x" in text, "rate(y" in text]
    inputs = [one for one in inputs if ranged[one.selector] or not one.ended]  # an instant selector reads no ended ones
    values = values if by_pod else [(namespace, "") for namespace in dict.fromkeys(ns for ns, _ in values)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_times, "MAX_ENDED_PODS", most)
        server = Server(inputs, text, by_pod=by_pod)
        ours = await dates_of(text, by_pod, values, server, all_at_once=False)
        whole = await dates_of(text, by_pod, values, server, all_at_once=True)
    assert {place for place, at in ours.items() if at is None} == {p for p, at in whole.items() if at is None}
    assert all(at is None or at <= (whole[place] or 0) for place, at in ours.items())
    mixed = {(i.selector, i.namespace, i.pod) for i in inputs if i.ended} & {
        (i.selector, i.namespace, i.pod) for i in inputs if not i.ended
    }
    if by_pod and not mixed and all(pod for _, pod in values) and all(i.pod for i in inputs):
        assert ours == whole


async def test_a_pod_whose_series_ended_is_asked_for_by_name() -> None:
    inputs = [Input(0, "shop", "a", NOW - 1, False), Input(0, "shop", "b", NOW - 40, True)]
    server = Server(inputs, "rate(x[1m])", by_pod=True)
    values = [("shop", "a"), ("shop", "b")]
    assert await dates_of("rate(x[1m])", True, values, server, all_at_once=False) == {
        ("shop", "a"): NOW - 1,
        ("shop", "b"): NOW - 40,
    }
    live, ended = server.asked
    assert "max_over_time" not in live
    assert 'x{pod=~"b"}' in ended


async def test_a_series_of_no_pod_dates_no_pod_whose_own_series_ended() -> None:
    """The root's series live, those of the pods have ended, one of a pod without a value among them."""
    inputs = [Input(0, "shop", "", NOW - 1, False), Input(0, "shop", "gone", NOW - 40, True)]
    server = Server(inputs, "rate(x[1m])", by_pod=True)
    assert await dates_of("rate(x[1m])", True, [("shop", "a")], server, all_at_once=False) == {("shop", "a"): None}


async def test_where_every_series_lives_one_query_is_asked() -> None:
    server = Server([Input(0, "shop", "a", NOW - 1, False)], "rate(x[1m])", by_pod=True)
    await dates_of("rate(x[1m])", True, [("shop", "a")], server, all_at_once=False)
    assert server.asked == ["max by (namespace, pod) (timestamp(x))"]


@pytest.mark.parametrize(("x", "y", "read"), [("ab", "a", "a"), ("ab", "cd", "abcd")])
async def test_of_selectors_that_read_the_same_pods_each_must_have_a_sample_of_a_pod(x: str, y: str, read: str) -> None:
    inputs = parse_inputs("x + y")
    dates = SampleTimes(inputs, new_table(asked_for("x + y", by_pod=False)), NOW)
    times = [(number, "shop", pod, NOW) for number, pods in enumerate((x, y)) for pod in pods]
    dates.add([raw_sample(*one) for one in rows_of(inputs, times)])
    assert await dates.pods(60, Slices()) == {"shop": frozenset(read)}
