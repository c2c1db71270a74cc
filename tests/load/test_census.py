"""Everything kept from one assessment to the next changes no result."""

import gc
from copy import deepcopy
from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.load import membership, pipeline, scenarios
from adapter.load.assessment import Assessment, AssessmentInputs, Decision, MetricAssessment
from adapter.load.census import Census
from adapter.load.departures import DepartedLoad
from adapter.load.effective_usage import MetricReader, PodSample
from adapter.load.explanation import explain
from adapter.load.memory import Memory
from adapter.load.memory_updates import after_rollout
from adapter.load.metric_assessment import band_of
from adapter.load.pipeline import decide
from adapter.load.pod_groups import group_pods
from adapter.load.pods import Pod, PodCondition, PodState
from adapter.load.roster import Instance, Roster
from adapter.load.sample_columns import Column, read_columns, static_rows
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples
from adapter.load.scenario_list import ScenarioList
from adapter.load.scenario_spans import ScenarioSpans
from adapter.load.scenarios import AwayPods, scenarios_of
from adapter.load.spec import (
    Average,
    Bounds,
    Capacity,
    Converge,
    Metric,
    Policy,
    PulledOut,
    Query,
    ResourceMetric,
    Step,
    Strategy,
    Target,
    ToleranceIn,
    Trigger,
)
from adapter.load.steps import collected, finish
from adapter.load.totals import DoubtfulPod, PodLoad, Totals
from tests.load.kit import NOW, REGISTRY, assess_and_decide, cpu, nano, pod, policy, roster, scale, usage, with_columns

BOUNDS = Bounds(minimum=1, maximum=100)
OF_LIMIT = ResourceMetric(name="cpu", of=Capacity.LIMIT)
RPS = Metric(name="rps", query=Query(name="rps"), high=Fraction(nano(9)), low=Fraction(nano(3)))
RULES = (
    policy(cpu("1200m", "400m")),
    policy(cpu("1200m", "400m"), replace(cpu("80m", "20m"), name="share", resource=OF_LIMIT)),
    policy(cpu("1200m", "400m"), registry=REGISTRY),
    policy(cpu("1200m", "400m"), registry=REGISTRY, pulled_out=PulledOut(replace_after=0.0, delete_first=True)),
    policy(cpu("1200m", None), registry=replace(REGISTRY, any_out=True, grace=30.0), converge_towards=Converge.HIGH),
    policy(cpu("5", "2"), registry=REGISTRY, average=Average.TOTAL, tolerate_zero=True),
    policy(RPS, registry=REGISTRY),
    policy(
        cpu(None, target=Fraction(nano("1"))), registry=REGISTRY, strategy=Strategy.RATIO, tolerance=Fraction(1, 10)
    ),
    policy(
        cpu(None, target=Fraction(nano("60m")), resource=OF_LIMIT),
        registry=REGISTRY,
        strategy=Strategy.STEP,
        step=Step(tolerance_in=ToleranceIn.RATIO),
    ),
)
_WORDS = st.sampled_from(["", "", "", "OUT_OF_SERVICE", "STARTING", "absent", "doubtful", "weightless"])
_LOADS = st.sampled_from([None, 0, 100, 300, 399, 900, 1300, 5000])


@dataclass
class Service:
    """A service over time, with the inputs of its next assessment."""

    rule: Policy
    now: float = NOW
    pods: list[Pod] = field(default_factory=list)
    roster: Roster | None = None
    samples: Samples = field(default_factory=Samples)
    memory: Memory = field(default_factory=Memory)
    words: dict[str, str] = field(default_factory=dict)
    target: Target | None = None

    def look(self, memory: Memory) -> Assessment:
        return self.decide(memory)[0]

    def decide(self, memory: Memory) -> tuple[Assessment, Decision]:
        return assess_and_decide(
            self.rule,
            self.pods,
            self.samples,
            current=max(1, len(self.pods)),
            listed=self.roster,
            memory=memory,
            now=self.now,
            target=self.target,
        )


def _instance(one: Pod, word: str, now: float) -> Instance:
    doubted = now + 40 if word == "doubtful" else None
    status = "CRITICAL" if word == "doubtful" else word if word.isupper() else ""
    return Instance(ip=one.ips[0], status=status, doubtful_until=doubted, weight=0.0 if word == "weightless" else None)


