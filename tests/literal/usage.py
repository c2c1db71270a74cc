"""§2 of the page: the fit samples, and one metric in one scenario."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.literal.facts import Answer, Facts, Metric, Pod, quantity
from tests.literal.memory import Ahead, Beyond, Memory, Past, Sample
from tests.literal.states import DOUBTFUL, FINISHED, PULLED_OUT, SERVING, STARTING, TERMINATING, UNREADY

ABOVE, INSIDE, BELOW, ERROR = "Above", "Inside", "Below", "Error"


@dataclass
class Situation:
    """The inputs of all scenarios. `current` is the live count."""

    facts: Facts
    memory: Memory
    states: dict[str, str]

    replacing_allowed: bool = True
    """No rollout progresses, and the policy replaces."""
    fit: dict[str, dict[str, Sample]] = field(default_factory=dict)
    """By metric, then by pod UID: the samples that are fit to be used."""
    present: dict[tuple[str, str], Sample] = field(default_factory=dict)
    """By metric and pod UID: the samples of this document, fit or not."""
    began: dict[str, dict[str, float]] = field(default_factory=dict)
    """As `fit`: when the sample's window began."""

    def pods(self, *states: str) -> list[Pod]:
        return [pod for pod in self.facts.pods if self.states[pod.uid] in states]

    def past(self, pod: Pod) -> Past:
        return self.memory.pods.get(pod.uid, Past())


@dataclass
class LiteralScenario:
    """One metric with some of the doubtful pods in. `error` is empty where there is none."""

    error: str = ""
    pods_in: int = 0
    n: int = 0
    missing: int = 0
    verdict: str = ERROR
    proposal: int = 0
    held: str | None = None
    replaced: int = 0
    stepped: bool = False
    """A step down of strategy Step, taken or not."""


def tolerates_zero(situation: Situation, metric: Metric) -> bool:
    given = situation.facts.spec.get("tolerateZero")
    return metric.is_total if given is None else bool(given)


# --- samples ---


def counted_containers(metric: Metric, pod: Pod) -> list[str]:
    """Those named, or those that run; where none runs, all."""
    return metric.containers or pod.running or list(pod.limits)


def value_of(metric: Metric, pod: Pod, answer: Answer) -> Fraction | None:
    """A pod's sample: the sum over its running containers, or those named; None where one lacks the resource."""
    if answer.value is not None:
        return answer.value
    total = Fraction(0)
    for name in counted_containers(metric, pod):
        used = answer.containers.get(name, {})
        if metric.resource not in used:
            return None
        total += used[metric.resource]
    return total


def first_seen(metric: Metric, answer: Answer, value: Fraction, ahead: dict[str, Ahead], now: float) -> float:
    """When this very sample was first seen, where it is dated after that; else its own date."""
    known = ahead.get(metric.name)
    if known is not None and (known.dated, known.value) == (answer.at, value):
        return known.first_seen
    # Another sample was given: that one is forgotten.
    ahead.pop(metric.name, None)
    if metric.answered is not None and answer.at > metric.answered:
        ahead[metric.name] = Ahead(dated=answer.at, value=value, first_seen=metric.answered)
        return metric.answered
    return answer.at


def aged_from(metric: Metric, answer: Answer, value: Fraction, ahead: dict[str, Ahead], now: float) -> float:
    """The time a sample is aged from: its own; one dated far ahead of its answer ages from when it was first seen."""
    seen = first_seen(metric, answer, value, ahead, now)
    return seen if answer.at - seen > 10 else answer.at


def present_sample(situation: Situation, metric: Metric, pod: Pod) -> Sample | None:
    """This pod's sample in this very document, fit or not."""
    answer = metric.by_pod.get(pod.name)
    value = None if answer is None else value_of(metric, pod, answer)
    if answer is None or value is None:
        return None
    return Sample(aged_from(metric, answer, value, situation.past(pod).ahead, situation.facts.now), value)


def fit_sample(situation: Situation, metric: Metric, pod: Pod, sample: Sample) -> bool:
    """Whether this pod's sample is fit: not too old, not warming, no unbelievable zero."""
    now, answer = situation.facts.now, metric.by_pod[pod.name]
    known = situation.past(pod).samples.get(metric.name)
    if now - sample.at > metric.max_age:
        return False
    if sample.at < in_service_since(situation, pod):
        return False
    warms_up = metric.resource == "cpu" or (metric.resource == "" and answer.window > 0)
    if warms_up and window_began(situation, metric, pod, sample) < in_service_since(situation, pod):
        return False
    if says_nothing(answer):
        return False
    if sample.value == 0 and not tolerates_zero(situation, metric):
        return not (known is not None and now - known.at <= 300 and known.value > 0)
    return True


