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
    async def test_pods_are_matched_by_namespace_and_name_and_dated(self) -> None:
        rows = [
            row(1, namespace="shop", pod="a"),
            row(2, namespace="shop", pod="b"),
            row(9, namespace="other", pod="a"),
            row(9, namespace="shop", pod="without a time"),
        ]
        times = [time_of(0, NOW - 3, namespace="shop", pod=pod) for pod in ("a", "b")]
        found = (await answered(question(), rows, *times)).of("shop", 90)
        assert found.pods == {"a": Point(NOW - 3, NANO), "b": Point(NOW - 3, 2 * NANO)}
        assert (found.error, found.fetched_at) == (None, NOW)

    async def test_the_names_of_the_labels_can_be_set(self) -> None:
        asked = question(namespace_label="k8s_ns", pod_label="k8s_pod")
        found = await of(asked, [row(3, k8s_ns="shop", k8s_pod="a", namespace="other", pod="z")])
        assert list(found.pods) == ["a"]

    @pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "1e30", "-0.001", "nonsense", "", "1,", ",1"])
    async def test_unusable_values_are_dropped(self, value: str) -> None:
        found = [row(value, namespace="shop", pod="a"), row(1, namespace="shop", pod="b")]
        for rows in (found, [*reversed(found)]):
            assert (await of(question(), rows)).pods == {"b": Point(NOW, NANO)}

    @pytest.mark.parametrize(
        ("rows", "pods"),
        [
            pytest.param([], {}, id="an empty result"),
            pytest.param([row(1, namespace="other", pod="a")], {}, id="only another namespace is in the answer"),
            # cAdvisor's root cgroup has neither label, a pod's own cgroup sums stand beside it.
            pytest.param(
                [row(100, id="/"), row(5, namespace="shop"), row(1, namespace="shop", pod="a")],
                {"a": Point(NOW, NANO)},
                id="series without a pod are ignored",
            ),
        ],
    )
    async def test_what_is_no_error(self, rows: list[PlainSample], pods: dict[str, Point]) -> None:
        found = await of(question(), rows)
        assert (found.pods, found.total, found.error) == (pods, None, None)

    @pytest.mark.parametrize(
        ("rows", "error"),
        [
            ([row(1, namespace="shop", pod="a", q="1"), row(2, namespace="shop", pod="a")], "several series of pod a"),
            ([row(1, namespace="shop")], "lack the label 'pod'"),
        ],
    )
    async def test_an_error_in_one_namespace_is_none_in_another(self, rows: list[PlainSample], error: str) -> None:
        found = await answered(question(), [*rows, row(3, namespace="other", pod="a")])
        assert error in (found.of("shop", 90).error or "")
        assert found.of("shop", 90).pods == {}
        assert found.of("other", 90).error is None

    async def test_no_namespace_label_anywhere_is_an_error_that_names_it(self) -> None:
        found = await of(question(), [row(1, pod="a"), row(2, pod="b")])
        assert "lack the label 'namespace'" in (found.error or "")
        assert found.pods == {}

    @given(st.lists(st.tuples(NAMES, st.sampled_from(["a", "b", ""]), st.integers(0, 9)), max_size=8))
    async def test_no_sample_of_another_namespace_is_ever_taken(self, rows: list[tuple[str, str, int]]) -> None:
        made = [row(n, **{k: v for k, v in {"namespace": ns, "pod": pod}.items() if v}) for ns, pod, n in rows]
        found = await of(question(), made)
        own = {(pod, n * NANO) for ns, pod, n in rows if ns == "shop" and pod}
        assert {(pod, point.value) for pod, point in found.pods.items()} <= own


class TestServices:
    @pytest.mark.parametrize(
        ("rows", "value"),
        [
            pytest.param([row("12.5")], 12.5, id="one series is the number"),
            pytest.param([row("0")], 0, id="zero is a number"),
            pytest.param([row("NaN")], None, id="NaN is no sample"),
            pytest.param([row(5, namespace="shop"), row(7, namespace="other")], 5, id="only the own namespace counts"),
            pytest.param([row(7, namespace="other")], None, id="no other's number is taken"),
            pytest.param([row(5, namespace="shop", pod="exporter-0")], 5, id="its pod label is ignored"),
        ],
    )
    async def test_a_service_has_one_number(self, rows: list[PlainSample], value: float | None) -> None:
        found = await of(question(by_pod=False), rows)
        expected = None if value is None else Point(NOW, int(value * NANO))
        assert (found.total, found.pods, found.error) == (expected, {}, None)

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

    async def test_the_labels_of_inline_promql_show_whether_it_is_by_pod(self) -> None:
        assert list((await of(question(by_pod=None), [row(5, namespace="shop", pod="a")])).pods) == ["a"]
        assert (await of(question(by_pod=None), [row(5)])).total == Point(NOW, 5 * NANO)


SHOP, POD_A, POD_B = ({"namespace": "shop", **pod} for pod in ({}, {"pod": "a"}, {"pod": "b"}))


