"""Usage of one metric: which samples count, which pods are missing and why, and the capacity of a utilization."""

from dataclasses import replace
from fractions import Fraction

import pytest

from adapter.load.assessment import HeldBy, MetricAssessment, Total
from adapter.load.memory import NEW_POD, LastSample, MetricMemory
from adapter.load.pod_samples import MetricReader, PodSample, Sizes, source_of
from adapter.load.pods import Container, Pod, PodAssessment, PodCondition, PodState
from adapter.load.quantity import NANO, nano_text
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples, time_text
from adapter.load.spec import Capacity, Metric, Query, ResourceMetric
from adapter.load.states import is_young
from tests.load.kit import (
    NOW,
    REGISTRY,
    assess_and_decide,
    cpu,
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
        resource=ResourceMetric(name="memory", containers=containers, relative_to=of),
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
    memory = MetricMemory(last={one.uid: remembered[metric.name]} if metric.name in remembered else {})
    return MetricReader(metric, source_of(metric, samples), now, memory).sample(
        one, max(one.started_at or 0.0, one.ready_since)
    )


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


PLAIN = memory_of(None, high=Fraction(NANO))
EARLIER = "its last sample is from before it came into service"


def a_point(age: float, max_age: float = 90.0) -> Samples:
    return Samples(queries={"rps": QuerySamples(pods={"web-0": Point(NOW - age, 1)}, max_age=max_age)})


class TestFreshness:
    @pytest.mark.parametrize(
        ("one", "samples", "metric", "reason"),
        [
            pytest.param(pod(), usage({"web-0": "1"}, at=NOW - 90), cpu(), "", id="90 s old"),
            pytest.param(
                pod(), usage({"web-0": "1"}, at=NOW - 90.5), cpu(), f"its last sample is from {time_text(NOW - 90.5)}",
                id="older",
            ),
            pytest.param(pod(), usage({"web-0": "1"}, at=NOW + 5), cpu(), "", id="dated ahead"),
            pytest.param(
                pod(), a_point(20, max_age=15), RPS, f"its last sample is from {time_text(NOW - 20)}",
                id="older than its source allows",
            ),
            pytest.param(
                pod(ready_for=9), usage({"web-0": "1"}, resource="memory"), PLAIN, EARLIER, id="before it was Ready"
            ),
            pytest.param(
                pod(age=40, ready_for=24), usage({"web-0": "1"}, resource="memory"), PLAIN, "",
                id="memory does not warm up",
            ),
            pytest.param(pod(age=40, ready_for=24), a_point(20), RPS, "", id="nor does a query of the present"),
            pytest.param(pod("web-1"), a_point(5), RPS, "no sample", id="another pod's"),
            pytest.param(
                pod("web-1"), Samples(queries={"rps": QuerySamples(unusable={"web-1": "NaN"})}), RPS,
                "the query answers NaN for it, which does not count", id="what is no number",
            ),
        ],
    )  # fmt: skip
    def test_a_sample_that_does_not_count_says_why(
        self, one: Pod, samples: Samples, metric: Metric, reason: str
    ) -> None:
        assert missing(one, samples, metric) == reason

    @pytest.mark.parametrize(("ready_for", "warms"), [(24, True), (25, False), (26, False)])
    @pytest.mark.parametrize("age", [40, 299, 300, 9999])
    def test_cpu_warms_up_for_a_window_after_each_start_of_service(
        self, age: float, ready_for: float, warms: bool
    ) -> None:
        assert (missing(pod(age=age, ready_for=ready_for), usage({"web-0": "1"})) == WARMING) is warms

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

    @pytest.mark.parametrize(
        ("age", "ready_for", "young"), [(299, 299, True), (300, 300, False), (9999, 299, True), (9999, 300, False)]
    )
    def test_a_pod_is_young_for_300_s_after_its_creation_and_each_change_of_readiness(
        self, age: float, ready_for: float, young: bool
    ) -> None:
        def found(one: Pod) -> bool:
            return is_young(PodAssessment(one, PodState.UNREADY, ""), NEW_POD, NOW)

        assert found(pod(age=age, ready_for=ready_for)) is young
        assert found(replace(pod(age=age), ready=None)) is (age < 300)
        assert found(replace(pod(age=age), ready=PodCondition(False))) is (age < 300)


class TestLastSamples:
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
        assert memory.metric("cpu").last["uid-hot"] == LastSample(NOW - 10, nano("20"))


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
        assert sample(metric, one, samples, {}, NOW).sizes == (
            None if capacity is None else Sizes(nano(capacity), nano(capacity))
        )

    def test_a_pod_without_a_limit_is_missing_and_counts_with_the_average_one(self) -> None:
        pods = [pod(f"web-{i}", limits={"memory": limit}) for i, limit in enumerate(("2Gi", "4Gi"))]
        bare = pod("web-2")
        samples = usage({"web-0": "1Gi", "web-1": "2Gi", "web-2": "3Gi"}, resource="memory")
        found = measured(memory_of(), [*pods, bare], samples)
        assert (found.n, found.missing, found.usage) == (2, 1, Fraction(NANO, 2))
        assessment, _ = assess_and_decide(policy(memory_of()), [*pods, bare], samples)
        assert [*assessment.with_usage(assessment.pods)][2].missing == {"memory": "container app has no memory limit"}


class TestUsage:
    def test_a_service_total_is_shared_by_the_pods_that_serve(self) -> None:
        found = measured(queue("10"), [pod("a"), pod("b"), out("c")], total("30"))
        assert (found.n, found.missing, found.total) == (2, 0, Total(30 * NANO, 30 * NANO))
        assert found.usage == 15 * NANO
        assert found.raw == 10 * NANO


ILL = pod(ready=False, ready_for=900)
YOUNG = pod(age=5, ready=False, ready_for=5)


class TestErrors:
    @pytest.mark.parametrize(
        ("one", "samples", "metric", "words"),
        [
            pytest.param(YOUNG, usage({}), cpu(), "no pod serves", id="one starts"),
            pytest.param(ILL, usage({}), cpu(), "no pod serves", id="one is unready"),
            pytest.param(ILL, total("30"), queue("10"), "no pod serves", id="a total without a pod"),
            pytest.param(
                pod(), Samples(ResourceSamples(error="503 from metrics.k8s.io", fetched_at=NOW - 100)), cpu(),
                "503 from metrics.k8s.io", id="the source's own error",
            ),
            pytest.param(
                pod(), Samples(ResourceSamples(fetched_at=NOW - 100)), cpu(),
                f"no fresh sample (last answer at {time_text(NOW - 100)})", id="an old answer",
            ),
            pytest.param(pod(), Samples(), cpu(), "has not answered yet", id="no answer yet"),
            pytest.param(pod(), Samples(), RPS, "has not been answered yet", id="no answer to a query yet"),
            pytest.param(
                pod(), usage({"web-0": "1"}, at=NOW - 400), cpu(),
                "metric cpu: metrics.k8s.io has no fresh sample of a serving pod: "
                f"its last sample is from {time_text(NOW - 400)}", id="a pod's own reason comes first",
            ),
            pytest.param(pod(), total("30", at=NOW - 91), queue("10"), "no fresh sample", id="a total too old"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_measured_is_named(self, one: Pod, samples: Samples, metric: Metric, words: str) -> None:
        assessment, decision = assess_and_decide(policy(metric), [one], samples)
        assert (decision.desired, decision.served) == (None, None)
        assert words in (decision.error or "")
        assert (assessment.metrics[0].error or "") in (decision.error or "")


def test_a_pod_has_its_usage_and_its_missing_metrics() -> None:
    both = policy(cpu(), replace(RPS, name="rps"))
    samples = usage({"web-0": "1200m"})
    assessment, _ = assess_and_decide(both, [pod()], samples)
    one: PodAssessment = next(assessment.with_usage(assessment.pods))
    assert {name: nano_text(value) for name, value in one.usage.items()} == {"cpu": "1200m"}
    assert one.missing == {"rps": "no sample"}
