"""`assess`: from pods, samples, instances and memory to all that does not depend on the live count; once per change.

Each metric goes from its samples to the range of counts that its load allows.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain

from adapter.load.assessment import Assessment, AssessmentInputs, HeldBy, MetricAssessment, Reading, Verdict
from adapter.load.bounds import Band, Loads, Sums, reading_of, step_down, sums_of, upper_of
from adapter.load.decide import in_error
from adapter.load.explanation import condition_sentences
from adapter.load.memory import MetricMemory, after_instances, after_scale, after_states, lasting
from adapter.load.pod_samples import MetricReader, PodSample, Total, samples_error, source_error, source_name, source_of
from adapter.load.roster import registrations
from adapter.load.samples import QuerySamples
from adapter.load.schedule import schedule_windows
from adapter.load.spec import Metric
from adapter.load.states import PodGroups, classify, service_registry


def assess(inputs: AssessmentInputs) -> Assessment:
    """Assess a policy as far as possible without the live replica count.

    The assessment's memory belongs into the inputs of the next one.
    """
    policy, roster, now = inputs.policy, inputs.roster, inputs.now
    registry = service_registry(policy)
    listed = registrations(inputs.pods, roster, registry) if registry and roster and roster.valid else {}
    memory = after_instances(inputs.memory, inputs.pods, roster if registry else None, listed, now)
    pods = classify(replace(inputs, memory=memory), listed)
    longest = max((query.window for query in inputs.samples.queries.values()), default=0.0)
    inputs = replace(inputs, memory=after_scale(after_states(memory, pods, now, longest), inputs.scale, now))
    groups = PodGroups(inputs, pods)
    assessed = [_of_metric(inputs, metric, groups) for metric in policy.metrics]
    metrics = tuple(metric for metric, _ in assessed)
    memory = replace(inputs.memory, metrics={metric.name: after for metric, after in assessed})
    assessment = Assessment(
        policy=policy,
        target=f"{inputs.target.kind} {inputs.target.name}" if inputs.target else policy.hpa,
        at=now,
        pods=pods,
        counts=groups.counts,
        young=len(groups.young),
        metrics=metrics,
        windows=schedule_windows(policy.schedules, now),
        conditions=condition_sentences(inputs, groups, metrics),
        memory=memory,
    )
    error_since = lasting(memory.error_since, now, holds=in_error(assessment, inputs.scale.replicas))
    return replace(assessment, memory=replace(memory, error_since=error_since))


def _of_metric(inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> tuple[MetricAssessment, MetricMemory]:
    """The range of counts that one metric allows, and the memory of it. A floor has only its total."""
    found = _Assessor(inputs, metric, groups)
    assessment, memory, newest = found.total() if found.is_total else found.pods()
    before, upper = found.before, assessment.upper
    is_below = upper.hold is None and (upper.bound is not None or upper.spare is not None)
    above_since = lasting(before.above_since, newest, holds=any(each.needed is not None for each in assessment.lower))
    below_since = lasting(before.below_since, newest, holds=is_below)
    if below_since is not None and newest - below_since < metric.delay.down:
        assessment = assessment._replace(upper=upper._replace(hold=HeldBy.DELAY))
    if above_since is not None and newest - above_since < metric.delay.up:
        assessment = assessment._replace(is_delayed=True)
    return assessment, replace(memory, above_since=above_since, below_since=below_since)


class _Assessor:
    """Assesses one metric, of the pods or as a total."""

    def __init__(self, inputs: AssessmentInputs, metric: Metric, groups: PodGroups) -> None:
        self.inputs, self.metric, self.groups, self.now = inputs, metric, groups, inputs.now
        self.policy, self.memory, self.before = inputs.policy, inputs.memory, inputs.memory.metric(metric.name)
        self.source = source = source_of(metric, inputs.samples)
        self.is_total = isinstance(source, QuerySamples) and (metric.floor or source.total is not None)
        self.band = Band(inputs.policy, metric, total=self.is_total)
        self.all_in = [*groups.serving, *groups.doubtful]
        self.blank = MetricAssessment(metric, *inputs.policy.limits_of(metric))
        accepts_zero = inputs.policy.accept_zero_usage is True
        self.reader = MetricReader(
            metric, source, self.now, self.before, accepts_zero=accepts_zero, started_at=self.memory.started_at
        )

    def pods(self) -> tuple[MetricAssessment, MetricMemory, float]:
        """Assess a metric of the pods: without its delay; with the memory, and the time of the newest sample."""
        groups, source, band, reader = self.groups, self.source, self.band, self.reader
        after = reader.learn([*self.all_in, *groups.out], groups.idle, groups.in_service)
        serving, doubtful, out, idle = (
            [reader.sample(pod, groups.in_service[pod.uid], serves=pods is groups.serving) for pod in pods]
            for pods in (groups.serving, groups.doubtful, groups.out, groups.idle)
        )
        all_in, samples = serving + doubtful, [*serving, *doubtful, *out, *idle]
        after = replace(after, last={each.pod.uid: each.remembered for each in samples if each.remembered is not None})
        counted = [sample for sample in chain(all_in, out) if sample.usage is not None]
        running = [*counted, *(sample for sample in idle if sample.usage is not None)]
        oldest = min(counted, key=lambda sample: sample.at, default=None)
        began = min([sample.at - sample.window for sample in counted], default=self.now) - source.interval
        newest = max([sample.at for sample in counted], default=self.now)
        sums = sums_of(all_in)
        sampled = sums if sums.sampled == sums.pods else sums_of(one for one in all_in if one.usage is not None)
        assessment = self.blank._replace(
            n=sums.sampled,
            missing=sums.pods - sums.sampled,
            usage=sampled.average(band),
            raw=(sampled if len(running) == sums.sampled else sums_of(running)).average(band),
            total=Total() if isinstance(source, QuerySamples) and not (source.pods or source.by_pod) else None,
            began_at=began,
            lost=sum(reader.lost.values()),
            samples=samples,
        )
        if oldest is not None:
            assessment = assessment._replace(
                sampled_at=oldest.at, stale_at=oldest.at + source.max_age, window=oldest.window or None
            )
        if not sums.sampled:
            is_silent = bool(source.error) and not groups.running
            error = samples_error(self.metric, source, all_in) if all_in or is_silent else "no pod serves"
            return assessment._replace(error=error), after, newest
        if sums.usage == 0 and not band.accepts_zero:
            return assessment._replace(verdict=Verdict.INSIDE), after, newest
        shown = None
        if band.step is not None and band.step.trigger == "AnyPod":
            uses = [(sample.usage, sample.sizes) for sample in serving]
            shown = [Fraction(use * band.unit, size.larger) for use, size in uses if size and use is not None]
        lower = [reading_of(sums, band, groups.replaceable, shown)]
        if doubtful:
            idle_doubt = {sample.pod.uid for sample in doubtful if not band.exceeds(sample)}
            in_use = sums_of(sample for sample in all_in if sample.pod.uid not in idle_doubt)
            replaceable = groups.replaceable + len(groups.doubt_replaceable & idle_doubt)
            lower.append(reading_of(in_use, band, replaceable, shown))
        young = [sample for sample in idle if sample.pod.uid in groups.young]
        loads = self.loads(serving, doubtful + young, out, began)
        hold = None
        if not any(sample.usage is not None for sample in serving):
            hold = HeldBy.MISSING if serving else HeldBy.DOUBT
        is_whole = not loads.gaps and all(sample.bound == sample.usage for sample in serving)
        return self.range_of(assessment, lower, loads, hold, is_whole=is_whole), after, newest

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
        missing = [sample for sample in serving if sample.bound is None]
        first_out, gaps = len(missing) + len(unsure), 0
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
        most = ((sample.bound, sample.sizes) for sample in serving if band.step is not None)
        return Loads(
            pods=pods,
            size=sum(sizes) + mean * (pods - len(sizes)),
            known=known,
            doubt=doubt,
            filled=filled,
            departed=shifted + max(Fraction(0), gone),
            gaps=gaps,
            left=len(lasts),
            bounds=[Fraction(bound * band.unit, size.smaller) for bound, size in most if size and bound is not None],
        )

    def total(self) -> tuple[MetricAssessment, MetricMemory, float]:
        """Assess a number for the whole service: all pods that are in share it, and none is missing.

        A floor is compared with no pods, so it needs none to serve.
        """
        groups, source, band, metric, all_in = self.groups, self.source, self.band, self.metric, self.all_in
        assert isinstance(source, QuerySamples)
        found, after = self.reader.total(self.inputs.pods, all_in, groups.out, groups.in_service)
        error: str | None = source_error(metric, source)
        if found is None or found.value is None:
            if source.pods or source.by_pod:
                needed = "a floor needs one number for the service; sum the query up, or take floor away"
                error = f"{source_name(metric)} answers by pod, and {needed}"
            return self.blank._replace(total=Total(), error=error), after, self.now
        # A floor may be the past on purpose: it ages from when its value was the answer.
        at = found.at + source.behind if metric.floor else found.at
        began, value = at - source.window - source.interval, found.value
        serving, doubtful = len(groups.serving), len(groups.doubtful)
        sums, running, of_serving = (Sums(n, n, value, n, 0) for n in (len(all_in), groups.running, serving))
        assessment = self.blank._replace(
            n=sums.pods, total=Total(), sampled_at=at, began_at=began, window=source.window or None, lost=found.lost
        )
        if self.now - at <= source.max_age:
            error = "no pod serves" if groups.running and not all_in and not metric.floor else None
            assessment = assessment._replace(
                usage=sums.average(band), raw=running.average(band), total=found, stale_at=at + source.max_age
            )
        if error is not None:
            return assessment._replace(error=error), after, at
        if metric.floor or not all_in or (value == 0 and not band.accepts_zero):
            return assessment._replace(verdict=Verdict.INSIDE), after, at
        lower = [reading_of(sums, band, groups.replaceable)]
        if doubtful and serving:
            lower.append(reading_of(of_serving, band, groups.replaceable + len(groups.doubt_replaceable)))
        most, out = value if found.bound is None else found.bound, 0 if groups.deletes_out_first else len(groups.out)
        one_pod = Fraction(0) if band.is_absolute else band.low or Fraction(0)
        loads = Loads(
            pods=len(all_in) + out,
            size=len(all_in) + out,
            known=most + out * one_pod,
            doubt=doubtful * one_pod,
            gaps=len(groups.young) if band.step is not None else 0,
            left=len(self.memory.left_since(began)),
            bounds=[Fraction(most, serving)] if serving else [],
        )
        is_whole = found.reads_all and not (found.lost or any(groups.in_service[pod.uid] >= began for pod in all_in))
        hold = None if is_whole and found.bound is not None else HeldBy.MISSING
        is_whole = is_whole and found.bound == value
        return self.range_of(assessment, lower, loads, hold, is_whole=is_whole), after, at

    def range_of(
        self, assessment: MetricAssessment, lower: list[Reading], loads: Loads, hold: HeldBy | None, *, is_whole: bool
    ) -> MetricAssessment:
        """The assessment with the range of counts that the load allows.

        `lower`: the readings of the lower bound. `hold`: why the metric itself shrinks nothing. `is_whole`: no sample
        is missing or partial, so that the count may drift down.
        """
        memory, groups, band = self.memory, self.groups, self.band
        began, usage = assessment.began_at or 0.0, assessment.usage
        has_changed = bool(memory.left_since(began)) or any(memory.pod(pod.uid).has_turned(began) for pod in groups.out)
        if band.step is not None:
            upper = step_down(loads, band, groups, has_changed=has_changed)
        else:
            upper = upper_of(loads, band, groups)
        recent = [median for at, median in self.reader.medians if self.now - at <= (assessment.window or 0.0)]
        hold = hold or (HeldBy.WINDOWS if recent and max(recent) - min(recent) > 1 else None)
        if (memory.started_at or 0.0) > began or (memory.rose_at or 0.0) >= began:
            hold = HeldBy.WARMING_UP
        if 100 * len(groups.serving) < self.policy.min_serving_percent * groups.started:
            hold = HeldBy.MIN_SERVING
        verdict = Verdict.INSIDE
        if any(reading.needed is not None for reading in lower) or band.is_above(usage):
            verdict = Verdict.ABOVE
        elif upper.spare is not None or (usage is not None and band.under is not None and usage < band.under):
            verdict = Verdict.BELOW
        is_settled = is_whole and not (has_changed or groups.doubtful or groups.young)
        is_settled = is_settled and not any(groups.in_service[pod.uid] >= began for pod in groups.serving)
        needs_none = assessment.total is not None and assessment.total.bound == 0 and band.low is not None
        towards = self.policy.converge_towards
        return assessment._replace(
            verdict=verdict,
            lower=tuple(lower),
            upper=upper._replace(hold=hold, idle=groups.kept if needs_none else None),
            drift=towards if towards == "Low" or is_settled else None,
        )
