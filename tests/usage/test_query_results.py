"""From an answer to pods and services: labels, values, times, numbers of samples, and what is an error."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.quantity import NANO
from adapter.load.samples import ELSEWHERE, UNCOUNTED, Point, QuerySamples
from adapter.runtime.source_errors import QueryRejected, WrongAnswer
from adapter.usage.polling import AheadDates
from adapter.usage.prometheus_api import Sample
from adapter.usage.promql import INPUT_LABEL, parse_inputs
from adapter.usage.query_catalog import InstantQuery
from adapter.usage.query_results import Answer, QueryResult, build_result
from tests.usage.fakes import NOW, PlainSample, raw_sample

NAMES = st.sampled_from(["shop", "other", ""])
POD_A, POD_B = ({"namespace": "shop", "pod": pod} for pod in "ab")
SHOP, OTHER = {"namespace": "shop"}, {"namespace": "other"}


def question(text: str = "x", by_pod: bool | None = True, **more: Any) -> InstantQuery:
    inputs = parse_inputs(text)
    return InstantQuery(server="main", text=text, by_pod=by_pod, **{"window": inputs.window, "inputs": inputs, **more})


def row(value: str | float = "1", **labels: str) -> PlainSample:
    return PlainSample(labels, NOW, str(value))


def time_of(number: int, at: float, **labels: str) -> PlainSample:
    return PlainSample({**labels, INPUT_LABEL: f"time{number}"}, NOW, str(at))


def count_of(number: int, count: int, **labels: str) -> PlainSample:
    return PlainSample({**labels, INPUT_LABEL: f"count{number}"}, NOW, str(count))


def answer_of(asked: InstantQuery, found: Iterable[PlainSample]) -> Answer:
    return Answer(asked, [raw_sample(*one) for one in found], NOW)


def result_of(answer: Answer) -> QueryResult:
    ahead = AheadDates()
    ahead.begin(NOW)
    return build_result(answer, ahead)


def answered(asked: InstantQuery, found: list[PlainSample], *inputs: PlainSample) -> QueryResult:
    """Without inputs given every namespace and pod was sampled now."""
    selectors = range(len(asked.inputs.selectors))
    places = [{key: one.labels[key] for key in asked.labels if key in one.labels} for one in found]
    read = inputs or tuple(time_of(number, NOW, **labels) for labels in places for number in selectors)
    return result_of(answer_of(asked, [*found, *read]))


def of(asked: InstantQuery, found: list[PlainSample], *inputs: PlainSample) -> QuerySamples:
    return answered(asked, found, *inputs).of("shop")


class TestPods:
    def test_an_equal_answer_is_an_equal_result_whatever_was_read_of_it(self) -> None:
        one, two = (answered(question(), [row(1, **POD_A)]) for _ in range(2))
        assert one.of("shop").pods
        assert one == two

    def test_pods_are_matched_by_namespace_and_name_and_dated(self) -> None:
        rows = [row(1, **POD_A), row(2, **POD_B), row(9, namespace="other", pod="a"), row(9, **SHOP, pod="undated")]
        found = of(question(), rows, time_of(0, NOW - 3, **POD_A), time_of(0, NOW - 4, **POD_B))
        assert found.pods == {"a": Point(NOW - 3, NANO), "b": Point(NOW - 4, 2 * NANO)}
        assert found.error is None

    def test_the_names_of_the_labels_can_be_set(self) -> None:
        asked = question(labels=("k8s_ns", "k8s_pod"))
        assert list(of(asked, [row(3, k8s_ns="shop", k8s_pod="a", namespace="other", pod="z")]).pods) == ["a"]

    @pytest.mark.parametrize(
        ("value", "words"),
        [
            ("NaN", "NaN"),
            *((value, "a negative value") for value in ("-Inf", "-0.001")),
            *((value, "a value that is too large") for value in ("+Inf", "1e30")),
        ],
    )
    def test_an_unusable_value_is_dropped_and_named(self, value: str, words: str) -> None:
        bad, good = row(value, **POD_A), row(1, **POD_B)
        for rows in ([bad, good], [good, bad]):
            found = of(question(), rows)
            assert (found.pods, found.unusable, found.error) == ({"b": Point(NOW, NANO)}, {"a": words}, None)
        assert of(question(), [bad]).error == f"answers {words} for every pod, which does not count"

    @pytest.mark.parametrize(
        ("rows", "pods"),
        [
            ([], {}),
            ([row(1, namespace="other", pod="a")], {}),
            # cAdvisor's root cgroup has neither label, a pod's own cgroup sums stand beside it.
            ([row(100, id="/"), row(5, **SHOP), row(1, **POD_A)], {"a": Point(NOW, NANO)}),
        ],
    )
    def test_a_result_without_a_fault_has_no_error(self, rows: list[PlainSample], pods: dict[str, Point]) -> None:
        found = of(question(), rows)
        assert (found.pods, found.total, found.error) == (pods, None, None)

    @pytest.mark.parametrize(
        ("rows", "error"),
        [
            (
                [row(1, **POD_A, q="1"), row(2, **POD_A)],
                "answers several series (write it as sum by (namespace, pod) (…)) for every pod",
            ),
            ([row(1, **SHOP)], "lack the label 'pod'"),
        ],
    )
    def test_an_error_in_one_namespace_leaves_the_others(self, rows: list[PlainSample], error: str) -> None:
        found = answered(question(), [*rows, row(3, namespace="other", pod="a")])
        assert error in (found.of("shop").error or "")
        assert (found.of("shop").pods, found.of("other").error) == ({}, None)
        with_another = of(question(), [*rows, row(3, **POD_B)])
        assert (with_another.error, list(with_another.pods)) == (None, ["b"])

    @given(st.lists(st.tuples(NAMES, st.sampled_from(["a", "b", ""]), st.integers(0, 9)), max_size=8))
    def test_no_sample_of_another_namespace_is_ever_taken(self, rows: list[tuple[str, str, int]]) -> None:
        made = [row(n, **{k: v for k, v in {"namespace": ns, "pod": pod}.items() if v}) for ns, pod, n in rows]
        own = {(pod, n * NANO) for ns, pod, n in rows if ns == "shop" and pod}
        assert {(pod, point.value) for pod, point in of(question(), made).pods.items()} <= own


class TestServices:
    @pytest.mark.parametrize(
        ("rows", "value"),
        [
            pytest.param([row("12.5")], 12.5, id="one series is the number"),
            pytest.param([row("0")], 0, id="zero is a number"),
            pytest.param([row(5, **SHOP), row(7, namespace="other")], 5, id="only the own namespace counts"),
            pytest.param([row(7, namespace="other")], None, id="no other's number is taken"),
            pytest.param([row(5, **SHOP, pod="exporter-0")], 5, id="its pod label is ignored"),
        ],
    )
    def test_a_service_has_one_number(self, rows: list[PlainSample], value: float | None) -> None:
        found = of(question(by_pod=False), rows)
        expected = None if value is None else Point(NOW, int(value * NANO))
        assert (found.total, found.pods, found.error) == (expected, {}, None)

    def test_a_number_that_does_not_count_is_an_error_that_says_so(self) -> None:
        assert of(question(by_pod=False), [row("NaN")]).error == "answers NaN, which does not count"
        with pytest.raises(QueryRejected, match="native histogram"):
            Answer(question(), [Sample(msgspec.Raw(b"{}"))], NOW)

    @pytest.mark.parametrize(
        "rows",
        [
            [row(5, queue="a"), row(7, queue="b")],
            [row(5, **SHOP), row(7)],
            [row(5, **SHOP, q="a"), row("NaN", **SHOP, q="b")],
        ],
    )
    def test_more_than_one_series_is_an_error_that_says_so(self, rows: list[PlainSample]) -> None:
        found = of(question(by_pod=False), rows)
        assert "answers 2 series where one number is wanted" in (found.error or "")
        assert found.total is None

    def test_the_labels_of_inline_promql_show_whether_it_is_by_pod(self) -> None:
        assert list(of(question(by_pod=None), [row(5, **POD_A)]).pods) == ["a"]
        assert of(question(by_pod=None), [row(5)]).total == Point(NOW, 5 * NANO)

    def test_it_reads_the_targets_with_a_sample_in_its_window(self) -> None:
        inputs = [time_of(0, NOW - 59, **POD_A), time_of(0, NOW - 61, **POD_B)]
        found = of(question("sum(rate(x[1m]))", by_pod=False), [row(5)], *inputs)
        assert found.targets == {"a": 1}


class TestTimes:
    """A time of an input is its selector, how long it is ago, and its labels."""

    @pytest.mark.parametrize(
        ("text", "times", "place", "ago"),
        [
            # by its own series, and by no other pod's or namespace's
            ("x", [(0, 5, POD_A), (0, 70, POD_B), (0, 0, {**OTHER, "pod": "a"})], POD_A, 5),
            ("x", [(0, 5, POD_A), (0, 70, POD_B), (0, 0, {**OTHER, "pod": "a"})], POD_B, 70),
            ("x", [(0, 5, POD_A), (0, 70, POD_B), (0, 0, {**OTHER, "pod": "a"})], {**SHOP, "pod": "c"}, None),
            ("x / y", [(0, 5, POD_A), (1, 40, POD_A)], POD_A, 40),  # the oldest input dates the value
            ("x + y", [(0, 5, POD_A)], POD_A, None),  # an input has ended
            ("x or y", [(0, 5, POD_A)], POD_A, 5),  # an alternative needs one live input
            ("sum(x) or vector(0)", [], {}, None),  # without one it is a zero that nobody measured
            ("x", [(0, 5, SHOP), (0, 9, OTHER)], POD_A, 5),  # a namespace dates its pods
            ("x", [(0, 5, SHOP)], {**OTHER, "pod": "a"}, None),  # but those of no other
            ("x * scalar(y)", [(0, 5, POD_A), (1, 9, {})], POD_A, 9),  # no label at all dates everything
            ("x", [(0, 0, {}), (0, 80, POD_A)], POD_A, 80),  # a series of no pod dates no pod
            ("x", [(0, 0, {}), (0, 80, POD_A)], POD_B, None),
            ("sum(x)", [(0, 30, SHOP), (0, 7, OTHER)], {}, 7),  # a total by its newest
            ("sum by (namespace) (x)", [(0, 30, SHOP), (0, 7, OTHER)], SHOP, 30),  # of its namespace
            (  # a number of the namespace dates its pods, whichever pod reports it
                "x * on (namespace) group_left () max by (namespace) (y)",
                [(0, 5, POD_A), (1, 9, {**SHOP, "pod": "kube-state-metrics-0"}), (1, 1, OTHER)],
                POD_A,
                9,
            ),
            ("vector(1)", [], {}, 0),  # without selectors it is the time of the evaluation
        ],
    )
    def test_a_value_is_as_old_as_what_it_was_computed_from(
        self, text: str, times: list[tuple[int, float, dict[str, str]]], place: dict[str, str], ago: float | None
    ) -> None:
        inputs = [time_of(number, NOW - age, **labels) for number, age, labels in times]
        answer = answer_of(question(text), [row(1, **place), *inputs])
        at = answer.at((place.get("namespace", ""), place.get("pod", "")))
        assert at == (None if ago is None else NOW - ago)

    @pytest.mark.parametrize(
        "text",
        [
            "x / scalar(max(y))",
            "x * on () group_left () max(y)",
            "x / on () group_left () y",
            "sum by (namespace, pod) (x) * 2 / scalar(sum(y))",
        ],
    )
    def test_series_of_exporters_date_every_pod_by_their_newest(self, text: str) -> None:
        rows = [row(1, **POD_A), row(2, **POD_B)]
        own = [time_of(0, NOW - 3, **POD_A), time_of(0, NOW - 1, **POD_B)]
        exporters = [time_of(1, NOW - age, namespace="monitoring", pod=f"exporter-{age}") for age in (2, 50)]
        assert of(question(text), rows, *own, *exporters).pods == {
            "a": Point(NOW - 3, NANO),
            "b": Point(NOW - 2, 2 * NANO),
        }

    @pytest.mark.parametrize(
        "text",
        [
            "x * on (ip) group_right () rate(y[5m])",
            "x * on () group_left (pod) y",
            "sum by (ip) (rate(y[5m])) * on (ip) group_left (pod) x",
            "x * on (node) group_left () sum by (node) (rate(y[5m]))",
            "x * ignoring (pod) group_left () sum without (pod) (rate(y[5m]))",
            'x * label_replace(rate(y[5m]), "pod", "$1", "exported_pod", "(.*)")',
        ],
    )
    def test_load_that_is_joined_to_a_pod_never_has_another_pods_date(self, text: str) -> None:
        exporter = time_of(1, NOW, namespace="monitoring", pod="exporter-0")
        assert of(question(text), [row(1, **POD_A)], time_of(0, NOW, **POD_A), exporter).pods == {}

    def test_exporters_alone_date_no_pod_and_that_is_an_error(self) -> None:
        """Also series whose labels were renamed on the way, or targets that are all down behind a long range."""
        found = of(question(), [row(1, **POD_A)], time_of(0, NOW, namespace="monitoring", pod="exporter"))
        assert found.error == "no series that it reads has a sample of the same namespace and pod in the last 90 s"

    @pytest.mark.parametrize(
        ("mark", "value"),
        [
            *((mark, "1") for mark in ("time7", "count0", "other", "time-1")),
            *(("time0", v) for v in ("x", "NaN", "+Inf")),
        ],
    )
    def test_times_that_were_not_asked_for_are_an_error(self, mark: str, value: str) -> None:
        with pytest.raises(WrongAnswer, match="not what was asked for"):
            answer_of(question("x / y"), [PlainSample({INPUT_LABEL: mark}, NOW, value)])

    def test_a_series_with_a_label_like_ours_costs_no_other_pod_its_value(self) -> None:
        """A tenant's exporter may write any label, and a query without an aggregation keeps it."""
        forged = row("1", namespace="other", pod="x", effective_load_input="time0")
        assert of(question("x"), [row("2", **POD_A)], forged, time_of(0, NOW, **POD_A)).pods["a"].value == 2 * NANO

    @pytest.mark.parametrize(
        ("text", "times", "rows", "ended"),
        [
            ("rate(x[1m])", [POD_A], [POD_A, POD_B], [0]),
            pytest.param("x", [POD_A], [POD_A, POD_B], [], id="an instant selector reads no ended series"),
            pytest.param("rate(x[1m] offset 1m)", [POD_A], [POD_B], [], id="nor is the past asked for"),
            pytest.param("sum(rate(x[1m]))", [POD_A], [{}], [], id="a total has a live one"),
            pytest.param("sum(rate(x[1m]))", [], [{}], [0], id="a total without one"),
        ],
    )
    def test_the_times_of_ended_series_are_asked_for(
        self, text: str, times: list[dict[str, str]], rows: list[dict[str, str]], ended: list[int]
    ) -> None:
        found = [*(time_of(0, NOW, **labels) for labels in times), *(row(1, **labels) for labels in rows)]
        assert answer_of(question(text), found).ended == ended


