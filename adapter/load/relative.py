"""Steps that are relative to the count: those of strategy Step on the way down, and those of `convergeTowards`.

As often as the HPA asks, they would lead from one count to the next without anything new.
"""

from dataclasses import replace

from adapter.load.assessment import HeldBy, MetricAssessment, Scenario
from adapter.load.scenario_list import changed


def one_step_down(metric: MetricAssessment, changed_at: float | None) -> MetricAssessment:
    """The metric without a step down if its samples began before the count last changed (seconds; None: never)."""
    if _knows(metric, changed_at):
        return metric
    return replace(metric, scenarios=changed(metric.scenarios, _without_shrink))


def one_drift_up(metric: MetricAssessment, changed_at: float | None) -> MetricAssessment:
    """The metric without a step up inside the band if its samples began before the count last changed.

    Pods that were added since have no sample, so the others alone would ask for one step after the other. A step down
    counts the load of departed pods instead.
    """
    if _knows(metric, changed_at):
        return metric
    return replace(metric, scenarios=changed(metric.scenarios, _without_drift_up))


def _knows(metric: MetricAssessment, changed_at: float | None) -> bool:
    return changed_at is None or metric.began_at is None or metric.began_at >= changed_at


def without_drift(metric: MetricAssessment) -> MetricAssessment:
    """The metric at another count than it was assessed at: without a step inside the band."""
    return replace(metric, scenarios=changed(metric.scenarios, _without_drift))


def _without_drift(scenario: Scenario) -> Scenario:
    return scenario._replace(drift=0, edge=None)


def _without_drift_up(scenario: Scenario) -> Scenario:
    return _without_drift(scenario) if scenario.drift > 0 else scenario


def _without_shrink(scenario: Scenario) -> Scenario:
    return scenario if scenario.shrink is None else scenario._replace(shrink=None, zero=False, held=HeldBy.DEPARTED)
