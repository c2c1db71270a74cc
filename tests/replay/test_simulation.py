"""The closed loop: what pods carry, what autoscalers see, and that it equals assess, decide and the HPA in a row."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from adapter.commands.replay.autoscalers import HpaAutoscaler, PolicyAutoscaler
from adapter.commands.replay.hpas import hpa_following, judge_of, stock_hpa_for, throttles_of
from adapter.commands.replay.pods import ServicePods
from adapter.commands.replay.service import Judge, Run, Setup, Tick, View
from adapter.commands.replay.simulation import simulate
from adapter.hpa.controller import Controller
from adapter.load.assess import assess
from adapter.load.assessment import Assessment, AssessmentInputs
from adapter.load.decide import decide
from adapter.load.memory import Memory
from adapter.load.samples import PodUsage, ResourceSamples, Samples
from adapter.load.spec import Cooldown, Metric, Policy, Query, Scale, Target, Velocity
from adapter.policy.hpa import Hpa
from tests.load.kit import cpu, policy
from tests.replay.services import POD, START, Fixed, Recorded, hpa, phases, rules, steady, wandering

NOBODY = Judge({})


def counts(run: Run) -> list[tuple[float, int]]:
    return [(change.at - START, change.after) for change in run.changes]


def seen(history: Sequence[Tick], setup: Setup, plan: dict[int, int] | None = None) -> list[View]:
    autoscaler = Fixed(plan)
    simulate(history, setup, [autoscaler], NOBODY)
    return autoscaler.views


def test_serving_pods_share_the_load_of_the_service() -> None:
    view = seen(list(steady(8, 60)), Setup(replicas=4))[0]
    assert sorted(view.samples["cpu"].values()) == [2 * POD] * 4


def test_a_new_pod_carries_load_and_has_a_sample_only_once_it_is_ready() -> None:
    views = seen(list(steady(8, 90)), Setup(replicas=4, starts=30), {0: 8})
    assert [len(view.pods) for view in views[:4]] == [4, 8, 8, 8]
    assert [len(view.samples["cpu"]) for view in views[:4]] == [4, 4, 8, 8]
    assert max(views[2].samples["cpu"].values()) == POD


def test_a_deleted_pod_carries_nothing_and_is_seen_until_it_is_gone() -> None:
    views = seen(list(steady(8, 90)), Setup(replicas=4, stops=20), {1: 2})
    assert [sum(pod.deleting for pod in view.pods) for view in views[:5]] == [0, 0, 2, 0, 0]
    assert sorted(views[2].samples["cpu"].values()) == [4 * POD] * 2
    assert views[2].status_replicas == 2


def test_the_oldest_pods_are_pulled_out_stay_the_same_and_idle() -> None:
    history = [tick._replace(pulled_out=1 if index else 0) for index, tick in enumerate(steady(9, 60))]
    views = seen(history, Setup(replicas=4, idle={"cpu": POD // 10}))
    out = [[pod.name for pod in view.pods if pod.pulled_out_annotation] for view in views]
    assert out == [[], [views[0].pods[0].name], [views[0].pods[0].name], [views[0].pods[0].name]]
    assert sorted(views[1].samples["cpu"].values()) == [POD // 10, 3 * POD, 3 * POD, 3 * POD]
    more_than_there_are = seen(list(steady(9, 60, pulled_out=7)), Setup(replicas=3))[0]
    assert all(pod.pulled_out_annotation for pod in more_than_there_are.pods)


def test_the_youngest_pods_are_deleted_first_and_starting_ones_before_all() -> None:
    views = seen(list(steady(8, 90)), Setup(replicas=3, starts=40, stops=0), {0: 5, 1: 4, 4: 2})
    assert [int(pod.name[-2:]) for pod in views[2].pods] == [1, 2, 3, 4]
    assert [int(pod.name[-2:]) for pod in views[5].pods] == [1, 2]


def test_of_pods_on_several_nodes_those_on_the_fullest_one_are_deleted_first() -> None:
    pods = ServicePods(Setup(replicas=7, stops=0), START, nodes=3)
    pods.scale(4, START)
    pods.advance(START)
    assert [int(pod.name[-2:]) for pod in pods.shown()] == [2, 3, 5, 6]


def test_a_delayed_sample_shows_the_load_and_the_pods_of_its_time() -> None:
    history = list(phases((8, 60), (16, 60)))
    views = seen(history, Setup(replicas=4, starts=15, delay=30), {4: 8})
    assert [view.load["cpu"] // POD for view in views] == [8, 8, 8, 8, 8, 8, 16, 16]
    assert views[6].sampled_at == views[6].now - 30
    assert sorted(views[6].samples["cpu"].values()) == [4 * POD] * 4
    assert sorted(views[7].samples["cpu"].values()) == [2 * POD] * 8


def test_a_sample_over_a_window_is_the_average_of_what_a_pod_carried() -> None:
    history = list(phases((8, 60), (16, 60)))
    views = seen(history, Setup(replicas=4, window=30))
    assert [max(view.samples["cpu"].values()) / POD for view in views[3:7]] == [2, 2, 3, 4]


def test_samples_grow_old_where_the_history_has_a_gap() -> None:
    history = [*steady(8, 60), *(tick._replace(at=tick.at + 600) for tick in steady(8, 60))]
    views = seen(history, Setup(replicas=4, lasts=45))
    ages = [view.now - view.sampled_at for view in views]
    assert ages[:7] == [0, 0, 0, 0, 0, 0, 15]
    assert max(ages) == 510


def naive(history: Sequence[Tick], setup: Setup, rule: Policy, native: Hpa) -> list[tuple[float, int]]:
    """The loop written down once more: each sync assesses, decides and has the HPA follow; each change is watched."""
    views = Recorded(PolicyAutoscaler(rule, native))
    simulate(history, setup, [views], NOBODY, skip=False)
    asks = hpa_following(rule, native)
    controller, memory, bounds, found = Controller(asks), Memory(), asks.bounds, []

    def assessed(view: View) -> Assessment:
        usage = {
            pod: PodUsage(view.sampled_at, view.window or 0.0, {"app": {"cpu": value}})
            for pod, value in view.samples["cpu"].items()
        }
        samples = Samples(ResourceSamples(usage, fetched_at=view.now))
        scale = Scale(replicas=view.replicas, status_replicas=view.status_replicas)
        target = Target(api_version="apps/v1", kind="Deployment", name="web")
        return assess(
            AssessmentInputs(
                policy=rule, pods=view.pods, samples=samples, scale=scale, bounds=bounds, target=target,
                memory=memory, now=view.now,
            )
        )  # fmt: skip

    for view in views.views:
        assessment = assessed(view)
        memory, scale = assessment.memory, Scale(replicas=view.replicas, status_replicas=view.status_replicas)
        served = decide(assessment, scale, bounds, view.now).served
        answer = "no answer" if served is None else [served]
        count = controller.sync(view.now, view.replicas, [answer], (), view.status_replicas).replicas
        if count != view.replicas:
            bounds = replace(bounds, last_scale=view.now)
            memory = assessed(views.watched[view.now]).memory
            found.append((view.now - START, count))
    return found


RULES = {
    "watermarks": policy(cpu("1000m", "600m")),
    "only high": policy(cpu("1000m", None)),
    "slowly": policy(cpu("1000m", "600m"), velocity=Velocity(up=30, down=10), cooldown=Cooldown(up=60, down=120)),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("seed", range(2))
def test_a_replayed_policy_does_what_assess_decide_and_the_hpa_do(rule: Policy, seed: int) -> None:
    history, setup = wandering(seed, 200), Setup(replicas=10, starts=40, stops=20)
    native = hpa(2, 40, down=rules(120, ("Percent", 50, 60)))
    run = simulate(history, setup, [PolicyAutoscaler(rule, native)], NOBODY)[0]
    assert counts(run) == naive(history, setup, rule, native)
    assert len(run.changes) > 2


def test_a_departure_is_dated_at_the_deletion_and_holds_no_later_sync() -> None:
    rule, setup = RULES["watermarks"], Setup(replicas=10, delay=5.0, window=5.0)
    autoscaler = PolicyAutoscaler(rule, hpa(2, 40, down=rules(0, ("Pods", 1, 15))))
    run = simulate(steady(2, 150), setup, [autoscaler], NOBODY, skip=False)[0]
    assert counts(run)[:6] == [(15.0 * step, 9 - step) for step in range(6)]


def test_cpu_samples_are_clipped_at_the_limit_of_a_pod() -> None:
    rule = policy(cpu("1500m", "900m"))
    for given in ({"limits": {"cpu": 3 * POD // 2}}, {"capacity": {"cpu": 3 * POD // 2}}):
        setup = Setup(replicas=10, **given)
        clipped = replace(setup, throttles=throttles_of(rule.metrics, setup))
        views = seen(list(steady(40, 60)), clipped, {1: 12})
        assert [view.load["cpu"] for view in views[:2]] == [15 * POD, 15 * POD]
        assert {value for view in views for value in view.samples["cpu"].values()} == {3 * POD // 2}


def test_a_cooldown_begins_with_the_change_and_not_with_the_sync_after_it() -> None:
    rule = policy(cpu("1000m", None), velocity=Velocity(up=10), cooldown=Cooldown(up=60))
    run = simulate(list(steady(40, 300)), Setup(replicas=10), [PolicyAutoscaler(rule, hpa(2, 40))], NOBODY)[0]
    assert [at for at, _ in counts(run)] == [0, 60, 120, 180, 240]


@pytest.mark.parametrize(("surge", "seconds"), [(1, 40), (2, 20), (4, 10), (9, 10)])
def test_a_rolling_update_replaces_every_pod_within_its_surge_and_never_has_fewer(surge: int, seconds: int) -> None:
    pods = ServicePods(Setup(replicas=4, starts=10, stops=0), START)
    pods.roll(surge, START)
    history = []
    for second in range(seconds + 1):
        pods.advance(START + second)
        shown = [pod for pod in pods.shown() if not pod.deleting]
        history.append((sum(pod.is_ready for pod in shown), len(shown), sum(p.template_hash == "2" for p in shown)))
    assert min(ready for ready, _, _ in history) == 4
    assert max(existing for _, existing, _ in history) == 4 + min(surge, 4)
    assert history[-1] == (4, 4, 4)
    assert history[-2][2] < 4 or history[-2][1] > 4, "not before"


def test_a_service_is_scaled_during_its_rolling_update() -> None:
    pods = ServicePods(Setup(replicas=4, starts=10, stops=0), START)
    pods.roll(1, START)
    before = pods.shown()
    pods.scale(4, START + 2)
    pods.advance(START + 2)
    assert pods.shown() == before, "its surge is no surplus"
    for count, at in ((7, 5), (3, 25)):
        pods.scale(count, START + at)
        pods.advance(START + at)
        assert count <= pods.replicas <= count + 1
    for second in range(25, 100):
        pods.advance(START + second)
    assert [pod.template_hash for pod in pods.shown()] == ["2"] * 3


def test_pulled_out_pods_lower_the_raw_average_but_not_the_effective_one() -> None:
    rule, setup = policy(cpu("1000m", None)), Setup(replicas=10, requests={"cpu": POD})
    stock = stock_hpa_for(rule, hpa(2, 40), setup)
    history = list(steady(9, 1800, pulled_out=4))
    raw, effective = simulate(
        history, setup, [HpaAutoscaler(stock), HpaAutoscaler(stock, effective=True)], judge_of(rule, setup)
    )
    assert raw.summary.final == 10
    assert effective.summary.final == 13


def test_a_policy_on_a_service_total_sees_one_number() -> None:
    metric = Metric(name="requests", query=Query(name="requests"), high=cpu("1000m", None).high)
    history = [tick._replace(load={"requests": 12 * POD}) for tick in steady(0, 120)]
    autoscaler = PolicyAutoscaler(policy(metric), hpa(2, 40), totals=["requests"])
    run = simulate(history, Setup(replicas=10), [autoscaler], NOBODY)[0]
    assert counts(run) == [(0.0, 12)]
    assert autoscaler.assessment is not None
    assert autoscaler.assessment.metrics[0].total == (12 * POD, 12 * POD)


class Load(dict[str, int]):
    """A load that can be watched: does anybody still hold it?"""


def test_a_history_is_forgotten_while_it_is_read() -> None:
    held: list[weakref.ref[Load]] = []
    alive = []

    def history() -> Iterator[Tick]:
        for tick in wandering(1, 600):
            load = Load(tick.load)
            held.append(weakref.ref(load))
            yield tick._replace(load=load)
            alive.append(sum(one() is not None for one in held))

    rule, setup = RULES["watermarks"], Setup(replicas=10, delay=30.0, window=60.0)
    simulate(history(), setup, [PolicyAutoscaler(rule, hpa(2, 40))], judge_of(rule, setup))
    assert max(alive[-200:]) < 300


def test_a_floor_raises_a_service_and_is_no_load() -> None:
    queue = Metric(name="queue", query=Query(name="queue"), high=Fraction(POD), floor=True)
    rule, setup = policy(cpu("1000m", "600m"), queue), Setup(replicas=10)
    history = [tick._replace(load={**tick.load, "queue": (15 if tick.at >= START + 60 else 5) * POD})
               for tick in steady(9, 180)]  # fmt: skip
    autoscalers = [PolicyAutoscaler(rule, hpa(2, 40)), HpaAutoscaler(stock_hpa_for(rule, hpa(2, 40), setup))]
    runs = simulate(history, setup, autoscalers, judge_of(rule, setup))
    assert [counts(run) for run in runs] == [[(60.0, 15)], []]
    assert runs[0].summary.over_high == 0
