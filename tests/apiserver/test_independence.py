"""Requests with selectors return what a full scan finds."""

from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.apiserver.status import StatusError
from adapter.kube.selectors import parse_selector
from tests.apiserver.metric_requests import PODS, ask
from tests.apiserver.snapshots import NOW, pod, query, series, snapshot

keys = st.sampled_from(["code", "zone"])
some = st.sampled_from(["a", "b"])
clause = st.one_of(
    st.builds("{}={}".format, keys, some),
    st.builds("{}!={}".format, keys, some),
    st.builds("{} in ({},{})".format, keys, some, some),
    st.builds("!{}".format, keys),
    keys,
)
selector = st.lists(clause, max_size=2).map(",".join)
found_series = st.tuples(st.sampled_from(["p0", "p1", "p2", None]), st.dictionaries(keys, some), st.booleans())


def plain(found: list[Any], pods: list[Any], chosen: str, wanted: str) -> list[tuple[str, str]] | set[str]:
    """The expected answer by a scan of all series and pods, or the names of the pods with several series."""
    by_pod: dict[str, Any] = {}
    ambiguous: set[str] = set()
    for each in found:
        name = each.labels.get("pod")
        if name is None or NOW - each.at > 90 or not parse_selector(chosen).matches(each.labels):
            continue
        if name in by_pod:
            ambiguous.add(name)
        by_pod[name] = each
    if ambiguous:
        return ambiguous
    meant = [each.name for each in pods if parse_selector(wanted).matches(each.labels)]
    return [(name, str(by_pod[name].value)) for name in meant if name in by_pod]


@example([("p0", {}, False), ("p0", {}, True), ("p1", {}, True), ("p1", {}, True), ("p0", {}, True)], [], "", "")
@given(st.lists(found_series, max_size=6), st.lists(st.dictionaries(keys, some), max_size=3), selector, selector)
async def test_a_query_on_pods_is_answered_as_by_a_scan_of_all_series_and_pods(
    rows: list[tuple[str | None, dict[str, str], bool]], labels: list[dict[str, str]], chosen: str, wanted: str
) -> None:
    found = [
        series(1000 * (number + 1), at=NOW - (5 if fresh else 91), **more, **({} if name is None else {"pod": name}))
        for number, (name, more, fresh) in enumerate(rows)
    ]
    pods = [pod(f"p{number}", labels=each) for number, each in enumerate(labels)]
    picture = snapshot(queries=[query("requests", *found)], pods=pods)
    expected = plain(found, pods, chosen, wanted)
    target = f"{PODS}/requests?labelSelector={quote_plus(wanted)}&metricLabelSelector={quote_plus(chosen)}"
    if isinstance(expected, list) and expected:
        items = (await ask(picture, target))["items"]
        assert [(i["describedObject"]["name"], f"{int(i['value'])}000000000") for i in items] == expected
        return
    with pytest.raises(StatusError) as caught:
        await ask(picture, target)
    refused = caught.value
    said = any(f"several series of pod {name};" in refused.message for name in expected)
    assert (refused.code, said) == ((503, True) if expected else (404, False))
