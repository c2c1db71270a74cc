"""Reads the strategy of a policy, and the fields and defaults that depend on it."""

from collections.abc import Iterable
from fractions import Fraction

from adapter.load.quantity import NANO
from adapter.load.spec import Average, Converge, Cooldown, Metric, Step, Strategy, ToleranceIn, Trigger
from adapter.policy.field_reader import FieldReader
from adapter.policy.pacing import MOST_REPLICAS

_TOLERANCE = {Strategy.WATERMARK: Fraction(1, 100), Strategy.RATIO: Fraction(1, 10), Strategy.STEP: Fraction(0)}
_STEP_COOLDOWN = Cooldown(up=180.0, down=300.0)
_STEP_FIELDS = ("stepTolerance", "toleranceIn", "trigger", "stepUp", "stepDown", "minPods")
_LARGEST_STEP = 1000
_MOST_TOLERANCE = 1000
_HUNDRED_PERCENT = 100


def read_strategy(spec: FieldReader) -> Strategy:
    """The policy's strategy."""
    return spec.choice("strategy", Strategy) or Strategy.WATERMARK


def default_cooldown(strategy: Strategy) -> Cooldown:
    """The cooldown of a policy that names none, by direction."""
    return _STEP_COOLDOWN if strategy is Strategy.STEP else Cooldown()


def read_tolerance(spec: FieldReader, strategy: Strategy) -> Fraction:
    """The policy's tolerance as a ratio. Strategy Step has its own, `stepTolerance`."""
    tolerance = spec.ratio("tolerance")
    if tolerance is None:
        return _TOLERANCE[strategy]
    if strategy is Strategy.STEP:
        spec.fault("tolerance", spec.get("tolerance"), "strategy Step has stepTolerance instead of tolerance")
    elif not 0 <= tolerance < 1:
        spec.fault("tolerance", spec.get("tolerance"), 'tolerance is "1%" or a ratio from 0 to below 1, such as "0.01"')
    return tolerance


def read_step(spec: FieldReader, strategy: Strategy, metrics: Iterable[Metric], multiple_of: int) -> Step:
    """The parameters of strategy Step; the defaults for every other strategy, which may not have them."""
    given = [key for key in _STEP_FIELDS if spec.has(key)]
    step = Step(
        tolerance=spec.integer("stepTolerance", 15, 0, _MOST_TOLERANCE),
        tolerance_in=spec.choice("toleranceIn", ToleranceIn) or ToleranceIn.POINTS,
        trigger=spec.choice("trigger", Trigger) or Trigger.ANY_POD,
        up=spec.integer("stepUp", 2, 0, _LARGEST_STEP),
        down=spec.integer("stepDown", 2, 1, _LARGEST_STEP),
        min_pods=spec.integer("minPods", 2, 0, MOST_REPLICAS),
    )
    if strategy is not Strategy.STEP:
        if given:
            advice = "stepTolerance, toleranceIn, trigger, stepUp, stepDown and minPods are for strategy Step"
            spec.fault("strategy", strategy.value, f"{advice}; leave {', '.join(given)} away, or write it")
        return step
    if multiple_of > step.down:
        advice = f"stepDown must be at least multipleOf, or a step down (of {step.down}) would be rounded up again"
        spec.fault("multipleOf", multiple_of, advice)
    _check_tolerance(spec, step, metrics)
    return step


def _check_tolerance(spec: FieldReader, step: Step, metrics: Iterable[Metric]) -> None:
    is_ratio = step.tolerance_in is ToleranceIn.RATIO
    advice = "stepTolerance must be less than the target, or no pod would ever be removed; write a smaller one"
    if is_ratio and step.tolerance >= _HUNDRED_PERCENT:
        spec.fault("stepTolerance", step.tolerance, advice)
    if is_ratio:
        return
    for metric in metrics:
        points = Fraction(step.tolerance, 1 if metric.of is None else _HUNDRED_PERCENT)
        if metric.resource is not None and metric.of is None:
            spec.fault(
                "metrics",
                metric.name,
                "stepTolerance in Points is for queries and for shares of limits or requests; for plain cpu or memory "
                "write toleranceIn Ratio",
            )
        elif metric.target is not None and not metric.floor and metric.target <= points * NANO:
            spec.fault("stepTolerance", step.tolerance, f"{advice}, or toleranceIn Ratio (metric {metric.name})")


def check_metric(fields: FieldReader, metric: Metric, strategy: Strategy, average: Average) -> None:
    """Add a fault where the metric has watermarks or a target that the strategy does not take."""
    has_watermarks = fields.has("highWatermark") or fields.has("lowWatermark")
    has_target = fields.has("target")
    if not has_watermarks and not has_target:
        advice = "give highWatermark, lowWatermark, or both; strategies Ratio and Step take target"
        fields.fault("", metric.name, advice)
    elif strategy is Strategy.WATERMARK and has_target:
        advice = "target is for strategies Ratio and Step; strategy Watermark takes highWatermark and lowWatermark"
        fields.fault("target", fields.get("target"), advice)
    elif strategy is not Strategy.WATERMARK and (has_watermarks or not has_target):
        advice = "strategies Ratio and Step take target, and neither highWatermark nor lowWatermark"
        fields.fault("", metric.name, advice)
    if average is Average.TOTAL and metric.of is not None:
        fields.fault("", metric.name, "average Total adds up usage; a metric with of is a ratio and needs PerPod")


def check_average(spec: FieldReader, strategy: Strategy, average: Average) -> None:
    """Add a fault for a total of strategy Step."""
    if strategy is Strategy.STEP and average is Average.TOTAL:
        advice = "strategy Step compares pods, or their average, and needs PerPod"
        spec.fault("average", average.value, advice)


def read_converge(spec: FieldReader, strategy: Strategy, metrics: tuple[Metric, ...]) -> Converge | None:
    """The watermark to drift to; only strategy Watermark has any."""
    towards = spec.choice("convergeTowards", Converge)
    if towards is None:
        return None
    if strategy is not Strategy.WATERMARK:
        advice = "convergeTowards moves the count between two watermarks; strategies Ratio and Step have one target"
        spec.fault("convergeTowards", towards.value, advice)
        return None
    named = [m.high if towards is Converge.HIGH else m.low for m in metrics if not m.floor]
    if metrics and not any(named):
        key = "highWatermark" if towards is Converge.HIGH else "lowWatermark"
        spec.fault("convergeTowards", towards.value, f"convergeTowards {towards.value} needs a metric with {key}")
    return towards
