"""From samples to pods and services: labels, values, times, and what is an error."""

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.quantity import NANO, QuantityError, parse_number
from adapter.load.samples import Point, QuerySamples
from adapter.runtime.concurrency import Slices
from adapter.runtime.source_errors import WrongAnswer
from adapter.usage.promql import parse_inputs
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.query_results import QueryResult, Vector, build_result, new_table
from adapter.usage.sample_times import SampleTimes
from adapter.usage.series import SeriesTable, sample_nano
from tests.usage.fakes import PlainSample, raw_sample

NOW = 1_767_268_800.0
NAMES = st.sampled_from(["shop", "other", ""])


def question(text: str = "x", by_pod: bool | None = True, **more: Any) -> InstantQuery:
    return InstantQuery(server="main", text=text, by_pod=by_pod, **more)


def row(value: str | float = "1", **labels: str) -> PlainSample:
    return PlainSample(labels, NOW, str(value))


def time_of(number: int, at: float, **labels: str) -> PlainSample:
    return PlainSample({**labels, "effective_load_input": str(number)}, NOW, str(at))


async def vector_of(asked: InstantQuery, found: Iterable[PlainSample], table: SeriesTable | None = None) -> Vector:
    vector = Vector(table or new_table(asked))
    vector.add([raw_sample(*one) for one in found])
    await vector.separate(Slices())
    return vector


def dated(asked: InstantQuery, vector: Vector, *times: PlainSample) -> SampleTimes:
    dates = SampleTimes(parse_inputs(asked.text), vector.table, NOW)
    dates.add([raw_sample(*one) for one in times])
    return dates


async def answered(
    asked: InstantQuery, found: list[PlainSample], *times: PlainSample, table: SeriesTable | None = None
) -> QueryResult:
    """Without times given every namespace and pod was sampled now."""
    read = times or tuple(time_of(0, NOW, **labels) for labels in _places(asked, found))
    vector = await vector_of(asked, found, table)
    return await build_result(asked, vector, dated(asked, vector, *read), NOW, Slices())


def _places(asked: InstantQuery, found: list[PlainSample]) -> list[dict[str, str]]:
    return [{key: sample.labels[key] for key in asked.labels if key in sample.labels} for sample in found]


async def of(asked: InstantQuery, found: list[PlainSample], namespace: str = "shop") -> QuerySamples:
    return (await answered(asked, found)).of(namespace, asked.max_age)


class TestPods:
    async def test_pods_are_matched_by_namespace_and_name(self) -> None:
        found = await of(
            question(),
            [row(1, namespace="shop", pod="a"), row(2, namespace="shop", pod="b"), row(9, namespace="other", pod="a")],
        )
        assert found.pods == {"a": Point(NOW, NANO), "b": Point(NOW, 2 * NANO)}
        assert found.error is None

    async def test_a_namespace_that_is_not_in_the_answer_has_no_sample(self) -> None:
        found = await of(question(), [row(1, namespace="other", pod="a")])
        assert (found.pods, found.total, found.error) == ({}, None, None)

    async def test_the_names_of_the_labels_can_be_set(self) -> None:
        asked = question(namespace_label="k8s_ns", pod_label="k8s_pod")
        found = await of(asked, [row(3, k8s_ns="shop", k8s_pod="a", namespace="other", pod="z")])
        assert list(found.pods) == ["a"]

    @pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e30", "-0.001", "nonsense", "", "1,", ",1"])
    async def test_unusable_values_are_dropped(self, value: str) -> None:
        found = [row(value, namespace="shop", pod="a"), row(1, namespace="shop", pod="b")]
        for rows in (found, [*reversed(found)]):
            assert (await of(question(), rows)).pods == {"b": Point(NOW, NANO)}

    async def test_two_series_of_one_pod_are_an_error_for_its_namespace_alone(self) -> None:
        found = await answered(
            question(),
            [
                row(1, namespace="shop", pod="a", path="/"),
                row(2, namespace="shop", pod="a", path="/b"),
                row(3, namespace="other", pod="a"),
            ],
        )
        assert "several series of pod a; write it as sum by (namespace, pod)" in (found.of("shop", 90).error or "")
        assert found.of("shop", 90).pods == {}
        assert found.of("other", 90).error is None

    async def test_no_namespace_label_anywhere_is_an_error_that_names_it(self) -> None:
        found = await of(question(), [row(1, pod="a"), row(2, pod="b")])
        assert "lack the label 'namespace'" in (found.error or "")
        assert found.pods == {}

    async def test_no_pod_label_in_the_namespace_is_an_error_that_names_it(self) -> None:
        found = await answered(question(), [row(1, namespace="shop"), row(2, namespace="other", pod="b")])
        assert "lack the label 'pod'" in (found.of("shop", 90).error or "")
        assert found.of("other", 90).error is None

    async def test_a_series_without_a_pod_is_ignored(self) -> None:
        """cAdvisor's root cgroup has neither label, a pod's own cgroup sums stand beside it."""
        found = await of(question(), [row(100, id="/"), row(5, namespace="shop"), row(1, namespace="shop", pod="a")])
        assert found.pods == {"a": Point(NOW, NANO)}
        assert found.error is None

    async def test_an_empty_result_is_no_error(self) -> None:
        found = await of(question(), [])
        assert (found.pods, found.error, found.fetched_at) == ({}, None, NOW)

    @given(st.lists(st.tuples(NAMES, st.sampled_from(["a", "b", ""]), st.integers(0, 9)), max_size=8))
    async def test_no_sample_of_another_namespace_is_ever_taken(self, rows: list[tuple[str, str, int]]) -> None:
        made = [row(n, **{k: v for k, v in {"namespace": ns, "pod": pod}.items() if v}) for ns, pod, n in rows]
        found = await of(question(), made)
        own = {(pod, n * NANO) for ns, pod, n in rows if ns == "shop" and pod}
        assert {(pod, point.value) for pod, point in found.pods.items()} <= own


