"""Every way to see the doubtful pods of one metric, from all out to all in, the most loaded ones in first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

from adapter.load.assessment import MetricAssessment, PodReading, Reading, Verdict
from adapter.load.departures import NOBODY_LEFT, DepartedLoad, departed_load
from adapter.load.effective import (
    Gauge,
    Meter,
    ahead_of,
    average_capacity,
    began_at,
    date_of,
    is_service_total,
    is_young,
    no_capacity_sentence,
    query_samples,
    source_error,
    source_name,
    source_of,
)
from adapter.load.memory import AheadSample, LastSample, Memory, PodMemory
from adapter.load.pods import PodState
from adapter.load.samples import Samples
from adapter.load.spec import Average, Metric, Policy
from adapter.load.strategies.watermark import need
from adapter.load.tally import Band, Scales, Tally

NO_POD_SERVES = "no pod serves"
"""The error of a metric that lacks nothing but pods."""
_NOTHING = PodMemory()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standings:
    """The pods that matter to a reading (doubtful ones by name), and what those that are out are worth on the way up.

    `replaceable` and `reserved` speak of the pods that are surely out and starting; `old_doubts` are the UIDs of the
    doubtful pods that may be replaced where a reading has them out (the other doubtful ones are reserved there).
    `young_doubts` are those of doubtful pods that may only not be registered yet: young where a reading has them out.
    """

    serving: Sequence[PodReading]
    doubtful: Sequence[PodReading]
    young: Sequence[PodReading]
    running: Sequence[PodReading]
    out: int
    replaceable: int
    reserved: int
    old_doubts: frozenset[str]
    replaceable_doubts: frozenset[str]
    young_doubts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Measured:
    """One metric's assessment and each pod's gauge of it, by UID.

    `ahead`: the service total, where it is dated ahead.
    """

    assessment: MetricAssessment
    gauges: dict[str, Gauge]
    ahead: AheadSample | None = None


def band_of(policy: Policy, metric: Metric, *, total: bool) -> Band:
    """The watermarks of a metric with the policy's tolerance; zero is believed of service totals unless told."""
    return Band(
        high=metric.high,
        low=metric.low,
        tolerance=policy.tolerance,
        average=policy.average,
        tolerate_zero=policy.tolerate_zero if policy.tolerate_zero is not None else total,
        multiple_of=policy.multiple_of,
    )


def measure(
    policy: Policy, metric: Metric, standings: Standings, samples: Samples, memory: Memory, now: float
) -> Measured:
    """Read one metric of a target in every way that the doubtful pods allow."""
    total = query_samples(metric, samples).total if metric.resource is None else None
    if total is not None:
        return _measure_total(policy, metric, standings, samples, memory, now)
    meter = Meter(metric, samples, now, believes_zero=policy.tolerate_zero is True)
    gauges = {
        reading.pod.uid: meter.gauge(reading.pod, memory.pods.get(reading.pod.uid, _NOTHING))
        for reading in standings.running
    }
    return Measured(_assess_gauges(policy, metric, standings, gauges, samples, memory, now), gauges)


def _assess_gauges(
    policy: Policy,
    metric: Metric,
    standings: Standings,
    gauges: dict[str, Gauge],
    samples: Samples,
    memory: Memory,
    now: float,
) -> MetricAssessment:
    band = band_of(policy, metric, total=False)
    surely = _pick(gauges, [*standings.serving, *standings.doubtful])
    counted = [gauge for gauge in surely if gauge.at is not None]
    began = min((gauge.began_at for gauge in counted if gauge.began_at is not None), default=None)
    scales = Scales(metric, band, average_capacity(gauges.values()) if metric.of else None)
    young = [*standings.young, *(r for r in standings.doubtful if r.pod.uid in standings.young_doubts)]
    base = scales.tally(
        _pick(gauges, standings.serving), _pick(gauges, young), departed_load(memory, metric.name, began)
    )
    readings = [
        reading
        for order in _orders(scales, standings.doubtful, gauges)
        for reading in _readings(policy, band, standings, _tallies(scales, base, standings, order, gauges), order)
    ]
    error = None
    if all(reading.verdict is Verdict.ERROR for reading in readings):
        error = _error(metric, standings, gauges, samples, now)
    everyone, max_age = scales.tally(surely, ()), source_of(metric, samples).max_age
    oldest = min(counted, key=lambda gauge: gauge.knows_until or 0.0, default=None)
    return MetricAssessment(
        name=metric.name,
        high=metric.high,
        low=metric.low,
        n=everyone.n,
        missing=everyone.missing,
        usage=_usage(everyone, policy.average),
        raw=_usage(scales.tally([g for g in gauges.values() if g.usage is not None], ()), policy.average),
        total=is_service_total(metric, samples),
        readings=tuple(readings),
        sampled_at=oldest.knows_until if oldest else None,
        stale_at=min((gauge.at + max_age for gauge in counted if gauge.at is not None), default=None),
        window=oldest.window if oldest else None,
        error=error,
    )


