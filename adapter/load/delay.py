"""Delays: a metric acts only once its usage has been beyond a watermark for a time, without a break.

The time is that of the samples, so that the same samples, assessed often, do not make it longer. It runs from the
newest sample with which usage was first seen beyond the watermark to the oldest sample that counts now: the usage that
acts has no sample from before the delay's end.

Doubtful pods: usage is above if one scenario says so, and below only if every scenario does. A metric that waits holds
the count, in both directions.
"""

from dataclasses import replace

from adapter.load.assessment import HeldBy, MetricAssessment, Verdict
from adapter.load.memory import LAST_SAMPLE_SECONDS, Beyond, Side
from adapter.load.spec import Delay

BREAK_SECONDS = LAST_SAMPLE_SECONDS
"""More seconds than this without a sample are a break, unless samples count for longer.

A restart, or a source that fails for a while, takes less.
"""


def with_delay(
    metric: MetricAssessment, delay: Delay, before: Beyond | None, now: float, longest_gap: float
) -> MetricAssessment:
    """The metric with scenarios that hold while its delay runs.

    `before`: what was remembered of it. More than `longest_gap` without a sample is a break. All in seconds.
    """
    newest = metric.sampled_at if metric.newest is None else metric.newest
    verdicts = {scenario.verdict for scenario in metric.scenarios}
    if newest is None or metric.sampled_at is None or verdicts <= {Verdict.ERROR}:
        # Without an answer usage may have stayed or changed.
        kept = before is not None and now - before.until <= longest_gap
        return replace(metric, beyond=before if kept else None)
    beyond = _beyond(verdicts, delay, newest, before, longest_gap)
    lasted = {} if beyond is None else {Verdict(beyond.verdict): metric.sampled_at - beyond.since}
    waits = {
        verdict
        for verdict, seconds in ((Verdict.ABOVE, delay.up), (Verdict.BELOW, delay.down))
        if seconds and lasted.get(verdict, 0.0) < seconds
    }
    # A scenario that holds already keeps its reason.
    scenarios = [
        each
        if each.verdict not in waits or (each.needed is None and each.shrink is None)
        else each._replace(needed=None, shrink=None, held=HeldBy.DELAY, zero=False)
        for each in metric.scenarios
    ]
    return replace(metric, beyond=beyond, scenarios=scenarios)


def _beyond(
    verdicts: set[Verdict], delay: Delay, newest: float, before: Beyond | None, longest_gap: float
) -> Beyond | None:
    """Since when usage has been beyond the watermark of a direction with a delay; None where it is not."""
    side = Side.ABOVE if Verdict.ABOVE in verdicts else Side.BELOW
    if not (delay.up if side is Side.ABOVE else delay.down and verdicts == {Verdict.BELOW}):
        return None
    if before is None or before.verdict is not side or newest - before.until > longest_gap:
        return Beyond(side, since=newest, until=newest)
    # One server of a source may answer older samples than another.
    return before._replace(until=max(before.until, newest))
