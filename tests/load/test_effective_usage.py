"""Usage of one metric: which samples count, which pods are missing and why, and the capacity of a utilization."""

from dataclasses import replace
from fractions import Fraction

import pytest

from adapter.load.assessment import HeldBy, MetricAssessment
from adapter.load.pods import Container, Pod
from adapter.load.quantity import NANO
from adapter.load.samples import PodUsage, Point, QuerySamples, ResourceSamples, Samples, time_text
from adapter.load.spec import Metric, Query
from tests.load.kit import NOW, assess_and_decide, cpu, nano, pod, policy, queue, same, total, usage

RPS = Metric(name="rps", query=Query(name="requests"), high=Fraction(100 * NANO), low=Fraction(40 * NANO))


def container(name: str, *, running: bool | None = True, **limits: str) -> Container:
    return Container(name, limits={resource: nano(limit) for resource, limit in limits.items()}, running=running)


def missing(one: Pod, samples: Samples, metric: Metric | None = None) -> str:
    """Why the pod has no usage; empty where it has."""
    (found,) = measured(metric or cpu(), [one], samples).samples
    assert (found.usage is None) == bool(found.missing)
    return found.missing


def measured(metric: Metric, pods: list[Pod], samples: Samples, **changes: object) -> MetricAssessment:
    assessment, _ = assess_and_decide(policy(metric, **changes), pods, samples)  # type: ignore[arg-type]
    return assessment.metrics[0]


NGINX = cpu(containers=("nginx",))
TWO = (container("app"), container("sidecar"))


class TestSamples:
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


PLAIN = cpu("1", name="memory", resource="memory")
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


def test_a_query_by_name_prefix_brings_pods_of_others_which_are_dropped() -> None:
    there = [pod(f"web-{i}") for i in range(4)]
    values = dict.fromkeys((one.name for one in there), "120") | {"web-0-canary": "9k", "web-10": "9k"}
    points = {name: Point(NOW - 10, nano(value)) for name, value in values.items()}
    found = measured(RPS, there, Samples(queries={"rps": QuerySamples(pods=points, fetched_at=NOW)}))
    assert (found.n, found.usage, found.raw) == (4, nano("120"), nano("120"))


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