RATE = "sum by (namespace, pod) (rate(x[1m]))"
TOTAL = "sum(rate(x[1m]))"


class TestCounts:
    @pytest.mark.parametrize(
        ("text", "counts", "count"),
        [
            pytest.param(RATE, [(0, 4, POD_A), (0, 2, POD_B)], 4, id="a pod has that of its own windows"),
            pytest.param(RATE, [(0, 2, POD_B)], UNCOUNTED, id="one that is not in the answer has none"),
            pytest.param(RATE, [(0, 3, SHOP)], 3, id="series without a pod count for all"),
            pytest.param("x", [], None, id="an instant value has no window"),
            pytest.param("max_over_time(x[1m])", [], None, id="nor one that does not sink"),
            pytest.param("rate(x[1m]) / rate(y[1m])", [(0, 4, POD_A), (1, 3, POD_A)], 3, id="of two the fewest"),
            pytest.param("rate(x[1m]) or rate(y[1m])", [(0, 4, POD_A)], 4, id="an alternative that is not there"),
            pytest.param("rate(x[1m]) / rate(y[5m])", [], UNCOUNTED, id="different lengths cannot be compared"),
            pytest.param("max_over_time(rate(x[1m])[5m:])", [], UNCOUNTED, id="a subquery cannot be counted"),
        ],
    )
    def test_a_value_has_the_number_of_samples_of_its_windows(
        self, text: str, counts: list[tuple[int, int, dict[str, str]]], count: int | None
    ) -> None:
        asked = question(text)
        times = [time_of(number, NOW, **POD_A) for number in range(len(asked.inputs.selectors))]
        found = of(asked, [row(1, **POD_A)], *times, *(count_of(n, held, **labels) for n, held, labels in counts))
        assert found.pods["a"].count == count

    def test_a_total_has_the_fewest_and_each_pods(self) -> None:
        inputs = [f(0, n, **pod) for f in (time_of, count_of) for n, pod in ((4, POD_A), (3, POD_B))]
        inputs += [count_of(0, 1, namespace="other", pod="a")]
        found = of(question(f"{TOTAL} by (namespace)", by_pod=False), [row(7, **SHOP)], *inputs)  # type: ignore[arg-type]
        assert found.total is not None
        assert (found.total.count, found.counts) == (3, {"a": 4, "b": 3})

    def test_a_total_whose_windows_never_agreed_says_no_numbers(self) -> None:
        ratio = question("sum(rate(x[1m])) / sum(rate(y[1m]))", by_pod=False)
        times = [time_of(n, NOW, **POD_A) for n in range(2)]
        found = of(ratio, [row(1)], *times, count_of(0, 4, **POD_A), count_of(1, 2, **POD_A))
        assert found.total is not None
        assert (found.total.count, found.counts) == (UNCOUNTED, {})

    @pytest.mark.parametrize(
        ("query", "by_pod"),
        [(RATE, True), ("sum(rate(x[1m]))", False), ("increase(x[1m])", True)],
    )
    def test_a_range_of_one_sample_is_named(self, query: str, by_pod: bool) -> None:
        found = of(question(query, by_pod=by_pod), [], count_of(0, 1, **POD_A))
        assert found.error == "its range of 60 s holds one sample, and a rate needs two; make it four scrape intervals"


