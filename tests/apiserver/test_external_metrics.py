"""Policies and queries as External metrics, which the HPA adds up."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.apiserver.status import StatusError
from adapter.kube.selectors import parse_selector
from adapter.load.samples import time_text
from adapter.snapshot import Problem, Snapshot
from tests.apiserver.conftest import StubScales
from tests.apiserver.metric_requests import EXTERNAL, ask, items, value
from tests.apiserver.snapshots import NOW, measured, query, series, snapshot, view


async def refused(picture: Snapshot, target: str, **more: object) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await ask(picture, target, **more)  # type: ignore[arg-type]
    return caught.value


def two() -> Snapshot:
    return snapshot(view("a", target="a"), view("b", target="b", assessments=[measured(usage=250)]))


@pytest.mark.parametrize(
    "selector",
    ["policy%3Db", "policy%3D%3Db", "policy+in+%28b%2Cc%29", "policy%21%3Da", "policy+notin+%28a%29%2Cpolicy"],
)
async def test_one_selected_policy_gives_its_count(selector: str) -> None:
    [found] = await items(two(), f"{EXTERNAL}/desired_replicas?labelSelector={selector}")
    assert (found["metricName"], found["metricLabels"], found["value"]) == ("desired_replicas", {"policy": "b"}, "7")


async def test_several_selected_policies_are_a_400_because_the_hpa_would_add_up_their_counts() -> None:
    error = await refused(two(), f"{EXTERNAL}/desired_replicas")
    assert (error.code, "a, b" in error.message, "add up" in error.message) == (400, True, True)


async def test_where_no_policy_is_selected_the_answer_says_how_to_select_one() -> None:
    for selector in ("policy%3Dc", "team%3Dred", "%21policy"):
        error = await refused(two(), f"{EXTERNAL}/desired_replicas?labelSelector={selector}")
        assert (error.code, "matchLabels: {policy: NAME}" in error.message) == (404, True)


async def test_a_policy_of_another_namespace_is_never_selected() -> None:
    picture = snapshot(view("b", namespace="other"))
    assert (await refused(picture, f"{EXTERNAL}/desired_replicas?labelSelector=policy%3Db")).code == 404


async def test_metrics_have_policy_and_metric_as_labels() -> None:
    found = await items(two(), f"{EXTERNAL}/effective_cpu?labelSelector=policy%3Db")
    assert [(item["metricLabels"], item["value"]) for item in found] == [({"policy": "b", "metric": "cpu"}, "250m")]
    assert len(await items(two(), f"{EXTERNAL}/effective_pods")) == 2


async def test_one_policy_in_error_fails_a_sum() -> None:
    ill = view("c", target="c", problem=Problem(404, "NotFound", "HPA c does not exist"))
    error = await refused(snapshot(view("a", target="a"), ill), f"{EXTERNAL}/effective_cpu")
    assert error.message == "HPA c does not exist"


async def test_a_selector_that_selects_no_policy_is_a_404() -> None:
    assert (await refused(two(), f"{EXTERNAL}/effective_cpu?labelSelector=policy%3Dc")).code == 404


async def test_an_unknown_metric_is_a_404_that_names_what_exists() -> None:
    picture = snapshot(view(), queries=[query("depth", by_pod=False)])
    error = await refused(picture, f"{EXTERNAL}/nope")
    assert (error.code, "depth" in error.message, "desired_replicas" in error.message) == (404, True, True)
    assert "no policy and no query" in (await refused(snapshot(), f"{EXTERNAL}/nope")).message


async def test_a_live_scale_is_read_for_a_count() -> None:
    scales = StubScales()
    await value(two(), f"{EXTERNAL}/desired_replicas?labelSelector=policy%3Da", scales=scales)
    assert len(scales.reads) == 1


# --- named queries


def depth(*found: object, **more: object) -> Snapshot:
    return snapshot(queries=[query("depth", *found, by_pod=False, **more)])  # type: ignore[arg-type]


async def test_the_series_of_the_namespace_that_are_selected_are_served() -> None:
    picture = depth(series(100, queue="x"), series(2500, queue="y"))
    found = await items(picture, f"{EXTERNAL}/depth?labelSelector=queue%3Dy")
    assert [(item["metricLabels"], item["value"]) for item in found] == [({"namespace": "shop", "queue": "y"}, "2500m")]
    assert len(await items(picture, f"{EXTERNAL}/depth")) == 2


async def test_a_query_by_pod_is_served_too() -> None:
    picture = snapshot(queries=[query("requests", series(100, pod="p1"))])
    assert await value(picture, f"{EXTERNAL}/requests") == "100m"


async def test_a_stale_series_that_counts_is_a_503_because_the_sum_would_lack_it() -> None:
    picture = depth(series(100, queue="x"), series(2500, queue="y", at=NOW - 91))
    error = await refused(picture, f"{EXTERNAL}/depth")
    assert (error.code, time_text(NOW - 91) in error.message) == (503, True)
    assert await value(picture, f"{EXTERNAL}/depth?labelSelector=queue%3Dx") == "100m"


async def test_no_series_is_a_404_with_a_sentence_not_an_empty_list() -> None:
    error = await refused(depth(series(1, queue="x")), f"{EXTERNAL}/depth?labelSelector=queue%3Dz")
    assert (error.code, "'queue=z'" in error.message, "namespace shop" in error.message) == (404, True, True)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"fetched_at": None}, "has not been answered yet"),
        ({"fetched_at": None, "error": "main: 400 bad_data"}, "has not been answered yet: main: 400 bad_data"),
        ({"fetched_at": NOW - 95}, f"answered at {time_text(NOW - 95)}, the limit is 90 s"),
        (
            {"fetched_at": NOW - 95, "error": "main: 400 bad_data"},
            f"{time_text(NOW - 95)}, the limit is 90 s; main: 400 bad_data",
        ),
    ],
)
async def test_a_query_without_an_answer_or_with_an_old_one_is_a_503_that_says_why(
    more: dict[str, object], says: str
) -> None:
    error = await refused(depth(series(1, queue="x"), **more), f"{EXTERNAL}/depth")
    assert (error.code, says in error.message) == (503, True)


async def test_a_failed_poll_changes_nothing_until_the_samples_are_too_old() -> None:
    """As for policies: samples count until they are too old; then the poll's error is answered."""
    failed = "Prometheus main: no answer within 10 s"
    assert await value(depth(series(100, queue="x"), error=failed), f"{EXTERNAL}/depth") == "100m"
    error = await refused(depth(series(100, queue="x", at=NOW - 91), error=failed), f"{EXTERNAL}/depth")
    assert (error.code, time_text(NOW - 91) in error.message, failed in error.message) == (503, True, True)
    error = await refused(depth(error=failed), f"{EXTERNAL}/depth")
    assert (error.code, failed in error.message) == (503, True)


