"""docs/decision.md rule by rule: from one document and the memory of the previous ones to one answer.

Interpretations where the page leaves something open (the adapter does the same):
- Explicit evidence of being out is also the annotation, a readiness gate and an EndpointSlice.
- Ties among doubtful pods go by name. A metric is in error where every
  scenario is. Doubtful pods that are out are kept in the count, young ones too, which also fill.
- A roster dated at a Ready transition is no older than it. Absence lasts from roster to roster. A pod that is absent
  from a roster older than its Ready transition is doubtful, confirmed or not. Holds run from when they were seen.
- Samples of pods that serve or are doubtful are remembered, for 5 min; to fill, the present sample counts too.
- The average capacity is that of all pods with a capacity; a container that does not run has none.
- A pod that was pulled out counts as departed from when that was seen.
  "Young doubtful" in the limit of `replaced` are those in doubt < 300 s.
- Departed pods add to n of a Total of samples by pod, and to nothing of a service total, but for a Total of it.
- A proposal above current is rounded before it is compared with current; S = 0 asks for 0 whatever is out.
- Toward the low watermark a missing pod holds, but for `multipleOf`; toward the high one departed load counts.
- minServingPercent holds what the metrics together ask for. A floor and a fallback are held by Schedule, MetricError.
- Ratio on the way down takes ⌈ratio × n⌉ of the recount, as on the way up.
- Step: Σ is n times the usage of §2, of departed pods too, whose load the others share equally before a pod counts as
  below its bound; the proposal is rounded up to a multiple before the pods that are left are counted. minPods 0 and a
  service total of 0 go down to 0 by steps.
- A sleeping service's clock of errors runs where no total answers and one, or a query that never answered, is in error.
"""

import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from tests.literal import facts as reading_facts
from tests.literal import usage
from tests.literal.facts import Facts, Metric, Pod
from tests.literal.memory import Memory
from tests.literal.states import DOUBTFUL, PULLED_OUT, SERVING, remember_states, states, take_roster
from tests.literal.usage import ERROR, INSIDE, LiteralScenario, Situation


@dataclass
class Outcome:
    """One metric: the winning scenario, and the one with every doubtful pod in."""

    metric: Metric
    winner: LiteralScenario
    all_in: LiteralScenario
    error: str = ""


def answer(document: dict[str, Any], before: Memory) -> tuple[dict[str, Any], Memory]:
    """The answer to a document, and the memory for the next one of this service."""
    facts, memory = reading_facts.read(document), copy.deepcopy(before)
    # assess: the states of pods, what counts of their samples, and what is remembered of both
    take_roster(facts, memory)
    found, absent = states(facts, memory)
    remember_states(facts, memory, found, absent)
    situation = Situation(facts, memory, found)
    usage.take_samples(situation)
    situation.replacing_allowed = not rollout_progresses(facts, memory)
    see_replicas(facts, memory)
    see_replacing_step(situation)
    outcomes = [outcome_of(situation, metric) for metric in facts.metrics if not metric.floor]
    floors = [floor_of(situation, metric) for metric in facts.metrics if metric.floor]
    see_errors(facts, memory, outcomes)
    usage.forget_departed(situation)
    # decide
    decision = decide(situation, outcomes, [one for one in floors if not one.error])
    note_replacing(situation, decision)
    memory.known = True
    given = {
        "desiredReplicas": decision["desired"],
        "served": serve(decision["desired"], facts.status_replicas),
        "error": decision["error"],
        "verdict": decision["verdict"],
        "heldBy": decision["heldBy"],
        "pods": {pod.name: found[pod.uid] for pod in facts.pods},
        "metrics": {
            one.metric.name: {"n": one.winner.n, "missing": one.winner.missing, "proposal": one.winner.proposal}
            for one in outcomes + floors
            if one.winner.verdict != ERROR and facts.current > 0 and decision["verdict"] != ERROR
        },
    }
    return given, memory


# --- what assess remembers besides pods ---


def rollout_progresses(facts: Facts, memory: Memory) -> bool:
    """Progressing with a reason other than NewReplicaSetAvailable, for at most 600 s since that was first seen."""
    if facts.rollout_reason in (None, "NewReplicaSetAvailable"):
        memory.rollout_since = None
        return False
    if memory.rollout_since is None:
        # In a file without memory of it: since lastUpdateTime.
        updated = facts.rollout_updated
        memory.rollout_since = facts.now if memory.known or updated is None else updated
    return facts.now - memory.rollout_since <= 600


