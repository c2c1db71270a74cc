"""Steps that are relative to the count: those of strategy Step on the way down, and those of `convergeTowards`.

As often as the HPA asks, they would lead from one count to the next without anything new.
"""

from dataclasses import replace

from adapter.load.assessment import HeldBy, MetricAssessment, Scenario
from adapter.load.scenario_list import changed


def one_step_down(metric: MetricAssessment, changed_at: float | None) -> MetricAssessment:
    """The metric without a step down if its samples began before the count last changed (seconds; None: never)."""
    if changed_at is None or metric.began_at is None or metric.began_at >= changed_at:
        return metric
    return replace(metric, scenarios=changed(metric.scenarios, _without_shrink))


def without_drift(metric: MetricAssessment) -> MetricAssessment:
    """The metric at another count than it was assessed at: without a step inside the band."""
    return replace(metric, scenarios=changed(metric.scenarios, _without_drift))


def _without_drift(scenario: Scenario) -> Scenario:
    return scenario._replace(drift=0, edge=None)


def _without_shrink(scenario: Scenario) -> Scenario:
    return scenario if scenario.shrink is None else scenario._replace(shrink=None, zero=False, held=HeldBy.DEPARTED)