def _hear(service: Service, data: st.DataObject) -> None:
    for one in service.pods:
        if one.uid not in service.words or not data.draw(st.integers(0, 5)):
            service.words[one.uid] = data.draw(_WORDS)
    listed = [(one, service.words[one.uid]) for one in service.pods]
    instances = tuple(_instance(one, word, service.now) for one, word in listed if word != "absent")
    service.roster = replace(
        roster(at=service.now - data.draw(st.sampled_from([0.0, 0.0, 1.0, 400.0]))),
        instances=instances,
        reconnected_at=data.draw(st.sampled_from([None, None, service.now - 5])),
        registry_total=data.draw(st.sampled_from([None, 100, 50])),
    )


def _confirm(service: Service, data: st.DataObject) -> None:
    """The registry answers the same again."""
    if service.roster is not None:
        again = tuple(map(replace, service.roster.instances)) if data.draw(st.booleans()) else service.roster.instances
        service.roster = replace(service.roster, at=max(service.roster.at, service.now - 1), instances=again)


def _relabel(service: Service, data: st.DataObject) -> None:
    """A pod changes in nothing that matters."""
    if service.pods:
        one = service.pods.pop(data.draw(st.integers(0, len(service.pods) - 1)))
        service.pods = [*service.pods, replace(one, labels={"changed": str(service.now)})]


def _measure(service: Service, data: st.DataObject) -> None:
    usage, points = {}, {}
    for one in service.pods:
        load = data.draw(_LOADS)
        at = service.now - data.draw(st.sampled_from([1.0, 5.0, 5.0, 15.0, 90.0, 91.0, -5.0, -3600.0]))
        if load is not None:
            usage[one.name] = PodUsage(at, 15.0, {"app": {"cpu": nano(f"{load}m")}})
            points[one.name] = Point(at, nano(f"{load}m"))
    total = data.draw(st.sampled_from([None, None, Point(service.now - 2, nano(20))]))
    queries = {"rps": QuerySamples(pods={} if total else points, total=total, window=30.0, fetched_at=service.now)}
    service.samples = Samples(ResourceSamples(pods=usage, fetched_at=service.now), queries)


def _join(service: Service, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, 9))
    age = data.draw(st.sampled_from([9000.0, 9000.0, 200.0, 5.0]))
    made = pod(f"p{index}", ip=f"10.0.0.{index}", limits={"cpu": "10"}, age=age, now=service.now)
    service.pods = [*(one for one in service.pods if one.name != made.name), made]


def _turn(service: Service, data: st.DataObject) -> None:
    """Something happens to a pod."""
    kinds = ["started", "unready", "deleting", "by hand", "leaves", "started", "moves", "is resized"]
    what = data.draw(st.sampled_from(kinds))
    if not service.pods:
        return
    index = data.draw(st.integers(0, len(service.pods) - 1))
    one = service.pods[index]
    changes = {
        "unready": {"ready": PodCondition(status=False, since=service.now)},
        "deleting": {"deleting": True},
        "moves": {"ips": data.draw(st.sampled_from(service.pods)).ips},
        "is resized": {"containers": (replace(one.containers[0], limits={"cpu": nano("5")}),)},
        "by hand": {"pulled_out_annotation": not one.pulled_out_annotation},
        "started": {"ready": PodCondition(status=True, since=service.now - data.draw(st.sampled_from([0.0, 10.0])))},
    }
    rest = [*service.pods[:index], *service.pods[index + 1 :]]
    service.pods = rest if what == "leaves" else [*rest, replace(one, **changes[what])]  # type: ignore[arg-type]


def _roll(service: Service, data: st.DataObject) -> None:
    """A rollout begins or ends, or another kind of target is seen."""
    reason = data.draw(st.sampled_from(["NewReplicaSetAvailable", "ReplicaSetUpdated", ""]))
    kind = data.draw(st.sampled_from(["Deployment", "Deployment", "StatefulSet"]))
    service.target = Target(api_version="apps/v1", kind=kind, name="web", progressing=reason)


def _begin(rule: Policy, data: st.DataObject) -> Service:
    service = Service(rule)
    for _ in range(data.draw(st.integers(2, 7))):
        _join(service, data)
    return service