def _measure_total(
    policy: Policy, metric: Metric, standings: Standings, samples: Samples, memory: Memory, now: float
) -> Measured:
    """A number for the whole service: every pod that is in shares it, and none is missing."""
    source = query_samples(metric, samples)
    point = source.total
    assert point is not None
    ahead = ahead_of(LastSample(point.at, point.value), memory.ahead.get(metric.name), source, now)
    at = date_of(LastSample(point.at, point.value), ahead)
    began = began_at(at, source.window, ahead)
    stale = now - at > source.max_age
    order = list(standings.doubtful)
    n = len(standings.serving) + len(order)
    band = band_of(policy, metric, total=True)
    # A share of the number needs no departed load: whoever left, the number has it.
    departed = departed_load(memory, metric.name, began) if policy.average is Average.TOTAL else NOBODY_LEFT
    tallies = _tallies_of_total(band, standings, point.value, departed)
    readings = () if stale else tuple(_readings(policy, band, standings, tallies, order))
    error = source_error(metric, samples, now) if stale else None
    running = len(standings.running)
    if error is None and running and all(reading.verdict is Verdict.ERROR for reading in readings):
        error = NO_POD_SERVES
    assessment = MetricAssessment(
        name=metric.name,
        high=metric.high,
        low=metric.low,
        n=n,
        usage=None if stale else _share_of(point.value, n, policy.average),
        raw=None if stale else _share_of(point.value, running, policy.average),
        total=True,
        total_value=None if stale else point.value,
        readings=readings,
        sampled_at=began_at(at, None, ahead),
        stale_at=None if stale else at + source.max_age,
        window=source.window or None,
        error=error,
    )
    return Measured(assessment, {}, ahead)


def _tallies_of_total(band: Band, standings: Standings, value: int, departed: DepartedLoad) -> list[Tally]:
    """A tally for each reading."""
    young = len(standings.young) + sum(1 for r in standings.doubtful if r.pod.uid in standings.young_doubts)
    tallies = []
    for inside in range(len(standings.doubtful) + 1):
        if inside:
            young -= standings.doubtful[inside - 1].pod.uid in standings.young_doubts
        n, fill = len(standings.serving) + inside, (band.high_plus or 0) * young
        tallies.append(
            Tally(
                usage=value, n=n, weight=n, young=young, young_weight=young, young_fill=fill, total=True,
                departed=departed,
            )
        )  # fmt: skip
    return tallies


def _share_of(total: int, pods: int, average: Average) -> Fraction | None:
    if average is Average.TOTAL:
        return Fraction(total)
    return Fraction(total, pods) if pods else None


def _pick(gauges: dict[str, Gauge], pods: Iterable[PodReading]) -> list[Gauge]:
    return [gauges[reading.pod.uid] for reading in pods]


def _usage(tally: Tally, average: Average) -> Fraction | None:
    if not tally.n:
        return None
    return tally.average() if average is Average.PER_POD else Fraction(tally.usage)


def _orders(scales: Scales, doubtful: Sequence[PodReading], gauges: dict[str, Gauge]) -> list[list[PodReading]]:
    """The doubtful pods, most loaded first; a second time with those that have no sample last, where there are such."""

    def load(reading: PodReading) -> tuple[bool, Fraction]:
        rank = scales.rank(gauges[reading.pod.uid])
        return rank is None, Fraction(rank or 0)

    first = sorted(doubtful, key=load, reverse=True)
    blind = [reading for reading in first if gauges[reading.pod.uid].usage is None]
    if not blind or len(blind) == len(first):
        return [first]
    return [first, [reading for reading in first if gauges[reading.pod.uid].usage is not None] + blind]