def in_service_since(situation: Situation, pod: Pod) -> float:
    """The latest of its start, its last Ready transition and the moment when it was last seen back from pulledOut."""
    moments = (pod.started, pod.ready_changed, situation.past(pod).back_since)
    return max((at for at in moments if at is not None), default=0.0)


def window_began(situation: Situation, metric: Metric, pod: Pod, sample: Sample) -> float:
    """It knows of nothing that was after it was first seen, whatever it is dated."""
    answer = metric.by_pod[pod.name]
    seen = first_seen(metric, answer, sample.value, situation.past(pod).ahead, situation.facts.now)
    return float(min(sample.at, seen) - answer.window)


# --- partial windows ---


def is_partial(answer: Answer) -> bool:
    return answer.c is not None and (answer.u is None or answer.c == 0 or answer.c < answer.u)


def says_nothing(answer: Answer) -> bool:
    """c - 1 < u/2: no sample."""
    known = answer.c is not None and answer.c > 0 and answer.u is not None
    return known and is_partial(answer) and answer.c - 1 < Fraction(answer.u, 2)


def bound_of(answer: Answer, value: Fraction) -> Fraction | None:
    """What counts on the way down: value·u/(c − 1), in whole nano-units; None: nobody knows."""
    if not is_partial(answer):
        return value
    if answer.c == 0 or answer.u is None:
        return None
    return Fraction(math.ceil(value * answer.u / (answer.c - 1) * 10**9), 10**9)


def knows_less(situation: Situation, metric: Metric) -> bool:
    """Whether nobody knows how full a service total's window is, it lacks a pod, or one came in after it began.

    A total that reads none of the pods, or one of more than two, is not about each of them.
    """
    if bound_of(metric.total, metric.total.value) is None:
        return True
    pods = situation.pods(SERVING, DOUBTFUL)
    read = [pod for pod in pods if pod.name in metric.reads]
    lacks_pods = len(read) < len(pods) and (len(read) > 1 or len(read) == 1 == len(pods) - 1)
    began = total_began(situation.facts, situation.memory, metric)
    return lacks_pods or (metric.total.window > 0 and any(in_service_since(situation, pod) > began for pod in pods))


def total_is_old(facts: Facts, memory: Memory, metric: Metric) -> bool:
    """Whether a service total is older than maxAgeSeconds, or says nothing."""
    assert metric.total is not None
    at = aged_from(metric, metric.total, metric.total.value, memory.totals_ahead, facts.now)
    return facts.now - at > metric.max_age or says_nothing(metric.total)


def total_began(facts: Facts, memory: Memory, metric: Metric) -> float:
    """When the window of a service total began."""
    assert metric.total is not None
    seen = first_seen(metric, metric.total, metric.total.value, memory.totals_ahead, facts.now)
    return min(metric.total.at, seen) - metric.total.window


def take_samples(situation: Situation) -> None:
    """Find the fit samples; memory changes only by a newer fit one."""
    for metric in situation.facts.metrics:
        if metric.floor:
            continue
        fit: dict[str, Sample] = {}
        began: dict[str, float] = {}
        for pod in situation.facts.pods:
            present = present_sample(situation, metric, pod)
            if present is None:
                continue
            situation.present[metric.name, pod.uid] = present
            if capacity(metric, pod) is None:
                # Without a limit there is nothing to compare it with: missing, whatever it uses.
                continue
            if situation.states[pod.uid] not in (SERVING, DOUBTFUL):
                continue
            if fit_sample(situation, metric, pod, present):
                fit[pod.uid] = present
                began[pod.uid] = window_began(situation, metric, pod, present)
        situation.fit[metric.name], situation.began[metric.name] = fit, began
        for past in situation.memory.pods.values():
            # Nothing asks for a sample older than 5 min.
            known = past.samples.get(metric.name)
            if known is not None and situation.facts.now - known.at > 300:
                del past.samples[metric.name]
        for uid, sample in fit.items():
            kept = situation.memory.pods[uid].samples
            # Of a partial window what counts on the way down, where that is known.
            bound = bounds_of(situation, metric)[uid]
            if bound is not None and (metric.name not in kept or sample.at > kept[metric.name].at):
                kept[metric.name] = Sample(sample.at, bound)


def bounds_of(situation: Situation, metric: Metric) -> dict[str, Fraction | None]:
    """By pod UID: what the fit samples count on the way down."""
    names = {pod.uid: pod.name for pod in situation.facts.pods}
    fit = situation.fit[metric.name]
    return {uid: bound_of(metric.by_pod[names[uid]], sample.value) for uid, sample in fit.items()}