@given(st.sampled_from(RULES), st.data())
@settings(max_examples=300)
def test_an_assessment_with_the_last_census_equals_one_without(rule: Policy, data: st.DataObject) -> None:
    service = _begin(rule, data)
    for _ in range(data.draw(st.integers(2, 12))):
        events = [_hear, _hear, _confirm, _confirm, _measure, _measure, _turn, _join, _relabel, _roll]
        for event in data.draw(st.lists(st.sampled_from(events), max_size=2)):
            event(service, data)
        if data.draw(st.booleans()):
            service.pods.reverse()  # as a watch may list them
        anew, decided_anew = service.decide(replace(service.memory, census=None))
        in_columns = replace(service, samples=with_columns(service.samples))
        found, decided = in_columns.decide(service.memory)
        assert found == anew
        assert decided == decided_anew
        assert explain(found, decided, BOUNDS, service.now) == explain(anew, decided_anew, BOUNDS, service.now)
        service.memory = found.memory
        service.now += data.draw(st.sampled_from([0.0, 0.005, 1.0, 20.0, 20.0, 20.0, 61.0, 301.0, 1801.0, -7.0]))


@given(st.sampled_from(RULES), st.data())
@settings(max_examples=200)
def test_plain_samples_are_read_as_with_all_checks(rule: Policy, data: st.DataObject) -> None:
    service = _begin(rule, data)
    for _ in range(data.draw(st.integers(1, 4))):
        _turn(service, data)
        _hear(service, data)
        _measure(service, data)
        service.memory = service.look(service.memory).memory
        service.now += data.draw(st.sampled_from([0.0, 20.0, 61.0, 301.0, -20.0]))
    census = service.memory.census
    assert isinstance(census, Census)
    samples = with_columns(service.samples) if data.draw(st.booleans()) else service.samples
    for metric in rule.metrics:
        reader = MetricReader(metric, samples, service.now, believes_zero=rule.tolerate_zero is True)
        seen = service.memory.samples_of(metric.name)
        groups = [(group, finish(static_rows(reader, group))) for group in (census.serving, census.doubtful)]
        everyone = frozenset(one.uid for one in service.pods)
        found = finish(read_columns(reader, seen, groups[0], groups[1], census.idle))
        wanted = finish(read_columns(reader, seen, groups[0], groups[1], census.idle, everyone))
        for one, other in ((found.serving, wanted.serving), (found.doubtful, wanted.doubtful)):
            assert _cells(one) == _cells(other)
            assert sorted(one.gaps, key=_uid) == sorted(other.gaps, key=_uid)
        assert (found.newest, found.ahead, found.zeros) == (wanted.newest, wanted.ahead, wanted.zeros)


def _uid(sample: PodSample) -> str:
    return sample.pod.uid


def _cells(column: Column) -> set[tuple[object, ...]]:
    return set(
        zip(column.uids, column.values, column.capacities, column.ats, column.knows, column.windows, strict=True)
    )


@given(st.sampled_from([0.0, 30.0, 120.0]), st.data())
@settings(max_examples=100)
def test_groups_that_are_kept_equal_those_made_anew(replace_after: float, data: st.DataObject) -> None:
    rule = policy(cpu("1200m", "400m"), registry=REGISTRY, pulled_out=PulledOut(replace_after=replace_after))
    service = Service(rule, pods=[pod(f"p{index}", ip=f"10.0.0.{index}", age=9000.0) for index in range(3)])
    service.pods.append(pod("young", age=data.draw(st.sampled_from([250.0, 5.0])), ready=False))
    service.pods.append(replace(pod("out", age=9000.0), pulled_out_annotation=True))
    for _ in range(data.draw(st.integers(2, 8))):
        service.memory = service.look(service.memory).memory
        service.now += data.draw(st.sampled_from([0.0, 1.0, 20.0, 30.0, 61.0, 240.0, 299.0, 300.0, 301.0]))
        if not data.draw(st.integers(0, 5)):
            _roll(service, data)
        census = service.memory.census
        assert isinstance(census, Census)
        inputs = AssessmentInputs(
            policy=rule, pods=service.pods, scale=scale(5), bounds=BOUNDS, target=service.target,
            memory=after_rollout(service.memory, service.target, service.now), now=service.now,
        )  # fmt: skip
        kept = finish(group_pods(inputs, census))
        census.groups = None
        assert kept == finish(group_pods(inputs, census))


def test_between_two_samples_no_pod_is_classified_again() -> None:
    service = Service(policy(registry=REGISTRY), pods=[pod("a", ip="10.0.0.1"), pod("b", ip="10.0.0.2")])
    service.roster = roster("10.0.0.1", "10.0.0.2")
    for _ in range(3):
        last, service.memory = service.memory.census, service.look(service.memory).memory
    assert service.memory.census is last is not None
    service.pods[0] = replace(service.pods[0], deleting=True)
    assert service.look(service.memory).memory.census is not last