class TestTimes:
    """A time of an input is its selector, how long it is ago, and its labels."""

    @pytest.mark.parametrize(
        ("text", "times", "place", "ago"),
        [
            *(
                pytest.param(
                    "x",
                    [(0, 5, POD_A), (0, 70, POD_B), (0, 0, {"namespace": "other", "pod": "a"})],
                    place,
                    ago,
                    id=says,
                )
                for place, ago, says in (
                    (POD_A, 5, "a pod is dated by its own series"),
                    (POD_B, 70, "and another by its own"),
                    ({"namespace": "shop", "pod": "c"}, None, "a third has none"),
                )
            ),
            pytest.param("x / y", [(0, 5, POD_A), (1, 40, POD_A)], POD_A, 40, id="the oldest input dates the value"),
            pytest.param("x + y", [(0, 5, POD_A)], POD_A, None, id="an input has ended: no time"),
            pytest.param("x or y", [(0, 5, POD_A)], POD_A, 5, id="an alternative needs one live input"),
            # A zero that nobody measured, while x is gone.
            pytest.param("sum(x) or vector(0)", [], {}, None, id="an alternative without any live input"),
            pytest.param(
                "x", [(0, 5, SHOP), (0, 9, {"namespace": "other"})], POD_A, 5, id="a namespace dates its pods"
            ),
            pytest.param("x", [(0, 5, SHOP)], {"namespace": "third", "pod": "a"}, None, id="but those of no other"),
            pytest.param("x * scalar(y)", [(0, 5, POD_A), (1, 9, {})], POD_A, 9, id="no label at all dates everything"),
            pytest.param("x", [(0, 0, {}), (0, 80, POD_A)], POD_A, 80, id="a series of no pod dates no pod"),
            pytest.param("x", [(0, 0, {}), (0, 80, POD_A)], POD_B, None, id="nor one without a series"),
            pytest.param("sum(x)", [(0, 30, SHOP), (0, 7, {"namespace": "other"})], {}, 7, id="a total by its newest"),
            pytest.param("sum(x)", [(0, 30, SHOP), (0, 7, {"namespace": "other"})], SHOP, 30, id="of its namespace"),
            pytest.param("vector(1)", [], {}, 0, id="without selectors it is the time of the evaluation"),
        ],
    )
    async def test_a_value_is_as_old_as_what_it_was_computed_from(
        self, text: str, times: list[tuple[int, float, dict[str, str]]], place: dict[str, str], ago: float | None
    ) -> None:
        asked = question(text)
        vector = await vector_of(asked, [row(1, **place)])
        dates = dated(asked, vector, *(time_of(number, NOW - age, **labels) for number, age, labels in times))
        (at,) = await dates.column(vector.sets, Slices())
        assert at == (None if ago is None else NOW - ago)

    async def test_no_time_for_any_series_is_an_error(self) -> None:
        """Series whose labels were renamed on the way, or targets that are all down behind a long range."""
        rows = [row(1, namespace="shop", pod="a")]
        found = await answered(question(), rows, time_of(0, NOW, namespace="monitoring", pod="exporter"))
        sentence = "no series that it reads has a sample of the same namespace and pod in the last 90 s"
        assert found.of("shop", 90).error == sentence

    @pytest.mark.parametrize(
        ("labels", "value"),
        [
            ({}, "1"),
            *(({"effective_load_input": number}, "1") for number in ("7", "-1")),
            *(({"effective_load_input": "0"}, value) for value in ("x", "NaN", "+Inf")),
        ],
    )
    async def test_malformed_sample_times_are_an_error(self, labels: dict[str, str], value: str) -> None:
        asked = question("x / y")
        with pytest.raises(WrongAnswer, match="not what was asked for"):
            dated(asked, await vector_of(asked, []), PlainSample(labels, NOW, value))


class TestSame:
    @pytest.mark.parametrize(
        ("rows", "ago", "same"),
        [
            pytest.param([("shop", "b", 2), ("shop", "a", 1)], 0, True, id="in another order"),
            pytest.param([], 0, False, id="nothing"),
            pytest.param([("shop", "a", 1), ("shop", "b", 1)], 0, False, id="another value"),
            pytest.param([("shop", "a", 1), ("shop", "c", 2)], 0, False, id="another pod"),
            pytest.param([("other", "a", 1), ("shop", "b", 2)], 0, False, id="another namespace"),
            pytest.param([("shop", "a", 1), ("shop", "b", 2)], 1, False, id="another time"),
        ],
    )
    async def test_results_are_the_same_that_have_the_same_values_and_times(
        self, rows: list[tuple[str, str, int]], ago: float, same: bool
    ) -> None:
        table = new_table(question())

        async def result(rows: list[tuple[str, str, int]], at: float) -> QueryResult:
            times = [time_of(0, at, namespace=namespace, pod=pod) for namespace, pod, _ in rows]
            found = [row(value, namespace=namespace, pod=pod) for namespace, pod, value in rows]
            return await answered(question(), found, *times, table=table)

        first = await result([("shop", "a", 1), ("shop", "b", 2)], NOW)
        assert first.same(await result(rows, NOW - ago)) is same
        assert not first.same(None)


class TestNumbers:
    @given(st.floats(0, 1e15).map(repr) | st.from_regex(r"[0-9]{1,14}(\.[0-9]{0,20})?", fullmatch=True))
    def test_the_fast_path_and_parse_number_agree(self, text: str) -> None:
        assert sample_nano(text) == parse_number(text) == math.ceil(Fraction(text) * NANO)

    @pytest.mark.parametrize("text", ["", ".", "1.2.3", "1.-5", "²", "1 ", "٣", "1_000"])
    def test_other_texts_are_no_numbers(self, text: str) -> None:
        with pytest.raises(QuantityError):
            sample_nano(text)