# --- saturation ---


def saturation_factor(situation: Situation) -> Fraction:
    return quantity(situation.facts.spec.get("saturationFactor", "1.25"))


def cpu_limit(metric: Metric, pod: Pod) -> Fraction | None:
    """Of the same containers, or of the whole pod."""
    if not metric.containers and metric.resource in pod.pod_limits:
        return pod.pod_limits[metric.resource]
    limits = [pod.limits.get(name, {}).get(metric.resource) for name in metric.containers or pod.running]
    return None if not limits or None in limits else sum((one for one in limits if one is not None), Fraction(0))


def is_saturated(situation: Situation, metric: Metric, sampled: list[Pod], missing: list[Pod], sigma: Fraction) -> bool:
    """Whether usage is at least 97 % of the limits of the same pods, and every pod that is in has one."""
    if metric.resource != "cpu" or metric.of == "Request" or saturation_factor(situation) == 1:
        return False
    if any(not cpu_limit(metric, pod) for pod in sampled + missing):
        return False
    return sigma >= Fraction(97, 100) * sum((cpu_limit(metric, pod) or 0 for pod in sampled), Fraction(0))


def stays_saturated(metric: Metric, sampled: list[Pod], missing: list[Pod], sigma: Fraction) -> bool:
    """Recounted with each missing pod at 0."""
    return sigma >= Fraction(97, 100) * sum((cpu_limit(metric, pod) or 0 for pod in sampled + missing), Fraction(0))


def limit_shown(metric: Metric, sampled: list[Pod], *, is_sum: bool) -> Fraction:
    """The limit, in the unit of the watermarks."""
    total = sum((cpu_limit(metric, pod) or Fraction(0) for pod in sampled), Fraction(0))
    if is_sum:
        return total
    return Fraction(1) if metric.of else total / len(sampled)


def last_of_five_minutes(situation: Situation, metric: Metric, pod: Pod) -> Fraction:
    """The pod's last sample of the last 5 min: the one remembered or the present one, fit or not."""
    known = situation.past(pod).samples.get(metric.name)
    present = situation.present.get((metric.name, pod.uid))
    values = [one.value for one in (known, present) if one is not None and situation.facts.now - one.at <= 300]
    return max(values, default=Fraction(0))


def capacity(metric: Metric, pod: Pod) -> Fraction | None:
    """What a pod's usage is compared with; 1 for metrics without `of`, None where the pod has no limit (request)."""
    if not metric.of:
        return Fraction(1)
    of_pod, of_containers = (pod.pod_limits, pod.limits) if metric.of == "Limit" else (pod.pod_requests, pod.requests)
    if not metric.containers and metric.of_resource in of_pod:
        return of_pod[metric.of_resource]
    total = Fraction(0)
    for name in metric.containers or pod.running:
        if metric.of_resource not in of_containers.get(name, {}):
            return None
        total += of_containers[name][metric.of_resource]
    return total if total > 0 else None


def is_young(situation: Situation, pod: Pod) -> bool:
    """Created, or its Ready condition changed, less than 300 s ago."""
    now = situation.facts.now
    return now - pod.created < 300 or (pod.ready_changed is not None and now - pod.ready_changed < 300)


def is_young_doubt(situation: Situation, pod: Pod) -> bool:
    """Doubtful, never registered, and turned Ready less than 300 s ago."""
    return not situation.past(pod).registered and situation.facts.now - pod.ready_changed < 300


# --- one scenario ---


def load_on_the_way_down(situation: Situation, metric: Metric, pod: Pod) -> Fraction:
    """A pod's bound, or the fill of its gap, for its capacity."""
    held = capacity(metric, pod)
    bound = bounds_of(situation, metric).get(pod.uid)
    if bound is not None and held is not None:
        return bound / held
    known = [
        capacity(metric, each)
        for each in situation.facts.pods
        if situation.states[each.uid] not in (TERMINATING, FINISHED)
    ]
    sizes = [size for size in known if size is not None]
    size = held if held is not None else sum(sizes, Fraction(0)) / len(sizes) if sizes else Fraction(1)
    high_plus, _ = bounds(situation.facts.spec, metric)
    return max(high_plus or Fraction(0), last_of_five_minutes(situation, metric, pod) / size)


