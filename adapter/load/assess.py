"""`assess`: from pods, samples, instances and memory to all that does not depend on the live count; once per change.

Each metric goes from its samples to the range of counts that its load allows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain

from adapter.load.assessment import Assessment, AssessmentInputs, HeldBy, MetricAssessment, Total, Verdict
from adapter.load.bounds import Loads, Sums, band_of, reading_of, step_down, sums_of, upper_of
from adapter.load.decide import in_error
from adapter.load.explanation import condition_sentences
from adapter.load.matching import registrations
from adapter.load.memory import (
    OTHERS,
    READ,
    TARGETS_SECONDS,
    MetricMemory,
    after_instances,
    after_scale,
    after_states,
    lasting,
)
from adapter.load.pod_samples import (
    MetricReader,
    PodSample,
    absent_container_sentence,
    bound_of,
    counted_total,
    is_service_total,
    lost_targets,
    no_capacity_sentence,
    sample_after,
    source_error,
    source_name,
    source_of,
    uncounted_bound,
)
from adapter.load.pods import Pod
from adapter.load.samples import UNCOUNTED, QuerySamples
from adapter.load.schedule import schedule_windows
from adapter.load.spec import Metric
from adapter.load.states import PodGroups, classify, group_pods, service_registry

NO_POD_SERVES = "no pod serves"
"""The error of a metric whose samples are fine but whose target has no pod in service."""


def assess(inputs: AssessmentInputs) -> Assessment:
    """Assess a policy as far as possible without the live replica count.

    The assessment's memory belongs into the inputs of the next one.
    """
    policy, roster, now = inputs.policy, inputs.roster, inputs.now
    registry = service_registry(policy)
    listed = registrations(inputs.pods, roster, registry) if registry and roster and roster.valid else {}
    inputs = replace(
        inputs, memory=after_instances(inputs.memory, inputs.pods, roster if registry else None, listed, now)
    )
    pods = classify(inputs, listed)
    longest = max((query.window for query in inputs.samples.queries.values()), default=0.0)
    memory = after_scale(after_states(inputs.memory, pods, now, longest), inputs.scale, now)
    inputs = replace(inputs, memory=memory)
    groups = group_pods(inputs, pods)
    assessed = [_of_metric(inputs, metric, groups) for metric in policy.metrics]
    metrics = tuple(metric for metric, _ in assessed)
    zero_since = lasting(memory.zero_since, now, holds=any(metric.is_ignored_zero for metric in metrics))
    memory = replace(memory, metrics={metric.name: after for metric, after in assessed}, zero_since=zero_since)
    assessment = Assessment(
        policy=policy,
        target=f"{inputs.target.kind} {inputs.target.name}" if inputs.target else policy.hpa,
        at=now,
        pods=pods,
        counts=groups.counts,
        young=len(groups.young),
        metrics=metrics,
        windows=schedule_windows(policy.schedules, now),
        conditions=condition_sentences(inputs, groups, metrics, zero_since),
        memory=memory,
    )
    error_since = lasting(memory.error_since, now, holds=in_error(assessment, inputs.scale.replicas))
    if error_since == memory.error_since:
        return assessment
    return replace(assessment, memory=replace(memory, error_since=error_since))


def _of_metric(inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> tuple[MetricAssessment, MetricMemory]:
    """The range of counts that one metric allows, and the memory of it. A floor has only its total."""
    found = _Assessor(inputs, metric, groups)
    assessment, memory, newest = found.total() if found.is_total else found.pods()
    before, upper = found.before, assessment.upper
    is_above = any(reading.needed is not None for reading in assessment.lower)
    is_below = upper.hold is None and (upper.bound is not None or upper.spare is not None)
    above_since = lasting(before.above_since, newest, holds=is_above)
    below_since = lasting(before.below_since, newest, holds=is_below)
    if below_since is not None and newest - below_since < metric.delay.down:
        assessment = assessment._replace(upper=upper._replace(hold=HeldBy.DELAY))
    if above_since is not None and newest - above_since < metric.delay.up:
        assessment = assessment._replace(is_delayed=True)
    return assessment, replace(memory, above_since=above_since, below_since=below_since)


_Assessed = tuple[MetricAssessment, MetricMemory, float]
"""An assessment without its delay, the memory, and the time of the newest sample."""


class _Assessor:
    """Assesses one metric, of the pods or as a total."""

    def __init__(self, inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> None:
        self.inputs, self.metric, self.groups, self.now = inputs, metric, groups, inputs.now
        self.policy, self.memory, self.before = inputs.policy, inputs.memory, inputs.memory.metric(metric.name)
        self.source = source = source_of(metric, inputs.samples)
        self.is_total = isinstance(source, QuerySamples) and (metric.floor or source.total is not None)
        self.band = band_of(inputs.policy, metric, total=self.is_total)
        self.all_in = [*groups.serving, *groups.doubtful]
        self.blank = MetricAssessment(metric, *inputs.policy.limits_of(metric))

    def pods(self) -> _Assessed:
        """Assess a metric of the pods."""
        groups, source, band, since = self.groups, self.source, self.band, self.groups.in_service
        reader = MetricReader(
            self.metric, source, self.now, self.before,
            accepts_zero=self.policy.accept_zero_usage is True, started_at=self.memory.started_at,
        )  # fmt: skip
        medians = reader.count_windows(chain(self.all_in, groups.out), since)
        targets = reader.count_targets(chain(self.all_in, groups.out, groups.idle))
        serving, doubtful, out, idle = (
            [reader.sample(pod, since[pod.uid]) for pod in pods]
            for pods in (groups.serving, groups.doubtful, groups.out, groups.idle)
        )
        all_in, samples = serving + doubtful, [*serving, *doubtful, *out, *idle]
        counted = [sample for sample in chain(all_in, out) if sample.usage is not None]
        running = [*counted, *(sample for sample in idle if sample.usage is not None)]
        oldest = min(counted, key=lambda sample: sample.at, default=None)
        began = min([sample.at - sample.window for sample in counted], default=self.now) - source.interval
        sums = sampled = sums_of(all_in)
        if sums.sampled < sums.pods:
            sampled = sums_of(sample for sample in all_in if sample.usage is not None)
        assessment = self.blank._replace(
            n=sums.sampled,
            missing=sums.pods - sums.sampled,
            usage=sampled.average(band),
            raw=(sampled if len(running) == sums.sampled else sums_of(running)).average(band),
            total=Total() if is_service_total(self.metric, source) else None,
            verdict=Verdict.INSIDE if sums.sampled else Verdict.ERROR,
            sampled_at=None if oldest is None else oldest.at,
            began_at=began,
            stale_at=None if oldest is None else oldest.at + source.max_age,
            window=None if oldest is None else oldest.window or None,
            error=None if sums.sampled else self.error(all_in),
            lost=sum(reader.lost.values()),
            samples=samples,
        )
        after = MetricMemory(reader.lasts(samples, len(serving)), medians, targets=targets)
        newest = max([sample.at for sample in counted], default=self.now)
        if assessment.error is not None or (sums.usage == 0 and not band.accepts_zero):
            return assessment, after, newest
        readings = [(sums, groups.replaceable)]
        if doubtful:
            idle_doubt = {sample.pod.uid for sample in doubtful if not band.exceeds(sample)}
            in_use = sums_of(sample for sample in all_in if sample.pod.uid not in idle_doubt)
            readings.append((in_use, groups.replaceable + len(groups.doubt_replaceable & idle_doubt)))
        young = [sample for sample in idle if sample.pod.uid in groups.young]
        loads = self.loads(serving, doubtful + young, out, began)
        hold = None
        if not any(sample.usage is not None for sample in serving):
            hold = HeldBy.MISSING if serving else HeldBy.DOUBT
        is_whole = not loads.gaps and all(sample.bound == sample.usage for sample in serving)
        shown, bounds = None, list[Fraction]()
        if band.step is not None:
            whole = [(sample.usage, sample.bound, sample.sizes) for sample in serving]
            bounds = [
                Fraction(most * band.unit, sizes.smaller) for _, most, sizes in whole if sizes and most is not None
            ]
            if band.step.trigger == "AnyPod":
                shown = [
                    Fraction(use * band.unit, sizes.larger) for use, _, sizes in whole if sizes and use is not None
                ]
        range_ = self.range_of(assessment, after, readings, loads, hold, bounds, shown, is_whole=is_whole)
        return range_, after, newest

    def loads(
        self, serving: Sequence[PodSample], unsure: Sequence[PodSample], out: Sequence[PodSample], began: float
    ) -> Loads:
        """What the pods may carry, by the rules D1 to D5. `unsure` are doubtful or young."""
        band, groups, memory = self.band, self.groups, self.memory
        full, low = (band.beyond or Fraction(0)) / band.unit, (band.low or Fraction(0)) / band.unit
        sizes = [sample.sizes.smaller for sample in chain(serving, unsure, out) if sample.sizes is not None]
        pods = len(serving) + len(unsure) + len(out)
        mean = Fraction(sum(sizes), len(sizes) or 1)  # of a pod without a capacity
        shown = [sample.bound for sample in serving if sample.bound is not None]
        known, doubt, filled, shifted, gone = Fraction(sum(shown)), Fraction(0), Fraction(0), Fraction(0), Fraction(0)
        lasts = [departed.last.get(self.metric.name, 0) for departed in memory.left_since(began)]
        if lasts:
            gone = sum([max(known / (len(shown) or 1), Fraction(last)) for last in lasts], gone)  # D5
        missing, first_out = [sample for sample in serving if sample.bound is None], len(unsure)
        first_out, gaps = first_out + len(missing), 0
        for index, sample in enumerate(chain(missing, unsure, out)):
            pod, size, is_out = sample.pod, mean if sample.sizes is None else sample.sizes.smaller, index >= first_out
            if not is_out and (sample.bound is None or pod.uid in groups.young):  # D2
                fill = max(full * size, Fraction(sample.last))
                filled, gaps = filled + fill, gaps + 1
                if max(pod.created_at, sample.since if pod.is_ready else 0.0) >= began:
                    gone -= fill  # A newcomer is filled for the same load.
                continue
            own, one_pod = Fraction(sample.bound or 0), Fraction(0) if band.is_absolute else low * size  # D3
            if is_out and groups.deletes_out_first and sample.bound is not None:  # D4
                one_pod = Fraction(0)
            known += max(own, one_pod) if is_out else own
            doubt += 0 if is_out else max(Fraction(0), one_pod - own)
            if memory.pod(pod.uid).has_turned(began):
                # Others carry by now what it carried before, which only its last sample of that time shows.
                shifted += max(Fraction(0), sample.last - own) + min(own, one_pod)
        return Loads(
            pods=pods,
            size=sum(sizes) + mean * (pods - len(sizes)),
            known=known,
            doubt=doubt,
            filled=filled,
            departed=shifted + max(Fraction(0), gone),
            gaps=gaps,
            left=len(lasts),
        )

    def total(self) -> _Assessed:
        """Assess a number for the whole service: all pods that are in share it, and none is missing.

        A floor is compared with no pods, so it needs none to serve.
        """
        groups, source, band, metric, all_in = self.groups, self.source, self.band, self.metric, self.all_in
        assert isinstance(source, QuerySamples)
        in_service = {pod.name: groups.in_service[pod.uid] for pod in chain(all_in, groups.out)}
        point, median = counted_total(source, in_service)
        after = MetricMemory({}, self.before.with_median(median, self.now), own=self.own())
        numbers = self.targets(after.own)
        after = replace(after, targets=self.before.with_targets(numbers, self.now))
        lost = sum(lost_targets(after.targets, key, number) for key, number in numbers.items() if key != READ)
        error: str | None = source_error(metric, source)
        if point is None:
            if source.pods or source.by_pod:
                needed = "a floor needs one number for the service; sum the query up, or take floor away"
                error = f"{source_name(metric)} answers by pod, and {needed}"
            return self.blank._replace(total=Total(), error=error), after, self.now
        # A floor may be the past on purpose: it ages from when its value was the answer.
        at = point.at + source.behind if metric.floor else point.at
        is_fresh, bound, began = self.now - at <= source.max_age, None, at - source.window - source.interval
        if is_fresh:
            error = NO_POD_SERVES if groups.running and not all_in and not metric.floor else None
        if point.count == UNCOUNTED:
            latest = sample_after(self.before.last.get(OTHERS), point, source)
            bound = uncounted_bound(latest, source, self.now, self.memory.started_at)
            after = replace(after, last={OTHERS: latest})
        elif point.count is None or point.count > 1:
            bound = bound_of(point, max((median for _, median in after.medians), default=0))
        serving, doubtful, value = len(groups.serving), len(groups.doubtful), point.value
        sums, running, of_serving = (Sums(n, n, value, n, 0) for n in (len(all_in), groups.running, serving))
        assessment = self.blank._replace(
            n=sums.pods,
            usage=sums.average(band) if is_fresh else None,
            raw=running.average(band) if is_fresh else None,
            total=Total(value, bound) if is_fresh else Total(),
            verdict=Verdict.INSIDE if error is None else Verdict.ERROR,
            sampled_at=at,
            began_at=began,
            stale_at=at + source.max_age if is_fresh else None,
            window=source.window or None,
            lost=lost,
            error=error,
        )
        if error is not None or metric.floor or not all_in or (value == 0 and not band.accepts_zero):
            return assessment, after, at
        readings = [(sums, groups.replaceable)]
        if doubtful and serving:
            readings.append((of_serving, groups.replaceable + len(groups.doubt_replaceable)))
        most, out = value if bound is None else bound, 0 if groups.deletes_out_first else len(groups.out)
        one_pod = Fraction(0) if band.is_absolute else band.low or Fraction(0)
        loads = Loads(
            pods=len(all_in) + out,
            size=len(all_in) + out,
            known=most + out * one_pod,
            doubt=doubtful * one_pod,
            gaps=len(groups.young) if band.step is not None else 0,
            left=len(self.memory.left_since(began)),
        )
        # Where one of several pods is read, as ever in the last hour, it speaks for all, as the leader of a group does;
        # where none is, something else counts their load, such as an ingress.
        read, most = numbers[READ], numbers[READ] + lost_targets(after.targets, READ, numbers[READ])
        is_unread = read < len(all_in) and (most > 1 or read < most or (read == 1 and len(all_in) == 2))
        is_unread = is_unread or lost > 0 or any(groups.in_service[pod.uid] >= began for pod in all_in)
        hold, bounds = HeldBy.MISSING if bound is None or is_unread else None, [Fraction(most, serving or 1)]
        is_whole = not is_unread and bound == value
        bounds = bounds if serving else []
        return self.range_of(assessment, after, readings, loads, hold, bounds, is_whole=is_whole), after, at

    def own(self) -> Mapping[str, float]:
        """The names and addresses of own pods in the answers of the last hour: series outlive their pods."""
        assert isinstance(self.source, QuerySamples)
        kept = {key: at for key, at in self.before.own.items() if self.now - at <= TARGETS_SECONDS}
        for pod in self.inputs.pods if self.source.targets else ():
            kept |= dict.fromkeys([pod.name, *_own_addresses(pod)], self.now)
        return {key: at for key, at in kept.items() if key in self.source.targets}

    def targets(self, own: Mapping[str, float]) -> Mapping[str, int]:
        """How many scrape targets a total is of: those of each own pod by UID, all others, and of how many own pods."""
        assert isinstance(self.source, QuerySamples)
        counted = self.source.targets
        others = sum(number for key, number in counted.items() if key not in own)
        read = sum(not counted.keys().isdisjoint((pod.name, *_own_addresses(pod))) for pod in self.all_in)
        by_pod = {pod.uid: counted[pod.name] for pod in self.all_in if pod.name in counted}
        return by_pod | {OTHERS: others, READ: read}

    def range_of(
        self,
        assessment: MetricAssessment,
        after: MetricMemory,
        readings: Sequence[tuple[Sums, int]],
        loads: Loads,
        hold: HeldBy | None,
        bounds: Sequence[Fraction],
        shown: Sequence[Fraction] | None = None,
        *,
        is_whole: bool,
    ) -> MetricAssessment:
        """The assessment with the range of counts that the load allows.

        `readings`: the sums of each, and how many pods it replaces. `shown` and `bounds`: the usages that strategy Step
        compares with its limit above, and below. `hold`: why the metric itself shrinks nothing. `is_whole`: no sample
        is missing or partial, so that the count may drift down.
        """
        memory, groups, band = self.memory, self.groups, self.band
        began, usage = assessment.began_at or 0.0, assessment.usage
        has_changed = bool(memory.left_since(began)) or any(memory.pod(pod.uid).has_turned(began) for pod in groups.out)
        lower = tuple(reading_of(sums, band, replaceable, shown) for sums, replaceable in readings)
        if band.step is not None:
            upper = step_down(bounds, loads, band, groups, has_changed=has_changed)
        else:
            upper = upper_of(loads, band, groups)
        recent = [median for at, median in after.medians if self.now - at <= (assessment.window or 0.0)]
        hold = hold or (HeldBy.WINDOWS if recent and max(recent) - min(recent) > 1 else None)
        if (memory.started_at or 0.0) > began or (memory.rose_at or 0.0) >= began:
            hold = HeldBy.WARMING_UP
        if not groups.serves(self.policy.min_serving_percent):
            hold = HeldBy.MIN_SERVING
        verdict = Verdict.INSIDE
        if any(reading.needed is not None for reading in lower) or band.is_above(usage):
            verdict = Verdict.ABOVE
        elif upper.spare is not None or (usage is not None and band.under is not None and usage < band.under):
            verdict = Verdict.BELOW
        is_settled = is_whole and not (has_changed or groups.doubtful or groups.young)
        is_settled = is_settled and not any(groups.in_service[pod.uid] >= began for pod in groups.serving)
        towards = self.policy.converge_towards
        return assessment._replace(
            verdict=verdict,
            lower=lower,
            upper=upper._replace(
                hold=hold, idle=groups.kept if assessment.total == (0, 0) and band.low is not None else None
            ),
            drift=towards if towards == "Low" or is_settled else None,
        )

    def error(self, samples: Sequence[PodSample]) -> str:
        """Why nothing can be compared, as a sentence."""
        metric, source, pods = self.metric, self.source, [sample.pod for sample in samples]
        if not pods and not (source.error and not self.groups.running):
            return NO_POD_SERVES
        if sentence := absent_container_sentence(metric, pods):
            return sentence
        if pods and metric.relative_to is not None and not any(sample.sizes for sample in samples):
            return no_capacity_sentence(metric, pods)
        reasons = {sample.missing for sample in samples} - {"", "no sample"}
        if not source.error and source.pods and reasons:
            return f"{source_name(metric)} has no fresh sample of a serving pod: {min(reasons)}"
        return source_error(metric, source)


def _own_addresses(pod: Pod) -> Sequence[str]:
    """The addresses that are the pod's alone."""
    return () if pod.host_network else pod.ips