class TestTargets:
    TIMES = (time_of(0, NOW, instance="a:1"), time_of(0, NOW - 9, instance="a:2"), time_of(0, NOW, instance="[::1]:1"))

    def test_a_total_has_those_of_all_places(self) -> None:
        others = [time_of(0, NOW, namespace="shop", pod="b"), time_of(0, NOW, namespace="monitoring", pod="c")]
        found = of(question("sum(x)", by_pod=False), [row(1)], *self.TIMES, *others)
        assert found.targets == {"a": 2, "::1": 1, "b": 1, ELSEWHERE: 1}

    def test_a_total_of_a_namespace_has_those_of_its_namespace(self) -> None:
        others = [time_of(0, NOW, namespace="shop", pod="b"), time_of(0, NOW, namespace="other", pod="c")]
        found = of(question("sum by (namespace) (x)", by_pod=False), [row(1, **SHOP)], *others)
        assert found.targets == {"b": 1}

    def test_the_times_of_ended_series_are_no_targets(self) -> None:
        made = answer_of(question("sum(rate(x[1m]))", by_pod=False), [row(1)])
        assert made.ended == [0]
        made.add([raw_sample(*time_of(0, NOW - 9, **POD_A))], are_live=False)
        found = result_of(made).of("shop")
        assert found.total is not None
        assert found.targets == {}

    def test_pods_have_those_of_several(self) -> None:
        times = [time_of(0, NOW, **pod, instance=instance) for pod in (POD_A, POD_B) for instance in ("1", "2")][:3]
        assert of(question(), [row(1, **POD_A), row(1, **POD_B)], *times).targets == {"a": 2}