def read(situation: Situation, metric: Metric, doubt_in: list[Pod], doubt_out: list[Pod]) -> LiteralScenario:
    """One metric, with these doubtful pods in and those out."""
    facts, spec = situation.facts, situation.facts.spec
    current = facts.current
    pods_in = situation.pods(SERVING) + doubt_in
    fit = situation.fit[metric.name]
    is_sum = spec.get("average", "PerPod") == "Total"
    scenario = LiteralScenario(pods_in=len(pods_in), proposal=current)

    # who has a sample, and what they use together
    if metric.is_total:
        sampled, missing = pods_in, []
        sigma = metric.total.value
        if total_is_old(facts, situation.memory, metric):
            return LiteralScenario(error="the service total is too old", pods_in=len(pods_in))
        size = Fraction(len(sampled))
        unbounded, bounded = [], bound_of(metric.total, sigma) or Fraction(0)
        blind = knows_less(situation, metric)
    else:
        if metric.answered is None:
            return LiteralScenario(error="the source never answered", pods_in=len(pods_in))
        known = {pod.uid: capacity(metric, pod) for pod in facts.pods}
        alive = [pod for pod in facts.pods if situation.states[pod.uid] not in (TERMINATING, FINISHED)]
        with_capacity = [known[pod.uid] for pod in alive if known[pod.uid] is not None]
        if pods_in and not with_capacity:
            return LiteralScenario(error="no pod has a limit", pods_in=len(pods_in))
        average = sum(with_capacity, Fraction(0)) / len(with_capacity) if with_capacity else Fraction(1)
        sampled = [pod for pod in pods_in if pod.uid in fit and known[pod.uid] is not None]
        missing = [pod for pod in pods_in if pod not in sampled]
        sigma = sum((fit[pod.uid].value for pod in sampled), Fraction(0))
        size = sum((known[pod.uid] for pod in sampled), Fraction(0))
        bounds_down = bounds_of(situation, metric)
        unbounded = [pod for pod in sampled if bounds_down[pod.uid] is None]
        bounded = sum((bounds_down[pod.uid] or Fraction(0) for pod in sampled), Fraction(0))
        blind = False
    n = len(sampled)
    scenario.n, scenario.missing = n, len(missing)
    if n == 0:
        scenario.error = (
            "no serving pod has a sample"
            if situation.pods(SERVING, DOUBTFUL, PULLED_OUT, STARTING, UNREADY)
            else "no pods exist"
        )
        return scenario

    def size_of(pod: Pod) -> Fraction:
        if metric.is_total or not metric.of:
            return Fraction(1)
        return average if known[pod.uid] is None else known[pod.uid]

    usage = sigma if is_sum else sigma / size
    saturated = is_saturated(situation, metric, sampled, missing, sigma)
    high_plus, low_minus = bounds(spec, metric)

    if sigma == 0 and not tolerates_zero(situation, metric):
        scenario.verdict = INSIDE
        return scenario
    young = [pod for pod in situation.pods(STARTING, UNREADY) if is_young(situation, pod)]
    young += [pod for pod in doubt_out if is_young_doubt(situation, pod)]

    if spec.get("strategy") == "Step":
        of_pods = [(fit[pod.uid].value, known[pod.uid]) for pod in sampled] if not metric.is_total else []
        each = [value / held for value, held in of_pods] or [usage]
        extra = sum((size_of(pod) for pod in missing), Fraction(0))
        of_bounds = [] if metric.is_total else [((bounds_down[pod.uid] or 0) / known[pod.uid]) for pod in sampled]
        load = Step(n, sigma, size, each, sampled, missing, young, extra, bounded, of_bounds, blind or bool(unbounded))
        load.saturated = saturated
        return step(situation, scenario, metric, load, doubt_out)
    if high_plus is not None and (saturated or usage > high_plus):
        scenario.verdict = ABOVE
        if not is_sum:
            n += len(missing)
            size += sum((size_of(pod) for pod in missing), Fraction(0))
            usage = sigma / size
            if not usage > high_plus and not (saturated and stays_saturated(metric, sampled, missing, sigma)):
                scenario.held = "Missing"
                return scenario
        limit = limit_shown(metric, sampled, is_sum=is_sum) if saturated else None
        return scale_up(situation, scenario, metric, n, usage, doubt_out, limit)
    if low_minus is not None and usage < low_minus:
        scenario.verdict = BELOW
        fills = missing + young
        if blind or ((fills or unbounded) and (high_plus is None or is_sum)):
            scenario.held = "Missing"
            return scenario
        # A partial window counts as much as it may have been; where nobody knows, as a missing pod does.
        sigma = bounded
        for pod in fills + unbounded:
            sigma += max(high_plus * size_of(pod), last_of_five_minutes(situation, metric, pod))
        size += sum((size_of(pod) for pod in fills), Fraction(0))
        n += len(fills)
        usage = sigma if is_sum else sigma / size
        if not usage < low_minus:
            scenario.held = "Missing"
            return scenario
        if departed_is_unknown(situation, metric):
            scenario.held = "Departed"
            return scenario
        gone, load = departed_load(situation, metric, sampled)
        sigma += load
        usage = sigma if is_sum else sigma / size
        if not usage < low_minus:
            scenario.held = "Departed"
            return scenario
        if is_sum and not metric.is_total:
            # Not to n for the sum; but what a Total needs is in proportion to the pods that brought the sum about.
            n += gone
        return scale_down(situation, scenario, metric, n, usage, doubt_out)
    scenario.verdict = INSIDE
    # converge: a step is relative to the count that was assessed
    towards = spec.get("convergeTowards") if current == facts.watched else None
    if towards == "High" and (blind or unbounded):
        return scenario
    if towards == "High" and not missing and not young and not departed_is_unknown(situation, metric):
        # The load of departed pods counts here as it does below the band.
        gone, load = departed_load(situation, metric, sampled)
        loaded = (bounded + load) * (n + gone) / n if is_sum and not metric.is_total else bounded + load
        return converge(situation, scenario, metric, n, loaded if is_sum else loaded / size, doubt_out)
    if towards == "Low":
        if missing and spec.get("multipleOf", 1) == 1 and metric.high is not None:
            # Above would hold at the band's edge: recounted with the missing pods at 0, usage is no longer above.
            return scenario
        return converge_up(situation, scenario, metric, n, usage, doubt_out)
    return scenario