keys = st.sampled_from(["queue", "zone"])
some = st.sampled_from(["a", "b", "c"])
clauses: st.SearchStrategy[Callable[[dict[str, str]], bool] | str] = st.one_of(
    st.builds("{}={}".format, keys, some),
    st.builds("{}!={}".format, keys, some),
    st.builds("{} in ({},{})".format, keys, some, some),
    st.builds("{} notin ({},{})".format, keys, some, some),
    st.builds("!{}".format, keys),
    keys,
)


@given(
    st.lists(st.dictionaries(keys, some), min_size=1, max_size=6),
    st.lists(clauses, min_size=1, max_size=3).map(lambda found: ",".join(map(str, found))),
)
async def test_any_selector_serves_exactly_the_series_that_it_selects(
    labels: list[dict[str, str]], selector: str
) -> None:
    from urllib.parse import quote_plus

    found = [series(number + 1, at=NOW - 1, **each) for number, each in enumerate(labels)]
    wanted = [
        f"{n + 1}m" for n, each in enumerate(labels) if parse_selector(selector).matches({"namespace": "shop", **each})
    ]
    target = f"{EXTERNAL}/depth?labelSelector={quote_plus(selector)}"
    if wanted:
        assert [item["value"] for item in await items(depth(*found), target)] == wanted
    else:
        assert (await refused(depth(*found), target)).code == 404


async def test_a_query_needs_no_watch_and_a_policy_does() -> None:
    assert (
        await value(depth(series(100, queue="x")), f"{EXTERNAL}/depth", stale="the watch of pods is silent") == "100m"
    )
    error = await refused(depth(series(1)), f"{EXTERNAL}/desired_replicas", stale="the watch of pods is silent")
    assert (error.code, error.message) == (503, "the watch of pods is silent")