def see_replicas(facts: Facts, memory: Memory) -> None:
    if memory.last_replicas is not None and memory.last_replicas != facts.watched:
        memory.last_scale = facts.now
    memory.last_replicas = facts.watched


def see_replacing_step(situation: Situation) -> None:
    """A later current above the one noted is a replacing step; all is forgotten when no pod is out or doubtful."""
    memory = situation.memory
    if not situation.pods(PULLED_OUT, DOUBTFUL):
        memory.noted_at = memory.noted_current = memory.first_step = None
        return
    noted = memory.noted_current is not None and situation.facts.watched > memory.noted_current
    if noted and memory.first_step is None:
        memory.first_step = memory.noted_at


def note_replacing(situation: Situation, decision: dict[str, Any]) -> None:
    """Where its own count is above current with `replaced` in it."""
    facts, memory = situation.facts, situation.memory
    if decision["desired"] is not None and decision["desired"] > facts.current and decision["replaced"] > 0:
        memory.noted_at, memory.noted_current = facts.now, facts.current


def wakers_in_error(facts: Facts, memory: Memory) -> bool:
    """Whether a service total is in error; a query that never answered may be one."""
    return any(
        (one.resource == "" and one.answered is None) or (one.is_total and usage.total_is_old(facts, memory, one))
        for one in facts.metrics
        if not one.floor
    )


def see_errors(facts: Facts, memory: Memory, outcomes: list[Outcome]) -> None:
    """Since when no metric has an answer; of a service that sleeps, only those that may wake it are asked."""
    if facts.current == 0:
        totals_answer = any(
            one.is_total and not one.floor and not usage.total_is_old(facts, memory, one) for one in facts.metrics
        )
        in_error = wakers_in_error(facts, memory) and not totals_answer
        memory.error_since = (facts.now if memory.error_since is None else memory.error_since) if in_error else None
    elif all(one.error for one in outcomes):
        memory.error_since = facts.now if memory.error_since is None else memory.error_since
    else:
        memory.error_since = None


# --- §0, doubt ---


def outcome_of(situation: Situation, metric: Metric) -> Outcome:
    """Readings for k = 0 … d with the k most loaded doubtful pods in; the largest count wins."""
    facts = situation.facts
    doubtful = situation.pods(DOUBTFUL)
    fit = situation.fit[metric.name]

    def load(pod: Pod) -> Fraction | None:
        held = usage.capacity(metric, pod)
        return fit[pod.uid].value / held if pod.uid in fit and held is not None else None

    def rank(pod: Pod) -> tuple[Fraction, str]:
        """The most loaded first, those without a sample last."""
        known = None if metric.is_total else load(pod)
        return (Fraction(1) if known is None else -known, pod.name)

    def rank_down(pod: Pod) -> tuple[Fraction, str]:
        """The most loaded first by what is assumed of each on the way down."""
        return (-usage.load_on_the_way_down(situation, metric, pod), pod.name)

    orders = [sorted(doubtful, key=rank)]
    if not metric.is_total:
        orders.insert(0, sorted(doubtful, key=rank_down))
    scenarios = [
        (k, usage.read(situation, metric, order[:k], order[k:])) for order in orders for k in range(len(order) + 1)
    ]
    all_in = next(scenario for k, scenario in scenarios if k == len(doubtful))
    if all(scenario.error for _, scenario in scenarios):
        usage.wait(situation, metric, [scenario for _, scenario in scenarios])
        return Outcome(metric, all_in, all_in, error=all_in.error)
    for _, scenario in scenarios:
        if scenario.error:
            scenario.proposal = facts.current
    usage.wait(situation, metric, [scenario for _, scenario in scenarios])
    winner = max(scenarios, key=lambda one: (one[1].proposal, one[0]))[1]
    return Outcome(metric, winner, all_in)


def floor_of(situation: Situation, metric: Metric) -> Outcome:
    """A floor proposes what its high watermark needs, whatever the band. Only a rise is rounded beyond current."""
    current = situation.facts.current
    pods = len(situation.pods(SERVING, DOUBTFUL))
    scenario = LiteralScenario(pods_in=pods, n=pods)
    needed = usage.floor_needs(situation, metric)
    if needed is None:
        return Outcome(metric, scenario, scenario, error="the floor has no answer")
    scenario.proposal = usage.up_to(needed, situation.facts.spec.get("multipleOf", 1))
    scenario.verdict = "Above" if needed > current else INSIDE
    if needed <= current:
        scenario.proposal = min(current, scenario.proposal)
    return Outcome(metric, scenario, scenario)


