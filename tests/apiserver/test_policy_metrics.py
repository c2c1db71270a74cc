"""Object metrics on policies and their scale targets."""

from dataclasses import replace
from fractions import Fraction

import msgspec
import pytest

from adapter.apiserver.provider import MetricsProvider
from adapter.apiserver.request_info import parse_target
from adapter.apiserver.status import StatusError
from adapter.kube.errors import ScaleUnread
from adapter.load.assessment import Assessment, Decision, Verdict
from adapter.load.pods import PodState
from adapter.load.quantity import NANO
from adapter.load.samples import time_text
from adapter.load.spec import Bounds, Scale
from adapter.snapshot import Key, PolicyView, Problem, Snapshot, SnapshotStore
from tests.apiserver.conftest import Clock, StubScales
from tests.apiserver.metric_requests import (
    CUSTOM,
    CUSTOM_V1BETA1,
    EVERY_POLICY,
    EXTERNAL,
    FILLING,
    PODS,
    POLICY,
    TARGET,
    ask,
    items,
    value,
)
from tests.apiserver.snapshots import NOW, SCALE_PATH, measured, metric, reading, snapshot, view


def shop() -> Snapshot:
    pods = [
        reading("web-1", cpu=1500),
        reading("web-2", cpu=1500),
        reading("web-3", PodState.PULLED_OUT, cpu=10),
        reading("web-4", PodState.STARTING),
    ]
    return snapshot(view(pods=pods, assessments=[measured(usage=1500, raw=Fraction(NANO))]))


@pytest.mark.parametrize("path", [POLICY, TARGET])
@pytest.mark.parametrize(
    ("metric", "expected"),
    [("effective_pods", "2"), ("pulled_out_pods", "1"), ("effective_cpu", "1500m"), ("raw_cpu", "1")],
)
async def test_a_metric_is_served_on_the_policy_and_on_its_target(path: str, metric: str, expected: str) -> None:
    assert await value(shop(), f"{path}/{metric}") == expected


@pytest.mark.parametrize("path", [POLICY, TARGET])
async def test_each_assessment_s_own_value_is_served_while_the_pods_stay_the_same(path: str) -> None:
    first = view(assessments=[measured(usage=1500)])
    assert first.assessment is not None
    # An assessment keeps the counts of the last census.
    second = replace(first, assessment=replace(first.assessment, metrics=(measured(usage=2000),)))
    store = SnapshotStore()
    provider = MetricsProvider(store, StubScales(), lambda _: None, lambda: FILLING, lambda: NOW)
    served = []
    for known in (first, first, second, second, replace(second, problem=Problem(503, "ServiceUnavailable", "gone"))):
        store.swap(snapshot(known))
        try:
            body = await provider.custom(parse_target(f"{path}/effective_cpu"))
        except StatusError as error:
            served.append(error.message)
        else:
            served.append(msgspec.json.decode(body)["items"][0]["value"])
    assert served == ["1500m", "1500m", "2", "2", "gone"]


async def test_a_value_that_was_served_before_is_refused_once_a_watch_is_silent_or_its_assessment_old() -> None:
    silences: dict[Key, str] = {}
    clock, store = Clock(NOW), SnapshotStore()
    store.swap(shop())
    provider = MetricsProvider(store, StubScales(), silences.get, lambda: FILLING, clock)
    asked = parse_target(f"{POLICY}/effective_cpu")
    assert await provider.custom(asked) == await provider.custom(asked)
    silences[Key("shop", "checkout")] = "the watch of deployments is silent"
    with pytest.raises(StatusError, match="the watch of deployments is silent"):
        await provider.custom(asked)
    silences.clear()
    clock.now += 100
    with pytest.raises(StatusError, match="was last assessed at"):
        await provider.custom(asked)


async def test_the_described_object_is_the_one_asked_for() -> None:
    [on_policy] = await items(shop(), f"{POLICY}/effective_cpu")
    [on_target] = await items(shop(), f"{TARGET}/effective_cpu")
    assert on_policy["describedObject"] == {
        "kind": "WatermarkPolicy",
        "namespace": "shop",
        "name": "checkout",
        "apiVersion": "effective-load.io/v1alpha1",
    }
    assert on_target["describedObject"] == {
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
        "apiVersion": "apps/v1",
    }


