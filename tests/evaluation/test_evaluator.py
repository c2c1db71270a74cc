import json
import tracemalloc
from dataclasses import replace

import pytest

from adapter.evaluation.evaluator import Evaluator
from adapter.evaluation.object_index import DecodedPolicy, ObjectIndex, decode_policy
from adapter.evaluation.policy_metrics import policy_rows
from adapter.evaluation.targets import ResolvedTarget
from adapter.load.assessment import Assessment, HeldBy
from adapter.load.decide import decide
from adapter.load.pods import PodState
from adapter.load.quantity import NANO
from adapter.load.roster import Instance, Roster
from adapter.load.spec import Query, Registry
from adapter.policy.conditions import FOUND, TROUBLE_WHILE_TRUE, ConditionType
from adapter.policy.conformance import Wiring
from adapter.policy.hpa import CrossVersionReference, Hpa, HpaMetric, ScalingActive, decode_hpa
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.snapshot import Key, PolicyView, Snapshot
from adapter.telemetry.series import PolicyRow
from tests.evaluation.kit import KEY, FakeInputs, deployment, entry, hpa, loads, web_pods
from tests.load.kit import NOW, cpu

ASKS = (
    HpaMetric(
        kind="Object",
        name="desired_replicas",
        described=CrossVersionReference(API_VERSION, KIND, "web"),
        target="AverageValue",
        aim=NANO,
    ),
)


class Stand:
    """A service of five pods at 1500m, and its evaluator."""

    def __init__(self, inputs: type[FakeInputs] = FakeInputs) -> None:
        self.world = ObjectIndex(lambda _: None, lambda: None)
        self.inputs = inputs(found=deployment(5), samples=loads(5, "1500m"))
        self.world.policy_changed(None, entry())
        self.world.hpa_changed(None, hpa())
        for one in web_pods(5):
            self.world.pod_changed(None, one)
        self.now = NOW
        self.evaluator = Evaluator(self.world, self.inputs.rooms(), lambda: self.now)

    def view(self, key: Key = KEY) -> PolicyView:
        view = self.evaluator.begin(key)
        view = view() if callable(view) else view
        assert view is not None
        return view

    def assessment(self) -> Assessment:
        assessment = self.view().assessment
        assert assessment is not None
        return assessment

    def row(self, at: float = NOW) -> PolicyRow:
        """The metrics of the policy."""
        (row,) = policy_rows(Snapshot(policies={KEY: self.view()}), at)
        return row

    def problem(self, key: Key = KEY) -> tuple[int, str]:
        problem = self.view(key).problem
        assert problem is not None
        return problem.code, problem.message


@pytest.fixture
def stand() -> Stand:
    return Stand()


def desired(view: PolicyView) -> int | None:
    assert view.assessment is not None
    assert view.scale is not None
    assert view.bounds is not None
    return decide(view.assessment, view.scale, view.bounds, view.assessment.at).desired


def test_pods_that_the_selector_does_not_match_are_not_assessed(stand: Stand) -> None:
    stand.world.pod_changed(None, replace(web_pods(1)[0], name="stray", uid="uid-stray", labels={"app": "other"}))
    assert len(stand.assessment().pods) == 5


def test_a_pod_without_serving_endpoints_is_pulled_out_and_doubtful_while_their_watch_is_silent(stand: Stand) -> None:
    stand.inputs.endpoints["web-0"] = False
    assert stand.assessment().counts[PodState.PULLED_OUT] == 1
    stand.inputs.are_endpoints_silent = True
    for said in (False, None):
        stand.inputs.endpoints["web-0"] = said
        counts = stand.assessment().counts
        assert (counts[PodState.DOUBTFUL], counts[PodState.SERVING]) == (1, 4)


def test_a_clock_that_was_put_back_shrinks_nothing_until_samples_began_after_it(stand: Stand) -> None:
    """Pods that left in between would be dated before samples that have not seen their load move."""

    def held(at: float) -> HeldBy | None:
        stand.now, stand.inputs.samples = at, loads(5, "100m", at - 10)
        return stand.assessment().metrics[0].upper.hold

    stand.world.policy_changed(None, entry("other"))
    stand.world.hpa_changed(None, hpa("other", target="other"))
    stand.assessment()
    assert held(NOW + 300) is None
    stand.now = NOW + 240
    assert stand.view(Key("shop", "other")).assessment is not None
    assert [held(NOW + seconds) for seconds in (241, 297, 420)] == [*[HeldBy.WARMING_UP] * 2, None]
    assert held(NOW + 416) is None  # the time of an assessment that waited for another


def test_a_deleted_policy_has_no_view(stand: Stand) -> None:
    stand.world.policy_changed(entry(), None)
    assert stand.evaluator.begin(KEY) is None


def test_rivals_refuse_both_and_name_each_other(stand: Stand) -> None:
    stand.world.policy_changed(None, entry("second", hpa="web"))
    assert stand.problem()[0] == stand.problem(Key("shop", "second"))[0] == 409
    assert "second" in stand.problem()[1]
    assert "web" in stand.problem(Key("shop", "second"))[1]