class TestServices:
    async def test_one_series_is_the_number(self) -> None:
        found = await of(question(by_pod=False), [row("12.5")])
        assert found.total == Point(NOW, 12_500_000_000)
        assert found.pods == {}

    async def test_only_the_series_of_the_own_namespace_counts(self) -> None:
        found = await of(question(by_pod=False), [row(5, namespace="shop"), row(7, namespace="other")])
        assert found.total == Point(NOW, 5 * NANO)

    async def test_a_number_of_another_namespace_is_not_taken(self) -> None:
        found = await of(question(by_pod=False), [row(7, namespace="other")])
        assert (found.total, found.error) == (None, None)

    @pytest.mark.parametrize(
        "rows",
        [
            [row(5, queue="a"), row(7, queue="b")],
            [row(5, namespace="shop"), row(7)],
            [row(5, namespace="shop", q="a"), row("NaN", namespace="shop", q="b")],
        ],
    )
    async def test_more_than_one_series_is_an_error_that_says_so(self, rows: list[PlainSample]) -> None:
        found = await of(question(by_pod=False), rows)
        assert "answers 2 series where one number is wanted" in (found.error or "")
        assert found.total is None

    async def test_nan_is_no_sample_and_no_error(self) -> None:
        found = await of(question(by_pod=False), [row("NaN")])
        assert (found.total, found.error) == (None, None)

    async def test_zero_is_a_number(self) -> None:
        assert (await of(question(by_pod=False), [row("0")])).total == Point(NOW, 0)

    async def test_the_pod_label_of_a_single_series_is_ignored(self) -> None:
        found = await of(question(by_pod=False), [row(5, namespace="shop", pod="exporter-0")])
        assert found.total == Point(NOW, 5 * NANO)


class TestInline:
    async def test_labels_show_that_it_is_by_pod(self) -> None:
        found = await of(question(by_pod=None), [row(5, namespace="shop", pod="a")])
        assert list(found.pods) == ["a"]

    async def test_an_answer_without_pod_labels_is_one_number(self) -> None:
        assert (await of(question(by_pod=None), [row(5)])).total == Point(NOW, 5 * NANO)


