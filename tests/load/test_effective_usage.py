"""Usage of one metric: which samples count, which pods are missing and why, and the capacity of a utilization."""

from dataclasses import replace
from fractions import Fraction

import pytest

from adapter.load.assessment import HeldBy, MetricAssessment, PodAssessment
from adapter.load.memory import NO_SAMPLES, LastSample, Memory, PodMemory
from adapter.load.pod_samples import MetricReader, PodSample, is_young
from adapter.load.pods import Container, Pod, PodCondition
from adapter.load.quantity import NANO, nano_text
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples, time_text
from adapter.load.spec import Capacity, Metric, Policy, Query, ResourceMetric
from tests.load.kit import (
    NOW,
    REGISTRY,
    assess_and_decide,
    cpu,
    last_samples,
    nano,
    out,
    pod,
    policy,
    queue,
    same,
    total,
    usage,
)
from tests.load.registering import Registering

WARMING = "warming up: the window of its last sample began before it came into service"
RPS = Metric(name="rps", query=Query(name="requests"), high=Fraction(100 * NANO), low=Fraction(40 * NANO))


def memory_of(of: Capacity | None = Capacity.LIMIT, containers: tuple[str, ...] = (), **changes: object) -> Metric:
    """Memory as a share of its limit: high 80 %, low 50 %."""
    base = Metric(
        name="memory",
        resource=ResourceMetric(name="memory", containers=containers, of=of),
        high=Fraction(8, 10) * NANO,
        low=Fraction(5, 10) * NANO,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def of_containers(**loads: str) -> Samples:
    """A pod web-0 whose containers use so much CPU."""
    used = {name: {"cpu": nano(load)} for name, load in loads.items()}
    return Samples(ResourceSamples(pods={"web-0": PodUsage(NOW - 10, 15.0, used)}))


def container(name: str, *, running: bool | None = True, **limits: str) -> Container:
    return Container(name, limits={resource: nano(limit) for resource, limit in limits.items()}, running=running)


def sample(metric: Metric, one: Pod, samples: Samples, remembered: dict[str, LastSample], now: float) -> PodSample:
    seen = last_samples({one.uid: remembered}).get(metric.name, NO_SAMPLES)
    return MetricReader(metric, samples, now).sample(one, seen)


def missing(one: Pod, samples: Samples, metric: Metric | None = None) -> str:
    """Why the pod has no usage; empty where it has."""
    found = sample(metric or cpu(), one, samples, {}, NOW)
    assert (found.usage is None) == bool(found.missing)
    return found.missing


def measured(metric: Metric, pods: list[Pod], samples: Samples, **changes: object) -> MetricAssessment:
    assessment, _ = assess_and_decide(policy(metric, **changes), pods, samples)  # type: ignore[arg-type]
    return assessment.metrics[0]


APP = cpu(resource=ResourceMetric(name="cpu", containers=("app",)))
NGINX = cpu(resource=ResourceMetric(name="cpu", containers=("nginx",)))
TWO = (container("app"), container("sidecar"))


class TestSamples:
    @pytest.mark.parametrize(
        ("containers", "metric", "used", "expected"),
        [
            pytest.param(TWO, cpu(), {"app": "1", "sidecar": "200m"}, "1200m", id="the sum over its containers"),
            pytest.param(TWO, APP, {"app": "1", "sidecar": "200m"}, "1", id="named containers alone count"),
            pytest.param(
                (container("app"), container("done", running=False)), cpu(), {"app": "1"}, "1", id="one does not run"
            ),
            pytest.param((container("app"),), cpu(), {"app": "1", "stray": "7"}, "1", id="one is not the pod's"),
            pytest.param((), cpu(), {"app": "1", "sidecar": "200m"}, "1200m", id="its containers are not known"),
        ],
    )
    def test_a_pods_sample_is_the_sum_over_its_running_containers(
        self, containers: tuple[Container, ...], metric: Metric, used: dict[str, str], expected: str
    ) -> None:
        assert sample(metric, pod(containers=containers), of_containers(**used), {}, NOW).usage == nano(expected)

    @pytest.mark.parametrize(
        ("one", "metric", "resource", "lacking"),
        [
            pytest.param(pod(containers=TWO), cpu(), "cpu", "sidecar", id="no sample of one"),
            pytest.param(
                pod(containers=(container("app"), container("other", running=None))), cpu(), "cpu", "other",
                id="one without a known status counts as running",
            ),
            pytest.param(pod(), cpu(), "memory", "app", id="none of this resource"),
            pytest.param(pod(), NGINX, "cpu", "nginx", id="a named one that the pod lacks"),
        ],
    )  # fmt: skip
    def test_one_container_without_a_sample_makes_the_pod_missing(
        self, one: Pod, metric: Metric, resource: str, lacking: str
    ) -> None:
        used = Samples(ResourceSamples(pods={"web-0": PodUsage(NOW - 10, 15.0, {"app": {resource: NANO}})}))
        assert missing(one, used, metric) == f"container {lacking} has no cpu sample"

    def test_a_query_gives_a_point_per_pod(self) -> None:
        samples = Samples(queries={"rps": QuerySamples(pods={"web-0": Point(NOW - 5, nano(120))})})
        assert sample(RPS, pod(), samples, {}, NOW).usage == nano(120)
        assert sample(RPS, pod("web-1"), samples, {}, NOW).missing == "no sample"


class TestFreshness:
    @pytest.mark.parametrize(
        ("age", "reason"), [(90, ""), (90.5, f"its last sample is from {time_text(NOW - 90.5)}"), (-5, "")]
    )
    def test_a_sample_counts_until_it_is_90_s_old(self, age: float, reason: str) -> None:
        assert missing(pod(), usage({"web-0": "1"}, at=NOW - age)) == reason

    def test_a_sample_after_a_frozen_one_is_as_old_as_its_own_date(self) -> None:
        memory = Memory()
        for later, value in ((0, "1"), (10_000, "2")):
            frozen = replace(usage({"web-0": value}, at=NOW + 3600).resources, fetched_at=NOW + later - 1)
            assessment, _ = assess_and_decide(policy(), [pod()], Samples(frozen), memory=memory, now=NOW + later)
            memory = assessment.memory
        assert assessment.metrics[0].error is not None

    @pytest.mark.parametrize("is_total", [False, True], ids=["of a pod", "a total"])
    @pytest.mark.parametrize(
        "looks",
        [{0: True, 60: True, 89: True, 90: False, 3700: False}, {0: True, 30: None, 60: True, 91: False}],
        ids=["at each answer", "away for an answer"],
    )
    def test_a_frozen_sample_is_no_newer_at_a_later_answer(
        self, looks: dict[int, bool | None], *, is_total: bool
    ) -> None:
        """Whether it counts after so many seconds; None: the answer lacks it."""
        memory = Memory()
        for later, counts in looks.items():
            resources = usage({"web-0": None if counts is None else "3"}, at=NOW + 3600).resources
            point = None if counts is None else Point(NOW + 3600, nano("3"))
            samples = Samples(
                replace(resources, fetched_at=NOW + later - 1),
                {"queue": QuerySamples(total=point, fetched_at=NOW + later - 1)},
            )
            rule = policy(queue("85") if is_total else cpu())
            assessment, _ = assess_and_decide(rule, [pod()], samples, memory=memory, now=NOW + later)
            memory = assessment.memory
            assert (assessment.metrics[0].error is None) is bool(counts), later

    def test_a_source_with_a_fast_clock_counts_while_it_brings_new_samples(self) -> None:
        memory = Memory()
        for later in range(0, 600, 15):
            ahead = replace(usage({"web-0": "1"}, at=NOW + later + 60).resources, fetched_at=NOW + later)
            assessment, _ = assess_and_decide(policy(), [pod()], Samples(ahead), memory=memory, now=NOW + later + 5)
            memory = assessment.memory
            assert assessment.metrics[0].error is None
            assert assessment.metrics[0].sampled_at == NOW + later

    @pytest.mark.parametrize(("ahead", "age"), [(10, 80), (11, 90)])
    def test_ten_seconds_are_a_difference_between_clocks(self, ahead: float, age: float) -> None:
        source = replace(usage({"web-0": "1"}, at=NOW - 90 + ahead).resources, fetched_at=NOW - 90)
        found = sample(cpu(), pod(), Samples(source), {}, NOW)
        assert found.at == NOW - age

    @pytest.mark.parametrize(("asked", "reason"), [(90, ""), (91, f"its last sample is from {time_text(NOW - 91)}")])
    def test_a_sample_from_the_future_is_as_old_as_the_answer_that_brought_it(self, asked: float, reason: str) -> None:
        ahead = usage({"web-0": "1"}, at=NOW + 3600).resources
        assert missing(pod(), Samples(replace(ahead, fetched_at=NOW - asked))) == reason
        point = QuerySamples(pods={"web-0": Point(NOW + 3600, 1)}, fetched_at=NOW - asked)
        assert missing(pod(), Samples(queries={"rps": point}), RPS) == reason
        whole = QuerySamples(total=Point(NOW + 3600, nano("3")), fetched_at=NOW - asked)
        assert (measured(queue("85"), [pod()], Samples(queries={"queue": whole})).error is not None) == bool(reason)

    def test_the_age_is_the_sources_own(self) -> None:
        samples = Samples(queries={"rps": QuerySamples(pods={"web-0": Point(NOW - 20, 1)}, max_age=15.0)})
        assert missing(pod(), samples, RPS) == f"its last sample is from {time_text(NOW - 20)}"

    def test_a_sample_from_before_the_pods_start_is_another_lifes(self) -> None:
        one = pod(age=60, started_at=NOW - 50, ready_for=51)
        assert missing(one, usage({"web-0": "1"}, at=NOW - 52)) == "its last sample is from before it came into service"

    def test_a_sample_from_before_the_last_readiness_does_not_count(self) -> None:
        one = pod(ready_for=9)
        memory = usage({"web-0": "1"}, resource="memory")
        plain = memory_of(None, high=Fraction(NANO))
        assert missing(one, memory, plain) == "its last sample is from before it came into service"
        assert missing(pod(ready_for=10), memory, plain) == ""

    @pytest.mark.parametrize(("ready_for", "warms"), [(24, True), (25, False), (26, False)])
    @pytest.mark.parametrize("age", [40, 299, 300, 9999])
    def test_cpu_warms_up_for_a_window_after_each_start_of_service(
        self, age: float, ready_for: float, warms: bool
    ) -> None:
        assert (missing(pod(age=age, ready_for=ready_for), usage({"web-0": "1"})) == WARMING) is warms

    @pytest.mark.parametrize(("ago", "warms"), [(24, True), (25, False)])
    def test_a_pod_back_from_being_pulled_out_warms_up_as_well(self, ago: float, warms: bool) -> None:
        one = pod()
        memory = Memory(pods={one.uid: PodMemory(back_since=NOW - ago)})
        assessment, _ = assess_and_decide(policy(), [one], usage({"web-0": "1"}), memory=memory)
        assert (next(assessment.with_usage(assessment.pods)).missing.get("cpu") == WARMING) is warms

    @pytest.mark.parametrize("is_known", [True, False])
    def test_a_pod_that_registers_after_it_was_ready_warms_up_as_well(self, is_known: bool) -> None:
        """What it read before is no load; where nobody saw it unregistered, since when it serves is not known."""
        pods = [pod("web-0", ip="10.0.0.1"), pod("web-1", ip="10.0.0.2", age=100, ready_for=80)]
        service = Registering(policy(registry=REGISTRY), pods)
        if is_known:
            service.answer("web-1")
        service.answer()
        for later, warms in ((14, is_known), (15, False)):
            at = service.now + later
            samples = usage({"web-0": "1", "web-1": "0.1"}, at=at)
            assessment, _ = assess_and_decide(service.rule, service.pods, samples, memory=service.memory, now=at)
            assert ([*assessment.with_usage(assessment.pods)][1].missing.get("cpu") == WARMING) is warms

    def test_the_first_registrations_of_a_service_begin_no_service(self) -> None:
        """Nobody has told before who serves, and the pods may have served all the time."""
        pods = [pod(f"web-{index}", ip=f"10.0.0.{index}") for index in range(3)]
        service = Registering(policy(registry=REGISTRY), pods)
        service.answer("web-0", "web-1", "web-2")
        service.answer()
        assert {one.back_since for one in service.memory.pods.values()} == {None}

    def test_other_resources_and_queries_of_the_present_do_not_warm_up(self) -> None:
        one = pod(age=40, ready_for=24)
        plain = memory_of(None, high=Fraction(NANO))
        assert missing(one, usage({"web-0": "1"}, resource="memory"), plain) == ""
        samples = Samples(queries={"rps": QuerySamples(pods={"web-0": Point(NOW - 20, 1)})})
        assert missing(one, samples, RPS) == ""

    @pytest.mark.parametrize(("window", "reason"), [(60, WARMING), (4.5, WARMING), (4, "")])
    def test_a_query_with_a_window_warms_up_for_it(self, window: float, reason: str) -> None:
        samples = Samples(queries={"rps": QuerySamples(pods={"web-0": Point(NOW - 20, 1)}, window=window)})
        assert missing(pod(age=40, ready_for=24), samples, RPS) == reason

    @pytest.mark.parametrize(
        ("age", "ready_for", "young"), [(299, 299, True), (300, 300, False), (9999, 299, True), (9999, 300, False)]
    )
    def test_a_pod_is_young_for_300_s_after_its_creation_and_each_change_of_readiness(
        self, age: float, ready_for: float, young: bool
    ) -> None:
        assert is_young(pod(age=age, ready_for=ready_for), NOW) is young
        assert is_young(replace(pod(age=age), ready=None), NOW) is (age < 300)
        assert is_young(replace(pod(age=age), ready=PodCondition(False)), NOW) is (age < 300)


class TestLastSamples:
    KNOWN = LastSample(at=NOW - 200, value=nano("20"))

    def test_a_missing_pod_is_filled_with_its_last_usage_for_5_min(self) -> None:
        for age, last in ((300, nano("20")), (301, 0)):
            found = sample(cpu(), pod(), Samples(), {"cpu": LastSample(at=NOW - age, value=nano("20"))}, NOW)
            assert (found.usage, found.last) == (None, last)

    def test_a_sample_too_old_to_count_is_still_the_last_usage(self) -> None:
        found = sample(cpu(), pod(), usage({"web-0": "7"}, at=NOW - 100), {}, NOW)
        assert (found.usage, found.last) == (None, nano("7"))

    def test_a_fresh_sample_is_remembered_in_place_of_the_one_before(self) -> None:
        found = sample(cpu(), pod(), usage({"web-0": "1"}), {"cpu": self.KNOWN}, NOW)
        assert found.newest == LastSample(at=NOW - 10, value=nano("1"))

    @pytest.mark.parametrize(
        ("at", "age", "ready_for"),
        [(NOW - 201, 3600, 3595), (NOW - 100, 3600, 3595), (NOW - 20, 40, 24)],
        ids=["older", "stale", "warming"],
    )
    def test_an_older_stale_or_warming_sample_is_not_remembered(self, at: float, age: float, ready_for: float) -> None:
        one = pod(age=age, ready_for=ready_for)
        found = sample(cpu(), one, usage({"web-0": "1"}, at=at), {"cpu": self.KNOWN}, NOW)
        assert found.newest == self.KNOWN

    def test_the_same_inputs_give_the_same_result_at_every_repetition(self) -> None:
        """An older sample that comes after a newer one, as from another replica of a source, changes no memory."""
        pods, loads = same(9, "300m")
        hot = [*pods, pod("hot")]
        first, _ = assess_and_decide(policy(cpu("1200m", "400m")), hot, usage({**loads, "hot": "20"}, at=NOW - 10))
        fresh, old = usage(loads, at=NOW + 5).resources, usage({"hot": "1"}, at=NOW - 91).resources
        stale = Samples(replace(fresh, pods={**fresh.pods, **old.pods}))
        memory, answers = first.memory, []
        for later in (6, 6, 7, 8):
            assessment, decision = assess_and_decide(
                policy(cpu("1200m", "400m")), hot, stale, memory=memory, now=NOW + later
            )
            memory = assessment.memory
            answers.append((decision.desired, decision.held_by))
        assert answers == [(10, HeldBy.MISSING)] * 4
        assert memory.last_samples("uid-hot")["cpu"] == LastSample(NOW - 10, nano("20"))

    def test_the_usage_of_a_pod_is_kept_while_it_does_not_serve(self) -> None:
        pods, loads = same(2, "1")
        first, _ = assess_and_decide(policy(), pods, usage(loads))
        turned = [pods[0], pod("web-1", ready=False, ready_for=5, now=NOW + 60)]
        then, _ = assess_and_decide(
            policy(), turned, usage({"web-0": "1", "web-1": "0"}, at=NOW + 50), memory=first.memory, now=NOW + 60
        )
        assert then.memory.last_samples("uid-web-1")["cpu"] == LastSample(at=NOW - 10, value=nano("1"))
        assert then.memory.last_samples("uid-web-0")["cpu"].at == NOW + 50


class TestZeros:
    """A source that breaks reports zeros."""

    BAND = policy(cpu("1200m", "400m"))

    def looked_at(self, zeros: int, rest: str, *, after: float = 60.0, rule: Policy = BAND) -> tuple[int, int | None]:
        """Ten pods at 1190m, and so many of them at exactly 0 later: how many are missing, and the count."""
        pods, loads = same(10, "1190m")
        first, _ = assess_and_decide(rule, pods, usage(loads))
        then: dict[str, str | int | None] = {name: "0" if i < zeros else rest for i, name in enumerate(loads)}
        samples = usage(then, at=NOW + after - 10)
        assessment, decision = assess_and_decide(rule, pods, samples, memory=first.memory, now=NOW + after)
        return assessment.metrics[0].missing, decision.desired

    @pytest.mark.parametrize(
        ("zeros", "rest", "desired"),
        [
            pytest.param(5, "1190m", 10, id="the others are inside"),
            pytest.param(1, "300m", 9, id="the others are below: one more at 1212m leaves 391m on average"),
            pytest.param(9, "300m", 10, id="the other is below"),
            pytest.param(10, "0", None, id="all"),
        ],
    )
    def test_a_sample_that_fell_to_exactly_0_is_doubted(self, zeros: int, rest: str, desired: int | None) -> None:
        assert self.looked_at(zeros, rest) == (zeros, desired)

    @pytest.mark.parametrize(("after", "missing"), [(290, 9), (290.5, 0)])
    def test_it_is_believed_once_the_last_other_sample_is_300_s_old(self, after: float, missing: int) -> None:
        assert self.looked_at(9, "1190m", after=after) == (missing, 10 if missing else 2)

    def test_with_tolerate_zero_it_is_believed_at_once(self) -> None:
        assert self.looked_at(9, "1190m", rule=replace(self.BAND, tolerate_zero=True)) == (0, 2)

    def test_a_pod_that_was_at_0_before_is_at_0(self) -> None:
        pods, loads = same(2, "0")
        first, _ = assess_and_decide(self.BAND, pods, usage(loads))
        then, _ = assess_and_decide(self.BAND, pods, usage(loads, at=NOW + 50), memory=first.memory, now=NOW + 60)
        assert then.metrics[0].missing == 0

    def test_a_doubted_zero_names_its_reason(self) -> None:
        found = sample(cpu(), pod(), usage({"web-0": "0"}), {"cpu": LastSample(NOW - 200, 1)}, NOW)
        assert found.missing == "it fell to exactly 0, which counts 300 s after its last other sample"

    def test_memory_and_queries_are_doubted_too(self) -> None:
        known = {"rps": LastSample(NOW - 200, 1)}
        samples = Samples(queries={"rps": QuerySamples(pods={"web-0": Point(NOW - 5, 0)})})
        assert sample(RPS, pod(), samples, known, NOW).usage is None


BOTH = pod(limits={"memory": "2Gi"}, requests={"memory": "1Gi"})
LIMITED = pod(containers=(container("app", memory="2Gi"), container("sidecar", memory="1Gi")))
OF_POD = {"memory": nano("4Gi")}


class TestCapacity:
    @pytest.mark.parametrize(
        ("one", "metric", "capacity"),
        [
            pytest.param(BOTH, memory_of(), "2Gi", id="the limit"),
            pytest.param(BOTH, memory_of(Capacity.REQUEST), "1Gi", id="the request"),
            pytest.param(LIMITED, memory_of(), "3Gi", id="of all containers"),
            pytest.param(LIMITED, memory_of(containers=("sidecar",)), "1Gi", id="of those that are named"),
            pytest.param(replace(LIMITED, pod_limits=OF_POD), memory_of(), "4Gi", id="the pod's own"),
            pytest.param(
                replace(LIMITED, pod_limits=OF_POD), memory_of(containers=("app",)), "2Gi", id="not for a named one"
            ),
            pytest.param(pod(pod_requests=OF_POD), memory_of(Capacity.REQUEST), "4Gi", id="the pod's own request"),
            pytest.param(pod(limits={"memory": "0"}), memory_of(), None, id="a limit of zero is none"),
        ],
    )
    def test_the_limit_or_the_request_of_the_same_containers_stands_behind_usage(
        self, one: Pod, metric: Metric, capacity: str | None
    ) -> None:
        used = {part.name: {"memory": NANO} for part in one.containers}
        samples = Samples(ResourceSamples(pods={"web-0": PodUsage(NOW - 10, 15.0, used)}))
        assert sample(metric, one, samples, {}, NOW).capacity == (None if capacity is None else nano(capacity))

    def test_a_pod_without_a_limit_is_missing_and_counts_with_the_average_one(self) -> None:
        pods = [pod(f"web-{i}", limits={"memory": limit}) for i, limit in enumerate(("2Gi", "4Gi"))]
        bare = pod("web-2")
        samples = usage({"web-0": "1Gi", "web-1": "2Gi", "web-2": "3Gi"}, resource="memory")
        found = measured(memory_of(), [*pods, bare], samples)
        assert (found.n, found.missing, found.usage) == (2, 1, Fraction(NANO, 2))
        assessment, _ = assess_and_decide(policy(memory_of()), [*pods, bare], samples)
        assert [*assessment.with_usage(assessment.pods)][2].missing == {"memory": "container app has no memory limit"}

    def test_the_average_capacity_decides_the_recount(self) -> None:
        # 2 pods at 0.9 of 10 Gi; a third without a limit counts as 10 Gi: 18/30 = 0.6 is not above 0.8.
        pods = [pod(f"web-{i}", limits={"memory": "10Gi"}) for i in range(2)]
        samples = usage({"web-0": "9Gi", "web-1": "9Gi", "web-2": "9Gi"}, resource="memory")
        _, decision = assess_and_decide(policy(memory_of()), [*pods, pod("web-2")], samples)
        assert decision.desired == 3
        _, without = assess_and_decide(policy(memory_of()), pods, samples)
        assert without.desired == 3  # ⌈2 · 0.9/0.8⌉

    def test_where_no_pod_has_a_limit_the_error_names_the_container(self) -> None:
        found = measured(memory_of(), [pod()], usage({"web-0": "1Gi"}, resource="memory"))
        assert found.error == "container app has no memory limit; set one or drop `of` from the metric"
        found = measured(memory_of(Capacity.REQUEST), [pod()], usage({"web-0": "1Gi"}, resource="memory"))
        assert found.error is not None
        assert "no memory request" in found.error

    def test_usage_is_that_of_all_pods_over_all_their_capacity(self) -> None:
        pods = [pod("web-0", limits={"memory": "1Gi"}), pod("web-1", limits={"memory": "9Gi"})]
        found = measured(memory_of(), pods, usage({"web-0": "1Gi", "web-1": "1Gi"}, resource="memory"))
        assert found.usage == Fraction(2 * NANO, 10)

    def test_a_query_may_be_a_share_of_a_limit(self) -> None:
        used = replace(RPS, query=Query(name="m", of=Capacity.LIMIT, resource="memory"), high=Fraction(NANO, 2))
        samples = Samples(queries={"rps": QuerySamples(pods={"web-0": Point(NOW - 5, nano("1Gi"))})})
        found = measured(used, [pod(limits={"memory": "4Gi"})], samples)
        assert found.usage == Fraction(NANO, 4)


class TestUsage:
    def test_it_is_the_average_of_the_pods_that_serve_and_have_a_sample(self) -> None:
        pods = [pod("a"), pod("b"), out("c"), pod("d", ready=False, ready_for=99), pod("e", deleting=True), pod("f")]
        found = measured(cpu(), pods, usage({"a": "1", "b": "2", "c": "9", "d": "9", "e": "9"}))
        assert (found.n, found.missing) == (2, 1)
        assert found.usage == Fraction(nano("1500m"))

    def test_raw_usage_is_the_average_of_all_that_run(self) -> None:
        pods = [pod("a"), out("b"), pod("c", deleting=True)]
        assert measured(cpu(), pods, usage({"a": "3", "b": "1", "c": "9"})).raw == Fraction(nano("2"))

    def test_a_service_total_is_shared_by_the_pods_that_serve(self) -> None:
        found = measured(queue("10"), [pod("a"), pod("b"), out("c")], total("30"))
        assert (found.n, found.missing, found.total_value) == (2, 0, 30 * NANO)
        assert found.usage == 15 * NANO
        assert found.raw == 10 * NANO

    def test_the_oldest_sample_dates_the_metric(self) -> None:
        old, new = usage({"web-0": "1"}, at=NOW - 60), usage({"web-1": "1"}, at=NOW - 5)
        samples = Samples(ResourceSamples(pods={**old.resources.pods, **new.resources.pods}))
        found = measured(cpu(), same(2, "1")[0], samples)
        assert (found.sampled_at, found.window) == (NOW - 60, 15.0)


class TestErrors:
    def error(self, pods: list[Pod], samples: Samples, metric: Metric | None = None) -> str:
        assessment, decision = assess_and_decide(policy(metric or cpu()), pods, samples)
        assert decision.desired is None
        assert decision.served is None
        assert decision.error is not None
        assert assessment.metrics[0].error in decision.error or not assessment.pods  # type: ignore[operator]
        return decision.error

    @pytest.mark.parametrize("pods", [[], [pod(deleting=True)]], ids=["none", "one that is gone"])
    def test_without_pods_the_target_is_named(self, pods: list[Pod]) -> None:
        _, decision = assess_and_decide(policy(), pods, usage({"web-0": "1"}), current=3)
        assert decision.error == "no pods of Deployment web exist"

    @pytest.mark.parametrize(
        "one", [pod(age=5, ready=False, ready_for=5), pod(ready=False, ready_for=900)], ids=["starting", "unready"]
    )
    @pytest.mark.parametrize(("metric", "samples"), [(cpu(), usage({})), (queue("10"), total("30"))])
    def test_no_pod_serves(self, one: Pod, metric: Metric, samples: Samples) -> None:
        assert "no pod serves" in self.error([one], samples, metric)

    def test_the_error_names_the_sources_own_error(self) -> None:
        failing = Samples(ResourceSamples(error="503 from metrics.k8s.io", fetched_at=NOW - 100))
        assert "503 from metrics.k8s.io" in self.error([pod()], failing)

    def test_the_error_names_the_time_of_the_last_answer(self) -> None:
        silent = Samples(ResourceSamples(fetched_at=NOW - 100))
        assert f"no fresh sample (last answer at {time_text(NOW - 100)})" in self.error([pod()], silent)
        assert "has not answered yet" in self.error([pod()], Samples())
        assert "has not been answered yet" in self.error([pod()], Samples(), RPS)

    def test_a_pods_own_reason_precedes_the_sources_error(self) -> None:
        samples = usage({"web-0": "1"}, at=NOW - 400)
        assert self.error([pod()], samples) == (
            "metric cpu: metrics.k8s.io has no fresh sample of a serving pod: "
            f"its last sample is from {time_text(NOW - 400)}"
        )

    def test_a_service_total_too_old_is_an_error(self) -> None:
        assert "no fresh sample" in self.error([pod()], total("30", at=NOW - 91), queue("10"))
        _, decision = assess_and_decide(policy(queue("10")), [pod()], total("30", at=NOW - 90))
        assert decision.desired == 3


def test_a_pod_has_its_usage_and_its_missing_metrics() -> None:
    both = policy(cpu(), replace(RPS, name="rps"))
    samples = usage({"web-0": "1200m"})
    assessment, _ = assess_and_decide(both, [pod()], samples)
    one: PodAssessment = next(assessment.with_usage(assessment.pods))
    assert {name: nano_text(value) for name, value in one.usage.items()} == {"cpu": "1200m"}
    assert one.missing == {"rps": "no sample"}