# --- §6.1, delay and floor ---


def wait(situation: Situation, metric: Metric, scenarios: list[LiteralScenario]) -> None:
    """What waits holds: usage must have been beyond the watermark, by sample times, without a break for so long.

    With doubt: above in one scenario, below in all. From the newest sample at first to the oldest one now.
    """
    memory, now = situation.memory.beyond, situation.facts.now
    known = memory.get(metric.name)
    times = sample_times(situation, metric)
    if not times or all(scenario.verdict == ERROR for scenario in scenarios):
        # No answer is no break, for 5 min.
        if known is not None and now - known.until > 300:
            memory.pop(metric.name, None)
        return
    verdict, delay = None, 0
    if any(scenario.verdict == ABOVE for scenario in scenarios):
        verdict, delay = ABOVE, metric.delay_up
    elif all(scenario.verdict == BELOW for scenario in scenarios):
        verdict, delay = BELOW, metric.delay_down
    if delay == 0:
        memory.pop(metric.name, None)
    elif known is None or known.verdict != verdict or max(times) - known.until > 300:
        memory[metric.name] = Beyond(str(verdict), max(times), max(times))
    else:
        known.until = max(known.until, *times)
    is_over = delay > 0 and min(times) - memory[metric.name].since >= delay
    for scenario in scenarios:
        waits = {ABOVE: metric.delay_up, BELOW: metric.delay_down}.get(scenario.verdict, 0)
        if waits and not (is_over and scenario.verdict == verdict) and (scenario.held is None or scenario.stepped):
            scenario.proposal, scenario.replaced, scenario.held = situation.facts.current, 0, "Delay"


def sample_times(situation: Situation, metric: Metric) -> list[float]:
    """The ends of the windows of the samples that count."""
    if metric.total is not None:
        if total_is_old(situation.facts, situation.memory, metric):
            return []
        return [float(total_began(situation.facts, situation.memory, metric) + metric.total.window)]
    names = {pod.uid: pod.name for pod in situation.facts.pods}
    began = situation.began[metric.name]
    return [float(at + metric.by_pod[names[uid]].window) for uid, at in began.items()]


def floor_needs(situation: Situation, metric: Metric) -> int | None:
    """⌈S/high⌉ of a floor, by its bound where S raises nothing; None where it has no answer."""
    if metric.total is None or total_is_old(situation.facts, situation.memory, metric):
        return None
    one_pod = metric.high if metric.target is None else metric.target
    needed, current = math.ceil(metric.total.value / one_pod), situation.facts.current
    bound = bound_of(metric.total, metric.total.value)
    return needed if needed > current or bound is None else min(current, math.ceil(bound / one_pod))