# --- §6, after the strategy ---


def decide(situation: Situation, outcomes: list[Outcome], metric_floors: list[Outcome]) -> dict[str, Any]:
    facts, spec, memory = situation.facts, situation.facts.spec, situation.memory
    now, current = facts.decided, facts.current
    held: str | None = None
    error: str | None = None
    verdict, replaced = ERROR, 0
    desired: int | None = None
    answered = [one for one in outcomes if not one.error]
    fallback = spec.get("fallback")
    fallback_allowed = True
    # 1. several metrics; zero
    if current == 0:
        totals = [one for one in facts.metrics if one.is_total and not one.floor]
        known = [one for one in totals if not usage.total_is_old(facts, memory, one)]
        fallback_allowed = wakers_in_error(facts, memory)
        if known:
            wakes = any(one.total.value > 0 for one in known)
            desired, verdict = (1, "Above") if wakes else (0, INSIDE)
        else:
            error = "is scaled to zero"
    elif answered:
        best = max(answered, key=lambda one: one.winner.proposal)
        desired, verdict, replaced = best.winner.proposal, best.winner.verdict, best.winner.replaced
        held = best.winner.held
        if best.all_in.proposal < best.winner.proposal:
            held = "Doubt"
        if usage.too_few_serve(situation) and desired < current:
            desired, held = current, "MinServing"
        if len(answered) < len(outcomes) and desired < current:
            desired, held = current, "MetricError"
    else:
        error = outcomes[0].error
    own_verdict = verdict
    highest = max(metric_floors, key=lambda one: one.winner.proposal, default=None)
    if highest is not None and desired is not None and highest.winner.proposal > desired:
        desired, verdict, held, replaced = highest.winner.proposal, highest.winner.verdict, None, 0
    # 2. schedules and fallback
    caps, floors = active_schedules(facts)
    floor = max(floors, default=0)
    raised, fallbacks = floor, []
    in_error_for = -1 if memory.error_since is None else now - memory.error_since
    if fallback is not None and fallback_allowed and in_error_for >= fallback.get("afterSeconds", 300):
        fallbacks = [fallback["replicas"]]
        raised = max(raised, *fallbacks)
    if desired is None:
        if raised > current:
            desired, held, error = raised, "MetricError" if raised in fallbacks else "Schedule", None
        if highest is not None and highest.winner.proposal > current:
            paced, by = pace(situation, highest.winner.proposal, None, caps, floor)
            if paced > max(raised, current):
                desired, held, error, verdict = paced, by, None, highest.winner.verdict
    else:
        desired, held = pace(situation, desired, held, caps, floor)
    if desired is not None:
        # 5. HPA min and max
        bounded = min(max(desired, facts.hpa_min), facts.hpa_max)
        if bounded != desired:
            desired, held = bounded, "Bounds"
    # 6. Observe and Paused
    if spec.get("mode", "Active") in {"Observe", "Paused"}:
        desired, held, error, verdict = current, "Mode", None, own_verdict
    # §7, coarse mode; outside min and max the HPA asks no metric
    if desired is not None and facts.hpa_min <= current <= facts.hpa_max:
        desired, held, error = coarse(facts, desired, held)
    if error is not None:
        verdict, held = ERROR, None
    return {"desired": desired, "heldBy": held, "error": error, "verdict": verdict, "replaced": replaced}


def pace(situation: Situation, desired: int, held: str | None, caps: list[int], floor: int) -> tuple[int, str | None]:
    """Schedules, velocity, cooldown; a schedule's floor ignores pacing."""
    facts = situation.facts
    capped = min([desired, *caps])
    if capped != desired:
        desired, held = capped, "Schedule"
    if desired < floor:
        desired, held = floor, "Schedule"
    # 3. velocity
    paced = limited(desired, facts.current, facts.spec.get("velocity", {}))
    if paced != desired:
        desired, held = paced, "Velocity"
    # 4. cooldown
    paced = cooled(desired, situation)
    if paced != desired:
        desired, held = paced, "Cooldown"
    if desired < floor:
        desired, held = floor, "Schedule"
    return desired, held


