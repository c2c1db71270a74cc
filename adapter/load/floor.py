"""Floors: service totals that keep the count from falling below what they need, and do nothing else.

A floor proposes ⌈S/high⌉ pods for its total S, whatever serves (⌈S/target⌉ with strategies Ratio and Step). It never
proposes the current count, so it neither holds nor lowers it; one without an answer proposes nothing and stands in the
way of nothing.
"""

from fractions import Fraction

from adapter.load.assessment import MetricAssessment, Outcome, Scenario, Verdict


def floor_outcome(metric: MetricAssessment, current: int, multiple_of: int) -> Outcome:
    """The floor's proposal: what it needs, rounded up to the multiple, if less than the current count at most to it.

    Where a partial window needs no more than the current count, it may need as much as its bound.
    """
    assert metric.total_value is not None
    one_pod = load_of_one_pod(metric)
    needed = -(-metric.total_value * one_pod.denominator // one_pod.numerator)
    is_above = needed > current
    if not is_above and metric.total_bound is not None:
        needed = -(-metric.total_bound * one_pod.denominator // one_pod.numerator)
    rounded = rounded_up(needed, multiple_of)
    verdict = Verdict.ABOVE if is_above else Verdict.INSIDE
    scenario = Scenario(verdict, usage=metric.usage, n=metric.n, needed=needed)
    return Outcome(metric=metric, scenario=scenario, proposal=rounded if is_above else min(current, rounded))


def rounded_up(count: int, of: int) -> int:
    """The count rounded up to a multiple."""
    return -(-count // of) * of


def load_of_one_pod(metric: MetricAssessment) -> Fraction:
    """What one pod carries of a floor's total (nano-units): its target with strategies Ratio and Step."""
    one_pod = metric.high if metric.target is None else metric.target
    assert one_pod is not None
    return one_pod
