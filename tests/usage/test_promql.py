"""PromQL: names put in safely, selectors found, the query for their sample times."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.usage.promql import (
    UNKNOWN_WINDOW,
    PromqlError,
    VectorSelector,
    ended_times_query,
    parse_inputs,
    sample_times_query,
    substitute,
    tokenize,
    uses_variables,
)

LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)


def found(text: str) -> list[str]:
    return [selector.text for selector in parse_inputs(text).selectors]


class TestSubstitute:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ('sum(x{n="$namespace",w="$workload"}) / 2', 'sum(x{n="shop",w="web.v1"}) / 2'),
            pytest.param(
                'x{a="${workload}s",b="$workload_x"}', 'x{a="web.v1s",b="$workload_x"}', id="braces let letters follow"
            ),
            ('x{app!="$workload"} # not $workload "', 'x{app!="web.v1"} # not $workload "'),
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
        with pytest.raises(PromqlError, match="no workload's name"):
            substitute('x{app="$workload"}', "shop", name)

    @pytest.mark.parametrize("name", ["", "a.b", "x" * 64, 'a"', "A"])
    def test_a_namespace_is_one_label(self, name: str) -> None:
        with pytest.raises(PromqlError, match="no namespace's name"):
            substitute('x{app="$namespace"}', name, "web")

    def test_a_variable_outside_of_quotes_is_refused_with_the_remedy(self) -> None:
        with pytest.raises(
            PromqlError, match=r'\$namespace must stand inside quotes, as in \{namespace="\$namespace"\}'
        ):
            substitute("x{namespace=$namespace}", "shop", "web")

    def test_an_expression_without_variables_needs_no_valid_names(self) -> None:
        assert substitute("x", "any name", "at all") == "x"

    @pytest.mark.parametrize(
        ("text", "uses"), [("x", False), ('x{a="$namespace"}', True), ('"${workload}"', True), ('"$workloads"', False)]
    )
    def test_uses_variables(self, text: str, uses: bool) -> None:
        assert uses_variables(text) is uses


class TestSelectors:
    @pytest.mark.parametrize(
        ("text", "selectors"),
        [
            ("x", ["x"]),
            ("sum by (namespace, pod) (rate(http_requests_total[1m]))", ["http_requests_total"]),
            ("sum(rate(x[1m])) by (namespace, pod)", ["x"]),
            ("SUM BY (a) (x) / COUNT WITHOUT (b) (y)", ["x", "y"]),
            ('x{code!~"5..",path="}{"}', ['x{code!~"5..",path="}{"}']),
            ('{__name__="x", `y`="z"}', ['{__name__="x", `y`="z"}']),
            ('x {a="b"}', ['x {a="b"}']),
            ("a / on (pod) group_left (owner) b", ["a", "b"]),
            ("a / ignoring (x) group_right b", ["a", "b"]),
            ("a and b unless c or d", ["a", "b", "c", "d"]),
            ("a > bool 1e5", ["a"]),
            ("a + 1h30m + 0x1F + .5 + 1_000 + Inf + NaN", ["a"]),
            ("namespace_pod:rps:rate1m", ["namespace_pod:rps:rate1m"]),
            ("histogram_quantile(0.9, sum by (le) (rate(b[5m])))", ["b"]),
            ('topk(3, count_values("v", x))', ["x"]),
            ("count / sum", ["count", "sum"]),
            ("a atan2 b", ["a", "b"]),
            ("x - x", ["x"]),
            ("rate(x[1m]) / rate(x[5m])", ["x"]),
            ("x # and y\n+ z", ["x", "z"]),
            ("time()", []),
            ("vector(1) > 0", []),
            ("-x", ["x"]),
            ("predict_linear(x[1h], 4 * 3600)", ["x"]),
        ],
    )
    def test_every_selector_is_found_once(self, text: str, selectors: list[str]) -> None:
        assert found(text) == selectors

    @pytest.mark.parametrize(
        ("text", "ranged"),
        [
            ("x", False),
            ("rate(x[1m])", True),
            ("max_over_time(x[5m:1m])", True),
            ("max_over_time((a / b)[5m:1m])", True),
            ("rate( x [ 1m ] )", True),
        ],
    )
    def test_a_selector_with_a_range_is_ranged(self, text: str, ranged: bool) -> None:
        assert {selector.ranged for selector in parse_inputs(text).selectors} == {ranged}

    @pytest.mark.parametrize(
        ("text", "shift"),
        [
            ("x offset 5m", "offset 5m"),
            ("x offset -1h30m", "offset -1h30m"),
            ("rate(x[1m] @ 1700000000.5 offset 1m)", "@ 1700000000.5 offset 1m"),
            ("x @ end()", "@ end()"),
            ("x offset (1m + 30s)", "offset (1m + 30s)"),
            ("x OFFSET 1d", "OFFSET 1d"),
        ],
    )
    def test_an_expression_with_shifted_selectors_only_keeps_them(self, text: str, shift: str) -> None:
        assert [selector.shift for selector in parse_inputs(text).selectors] == [shift]

    def test_shifted_selectors_beside_others_are_dropped(self) -> None:
        assert found("sum(rate(x[1m])) / sum(rate(y[1m] offset 1w))") == ["x"]

    def test_the_offset_of_a_subquery_is_skipped(self) -> None:
        assert found("max_over_time(rate(x[1m])[10m:1m] offset 1h) + y") == ["x", "y"]

    @pytest.mark.parametrize(
        ("text", "alternatives"),
        [
            ("x or y", True),
            ("sum(x) OR vector(0)", True),
            ("x unless y", True),
            ("absent(x)", True),
            ("absent_over_time(x[5m])", True),
            ("x and y", False),
            ("x + absent", False),
            ('x{a="or"}', False),
            ("sum by (or) (x)", False),
        ],
    )
    def test_an_expression_may_have_alternatives(self, text: str, alternatives: bool) -> None:
        assert parse_inputs(text).alternatives is alternatives

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("x{", r"'\{' is never closed"),
            ("rate(x[5m)", r"'\[' is never closed"),
            ('x{a="b}', "a string without its end at character 5"),
            ("x;y", "';' at character 2 is no PromQL"),
            ("x $ y", r"'\$' at character 3"),
            ("x{a='b\n'}", "a string without its end"),
            ("sum by (a", "never closed"),
            ("x offset", "ends where a time is wanted"),
            ("x @ -", "ends where a time is wanted"),
        ],
    )
    def test_invalid_promql_is_an_error_with_its_position(self, text: str, message: str) -> None:
        with pytest.raises(PromqlError, match=message):
            parse_inputs(text)

    @given(st.lists(st.sampled_from(['x{a="b"}', "sum", " by ", "(", ")", "[5m]", "1e5", "# c\n", "'s'"]), max_size=12))
    def test_tokens_and_spaces_make_up_the_whole_text(self, parts: list[str]) -> None:
        text = "".join(parts)
        read = list(tokenize(text))
        assert all(text[token.start : token.end] == token.text for token in read)
        gaps = re.sub(r"#[^\n]*", "", "".join(_gaps(text, [(token.start, token.end) for token in read])))
        assert gaps.strip() == ""


def _gaps(text: str, spans: list[tuple[int, int]]) -> list[str]:
    ends = [0, *(end for _, end in spans)]
    starts = [*(start for start, _ in spans), len(text)]
    return [text[end:start] for end, start in zip(ends, starts, strict=True)]


class TestDating:
    @pytest.mark.parametrize(
        ("selector", "labels", "seconds", "expected"),
        [
            (VectorSelector('x{a="b"}'), "pod", 90, 'max by (namespace, pod) (timestamp(x{a="b"}))'),
            pytest.param(VectorSelector("x"), 'k8s.pod"name', 90,
                         'max by (namespace, "k8s.pod\\"name") (timestamp(x))', id="an unusual label is quoted"),
            pytest.param(VectorSelector("x", ranged=True), "pod", None,
                         "max by (namespace, pod) (timestamp(x))", id="live series need no subquery"),
            pytest.param(VectorSelector("x", ranged=True), "pod", 90,
                         "max by (namespace, pod) (timestamp(x) or max_over_time(timestamp(x)[90000ms:15000ms]))",
                         id="the last sample of a series that ended"),
            pytest.param(VectorSelector("x", ranged=True, shift="offset 1h"), "pod", 90,
                         "max by (namespace, pod) (timestamp(x offset 1h))", id="a shifted one in its own past"),
        ],
    )  # fmt: skip
    def test_a_selector_is_dated_by_its_newest_samples(
        self, selector: VectorSelector, labels: str, seconds: float | None, expected: str
    ) -> None:
        assert sample_times_query([selector], ("namespace", labels), seconds) == expected

    @pytest.mark.parametrize(
        ("selector", "narrowed"),
        [
            ("x", r'x{pod=~"a-0|b\\.c"}'),
            ("x{}", r'x{pod=~"a-0|b\\.c"}'),
            ('x {a="{"}', r'x {pod=~"a-0|b\\.c", a="{"}'),
            ('{__name__="x",}', r'{pod=~"a-0|b\\.c", __name__="x",}'),
            ("x { # {\n}", 'x {pod=~"a-0|b\\\\.c" # {\n}'),
        ],
    )
    def test_ended_pods_are_asked_by_name(self, selector: str, narrowed: str) -> None:
        text = ended_times_query([VectorSelector(selector, ranged=True)], ("namespace", "pod"), 90, {0: ["b.c", "a-0"]})
        assert f"timestamp({narrowed}) or max_over_time(timestamp({narrowed})[90000ms:15000ms])" in text

    def test_ended_pods_are_asked_of_their_selectors_only(self) -> None:
        selectors = [VectorSelector("x", ranged=True), VectorSelector("y", ranged=True)]
        text = ended_times_query(selectors, ("namespace", "pod"), 90, {1: ["a"]})
        assert "x" not in re.findall(r"timestamp\((\w)", text)
        assert '"effective_load_input", "1"' in text

    def test_selectors_are_numbered(self) -> None:
        text = sample_times_query([VectorSelector("x"), VectorSelector("y")], ("namespace",), 90)
        assert re.findall(r'timestamp\((\w)\)\), "effective_load_input", "(\d)"', text) == [("x", "0"), ("y", "1")]
        assert "\nor " in text

    def test_the_query_is_valid_promql(self) -> None:
        selectors = parse_inputs('rate(x{a=~"b|c"}[1m]) / on (pod) y offset 5m or {__name__="z"}').selectors
        again = parse_inputs(sample_times_query(selectors, ("namespace", "pod"), 90)).selectors
        assert [selector.text for selector in again] == [selector.text for selector in selectors]


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("max_over_time((x offset 2m)[2m:] offset 3m)", 420),
        ("up", 0),
        ("sum by (namespace, pod) (rate(http_requests_total[1m]))", 60),
        ("rate(a[1h30m]) / rate(b[5m])", 5400),
        ("rate(a[90])", 90),
        ("rate(a[1m] offset 10m)", 660),
        ("a offset 1w", 604_800),
        ("rate(a[1m] offset -10m)", 60),
        ("a @ 1700000000", 0),
        ("max_over_time(rate(a[1m])[5m:15s])", 360),
        ("max_over_time(sum(rate(a[1m]))[5m:] offset 1m)", 420),
        ("rate(a[ 2m ])", 120),
        ("rate(a[100ms])", 0.1),
        ("rate(a[5m + 1m])", UNKNOWN_WINDOW),
        ("max_over_time(avg_over_time(rate(a[1m])[5m:])[10m:])", 960),
    ],
)
def test_the_window_is_how_far_back_an_expression_reads(text: str, window: float) -> None:
    assert parse_inputs(text).window == pytest.approx(window)


@pytest.mark.parametrize(
    ("text", "behind"),
    [
        ("sum(rate(a[5m] offset 1w))", 604_800),
        ("sum(a OFFSET 1d12h)", 129_600),
        ("(sum(a offset 1w) + sum(a offset 2w)) / 2", 1_209_600),
        ("sum(a)", 0),
        ("sum(a offset 1w) + sum(b)", 0),
        ("sum(a offset -1h)", 0),
        ("sum(a @ 1700000000)", 0),
        ("sum(a @ 1700000000 offset 1h)", 0),
        ("max_over_time(a[1h:1m] offset 1w)", 604_800),
        ("vector(5)", 0),
    ],
)
def test_an_expression_that_only_reads_the_past_says_how_far_back_it_is(text: str, behind: float) -> None:
    assert parse_inputs(text).behind == behind