def bounds(spec: dict[str, Any], metric: Metric) -> tuple[Fraction | None, Fraction | None]:
    """high⁺ and low⁻; of one target T: T·(1 ± tol), and of Step T ± t in points, or T·(1 ± t)."""
    strategy = spec.get("strategy", "Watermark")
    if strategy == "Step":
        t = Fraction(spec.get("stepTolerance", 15))
        if spec.get("toleranceIn", "Points") == "Ratio":
            return metric.target * (1 + t / 100), metric.target * (1 - t / 100)
        points = t / 100 if metric.of else t
        return metric.target + points, metric.target - points
    tolerance = quantity(spec.get("tolerance", "10%" if strategy == "Ratio" else "1%"))
    high, low = (metric.target, metric.target) if strategy == "Ratio" else (metric.high, metric.low)
    return None if high is None else high * (1 + tolerance), None if low is None else low * (1 - tolerance)


def too_few_serve(situation: Situation) -> bool:
    """minServingPercent: serving of serving, unready, pulledOut and doubtful."""
    serving = len(situation.pods(SERVING))
    of = len(situation.pods(SERVING, UNREADY, PULLED_OUT, DOUBTFUL))
    return serving * 100 < situation.facts.spec.get("minServingPercent", 50) * of


def departed_load(situation: Situation, metric: Metric, sampled: list[Pod]) -> tuple[int, Fraction]:
    """How many pods left since 5 s before the samples that count began, and what they took with them."""
    oldest = samples_began(situation, metric) - 5
    if metric.is_total:
        if situation.facts.spec.get("average", "PerPod") != "Total":
            return 0, Fraction(0)
        average = bound_of(metric.total, metric.total.value) / len(sampled)
    else:
        # As they count on the way down.
        known = bounds_of(situation, metric)
        counted = [known[pod.uid] for pod in sampled if known[pod.uid] is not None]
        average = sum(counted, Fraction(0)) / len(counted) if counted else Fraction(0)
    load, count = Fraction(0), 0
    for gone in situation.memory.departed.values():
        if gone.left >= oldest:
            last = gone.samples.get(metric.name)
            load += max(average, last.value) if last is not None else average
            count += 1
    return count, load


def departed_is_unknown(situation: Situation, metric: Metric) -> bool:
    """Whether the samples began before this process looked, or less than 5 s after: nobody knows which pods left.

    Likewise for 300 s while a pod that was in service before has no sample, or exactly 0, and its last one is unknown.
    Only a server's document tells since when it looks.
    """
    if metric.total is not None:
        in_total = situation.facts.spec.get("average", "PerPod") == "Total"
        if not in_total or metric.total.value == 0:  # it has their load in it, or there is none
            return False
    since = situation.facts.observing_since
    if since is None:
        return False
    if since >= samples_began(situation, metric) - 5:
        return True
    soon = [pod for pod in situation.pods(UNREADY) if is_young(situation, pod)]
    return (
        situation.facts.now - since <= 300
        and metric.total is None
        and any(
            last_of_five_minutes(situation, metric, pod) == 0
            and (pod.uid not in situation.fit[metric.name] or not tolerates_zero(situation, metric))
            and in_service_since(situation, pod) < since
            for pod in situation.pods(SERVING, DOUBTFUL) + soon
        )
    )


def by_hpa(facts: Facts, now: float) -> float | None:
    """When the HPA says that it last scaled; if that is to come, a server takes the time since when it observes."""
    ahead = facts.last_scale is not None and facts.last_scale > now and facts.observing_since is not None
    return facts.observing_since if ahead else facts.last_scale


def changed_since(situation: Situation, metric: Metric) -> bool:
    """A step is relative to the count: samples that began before its last change take none."""
    facts = situation.facts
    if facts.current != facts.watched:  # only a server's document tells both
        return True
    changes = [min(at, facts.now) for at in (by_hpa(facts, facts.now), situation.memory.last_scale) if at]
    return bool(changes) and max(changes) > samples_began(situation, metric)


def samples_began(situation: Situation, metric: Metric) -> float:
    """Of all pods that may serve, also where a scenario leaves that pod out: rather a hold."""
    if metric.is_total:
        return total_began(situation.facts, situation.memory, metric)
    return min(situation.began[metric.name].values())


def forget_departed(situation: Situation) -> None:
    """Departed pods are kept for 900 s, or for the longest window in use and 300 s more, and who came back likewise."""
    departed = situation.memory.departed
    for uid in list(departed):
        if situation.facts.now - departed[uid].left > situation.facts.remembered_for:
            del departed[uid]


# --- §3, Watermark ---