def _classified_by(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the pods that are classified from now on."""
    names: list[str] = []
    classify = membership._classify

    def noting(pod: Pod, view: object) -> object:
        names.append(pod.name)
        return classify(pod, view)  # type: ignore[arg-type]

    monkeypatch.setattr(membership, "_classify", noting)
    return names


def _registered(count: int) -> Service:
    pods = [pod(f"p{index}", ip=f"10.0.0.{index}") for index in range(count)]
    service = Service(policy(registry=REGISTRY), pods=pods, roster=roster(*(one.ips[0] for one in pods)))
    for _ in range(3):
        service.memory = service.look(service.memory).memory
    return service


def test_of_many_pods_only_a_changed_one_is_classified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    service = _registered(9)
    names = _classified_by(monkeypatch)
    service.pods = [*service.pods[1:], replace(service.pods[0], ready=PodCondition(status=False, since=service.now))]
    found = service.look(service.memory)
    assert names == ["p0"]
    assert found.counts == {PodState.SERVING: 8, PodState.UNREADY: 1}


def test_a_registry_that_answers_the_same_has_only_unregistered_pods_classified_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = _registered(9)
    listed = service.roster
    assert listed is not None
    service.roster = replace(listed, at=service.now + 10, instances=listed.instances[1:])
    service.now += 10
    service.memory = service.look(service.memory).memory  # matched again
    names, absent_since = _classified_by(monkeypatch), service.now
    for _ in range(4):
        service.now += 15
        service.roster = replace(service.roster, at=service.now)
        service.memory = service.look(service.memory).memory
    assert set(names[:3]) == {"p0"}
    assert service.memory.pods["uid-p0"].absent_count == 5
    assert service.memory.pods["uid-p0"].out_since == absent_since + 45


def test_pods_of_one_kind_share_what_is_remembered_of_them() -> None:
    service = _registered(9)
    assert len({id(known) for known in service.memory.pods.values()}) == 1


def test_pods_that_exchange_their_addresses_exchange_their_registrations() -> None:
    service = Service(policy(registry=REGISTRY), pods=[pod(f"p{index}", ip=f"10.0.0.{index}") for index in range(4)])
    instances = tuple(_instance(one, "OUT_OF_SERVICE" if one.name == "p0" else "", NOW) for one in service.pods)
    service.roster = replace(roster(at=NOW), instances=instances)
    for _ in range(3):
        service.memory = service.look(service.memory).memory
    first, second, *others = service.pods
    service.pods = [replace(first, ips=second.ips), replace(second, ips=first.ips), *others]
    found = service.look(service.memory)
    assert [one.pod.name for one in found.pods if one.state is PodState.PULLED_OUT] == ["p1"]
    assert found == service.look(replace(service.memory, census=None))


def test_a_pod_that_is_resized_has_its_new_capacity() -> None:
    rule = policy(replace(cpu("80m", "20m"), resource=OF_LIMIT))
    service = Service(rule, pods=[pod(name, limits={"cpu": "10"}) for name in "ab"])
    usage = {one.name: PodUsage(NOW - 1, 15.0, {"app": {"cpu": nano("1")}}) for one in service.pods}
    service.samples = Samples(ResourceSamples(pods=usage, fetched_at=NOW))
    for _ in range(3):
        service.memory = service.look(service.memory).memory
    (container,) = service.pods[0].containers
    service.pods[0] = replace(service.pods[0], containers=(replace(container, limits={"cpu": nano("30")}),))
    assert service.look(service.memory).metrics[0].usage == Fraction(nano("2"), 40)


def test_metrics_that_a_policy_no_longer_has_leave_nothing_behind() -> None:
    service = Service(policy(), pods=[pod("a"), pod("b")])
    for number in range(20):
        service.rule = policy(replace(cpu("1200m", "400m"), name=f"edit-{number}"))
        service.memory = service.look(service.memory).memory
    census = service.memory.census
    assert isinstance(census, Census)
    assert set(census.rows) == {"edit-19"}


def test_a_policy_that_is_only_decoded_again_keeps_the_census() -> None:
    service = Service(policy(registry=REGISTRY), pods=[pod("a", ip="10.0.0.1")], roster=roster("10.0.0.1"))
    for _ in range(3):
        service.memory = service.look(service.memory).memory
    last = service.memory.census
    service.rule = deepcopy(service.rule)
    assert service.look(service.memory).memory.census is last is not None


@st.composite
def _doubts(draw: st.DrawFn, loads: st.SearchStrategy[int]) -> DoubtfulPod:
    is_old = draw(st.booleans())
    usage = draw(loads | st.none())
    return DoubtfulPod(
        None if usage is None else nano(f"{usage}m"),
        1,
        nano("1212m"),
        is_old,
        is_old and draw(st.booleans()),
        draw(st.booleans()),
    )


@st.composite
def _rules(draw: st.DrawFn) -> Policy:
    strategy, multiple = draw(st.sampled_from([*Strategy])), draw(st.sampled_from([1, 3]))
    average = draw(st.sampled_from([Average.PER_POD, Average.PER_POD, Average.TOTAL]))
    if strategy is Strategy.WATERMARK:
        converge = draw(st.sampled_from([None, None, Converge.LOW, Converge.HIGH]))
        return policy(cpu("1200m", "400m"), average=average, converge_towards=converge, multiple_of=multiple)
    aimed = cpu(None, target=Fraction(nano("800m")))
    if strategy is Strategy.RATIO:
        return policy(aimed, strategy=strategy, tolerance=Fraction(1, 10), average=average, multiple_of=multiple)
    step = Step(
        tolerance=draw(st.sampled_from([0, 15, 50])),
        tolerance_in=ToleranceIn.RATIO,
        trigger=draw(st.sampled_from(Trigger)),
        up=draw(st.integers(0, 3)),
        down=draw(st.integers(1, 4)),
        min_pods=draw(st.integers(0, 4)),
    )
    return policy(aimed, strategy=strategy, step=step, multiple_of=multiple, tolerate_zero=draw(st.booleans()))


@given(st.sampled_from([(0, 410), (450, 1100), (1000, 3000), (0, 3000)]).flatmap(lambda span: st.tuples(
    st.lists(st.integers(*span), max_size=4), st.lists(_doubts(st.integers(*span)), max_size=12))),
    _rules(), st.sampled_from([False, False, True]), st.booleans(), st.lists(st.integers(0, 3000), max_size=2),
    st.integers(0, 3), st.integers(0, 20), st.integers(0, 1), st.booleans())  # fmt: skip
@settings(max_examples=1000)
def test_dropped_scenarios_win_at_no_replica_count(
    pods: tuple[list[int], list[DoubtfulPod]],
    rule: Policy,
    is_total: bool,
    is_plain: bool,
    left: list[int],
    away: int,
    current: int,
    minimum: int,
    are_alike: bool,
) -> None:
    """`is_total`: one number for the service. `is_plain`: no gaps. `left`: the last samples of departed pods.

    `are_alike`: each doubtful pod may be replaced, and the most loaded comes in first, as in the adapter.
    """
    serving, doubtful = pods
    if are_alike:
        doubtful = [doubt._replace(is_long=True, is_replaceable=True) for doubt in doubtful]
        doubtful.sort(key=lambda doubt: doubt.usage or 0, reverse=True)
    if is_plain:
        doubtful = [doubt._replace(usage=doubt.usage or 0, is_young=False) for doubt in doubtful]
    band = band_of(rule, rule.metrics[0], total=is_total)
    if is_total:
        doubtful = [doubt._replace(usage=0) for doubt in doubtful]
    young = sum(1 for doubt in doubtful if doubt.is_young)
    worth = AwayPods(out=away, replaceable=min(away, 2), reserved=away // 2)

    def totals() -> Totals:
        found = Totals(usage=sum(nano(f"{load}m") for load in serving), n=len(serving), weight=len(serving),
                       young=young, young_weight=young, young_fill=young * nano("1212m"), total=is_total,
                       departed=DepartedLoad([nano(f"{load}m") for load in left]),
                       seeks_extremes=rule.step.trigger is Trigger.ANY_POD and not is_total)  # fmt: skip
        for load in serving if found.seeks_extremes else []:
            found.include(PodLoad(nano(f"{load}m"), 1))
        return found

    def outcomes() -> list[tuple[object, ...]]:
        kept = finish(ScenarioList.of(finish(scenarios_of(rule, band, worth, totals(), doubtful))))
        metric = MetricAssessment(name="cpu", scenarios=kept)
        there = Assessment(policy=rule, target="web", at=NOW, counts={PodState.SERVING: 1}, metrics=(metric,))
        found = decide(there, scale(current), Bounds(minimum=minimum, maximum=99), NOW)
        return [(one.scenario, one.proposal, one.replaced, one.held_by) for one in found.outcomes]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenarios, "_that_may_win", lambda steps, _: collected(range(len(steps))))
        patch.setattr(pipeline, "contenders", lambda scenarios, *_: scenarios)
        of_all = outcomes()
    assert outcomes() == of_all


@pytest.mark.parametrize("trigger", Trigger)
def test_few_steps_down_of_many_doubtful_pods_are_kept(trigger: Trigger) -> None:
    rule = policy(
        cpu(None, target=Fraction(nano("1200m"))), strategy=Strategy.STEP, registry=REGISTRY,
        step=Step(trigger=trigger, tolerance_in=ToleranceIn.RATIO),
    )  # fmt: skip
    service = Service(rule, pods=[pod(f"p{i}", ip=f"10.0.1.{i}") for i in range(200)])
    usage = {one.name: PodUsage(NOW - 1, 15.0, {"app": {"cpu": nano("300m")}}) for one in service.pods}
    service.samples = Samples(ResourceSamples(pods=usage, fetched_at=NOW))
    (metric,) = service.look(Memory()).metrics
    assert metric.scenarios[-1].shrink is not None
    assert len(metric.scenarios) <= 4


@pytest.mark.parametrize(("high", "low"), [("200m", "100m"), ("900m", "700m"), ("305m", "200m")])
@pytest.mark.parametrize("multiple", [1, 3])
@pytest.mark.parametrize("gaps", [0, 1])
def test_a_decision_makes_few_of_the_scenarios_of_many_doubtful_pods(
    high: str, low: str, multiple: int, gaps: int
) -> None:
    rule = policy(cpu(high, low), registry=REGISTRY, multiple_of=multiple)
    service = Service(rule, pods=[pod(f"p{i}", ip=f"10.0.1.{i}") for i in range(250)])
    for _ in range(3):  # doubtful for long in the end, so that each may be replaced where it is out
        usage = {
            one.name: PodUsage(service.now - 1, 15.0, {"app": {"cpu": nano(f"{250 + index % 99}m")}})
            for index, one in enumerate(service.pods[gaps:])
        }
        service.samples = Samples(ResourceSamples(pods=usage, fetched_at=service.now))
        found = service.look(service.memory)
        service.memory, service.now = found.memory, service.now + 400
    listed = found.metrics[0].scenarios
    assert isinstance(listed, ScenarioList if gaps else ScenarioSpans)
    for current in (1, 100, 249, 250, 251, 400):
        assert len(listed.contenders(current, multiple, lambda one: one.n)) <= 8 * (1 + gaps)


def test_few_scenarios_of_many_doubtful_pods_are_kept() -> None:
    service = Service(policy(registry=REGISTRY), pods=[pod(f"p{i}", ip=f"10.0.1.{i}") for i in range(200)])
    usage = {one.name: PodUsage(NOW - 1, 15.0, {"app": {"cpu": nano("900m")}}) for one in service.pods}
    service.samples = Samples(ResourceSamples(pods=usage, fetched_at=NOW))
    (metric,) = service.look(Memory()).metrics
    assert metric.scenarios[-1].inside == 200
    assert len(metric.scenarios) <= 2


def test_a_pod_that_warms_up_is_missing_beside_pods_with_plain_samples() -> None:
    pods = [pod("old"), pod("warming", age=100, ready_for=20)]
    usage = {one.name: PodUsage(NOW - 10, 15.0, {"app": {"cpu": nano("900m")}}) for one in pods}
    service = Service(policy(), pods=pods, samples=Samples(ResourceSamples(pods=usage, fetched_at=NOW)))
    found = service.look(Memory())
    assert (found.metrics[0].n, found.metrics[0].missing) == (1, 1)
    assert [one.missing for one in found.pods] == [{}, {"cpu": "warming up"}]


@pytest.mark.parametrize("rule", RULES)
def test_what_an_assessment_replaces_is_freed_at_once(rule: Policy) -> None:
    service = Service(rule, pods=[pod(f"p{index}", ip=f"10.0.0.{index}") for index in range(4)])
    service.samples = usage({one.name: "900m" for one in service.pods})
    gc.collect()
    gc.disable()
    try:
        for turn in range(6):
            service.pods[turn % 4] = replace(service.pods[turn % 4], pulled_out_annotation=turn % 2 == 0)
            service.roster = roster(*(one.ips[0] for one in service.pods), at=service.now)
            service.memory = service.look(service.memory).memory
            service.now += 20
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert not [one for one in gc.garbage if type(one).__module__.startswith("adapter.")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