def _tallies(
    scales: Scales, base: Tally, standings: Standings, order: Iterable[PodReading], gauges: dict[str, Gauge]
) -> list[Tally]:
    def add(tally: Tally, reading: PodReading) -> Tally:
        gauge = gauges[reading.pod.uid]
        if reading.pod.uid in standings.young_doubts:
            tally = scales.without_young(tally, gauge)
        return scales.add(tally, gauge)

    return list(accumulate(order, add, initial=base))


def _readings(
    policy: Policy, band: Band, standings: Standings, tallies: Sequence[Tally], order: Sequence[PodReading]
) -> Iterable[Reading]:
    replaceable = sum(1 for r in order if r.pod.uid in standings.replaceable_doubts)
    reserved = sum(1 for r in order if r.pod.uid not in standings.old_doubts)
    for inside, tally in enumerate(tallies):
        if inside:
            uid = order[inside - 1].pod.uid
            replaceable -= uid in standings.replaceable_doubts
            reserved -= uid not in standings.old_doubts
        yield _reading(
            policy,
            band,
            tally,
            inside=inside,
            out=standings.out + len(order) - inside,
            replaceable=standings.replaceable + replaceable,
            reserved=standings.reserved + reserved,
        )


def _reading(
    policy: Policy, band: Band, tally: Tally, *, inside: int, out: int, replaceable: int, reserved: int
) -> Reading:
    if not tally.n:
        return Reading(inside=inside, verdict=Verdict.ERROR, missing=tally.missing, out=out)
    wanted = need(tally, band, policy.converge_towards)
    return Reading(
        inside=inside,
        verdict=wanted.verdict,
        usage=wanted.usage,
        n=tally.n,
        missing=tally.missing,
        young=tally.young,
        departed=len(tally.departed),
        needed=wanted.count,
        held=wanted.held,
        replaceable=replaceable,
        reserved=reserved,
        out=out,
        drift=wanted.drift,
        edge=wanted.edge,
        zero=wanted.zero,
    )


def _error(metric: Metric, standings: Standings, gauges: dict[str, Gauge], samples: Samples, now: float) -> str:
    """Why no reading could compare anything."""
    source = source_of(metric, samples)
    if not standings.running and source.error:
        return source_error(metric, samples, now)
    if not standings.serving and not standings.doubtful:
        return NO_POD_SERVES
    if metric.of is not None and not any(g.capacity for g in gauges.values()):
        return no_capacity_sentence(metric, [r.pod for r in [*standings.serving, *standings.doubtful]])
    reasons = {g.missing for g in _pick(gauges, [*standings.serving, *standings.doubtful]) if g.missing}
    if not source.error and source.pods and reasons - {"no sample"}:
        return f"{source_name(metric)} has no fresh sample of a serving pod: {min(reasons - {'no sample'})}"
    return source_error(metric, samples, now)


def select(
    readings: Sequence[PodReading],
    now: float,
    *,
    replaceable: frozenset[str],
    old: frozenset[str],
    never_registered: frozenset[str] = frozenset(),
    out_goes_first: bool = False,
) -> Standings:
    """Sort pods into those that serve, may serve, and do not, with what the latter are worth.

    Pods that are out are kept in the count on the way down, but where they go first.
    """
    by_state: dict[PodState, list[PodReading]] = {state: [] for state in PodState}
    for reading in readings:
        by_state[reading.state].append(reading)
    out = by_state[PodState.PULLED_OUT]
    idle = [*by_state[PodState.STARTING], *by_state[PodState.UNREADY]]
    return Standings(
        serving=by_state[PodState.SERVING],
        doubtful=sorted(by_state[PodState.DOUBTFUL], key=lambda reading: reading.pod.name),
        young=[reading for reading in idle if is_young(reading.pod, now)],
        running=[r for r in readings if r.state not in {PodState.TERMINATING, PodState.FINISHED}],
        out=0 if out_goes_first else len(out),
        replaceable=sum(1 for reading in out if reading.pod.uid in replaceable),
        reserved=len(by_state[PodState.STARTING]),
        old_doubts=old,
        replaceable_doubts=replaceable & old,
        young_doubts=frozenset(
            reading.pod.uid
            for reading in by_state[PodState.DOUBTFUL]
            if reading.pod.uid in never_registered and is_young(reading.pod, now)
        ),
    )