class TestTimes:
    async def at(self, text: str, place: dict[str, str], *times: PlainSample) -> float | None:
        asked = question(text)
        vector = await vector_of(asked, [row(1, **place)])
        return (await dated(asked, vector, *times).column(vector.sets, Slices()))[0]

    async def test_a_pod_is_dated_by_its_own_series(self) -> None:
        times = [
            time_of(0, NOW - 5, namespace="shop", pod="a"),
            time_of(0, NOW - 70, namespace="shop", pod="b"),
            time_of(0, NOW, namespace="other", pod="a"),
        ]
        assert await self.at("x", {"namespace": "shop", "pod": "a"}, *times) == NOW - 5
        assert await self.at("x", {"namespace": "shop", "pod": "b"}, *times) == NOW - 70
        assert await self.at("x", {"namespace": "shop", "pod": "c"}, *times) is None

    async def test_the_oldest_input_dates_the_value(self) -> None:
        times = [time_of(0, NOW - 5, namespace="shop", pod="a"), time_of(1, NOW - 40, namespace="shop", pod="a")]
        assert await self.at("x / y", {"namespace": "shop", "pod": "a"}, *times) == NOW - 40

    async def test_a_value_with_an_ended_input_has_no_time(self) -> None:
        times = [time_of(0, NOW - 5, namespace="shop", pod="a")]
        assert await self.at("x + y", {"namespace": "shop", "pod": "a"}, *times) is None

    async def test_a_value_with_an_alternative_needs_one_live_input(self) -> None:
        times = [time_of(0, NOW - 5, namespace="shop", pod="a")]
        assert await self.at("x or y", {"namespace": "shop", "pod": "a"}, *times) == NOW - 5

    async def test_an_alternative_without_any_live_input_has_no_time(self) -> None:
        """`sum(x) or vector(0)` while x is gone: a zero that nobody measured."""
        assert await self.at("sum(x) or vector(0)", {}) is None

    async def test_series_without_pod_labels_date_their_namespace(self) -> None:
        times = [time_of(0, NOW - 5, namespace="shop"), time_of(0, NOW - 9, namespace="other")]
        assert await self.at("x", {"namespace": "shop", "pod": "a"}, *times) == NOW - 5
        assert await self.at("x", {"namespace": "third", "pod": "a"}, *times) is None

    async def test_series_without_any_label_date_everything(self) -> None:
        times = [time_of(0, NOW - 5, namespace="shop", pod="a"), time_of(1, NOW - 9)]
        assert await self.at("x * scalar(y)", {"namespace": "shop", "pod": "a"}, *times) == NOW - 9

    async def test_a_series_of_no_pod_does_not_date_the_pods(self) -> None:
        times = [time_of(0, NOW), time_of(0, NOW - 80, namespace="shop", pod="a")]
        assert await self.at("x", {"namespace": "shop", "pod": "a"}, *times) == NOW - 80
        assert await self.at("x", {"namespace": "shop", "pod": "b"}, *times) is None

    async def test_a_total_is_dated_by_the_newest_of_its_inputs(self) -> None:
        times = [time_of(0, NOW - 30, namespace="shop"), time_of(0, NOW - 7, namespace="other")]
        assert await self.at("sum(x)", {}, *times) == NOW - 7
        assert await self.at("sum(x)", {"namespace": "shop"}, *times) == NOW - 30

    async def test_an_expression_without_selectors_has_the_time_of_its_evaluation(self) -> None:
        assert await self.at("vector(1)", {}) == NOW

    async def test_a_pod_without_a_time_has_no_sample(self) -> None:
        rows = [row(1, namespace="shop", pod="a"), row(2, namespace="shop", pod="b")]
        found = await answered(question(), rows, time_of(0, NOW - 3, namespace="shop", pod="a"))
        assert found.of("shop", 90).pods == {"a": Point(NOW - 3, NANO)}

    async def test_no_time_for_any_series_is_an_error(self) -> None:
        """Series whose labels were renamed on the way, or targets that are all down behind a long range."""
        rows = [row(1, namespace="shop", pod="a")]
        found = await answered(question(), rows, time_of(0, NOW, namespace="monitoring", pod="exporter"))
        sentence = "no series that it reads has a sample of the same namespace and pod in the last 90 s"
        assert found.of("shop", 90).error == sentence

    @pytest.mark.parametrize(
        "sample",
        [
            PlainSample({}, NOW, "1"),
            PlainSample({"effective_load_input": "7"}, NOW, "1"),
            PlainSample({"effective_load_input": "-1"}, NOW, "1"),
            PlainSample({"effective_load_input": "0"}, NOW, "x"),
            PlainSample({"effective_load_input": "0"}, NOW, "NaN"),
            PlainSample({"effective_load_input": "0"}, NOW, "+Inf"),
        ],
    )
    async def test_malformed_sample_times_are_an_error(self, sample: PlainSample) -> None:
        asked = question("x / y")
        with pytest.raises(WrongAnswer, match="not what was asked for"):
            dated(asked, await vector_of(asked, []), sample)


class TestSame:
    async def test_the_same_values_at_the_same_times_are_the_same_in_any_order(self) -> None:
        rows = [row(1, namespace="shop", pod="a"), row(2, namespace="shop", pod="b")]
        table = new_table(question())
        first = await answered(question(), rows, table=table)
        assert first.same(await answered(question(), rows[::-1], table=table))

    @pytest.mark.parametrize(
        "rows",
        [[], [row(2, namespace="shop", pod="a")], [row(1, namespace="shop", pod="b")], [row(1, pod="a")]],
    )
    async def test_other_values_are_another_result(self, rows: list[PlainSample]) -> None:
        table = new_table(question())
        first = await answered(question(), [row(1, namespace="shop", pod="a")], table=table)
        assert not first.same(await answered(question(), rows, table=table))
        assert not first.same(None)

    async def test_another_sample_time_is_another_result(self) -> None:
        rows = [row(1, namespace="shop", pod="a")]
        table = new_table(question())
        older = await answered(question(), rows, time_of(0, NOW - 1, namespace="shop", pod="a"), table=table)
        assert not (await answered(question(), rows, table=table)).same(older)


class TestNumbers:
    @given(st.floats(0, 1e15).map(repr) | st.from_regex(r"[0-9]{1,14}(\.[0-9]{0,20})?", fullmatch=True))
    def test_the_fast_path_and_parse_number_agree(self, text: str) -> None:
        assert sample_nano(text) == parse_number(text) == math.ceil(Fraction(text) * NANO)

    @pytest.mark.parametrize("text", ["", ".", "1.2.3", "1.-5", "²", "1 ", "٣", "1_000"])
    def test_other_texts_are_no_numbers(self, text: str) -> None:
        with pytest.raises(QuantityError):
            sample_nano(text)