def up_to(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def replaced_pods(situation: Situation, scenario: LiteralScenario, doubt_out: list[Pod]) -> int:
    """How many pods that are out are to be replaced."""
    facts, memory, now = situation.facts, situation.memory, situation.facts.now
    rules = facts.spec.get("pulledOut", {})
    if not rules.get("replace", True) or not situation.replacing_allowed:
        return 0
    long_out = [
        pod
        for pod in situation.pods(PULLED_OUT)
        if now - situation.past(pod).out_since >= rules.get("replaceAfterSeconds", 60)
    ]
    long_out += [pod for pod in doubt_out if now - situation.past(pod).doubt_since >= 300]
    if replacing_is_ineffective(situation):
        long_out = [pod for pod in long_out if pod.created < memory.first_step]
    # "young doubtful": their doubt is young, as in §0's "younger ones do not".
    young = [pod for pod in doubt_out if now - situation.past(pod).doubt_since < 300]
    limit = facts.current - scenario.pods_in - len(situation.pods(STARTING)) - len(young)
    return max(0, min(len(long_out), limit))


def replacing_is_ineffective(situation: Situation) -> bool:
    """Two or more, and at least half, of the pods created since the first replacing step are out or doubtful."""
    first = situation.memory.first_step
    if first is None:
        return False
    newcomers = [
        pod
        for pod in situation.facts.pods
        if pod.created >= first and situation.states[pod.uid] not in (TERMINATING, FINISHED)
    ]
    ill = [pod for pod in newcomers if situation.states[pod.uid] in (PULLED_OUT, DOUBTFUL)]
    return len(ill) >= 2 and len(ill) * 2 >= len(newcomers)


def scale_up(
    situation: Situation,
    scenario: LiteralScenario,
    metric: Metric,
    n: int,
    usage: Fraction,
    doubt_out: list[Pod],
    limit: Fraction | None,
) -> LiteralScenario:
    """`limit`: what the pods show at most, where they are saturated."""
    current, aim = situation.facts.current, metric.target or metric.high
    needed = math.ceil(n * usage / aim)
    if limit is not None:
        needed = math.ceil(saturation_factor(situation) * n * usage / min(aim, limit))
    scenario.replaced = replaced_pods(situation, scenario, doubt_out)
    # A proposal is rounded up to a multiple, after `replaced`; a hold is not rounded.
    scenario.proposal = max(current, up_to(needed + scenario.replaced, situation.facts.spec.get("multipleOf", 1)))
    return scenario


def kept_out(situation: Situation, doubt_out: list[Pod]) -> int:
    """How many pods that are out are kept in the count on the way down."""
    facts = situation.facts
    out = situation.pods(PULLED_OUT) + doubt_out
    alive = [pod for pod in facts.pods if situation.states[pod.uid] not in (TERMINATING, FINISHED)]
    others = [pod for pod in alive if pod not in out]
    first = facts.spec.get("pulledOut", {}).get("deleteFirst", False) and facts.kind == "Deployment"
    one_set = len({pod.replica_set for pod in alive}) == 1
    cheaper = all(pod.deletion_cost < other.deletion_cost for pod in out for other in others)
    return 0 if first and one_set and cheaper else len(out)


def scale_down(
    situation: Situation, scenario: LiteralScenario, metric: Metric, n: int, usage: Fraction, doubt_out: list[Pod]
) -> LiteralScenario:
    current = situation.facts.current
    if metric.is_total and usage == 0 and situation.facts.hpa_min == 0 and tolerates_zero(situation, metric):
        scenario.proposal = 0
        return scenario
    if metric.target is not None:
        needed = max(1, math.ceil(n * usage / metric.target))
    else:
        needed = max(1, math.floor(n * usage / metric.low))
    kept = needed + kept_out(situation, doubt_out)
    scenario.proposal = min(current, up_to(kept, situation.facts.spec.get("multipleOf", 1)))
    return scenario


# --- §5, Step ---


@dataclass
class Step:
    """What a scenario's pods use: n with a sample, their Σ, sizes and utilizations; and the pods without."""

    n: int
    sigma: Fraction
    size: Fraction
    each: list[Fraction]
    sampled: list[Pod]
    missing: list[Pod]
    young: list[Pod]
    size_of_missing: Fraction
    bounded: Fraction
    """Σ, and below each one's utilization, as they count on the way down."""
    each_bounded: list[Fraction]
    is_unbounded: bool
    saturated: bool = False


def step(
    situation: Situation, scenario: LiteralScenario, metric: Metric, load: Step, doubt_out: list[Pod]
) -> LiteralScenario:
    """Up before down; one pod beyond its bound is enough, or the average has to be."""
    spec, current = situation.facts.spec, situation.facts.current
    high_plus, low_minus = bounds(spec, metric)
    any_pod, multiple = spec.get("trigger", "AnyPod") == "AnyPod", spec.get("multipleOf", 1)
    average = load.sigma / load.size
    if load.saturated or (max(load.each) if any_pod else average) > high_plus:
        scenario.verdict = ABOVE
        recounted = load.sigma / (load.size + load.size_of_missing)
        # A pod at 0 takes nothing from the one that is beyond its bound; a service total has no pods to look at.
        one_is_beyond = any_pod and not metric.is_total and max(load.each) > high_plus
        stays = load.saturated and stays_saturated(metric, load.sampled, load.missing, load.sigma)
        if not one_is_beyond and not recounted > high_plus and not stays:
            scenario.held = "Missing"
            return scenario
        sum_of_pods = (load.n + len(load.missing)) * recounted
        scenario.replaced = replaced_pods(situation, scenario, doubt_out)
        needed = math.ceil(sum_of_pods / metric.target + spec.get("stepUp", 2))
        if load.saturated:
            aim = min(metric.target, limit_shown(metric, load.sampled, is_sum=False))
            needed = math.ceil(saturation_factor(situation) * sum_of_pods / aim) + spec.get("stepUp", 2)
        scenario.proposal = max(current, up_to(needed + scenario.replaced, multiple))
        return scenario
    if not (min(load.each) if any_pod else average) < low_minus:
        scenario.verdict = INSIDE
        return scenario
    scenario.verdict = BELOW
    each_bounded = load.each_bounded or [load.bounded / load.size]
    least = min(each_bounded) if any_pod else load.bounded / load.size
    if load.missing or load.young or load.is_unbounded or not least < low_minus:
        scenario.held = "Missing"
        return scenario
    if departed_is_unknown(situation, metric):
        scenario.held = "Departed"
        return scenario
    _, departed = departed_load(situation, metric, load.sampled)
    share = departed / load.size
    if not least + share < low_minus:
        scenario.held = "Departed"
        return scenario
    if changed_since(situation, metric):
        scenario.stepped, scenario.held = True, "Departed"
        return scenario
    asleep = metric.is_total and load.sigma == 0 and situation.facts.hpa_min == 0

    def stepped(sigma: Fraction) -> int:
        fewest = spec.get("minPods", 2) if asleep else max(1, spec.get("minPods", 2))
        desired = min(current, up_to(max(fewest, current - spec.get("stepDown", 2)), multiple))
        left = load.n - (current - desired)
        if asleep or (left >= 1 and load.n * sigma / load.size / left <= high_plus):
            return desired
        return current

    scenario.stepped = True
    scenario.proposal = stepped(load.bounded + departed)
    if scenario.proposal == current and stepped(load.bounded) < current:
        scenario.held = "Departed"
    return scenario


def converge(
    situation: Situation,
    scenario: LiteralScenario,
    metric: Metric,
    n: int,
    with_departed: Fraction,
    doubt_out: list[Pod],
) -> LiteralScenario:
    """One step of `multipleOf` toward the high watermark, where that is not past it for n."""
    spec, current = situation.facts.spec, situation.facts.current
    step, tolerance = spec.get("multipleOf", 1), quantity(spec.get("tolerance", "1%"))
    if metric.high is None or n - step < 1 or n * with_departed / (n - step) > metric.high:
        return scenario
    fewest = 0
    if step == 1 and metric.low is not None:
        # What Below would ask for at the band's edge: just under low⁻.
        fewest = max(1, math.ceil(n * (1 - tolerance)) - 1) + kept_out(situation, doubt_out)
    scenario.proposal = min(current, max(up_to(max(1, current - step), step), fewest))
    return scenario


def converge_up(
    situation: Situation, scenario: LiteralScenario, metric: Metric, n: int, usage: Fraction, doubt_out: list[Pod]
) -> LiteralScenario:
    """One step of `multipleOf` toward the low watermark, where that is not past it for n."""
    spec, current = situation.facts.spec, situation.facts.current
    step, tolerance = spec.get("multipleOf", 1), quantity(spec.get("tolerance", "1%"))
    if metric.low is None or n * usage / (n + step) < metric.low:
        return scenario
    if changed_since(situation, metric):
        # Pods that were added since have no sample: n would stay, and the same samples ask for step after step.
        return scenario
    most = current + step
    if step == 1 and metric.high is not None:
        # What Above would ask for at the band's edge: just over high⁺.
        most = math.floor(n * (1 + tolerance)) + 1 + replaced_pods(situation, scenario, doubt_out)
    scenario.proposal = max(current, min((current + step) // step * step, most))
    return scenario