async def test_a_metric_carries_the_time_and_window_of_its_samples() -> None:
    [found] = await items(shop(), f"{POLICY}/effective_cpu")
    assert (found["timestamp"], found["windowSeconds"]) == ("2027-01-15T07:59:48Z", 30)


async def test_a_count_of_pods_carries_the_time_of_the_assessment_and_no_window() -> None:
    [found] = await items(shop(), f"{POLICY}/effective_pods")
    assert found["timestamp"] == "2027-01-15T07:59:59Z"
    assert "windowSeconds" not in found


async def test_v1beta1_is_answered_in_its_own_shape() -> None:
    path = f"{CUSTOM_V1BETA1}/watermarkpolicies.effective-load.io/checkout/effective_cpu"
    answer = await ask(shop(), path)
    assert answer["apiVersion"] == "custom.metrics.k8s.io/v1beta1"
    assert answer["items"][0]["metricName"] == "effective_cpu"


async def test_a_third_of_a_unit_is_rounded_down_to_nano() -> None:
    picture = snapshot(view(assessments=[measured(usage=Fraction(1000, 3))]))
    assert await value(picture, f"{POLICY}/effective_cpu") == "333333333n"


async def test_desired_replicas_reads_the_live_scale_and_serves_the_shaped_count() -> None:
    scales = StubScales(Scale(replicas=5, status_replicas=5))
    assert await value(shop(), f"{POLICY}/desired_replicas", scales=scales) == "7"
    assert scales.reads == [SCALE_PATH]


async def test_a_count_below_the_status_is_shaped_just_above_the_count_below_it() -> None:
    scales = StubScales(Scale(replicas=9, status_replicas=9))
    assert await value(shop(), f"{TARGET}/desired_replicas", scales=scales) == "6001m"


async def test_only_desired_replicas_reads_the_scale() -> None:
    scales = StubScales()
    await ask(shop(), f"{POLICY}/effective_cpu", scales=scales)
    assert scales.reads == []


async def test_the_decision_gets_what_was_read_and_the_hpas_bounds() -> None:
    seen: list[tuple[Assessment, Scale, Bounds]] = []

    def decide(assessment: Assessment, scale: Scale, bounds: Bounds, _now: float) -> Decision:
        seen.append((assessment, scale, bounds))
        return Decision(desired=3, served=3000, error=None, verdict=Verdict.INSIDE, held_by=None, current=3)

    live = Scale(replicas=3, status_replicas=4)
    await ask(shop(), f"{POLICY}/desired_replicas", scales=StubScales(live), decide=decide)
    [(assessment, scale, bounds)] = seen
    assert (assessment.policy.name, scale, bounds) == ("checkout", live, Bounds(minimum=1, maximum=50))


async def refused(picture: Snapshot, target: str, **more: object) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await ask(picture, target, **more)  # type: ignore[arg-type]
    return caught.value


async def test_a_decision_in_error_is_a_503_with_its_sentence() -> None:
    def decide(_assessment: Assessment, scale: Scale, _bounds: Bounds, _now: float) -> Decision:
        return Decision(
            desired=None, served=None, error="cpu: no fresh sample", verdict=Verdict.ERROR, held_by=None, current=5
        )

    error = await refused(shop(), f"{POLICY}/desired_replicas", decide=decide)
    assert (error.code, error.reason) == (503, "ServiceUnavailable")
    assert "cpu: no fresh sample" in error.message


async def test_an_error_names_the_policy_where_the_request_does_not() -> None:
    def decide(_assessment: Assessment, scale: Scale, _bounds: Bounds, _now: float) -> Decision:
        return Decision(
            desired=None, served=None, error="no pod serves", verdict=Verdict.ERROR, held_by=None, current=5
        )

    asked = {where: (await refused(shop(), f"{where}/desired_replicas", decide=decide)) for where in (POLICY, TARGET)}
    assert asked[POLICY].message == "no pod serves"
    assert asked[TARGET].message == "WatermarkPolicy shop/checkout: no pod serves"


async def test_a_scale_that_cannot_be_read_is_a_503_that_names_it() -> None:
    scales = StubScales(error=ScaleUnread(f"GET {SCALE_PATH}: no answer", public="no answer within 0.5 s"))
    error = await refused(shop(), f"{POLICY}/desired_replicas", scales=scales)
    assert error.code == 503
    assert error.message == "the live replica count cannot be read: no answer within 0.5 s"


