"""The pictures of docs/concepts. Their numbers are computed here, from the loads that the captions name."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import ceil, floor

from lab.harness.pictures.svg import arrow, document, line, rect, text

HIGH, LOW = 1200, 400
"""The watermarks of all pictures, in millicores."""
_TOLERANCE = Fraction(1, 100)


def pulled_out() -> str:
    """Ten pods, three of them pulled out: the average over all is calm, the seven others are overloaded."""
    loads = [1440] * 7 + [0] * 3
    serving = [load for load in loads if load]
    raw, effective = sum(loads) // len(loads), sum(serving) // len(serving)
    needed = ceil(Fraction(sum(serving), HIGH))
    base, scale, left, step = 300, 0.14, 70, 44

    def height(load: float) -> float:
        return base - load * scale

    def shapes() -> Iterator[str]:
        yield text(24, 34, "The same ten pods, seen in two ways", "ink", "big")
        for number, load in enumerate(loads):
            x = left + number * step
            yield rect(x, height(max(load, 40)), 30, max(load, 40) * scale, "over" if load else "out", radius=3)
        yield text(left + 3.4 * step, base + 22, "7 pods serve", "over", "bold", anchor="middle")
        yield text(left + 8.4 * step, base + 22, "3 pulled out, idle", "soft", "bold", anchor="middle")
        right = left + 10 * step
        for load, colour, more in ((HIGH, "ink", "dotted"), (raw, "soft", "thick"), (effective, "over", "thick")):
            yield line([(left - 14, height(load)), (right, height(load))], colour, more)
        yield text(right + 10, height(effective) - 3, f"effective usage: {effective}m", "over", "bold")
        yield text(right + 10, height(HIGH) + 5, f"high watermark: {HIGH}m", "ink")
        yield text(right + 10, height(raw) + 12, f"average over all: {raw}m", "soft", "bold")
        yield text(24, 356, f"Stock HPA, target {HIGH}m: {raw}m is below it. It keeps 10 pods.", "soft")
        words = f"Policy: {len(serving)} pods at {effective}m need {needed} at {HIGH}m."
        yield text(24, 382, words, "serve")
        missing = len(loads) - len(serving)
        yield text(24, 408, f"{missing} more replace those that are out: {needed + missing} pods.", "serve", "bold")

    return document(760, 428, "Seven overloaded pods and three idle ones have a calm average", shapes())


def effective() -> str:
    """Usage over time around a pull-out: effective usage jumps, raw usage stays, then the count rises."""
    total, pods, out = 10_080, 10, 3
    after = ceil(Fraction(total, HIGH)) + out
    spans = [(0, 60, pods, pods - 0), (60, 130, pods, pods - out), (130, 240, after, after - out)]
    left, base, scale, second = 110, 320, 0.145, 2.05

    def at(now: float, load: Fraction | int) -> tuple[float, float]:
        return left + now * second, base - float(load) * scale

    def steps(divisor: Callable[[tuple[int, int, int, int]], int]) -> list[tuple[float, float]]:
        return [at(now, Fraction(total, divisor(span))) for span in spans for now in span[:2]]

    def shapes() -> Iterator[str]:
        yield text(24, 34, "Three of ten pods are pulled out; the service's load stays the same", "ink", "big")
        (x, top), (right, bottom) = at(0, HIGH), at(240, LOW)
        yield rect(x, top, right - x, bottom - top, "band")
        for load, name in ((HIGH, "high"), (LOW, "low")):
            yield text(x - 8, at(0, load)[1] + 5, f"{name} {load}m", "soft", "small", anchor="end")
        for now, words in ((60, f"{out} pods are out"), (130, f"HPA sets {after}; the new pods serve")):
            yield line([at(now, 0), at(now, 1640)], "rule", "dotted")
            yield text(at(now, 0)[0] + 6, base + 20, words, "ink", "small")
        yield line(steps(lambda span: span[2]), "soft", "thick")
        yield line(steps(lambda span: span[3]), "over", "thick")
        yield line([at(0, 0), at(240, 0)], "rule")
        for load, words, colour in (
            (Fraction(total, after - out), f"effective {total // (after - out)}m", "over"),
            (Fraction(total, after), f"raw {total // after}m", "soft"),
        ):
            yield text(right + 8, at(0, load)[1] + 5, words, colour, "bold")
        yield text(at(66, 0)[0], at(0, Fraction(total, 7))[1] - 8, f"{total // (pods - out)}m", "over", "bold")
        yield text(at(66, 0)[0], at(0, Fraction(total, 10))[1] + 20, f"{total // pods}m", "soft", "bold")

    return document(
        760, 360, "At a pull-out effective usage jumps out of the band and raw usage stays inside", shapes()
    )


def band() -> str:
    """The zones of usage: what happens above, within the tolerance, inside and below."""
    top, scale, left = 60, 0.24, 150
    high, low = HIGH * (1 + _TOLERANCE), LOW * (1 - _TOLERANCE)

    def y(load: Fraction | int) -> float:
        return top + float(1500 - load) * scale

    def shapes() -> Iterator[str]:
        yield text(24, 34, "Between the watermarks nothing moves", "ink", "big")
        yield rect(left, y(HIGH), 230, y(LOW) - y(HIGH), "band")
        # The tolerance of 1 % would be a hair: drawn wider.
        yield rect(left, y(HIGH) - 16, 230, 16, "edge")
        yield rect(left, y(LOW), 230, 16, "edge")
        for load in (HIGH, LOW):
            yield line([(left, y(load)), (left + 230, y(load))], "serve")
        yield text(left - 10, y(HIGH) + 5, f"high {HIGH}m", "ink", anchor="end")
        yield text(left - 10, y(HIGH) - 14, f"{float(high):g}m", "soft", "small", anchor="end")
        yield text(left - 10, y(LOW) + 3, f"low {LOW}m", "ink", anchor="end")
        yield text(left - 10, y(LOW) + 22, f"{float(low):g}m", "soft", "small", anchor="end")
        for load, words in ((1400, "above"), (800, "inside"), (190, "below")):
            yield text(left + 115, y(load) + 5, words, "ink", "bold", anchor="middle")
        right = left + 250
        yield text(right, y(1450), "more pods: ⌈n · usage / high⌉", "over", "bold")
        yield text(right, y(1450) + 19, "5 pods at 1500m need ⌈7500 / 1200⌉ = 7", "soft", "small")
        yield text(right, y(HIGH) - 4, "within the tolerance (1 %): the count stays", "soft")
        yield text(right, y(830), "the count stays, exactly as it is,", "serve", "bold")
        yield text(right, y(830) + 19, "whoever set it", "serve", "bold")
        yield text(right, y(LOW) + 13, "within the tolerance: the count stays", "soft")
        yield text(right, y(200), "fewer pods: ⌊n · usage / low⌋", "over", "bold")
        fewer = floor(Fraction(7 * 300, LOW))
        yield text(right, y(200) + 19, f"7 pods at 300m keep ⌊2100 / 400⌋ = {fewer}", "soft", "small")

    return document(
        760, 420, "Above the high watermark pods are added, below the low one removed, between them none", shapes()
    )


def doubt() -> str:
    """Six pods surely serve, four may: the count for either assumption, and the larger one that is served."""
    sure, doubtful, current = [500] * 6, [0] * 4, 10
    everyone = floor(Fraction(sum(sure) + sum(doubtful), LOW))

    def panel(x: float, title: str, loads: Sequence[int], words: Sequence[str], colour: str) -> Iterator[str]:
        yield rect(x, 56, 350, 250, "box", radius=8)
        yield text(x + 16, 82, title, "ink", "bold")
        for number in range(current):
            known = number < len(sure)
            counted = number < len(loads)
            size = max(loads[number] if counted else 0, 30) * 0.17
            shade = "serve" if known else "doubt" if counted else "out"
            yield rect(x + 18 + number * 32, 210 - size, 22, size, shade, radius=3)
        yield text(x + 18 + 3 * 32 - 5, 230, "6 serve: 500m", "serve", "small", anchor="middle")
        yield text(x + 18 + 8 * 32 - 5, 230, "4 doubtful: 0", "doubt", "small", anchor="middle")
        for number, sentence in enumerate(words):
            yield text(x + 16, 262 + 22 * number, sentence, colour, "bold" if number else "")

    def shapes() -> Iterator[str]:
        yield text(24, 34, "The registry is silent: do the four idle pods serve?", "ink", "big")
        mean = (sum(sure) + sum(doubtful)) // current
        below = [f"average {mean}m, below {LOW}m", f"⌊3000 / {LOW}⌋ = {everyone} pods"]
        yield from panel(24, "If they serve", [*sure, *doubtful], below, "ink")
        inside = [f"average {sure[0]}m, inside the band", f"the count stays: {current} pods"]
        yield from panel(386, "If they are out", sure, inside, "ink")
        words = f"The larger count wins: {current}. The decision is held by Doubt until the registry answers."
        yield text(24, 340, words, "serve", "bold")

    return document(760, 362, "Two assumptions about four doubtful pods, and the larger count that is served", shapes())


def decision() -> str:
    """From samples to the HPA: the stages of a decision, in order."""
    boxes = (
        ("Pods by state", "serving, pulled out, doubtful, starting, unready", "registry, readiness"),
        (
            "Usage of each metric",
            "average of the serving pods; missing and young pods filled in",
            "metrics.k8s.io, Prometheus",
        ),
        ("Proposal of each metric", "above, inside or below the band; needed + replaced", "watermarks, strategy"),
        ("The largest proposal", "over all metrics and all assumptions about doubtful pods", ""),
        ("Schedules, velocity, cooldown, bounds", "what the policy and the HPA allow now", "live /scale"),
        ("One number", "desired_replicas, served to the HPA; it sets exactly that count", ""),
    )

    def shapes() -> Iterator[str]:
        yield text(24, 34, "The stages of a decision", "ink", "big")
        for number, (name, what, source) in enumerate(boxes):
            y = 54 + number * 66
            yield rect(24, y, 500, 50, "band" if number == len(boxes) - 1 else "box", radius=8)
            yield text(40, y + 21, name, "ink", "bold")
            yield text(40, y + 40, what, "soft", "small")
            if source:
                yield text(556, y + 30, source, "soft", "small")
                yield arrow(550, y + 25, 530, y + 25)
            if number < len(boxes) - 1:
                yield arrow(274, y + 51, 274, y + 65)

    return document(760, 66 * len(boxes) + 60, "From pods, samples and a policy to one number, in six stages", shapes())


CONCEPTS: dict[str, Callable[[], str]] = {
    "concept-pulled-out.svg": pulled_out,
    "concept-effective.svg": effective,
    "concept-band.svg": band,
    "concept-doubt.svg": doubt,
    "concept-decision.svg": decision,
}