@pytest.mark.parametrize(
    ("found", "sentence"),
    [("Deployment web does not exist", "Deployment web does not exist"), (deployment(5, scale=False), "scale")],
)
def test_an_unresolved_target_and_one_without_a_usable_scale_are_problems(
    stand: Stand, found: ResolvedTarget | str, sentence: str
) -> None:
    stand.inputs.found = found
    code, message = stand.problem()
    assert (code, sentence in message) == (503, True)


@pytest.mark.parametrize("selector", ["", "app in (web"])
def test_a_scale_without_a_usable_selector_is_a_problem_never_the_whole_namespace(stand: Stand, selector: str) -> None:
    stand.inputs.found = deployment(5, selector)
    code, message = stand.problem()
    assert code == 503
    assert "Deployment web" in message


NACOS = Registry(name="prod-nacos", service="web-service")


def test_a_registry_that_refuses_the_policy_is_a_problem_with_its_sentence(stand: Stand) -> None:
    stand.inputs.refused = "registry 'prod-nacos' is not in the adapter's settings (none yet); name one of them"
    stand.world.policy_changed(None, entry(registry=NACOS))
    assert stand.problem() == (422, f"WatermarkPolicy web: {stand.inputs.refused}")
    stand.world.hpa_changed(hpa(), None)
    assert stand.problem() == (422, f"WatermarkPolicy web: {stand.inputs.refused}"), "told before there is an HPA"
    stand.world.hpa_changed(None, hpa())
    stand.inputs.refused, stand.inputs.crowded = "", "service 'web' is not followed"
    assert stand.problem() == (503, "WatermarkPolicy web: service 'web' is not followed")


def test_a_query_that_the_settings_lack_is_told_before_the_policy_can_be_assessed(stand: Stand) -> None:
    unknown = entry(metrics=(cpu(), replace(cpu(), name="queue", resource="", query=Query(name="unknown"))))
    told = (422, "WatermarkPolicy web: metric queue: unknown of shop/web")
    stand.world.policy_changed(entry(), unknown)
    assert stand.view().problem is None, "the other metric decides"
    stand.world.policy_changed(None, entry("second", hpa="web"))
    assert stand.problem() == told, "and not that another policy has its target"
    stand.world.policy_changed(entry("second", hpa="web"), None)
    stand.inputs.found = "Deployment web does not exist"
    assert stand.problem() == told
    stand.world.hpa_changed(hpa(), None)
    assert stand.problem() == told
    stand.inputs.silent = "the watch is silent"
    assert stand.problem() == (503, "the watch is silent")


def test_pods_are_classified_by_the_registrys_roster(stand: Stand) -> None:
    stand.inputs.listed = Roster(
        at=stand.now, instances=tuple(Instance(pod_name=f"web-{i}", enabled=i > 1) for i in range(5))
    )
    stand.world.policy_changed(None, entry(registry=NACOS))
    assert stand.assessment().counts == {PodState.SERVING: 3, PodState.PULLED_OUT: 2}


def test_the_roster_history_of_one_service_does_not_apply_to_another(stand: Stand) -> None:
    """A policy that is edited to a wrong service: pods that it lacks are doubtful, as under a new policy."""
    stand.inputs.listed = Roster(at=stand.now, instances=tuple(Instance(pod_name=f"web-{i}") for i in range(5)))
    stand.world.policy_changed(None, entry(registry=NACOS))
    stand.view()
    stand.world.policy_changed(entry(registry=NACOS), entry(registry=replace(NACOS, service="com.shop.wrong")))
    stand.inputs.service = "com.shop.wrong"
    states: set[PodState] = set()
    for _ in range(6):
        stand.now += 20
        stand.inputs.listed = Roster(at=stand.now, instances=tuple(Instance(pod_name=f"web-{i}") for i in range(3)))
        states |= {pod.state for pod in stand.assessment().pods}
    assert states == {PodState.SERVING, PodState.DOUBTFUL}


@pytest.mark.parametrize(
    ("now", "remembered"), [(entry(), True), (entry(uid="another"), False)], ids=["the same", "created again"]
)
def test_the_memory_of_an_assessment_is_used_by_the_next_of_the_same_policy(
    stand: Stand, now: DecodedPolicy, *, remembered: bool
) -> None:
    stand.view()
    stand.inputs.samples = loads(4, "300m")
    stand.world.policy_changed(entry(), now)
    stand.now += 20
    last = stand.assessment().memory.metric("cpu").last
    assert ("uid-web-4" in last) == remembered


@pytest.mark.parametrize(("pods", "count", "threaded"), [(50, 63, False), (51, 64, True)])
def test_the_thread_assesses_only_policies_with_more_than_50_pods(
    stand: Stand, pods: int, count: int, threaded: bool
) -> None:
    stand.inputs.found, stand.inputs.samples = deployment(pods), loads(pods, "1500m")
    for one in web_pods(pods)[5:]:
        stand.world.pod_changed(None, one)
    evaluation = stand.evaluator.begin(KEY)
    assert callable(evaluation) == threaded
    view = evaluation() if callable(evaluation) else evaluation
    assert view is not None
    assert desired(view) == count


