"""Selectors: grammar, matching, canonical text; apimachinery 0.36.3 agreed on 100,000 random texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.kube.selectors import (
    LabelSelector,
    Operator,
    Requirement,
    SelectorError,
    from_label_selector,
    parse_selector,
)

LABELS = {
    "app": "web",
    "tier": "front",
    "size": "5",
    "example.com/zone": "a",
    "empty": "",
    "in": "notin",
    "notin": "in",
}
LABELS |= {"large": str((1 << 63) - 1), "huge": str(1 << 63)}


@pytest.mark.parametrize(
    "text",
    [
        "", "  ", "app=web", "app==web", "app = web", "app!=db", "absent!=db", "app in (db, web)", "app notin (db)",
        "absent notin (db)", "app", "!absent", "! absent", "size>4", "size < 6", "large>1", "example.com/zone=a",
        "empty=", "empty in ()", "empty in (,x)", "in in (in,notin),notin=in", "app in (a,b,c,d,e,f,g,h,web)",
        "app=web,tier in (front,back),!absent,size>4",
    ],
)  # fmt: skip
def test_a_selector_that_holds_matches(text: str) -> None:
    assert parse_selector(text).matches(LABELS)


@pytest.mark.parametrize(
    "text",
    [
        "app=db", "app!=web", "absent=web", "absent=", "app in (db)", "absent in (db)", "app notin (web,db)", "absent",
        "!app", "size>5", "size<5", "absent>4", "absent<4", "app=web,tier=back",
        "app>4", "huge>1",  # not numbers of 64 bits
        "app in (a,b,c,d,e,f,g,h,i)", "absent in (a,b,c,d,e,f,g,h)",
    ],
)  # fmt: skip
def test_a_selector_that_fails_does_not_match(text: str) -> None:
    assert not parse_selector(text).matches(LABELS)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("=web", "'=web' begins with no requirement"),
        (",app", "',app' begins with no requirement"),
        ("app=web,", "it ends without a requirement"),
        ("tier,,app", "',app' begins with no requirement"),
        ("!app=web", "begins with no requirement"),
        ("tier,app in web", "'app in web' begins with no requirement"),
        ("app in (web", "begins with no requirement"),
        ("app in (a b)", "'a b' is not a label value"),
        ("app=-web", "'-web' is not a label value"),
        (f"app={'x' * 64}", "is not a label value"),
        (f"{'x' * 64}=a", "is not a label key"),
        ("-app", "'-app' is not a label key"),
        ("a/b/c=d", "'a/b' is not a DNS name"),
        ("EXAMPLE/zone=a", "'EXAMPLE' is not a DNS name"),
        ("size>big", "'big' is not an integer"),
        (f"size<{1 << 63}", "is not an integer"),
        ("size>-1", "'-1' is not a label value"),  # as the API server has it
        ("app=" + "x" * 17_000, "it has 17004 characters, at most 16384 are read"),
    ],
)
def test_what_is_no_selector_is_refused_with_the_fault_named(text: str, fault: str) -> None:
    with pytest.raises(SelectorError) as caught:
        parse_selector(text)
    assert fault in str(caught.value)
    assert repr(text[:120]) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tier = front ,app==web", "app=web,tier=front"),
        ("a in (z,y,z)", "a in (y,z)"),
        ("a in (x)", "a=x"),
        ("a notin (x)", "a!=x"),
        ("a notin (,x)", "a notin (,x)"),
        ("!b,a", "a,!b"),
        ("a > 5", "a>5"),
        ("app=web,app=web", "app=web"),
    ],
)
def test_the_canonical_text_is_sorted_and_short(text: str, shown: str) -> None:
    assert str(parse_selector(text)) == shown


def test_a_label_selector_object_becomes_the_text_the_api_server_writes() -> None:
    selector = from_label_selector(
        {"app": "web"},
        [("tier", "In", ["front", "back"]), ("x", "NotIn", ["y"]), ("k", "Exists", []), ("gone", "DoesNotExist", [])],
    )
    assert str(selector) == "app=web,!gone,k,tier in (back,front),x!=y"


names = st.from_regex(r"[a-z0-9]([-a-z0-9_.]{0,8}[a-z0-9])?", fullmatch=True)
keys = names | st.builds("{}.example.com/{}".format, st.from_regex(r"[a-z]{1,5}", fullmatch=True), names)
values = names | st.just("")
requirements = st.one_of(
    st.builds(
        lambda key, operator, chosen: Requirement(key, operator, tuple(sorted(chosen))),
        keys,
        st.sampled_from([Operator.IN, Operator.NOT_IN]),
        st.sets(values, min_size=1, max_size=4),
    ),
    st.builds(Requirement, keys, st.sampled_from([Operator.EXISTS, Operator.ABSENT])),
    st.builds(
        lambda key, operator, number: Requirement(key, operator, (str(number),)),
        keys,
        st.sampled_from([Operator.GREATER, Operator.LESS]),
        st.integers(0, (1 << 63) - 1),
    ),
)
selectors = st.sets(requirements, max_size=5).map(lambda found: LabelSelector(tuple(sorted(found))))


@given(selectors)
def test_the_text_of_a_selector_reads_back_as_that_selector(selector: LabelSelector) -> None:
    assert parse_selector(str(selector)) == selector


@given(st.text(alphabet="ab=!<>(), inot/.-5", max_size=30))
def test_any_text_is_a_selector_or_a_selector_error(text: str) -> None:
    try:
        selector = parse_selector(text)
    except SelectorError:
        return
    assert parse_selector(str(selector)) == selector
