"""PromQL: names put in safely, what expressions read, refusals with their place, and the question that is sent."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.usage.promql import INPUT_LABEL, PromqlError, parse_inputs, question, substitute

LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
LABELS = ("namespace", "pod")


def selectors(text: str) -> list[str]:
    return [selector.base + selector.shift for selector in parse_inputs(text).selectors]


class TestSubstitute:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ('sum(x{n="$namespace",w="$workload"}) / 2', 'sum(x{n="shop",w="web.v1"}) / 2'),
            pytest.param(
                'x{a="${workload}s",b="$workload_x"}', 'x{a="web.v1s",b="$workload_x"}', id="braces let letters follow"
            ),
            pytest.param("x # $", "x # $", id="no variable"),
            pytest.param(
                'label_replace(x{n="$namespace"}, "pod", "$1", "instance", "(.*):.*")',
                'label_replace(x{n="shop"}, "pod", "$1", "instance", "(.*):.*")',
                id="references to groups are no variables",
            ),
            ('x{pod=~"$workload-.*"}', r'x{pod=~"web\\.v1-.*"}'),
            ("x{pod!~'$workload-.*'}", r"x{pod!~'web\\.v1-.*'}"),
            ("x{pod=~`$workload-.*`}", r"x{pod=~`web\.v1-.*`}"),
            ('x{pod=~ "$workload"}', r'x{pod=~ "web\\.v1"}'),
            ('x{a=~"b",app!="$workload"}', 'x{a=~"b",app!="web.v1"}'),
        ],
    )
    def test_names_are_put_in_and_a_dot_is_a_dot_in_a_regular_expression_too(self, text: str, expected: str) -> None:
        assert substitute(text, "shop", "web.v1") == expected

    @given(LABEL, LABEL, LABEL)
    def test_the_regular_expression_matches_the_workload_and_nothing_else(self, one: str, two: str, other: str) -> None:
        workload = f"{one}.{two}"
        filled = substitute("x{a=~`$workload`}", "shop", workload)
        pattern = filled.removeprefix("x{a=~`").removesuffix("`}")
        assert re.fullmatch(pattern, workload)
        assert not re.fullmatch(pattern, f"{one}{other[0]}{two}")

    @pytest.mark.parametrize(
        "name", ["", "a b", 'a"b', "a}", "A", "-a", "a-", "a\n", "a|b", ".*", "ä", "a..b", "a.", "x" * 254, "a\\"]
    )
    def test_a_name_that_no_object_can_have_is_refused(self, name: str) -> None:
        with pytest.raises(PromqlError, match="not a valid name of a workload"):
            substitute('x{app="$workload"}', "shop", name)

    def test_an_expression_without_variables_needs_no_valid_names(self) -> None:
        assert substitute('x{a="$workloads"}', "any name", "at all") == 'x{a="$workloads"}'


PUBLIC = [
    # prometheus-adapter's and KEDA's own examples, and those of ../docs
    ('sum(rate(http_requests_total{namespace="shop"}[2m])) by (namespace, pod)', 120, ["2m"], 1),
    ("sum(rate(container_cpu_usage_seconds_total{container!=\"\",image!=''}[5m])) by (pod)", 300, ["5m"], 1),
    ('sum(rate(http_requests_total{app="api"}[1m])) or vector(0)', 60, ["1m"], 1),
    ('histogram_quantile(0.95, sum(rate(http_duration_seconds_bucket{app="api"}[2m])) by (le))', 120, ["2m"], 1),
    ('max(kafka_consumergroup_lag{consumergroup=~"orders.*"}) by (topic)', 0, [], 1),
    ("sum by (namespace, pod) (irate(nginx_ingress_controller_requests[2m]))", 120, [], 1),
    # kubernetes-mixin, node-exporter mixin, prometheus mixin
    (
        (
            'sum by (cluster, namespace, pod, container) (irate(container_cpu_usage_seconds_total{job="kubelet"}[5m]))'
            " * on (cluster, namespace, pod) group_left(node) topk by (cluster, namespace, pod) (1,"
            ' max by (cluster, namespace, pod, node) (kube_pod_info{node!=""}))'
        ),
        300, [], 2,
    ),
    ('1 - avg without (cpu) (sum without (mode) (rate(node_cpu_seconds_total{mode=~"idle|iowait|steal"}[5m])))', 300,
     ["5m"], 1),
    ('predict_linear(node_filesystem_avail_bytes{fstype!=""}[6h], 24*60*60) < 0', 21600, [], 1),
    ('rate(a_total{code=~"5.."}[5m]) / ignoring(code) group_left sum without(code) (rate(a_total[5m]))', 300,
     ["5m", "5m"], 2),
    ("time() - max by (namespace, job) (kube_job_status_completion_time)", 0, [], 1),
    ("changes(kube_pod_container_status_restarts_total[15m]) > bool 2", 900, ["15m"], 1),
    ("quantile by (namespace) (0.9, avg_over_time(memory_bytes[10m]))", 600, [], 1),
    ('label_replace(rate(requests:by_pod[5m] offset -1h), "pod", "$1", "instance", "(.*):.*")', 300, ["5m"], 1),
    ('label_join(up{job="a"}, "x", "-", "namespace", "pod")', 0, [], 1),
    ("max_over_time(sum(rate(http_requests_total[1m]))[10m:30s])", 660, None, 1),
    ("avg_over_time(rate(a[1m])[30m:1m] offset 5m)", 2160, None, 1),
    ("quantile_over_time(0.95, (sum(rate(a[2m])))[1h:5m] @ end())", 3720, None, 1),
    ("sum(a offset 1w) or sum(b offset 1w)", 604800, [], 2),
    ("sum(rate(a[5m])) / sum(rate(a[5m] offset 1d)) > 2", 86700, ["5m", "5m"], 1),
    ("rate(a[5m]) / rate(a[1h])", 3600, None, 1),
    ("absent_over_time(a[10m]) unless on() b", 600, [], 2),
    ("sum(delta(temperature[2h])) + count(b) + stddev_over_time(c[1h])", 7200, ["2h"], 3),
    ('sum_over_time(a{x="}"}[1d2h3m]) atan2 scalar(b)', 93780, ["1d2h3m"], 2),
    ('{__name__="requests",pod=~".+"} * -1 ^ 2 % 3', 0, [], 1),
    ('{"http.requests", "k8s.pod.name"="a"}', 0, [], 1),
    ("clamp_max(sort_desc(-x), 1e3) != 5 # load", 0, [], 1),
    ("sum(rate(x{code=~`5\\d\\d`}[1m]))", 60, ["1m"], 1),
    ("vector(3)", 0, [], 0),
    ("vector(scalar(sum(rate(a[1m]))) * 2)", 60, ["1m"], 1),
]  # fmt: skip
"""Expressions, the seconds that they read back, the windows that can be counted (or None), how many selectors date."""

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_of(text: str) -> int:
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"([0-9]+)([smhd])", text))


@pytest.mark.parametrize(("text", "window", "counted", "dating"), PUBLIC, ids=[each[0][:40] for each in PUBLIC])
def test_a_public_expression_has_its_windows(text: str, window: float, counted: list[str] | None, dating: int) -> None:
    found = parse_inputs(text)
    assert (found.window, found.uncounted, len(found.selectors)) == (window, counted is None, dating)
    if counted is not None:
        assert [each.seconds for each in found.windows] == [seconds_of(each) for each in counted]


REFUSED = [
    ("sum(rate(x[5m])", 4, "unclosed left parenthesis"),
    ('x{a="b"', 2, "unexpected end of input inside braces"),
    ("sum(rate(x))", 10, "expected type matrix in call to function 'rate', got vector"),
    ("rate(x[1m + 30s])", 11, "unexpected character inside brackets: '+'"),
    ("sum(rollup_rate(x[5m]))", 16, "unknown function with name 'rollup_rate'"),
    ("x{a='b}", 5, "unterminated quoted string"),
    ("a +\n\n b c", 9, "invalid promql query"),
    ("http.requests", 1, "unexpected character after '.': 'r'"),
]


@pytest.mark.parametrize(("text", "character", "error"), REFUSED)
def test_a_refusal_says_where(text: str, character: int, error: str) -> None:
    with pytest.raises(PromqlError) as refused:
        parse_inputs(text)
    assert f"not readable at character {character}, " in str(refused.value)
    assert error in str(refused.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        *((text, "a range or a text; write one number a series") for text in ("x[5m]", "x[5m:1m]", '"text"')),
        (" # nothing", "no expression found"),
        ("", "is empty"),
        ("(" * 1500 + "x" + ")" * 1500, "more than 2000 tokens"),
        ("rate(x[99999999999999999999])", "the parser fails at it"),
    ],
)
def test_what_is_no_query_is_refused_with_the_remedy(text: str, sentence: str) -> None:
    with pytest.raises(PromqlError) as refused:
        parse_inputs(text)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(("part", "end"), [("-", ""), ("(", ")"), ("abs(", ")"), ("x^", ""), ("x or ", "")])
def test_text_as_deep_as_the_limit_is_read(part: str, end: str) -> None:
    depth = 480
    assert selectors(part * depth + "x" + end * depth) == ["x"]


class TestSelectors:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("x / x", ["x"]),
            ("x - x offset 1w", ["x"]),
            ("x offset 1h / y offset 2h", ["x offset 3600000ms", "y offset 7200000ms"]),
            ("x @ 100 offset 5m", ["x @ 100.000 offset 300000ms"]),
            ("max_over_time(x[1h:] offset 5m)", ["x offset 300000ms"]),
            ("max_over_time((x offset 1m)[1h:] offset 5m)", ["x offset 360000ms"]),
            ("max_over_time((x @ 7 offset 1m)[1h:] offset 5m)", ["x @ 7.000 offset 60000ms"]),
            ("max_over_time(x[1h:] @ end())", ["x @ end()"]),
            ('x{a=" offset 5m"} offset 1m', ['x{a=" offset 5m"} offset 60000ms']),
            ('{"a.b",c="d\\"e"}', ['{__name__="a.b",c="d\\"e"}']),
        ],
    )
    def test_they_keep_the_time_that_they_read(self, text: str, expected: list[str]) -> None:
        assert selectors(text) == expected

    @pytest.mark.parametrize(
        ("text", "alternatives"),
        [("a + b", False), *((text, True) for text in ("a or b", "a unless b", "absent(a)", "a OR b"))],
    )
    def test_an_expression_may_have_alternatives(self, text: str, alternatives: bool) -> None:
        assert parse_inputs(text).alternatives == alternatives

    @pytest.mark.parametrize(
        ("text", "behind"),
        [
            ("x offset 1w", 604800), ("x offset 1h + y offset 2h", 7200), ("x offset 1h + y", 0), ("x offset -5m", 0),
            ("x @ 100 offset 5m", 0), ("sum(rate(x[5m] offset 1d))", 86400), ("avg_over_time(x[5m:] offset 1h)", 3600),
        ],
    )  # fmt: skip
    def test_an_expression_of_the_past_says_how_far_back_it_is(self, text: str, behind: float) -> None:
        assert parse_inputs(text).behind == behind


BY_TARGET = "by (namespace, pod, job, instance)"
OR = f"or on ({INPUT_LABEL})"


class TestQuestion:
    def test_a_pod_has_the_fewest_samples_of_its_targets(self) -> None:
        asked = question("rate(x[1m])", parse_inputs("rate(x[1m])"), LABELS)
        assert f"min by (namespace, pod) (max {BY_TARGET} (count_over_time(x[60000ms])))" in asked

    @pytest.mark.parametrize(
        ("text", "shortest"),
        [("max_over_time(rate(x[1m])[5m:])", 60), ("rate(x[1m]) / rate(x[5m])", 60), ("max_over_time(x[5m:])", 0)],
    )
    def test_what_cannot_be_counted_is_not_asked_for_and_the_shortest_range_is_known(
        self, text: str, shortest: float
    ) -> None:
        inputs = parse_inputs(text)
        assert "count" not in question(text, inputs, LABELS)
        assert inputs.shortest == shortest

    def test_renamed_labels_are_asked_for_as_the_expression_renames_them(self) -> None:
        text = (
            'label_replace(label_replace(sum by (exported_namespace, exported_pod) (load{exported_namespace="shop"}), '
            '"namespace", "$1", "exported_namespace", "(.*)"), "pod", "$1", "exported_pod", "(.*)")'
        )
        assert question(text, parse_inputs(text), LABELS).splitlines()[2] == (
            f"{OR} label_replace(max by (namespace, pod, job, instance) (label_replace(label_replace("
            'max by (exported_namespace, exported_pod, job, instance) (timestamp(load{exported_namespace="shop"})), '
            '"namespace", "$1", "exported_namespace", "(.*)"), "pod", "$1", "exported_pod", "(.*)")), '
            f'"{INPUT_LABEL}", "time0", "", "")'
        )

    def test_unusual_label_names_are_quoted(self) -> None:
        assert 'by ("k8s.ns", pod, job, instance)' in question("x", parse_inputs("x"), ("k8s.ns", "pod"))


@given(st.text(st.sampled_from("ab0(){}[]\"'`\\,=~!+-@ \n#$:.\u00e9"), max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_inputs(text)
    except PromqlError:
        return
    parse_inputs(question(text, found, LABELS))