def test_the_metrics_of_a_policy_have_its_decision_and_usage(stand: Stand) -> None:
    row = stand.row(NOW + 3)
    assert (row.desired, row.current, row.decision_age, row.verdict) == (7.0, 5.0, 3.0, "Above")
    assert (row.minimum, row.maximum) == (1.0, 100.0)
    assert row.pods["serving"] == 5.0
    (metric,) = row.metrics
    assert (metric.effective, metric.high, metric.low) == (1.5, 1.2, None)


def test_the_metrics_of_a_policy_say_of_each_condition_whether_it_is_true(stand: Stand) -> None:
    lacking = {ConditionType.REGISTRY_DATA_VALID, ConditionType.FLOOR_MISSING}
    fine = {one.value: one not in TROUBLE_WHILE_TRUE for one in FOUND if one not in lacking}
    assert stand.row().conditions == fine
    stand.inputs.samples = loads(4, "1500m")
    assert stand.row().conditions == fine, "one sample that is missing is not late yet"
    stand.now += 91
    stand.inputs.samples = loads(4, "1500m", at=stand.now)
    assert stand.row(stand.now).conditions == fine | {"InputsFresh": False}


FOLLOWS = replace(hpa(), metrics=ASKS)
MISSPELT = replace(hpa(), metrics=(replace(ASKS[0], name="desired_replica"),))


@pytest.mark.parametrize(
    ("of_hpa", "active", "conditions"),
    [
        (None, None, {}),
        (hpa(), "True", {"HPAConformant": False}),
        (FOLLOWS, None, {"HPAConformant": True}),
        (FOLLOWS, "True", {"HPAConformant": True, "ScalingActive": True}),
        (FOLLOWS, "False", {"HPAConformant": True, "ScalingActive": False}),
        (MISSPELT, "False", {"HPAConformant": False, "ScalingActive": False}),
    ],
    ids=["no HPA", "it asks for another metric", "it has not synced", "it acts", "it gets an error", "misspelt"],
)
def test_the_metrics_of_a_policy_say_whether_its_hpa_follows(
    stand: Stand, of_hpa: Hpa | None, active: str | None, conditions: dict[str, bool]
) -> None:
    if of_hpa is not None and active is not None:
        of_hpa = replace(of_hpa, scaling_active=ScalingActive(active))
    snapshot = Snapshot(policies={KEY: stand.view()})
    wiring = None if of_hpa is None else Wiring(policy=snapshot.policies[KEY].policy, hpa=of_hpa)
    (row,) = policy_rows(snapshot, NOW, lambda _: wiring)
    known = {name: value for name, value in row.conditions.items() if name in {"HPAConformant", "ScalingActive"}}
    assert known == conditions


def test_an_invalid_policy_is_decoded_with_its_name_and_its_faults() -> None:
    metadata = {"name": "web", "namespace": "shop", "uid": "u1", "generation": 3}
    body = {"metadata": metadata, "spec": {"metrics": [], "tolerance": "much"}}
    decoded = decode_policy(json.dumps(body).encode())
    assert (decoded.key, decoded.policy.metrics) == (KEY, ())
    assert (decoded.policy.uid, decoded.policy.generation) == ("u1", 3)
    assert "spec.tolerance" in decoded.fault
    assert "spec.metrics" in decoded.fault


def test_ever_new_long_policies_and_hpas_take_no_memory() -> None:
    def read(number: int) -> None:
        labels = {"matchLabels": {f"{number}": "x" * 100_000}}
        metric = {"type": "External", "external": {"metric": {"name": "x", "selector": labels}}}
        spec = {"scaleTargetRef": {}, "maxReplicas": 9, "metrics": [metric]}
        decode_hpa(json.dumps({"metadata": {"name": "web"}, "spec": spec}).encode())
        metadata = {"name": "web", "annotations": {"a": f"{number}" * 100_000}}
        decode_policy(json.dumps({"metadata": metadata, "spec": {"hpa": f"{number}" * 100_000}}).encode())

    read(0)
    tracemalloc.start()
    try:
        for number in range(1, 50):
            read(number)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


class TestSilence:
    """A watch that the policy needs is silent: nothing is assessed, and the last count is not shown."""

    def test_the_problem_has_the_sentence_and_the_last_count_is_not_shown(self, stand: Stand) -> None:
        assert desired(stand.view()) == 7
        stand.inputs.silent = "the watch of pods has shown no life since 2026-01-01T00:00:00Z"
        view = stand.view()
        assert view.problem == (503, "WatchSilent", stand.inputs.silent)
        assert (view.assessment, view.scale) == (None, None)
        assert view.target is not None, "its HPA may ask for the target's metric"
        stand.inputs.silent = None
        assert desired(stand.view()) == 7

    def test_an_hpa_that_was_never_listed_is_not_reported_as_missing(self, stand: Stand) -> None:
        stand.world.hpa_changed(hpa(), None)
        assert stand.problem()[0] == 404
        stand.inputs.silent = "horizontalpodautoscalers have not been listed yet"
        assert stand.problem() == (503, stand.inputs.silent)