def limited(desired: int, current: int, velocity: dict[str, Any]) -> int:
    """Velocity, in percent of current; absent is no limit, 0 disables a direction."""
    up, down = velocity.get("scaleUpPercent"), velocity.get("scaleDownPercent")
    if desired > current and up is not None:
        return min(desired, current + (0 if up == 0 else max(1, current * up // 100)))
    if desired < current and down is not None:
        return max(desired, current - (0 if down == 0 else max(1, current * down // 100)))
    return desired


def cooled(desired: int, situation: Situation) -> int:
    """Cooldown: no change in a direction until its seconds passed since the count last changed."""
    facts, memory = situation.facts, situation.memory
    cooldown = facts.spec.get("cooldown", {})
    if facts.spec.get("strategy") == "Step":
        cooldown = {"scaleUpSeconds": 180, "scaleDownSeconds": 300} | cooldown
    # The live count may have changed since the assessment.
    last_scale = memory.last_scale if facts.current == facts.watched else facts.decided
    by_hpa = usage.by_hpa(facts, facts.decided)
    if desired > facts.current and by_hpa is not None and last_scale == facts.observing_since:
        last_scale = by_hpa  # a server found the change as it took over: doubt counts for the rise
    seen = [min(at, facts.decided) for at in (by_hpa, last_scale) if at is not None]
    if not seen or desired == facts.current:
        return desired
    wait = cooldown.get("scaleUpSeconds" if desired > facts.current else "scaleDownSeconds", 0)
    return facts.current if facts.decided - max(seen) < wait else desired


def active_schedules(facts: Facts) -> tuple[list[int], list[int]]:
    """The maxReplicas and the minReplicas of the windows that are open now."""
    caps, floors = [], []
    for schedule in facts.spec.get("schedules", []):
        if is_open(schedule, facts.decided):
            if "maxReplicas" in schedule:
                caps.append(schedule["maxReplicas"])
            if "minReplicas" in schedule:
                floors.append(schedule["minReplicas"])
    return caps, floors


def is_open(schedule: dict[str, Any], now: float) -> bool:
    """Whether a window began within its duration; minute by minute, cron fields of `*`, numbers, lists and ranges."""
    minute, hour, day, month, weekday = schedule["cron"].split()
    zone = ZoneInfo(schedule.get("timeZone", "UTC"))
    begin = datetime.fromtimestamp(now, UTC).replace(second=0, microsecond=0)
    while now - begin.timestamp() < schedule["durationSeconds"]:
        local = begin.astimezone(zone)
        if (
            cron_field(minute, local.minute) and cron_field(hour, local.hour) and cron_field(day, local.day)
            and cron_field(month, local.month) and cron_field(weekday, local.isoweekday() % 7)
        ):  # fmt: skip
            return True
        begin -= timedelta(minutes=1)
    return False


def cron_field(text: str, value: int) -> bool:
    if text == "*":
        return True
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(first) <= value <= int(last or first):
            return True
    return False


# --- §7, what is served ---


def milli(desired: int, status_replicas: int) -> int:
    if desired == 0:
        return 0
    return 1000 * desired if desired >= status_replicas else 1000 * (desired - 1) + 1


def serve(desired: int | None, status_replicas: int) -> str | None:
    if desired is None:
        return None
    value = milli(desired, status_replicas)
    for size, suffix in ((10**9, "M"), (10**6, "k"), (10**3, "")):
        if value % size == 0:
            return f"{value // size}{suffix if value else ''}"
    return f"{value}m"


def coarse(facts: Facts, desired: int, held: str | None) -> tuple[int | None, str | None, str | None]:
    """What an HPA with a tolerance would swallow is held; a surge that it would ratchet is an error."""
    up, down, s, current = facts.swallows_up, facts.swallows_down, facts.status_replicas, facts.current
    if (up == 0 and down == 0) or s == 0:
        return desired, held, None
    # Within its tolerance the HPA makes the count what there is, within its bounds.
    there_is = min(max(s, facts.hpa_min), facts.hpa_max)
    if desired not in (current, there_is) and 1 - down <= Fraction(milli(desired, s), 1000 * s) <= 1 + up:
        desired, held = current, "HPATolerance"
    if desired == current != there_is:
        if s > current and Fraction(current - 1, s) >= 1 - down:
            return None, held, "rollout in progress"
        if s < current and Fraction(current, s) <= 1 + up:
            return None, held, "pods are still being made"
    return desired, held, None


__all__ = ["SERVING", "Memory", "answer"]