async def test_a_problem_is_answered_with_its_own_code_reason_and_sentence() -> None:
    problem = Problem(409, "Conflict", "two policies scale deployments.apps web")
    for name in ("desired_replicas", "effective_cpu", "effective_pods"):
        error = await refused(snapshot(view(problem=problem)), f"{POLICY}/{name}")
        assert (error.code, error.reason, error.message) == problem


async def test_a_policy_that_was_never_assessed_is_a_503() -> None:
    error = await refused(snapshot(view(assessed=False)), f"{POLICY}/effective_cpu")
    assert error.code == 503
    assert "not been assessed" in error.message


async def test_an_assessment_of_long_ago_is_a_503_that_says_of_when() -> None:
    error = await refused(snapshot(view(at=NOW - 100)), f"{POLICY}/desired_replicas")
    assert (error.code, time_text(NOW - 100) in error.message) == (503, True)


async def test_a_metric_in_error_is_a_503_with_its_sentence() -> None:
    picture = snapshot(view(assessments=[measured(usage=None, error="metrics.k8s.io: connection refused")]))
    error = await refused(picture, f"{POLICY}/effective_cpu")
    assert error.code == 503
    assert "metrics.k8s.io: connection refused" in error.message


async def test_a_metric_without_a_value_is_a_503() -> None:
    error = await refused(snapshot(view(assessments=[measured(usage=None)])), f"{POLICY}/effective_cpu")
    assert (error.code, "no serving pod has a sample" in error.message) == (503, True)


async def test_silent_watches_are_a_503_with_the_sentence_given() -> None:
    error = await refused(shop(), f"{POLICY}/effective_pods", stale="the watch of pods has been silent for 95 s")
    assert (error.code, error.message) == (503, "the watch of pods has been silent for 95 s")


async def test_nothing_is_answered_before_the_caches_are_filled() -> None:
    error = await refused(snapshot(view(), synced=False), f"{POLICY}/effective_pods")
    assert (error.code, error.message) == (503, FILLING)


def announced(name: str = "checkout") -> PolicyView:
    """A policy before its first evaluation: its target is not known."""
    return replace(view(name, assessed=False), target=None, target_resource="", pending=True)


@pytest.mark.parametrize(
    "path",
    [
        f"{POLICY}/desired_replicas",
        f"{POLICY}/effective_cpu",
        f"{TARGET}/desired_replicas",
        f"{EXTERNAL}/desired_replicas?labelSelector=policy%3Dcheckout",
        f"{PODS}/effective_cpu",
    ],
)
async def test_a_policy_that_was_not_evaluated_yet_is_a_503_and_never_a_404(path: str) -> None:
    error = await refused(snapshot(announced()), path)
    assert (error.code, error.message) == (503, "WatermarkPolicy shop/checkout has not been assessed yet")


async def test_an_unknown_target_is_a_503_until_every_policy_of_its_namespace_was_evaluated() -> None:
    path = f"{CUSTOM}/deployments.apps/other/desired_replicas"
    assert (await refused(snapshot(view(), announced("new")), path)).code == 503
    assert (await refused(snapshot(view(), view("new", target="new")), path)).code == 404


async def test_a_missing_target_is_answered_with_the_problem_of_its_policy() -> None:
    unlisted = Problem(503, "ServiceUnavailable", "deployments.apps have not been listed yet")
    lost = replace(view(problem=unlisted, assessed=False), target=None, target_resource="", target_name="web")
    error = await refused(snapshot(lost), f"{TARGET}/desired_replicas")
    assert (error.code, error.message) == (503, "deployments.apps have not been listed yet")
    assert (await refused(snapshot(lost), f"{CUSTOM}/deployments.apps/other/desired_replicas")).code == 404


async def test_an_unknown_policy_is_a_404_with_a_hint() -> None:
    error = await refused(shop(), f"{CUSTOM}/watermarkpolicies.effective-load.io/nope/desired_replicas")
    assert (error.code, error.name, error.group) == (404, "nope", "effective-load.io")
    assert "kubectl get watermarkpolicies -n shop" in error.message


async def test_a_policy_of_another_namespace_is_not_found() -> None:
    picture = snapshot(view(namespace="other"))
    assert (await refused(picture, f"{POLICY}/desired_replicas")).code == 404


async def test_a_target_without_a_policy_is_a_404() -> None:
    error = await refused(shop(), f"{CUSTOM}/deployments.apps/other/desired_replicas")
    assert (error.code, error.kind, error.group) == (404, "deployments", "apps")
    error = await refused(shop(), f"{CUSTOM}/statefulsets.apps/web/desired_replicas")
    assert error.code == 404


async def test_an_unknown_metric_is_a_404_that_names_what_exists() -> None:
    error = await refused(shop(), f"{POLICY}/effective_memory")
    assert error.code == 404
    for known in ("desired_replicas", "effective_pods", "pulled_out_pods", "effective_cpu", "raw_cpu"):
        assert known in error.message


@pytest.mark.parametrize("path", ["/metrics/desired_replicas", "/services/web/desired_replicas"])
async def test_objects_that_nobody_scales_have_no_metrics(path: str) -> None:
    assert (await refused(shop(), CUSTOM + path)).code == 404


async def test_no_metric_is_cluster_scoped() -> None:
    assert (await refused(shop(), "/apis/custom.metrics.k8s.io/v1beta2/nodes/n1/desired_replicas")).code == 404


async def test_a_metric_label_selector_has_to_select_the_series() -> None:
    assert (
        await value(shop(), f"{POLICY}/effective_cpu?metricLabelSelector=metric%3Dcpu%2Cpolicy%3Dcheckout") == "1500m"
    )
    assert await value(shop(), f"{POLICY}/desired_replicas?metricLabelSelector=policy+in+%28checkout%29") == "7"
    for query in ("policy%3Dother", "metric%3Dmemory", "!policy"):
        error = await refused(shop(), f"{POLICY}/effective_cpu?metricLabelSelector={query}")
        assert (error.code, "policy=checkout, metric=cpu" in error.message) == (404, True)
    assert (await refused(shop(), f"{POLICY}/desired_replicas?metricLabelSelector=metric")).code == 404


def several() -> Snapshot:
    return snapshot(
        view("a", target="a", labels={"team": "red"}, target_labels={"tier": "1"}),
        view("b", target="b", labels={"team": "blue"}, target_labels={"tier": "1"}, assessments=[measured(usage=250)]),
        view("c", target="c", labels={"team": "red"}, problem=Problem(404, "NotFound", "HPA c does not exist")),
        view("d", target="d", labels={"team": "red"}, metrics=[metric("memory")], assessments=[measured("memory")]),
        view("e", namespace="other", labels={"team": "red"}),
    )


async def test_a_listing_has_what_the_label_selector_selects_and_leaves_out_what_has_no_value() -> None:
    found = await items(several(), f"{EVERY_POLICY}/effective_cpu?labelSelector=team%3Dred")
    assert [(item["describedObject"]["name"], item["value"]) for item in found] == [("a", "1500m")]
    found = await items(several(), f"{EVERY_POLICY}/effective_cpu")
    assert [item["value"] for item in found] == ["1500m", "250m"]


async def test_a_listing_of_targets_selects_by_the_targets_labels() -> None:
    found = await items(several(), f"{CUSTOM}/deployments.apps/%2A/effective_pods?labelSelector=tier%3D1")
    assert [item["describedObject"]["name"] for item in found] == ["a", "b"]
    assert await items(several(), f"{CUSTOM}/statefulsets.apps/%2A/effective_pods") == []


async def test_a_listing_of_counts_reads_every_scale() -> None:
    scales = StubScales()
    found = await items(
        several(), f"{EVERY_POLICY}/desired_replicas?metricLabelSelector=policy+notin+%28b%29", scales=scales
    )
    assert [item["describedObject"]["name"] for item in found] == ["a", "d"]
    assert len(scales.reads) == 2


async def test_a_new_snapshot_is_served_at_once() -> None:
    from adapter.apiserver.provider import MetricsProvider
    from adapter.apiserver.request_info import parse_target
    from adapter.snapshot import SnapshotStore

    picture = SnapshotStore()
    picture.swap(shop())
    answers = MetricsProvider(picture, StubScales(), lambda _: None, lambda: FILLING, lambda: NOW)
    before = await answers.custom(parse_target(f"{POLICY}/effective_cpu"))
    picture.swap(snapshot(view(assessments=[measured(usage=2)])))
    after = await answers.custom(parse_target(f"{POLICY}/effective_cpu"))
    assert (b'"1500m"' in before, b'"2m"' in after) == (True, True)
