"""Pictures of stored figures: growth with two logarithmic scales, and courses over time."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lab.benchmarks.page.figures import Pairs, exponent
from lab.harness.pictures.svg import document, line, rect, text

WIDTH = 760
_COLOURS = ("serve", "over", "doubt", "ink", "soft")
_LEFT, _RIGHT, _TOP, _PLOT = 84, 210, 64, 300
_LABEL_GAP = 17
"""Pixels between two labels, at least."""
_PANEL_HEIGHT, _PANEL_PLOT = 178, 108

Scale = Callable[[float], float]


def short(value: float) -> str:
    """A number on an axis: 1k, 200k, 1.5M, 0.02."""
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.3g}"


def _logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    span = math.log(high / low) or 1.0
    return lambda value: start + math.log(value / low) / span * (end - start)


def decades(low: float, high: float) -> list[float]:
    """Marks 1, 2 and 5 of each decade (1 alone beyond three decades) that cover the range, its ends included."""
    steps = (1, 2, 5) if high / low < 1000 else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    marks = sorted({step * 10.0**power for power in range(first, last + 1) for step in steps})
    below = [mark for mark in marks if mark <= low * 1.0001]
    above = [mark for mark in marks if mark >= high * 0.9999]
    return [mark for mark in marks if below[-1] <= mark <= above[0]]


def growth(title: str, series: Mapping[str, Pairs], x: str, y: str) -> str:
    """An SVG of series that grow; a straight line with exponent 1 is linear growth. Figures of 0 are left out."""
    drawn = {name: sorted((a, b) for a, b in points if a > 0 and b > 0) for name, points in series.items()}
    drawn = {name: points for name, points in drawn.items() if points}
    across = [a for points in drawn.values() for a, _ in points]
    up = decades(*(end(b for points in drawn.values() for _, b in points) for end in (min, max)))
    at_x = _logarithmic(min(across), max(across), _LEFT, WIDTH - _RIGHT)
    at_y = _logarithmic(up[0], up[-1], _TOP + _PLOT, _TOP)

    def shapes() -> Iterator[str]:
        yield text(24, 30, title, "ink", "big")
        yield text(24, 50, y, "soft", "small")
        for mark in up:
            yield line([(_LEFT, at_y(mark)), (WIDTH - _RIGHT, at_y(mark))], "rule", "thin")
            yield text(_LEFT - 8, at_y(mark) + 4, short(mark), "soft", "small", anchor="end")
        for place, mark in _spread(at_x, sorted(set(across))):
            yield text(place, _TOP + _PLOT + 20, short(mark), "soft", "small", anchor="middle")
        yield text((_LEFT + WIDTH - _RIGHT) / 2, _TOP + _PLOT + 40, x, "soft", "small", anchor="middle")
        ends = []
        for (name, points), colour in zip(drawn.items(), _cycle(len(drawn)), strict=True):
            yield line([(at_x(a), at_y(b)) for a, b in points], colour, "thick")
            for a, b in points:
                yield rect(at_x(a) - 3, at_y(b) - 3, 6, 6, colour, radius=3)
            ends.append((at_y(points[-1][1]), name + _grows(points), colour))
        for place, words, colour in _apart(ends):
            yield text(WIDTH - _RIGHT + 12, place + 4, words, colour, "bold small")

    return document(WIDTH, _TOP + _PLOT + 56, title, shapes())


def _grows(points: Pairs) -> str:
    return f", exponent {exponent(points):.2f}" if len({a for a, _ in points}) > 1 else ""


def _cycle(count: int) -> list[str]:
    return [_COLOURS[number % len(_COLOURS)] for number in range(count)]


def _spread(scale: Scale, marks: Sequence[float]) -> Iterator[tuple[float, float]]:
    """The places and values of marks that do not touch the one before."""
    last = -math.inf
    for mark in marks:
        if scale(mark) - last >= 40:
            last = scale(mark)
            yield last, mark


def _apart(labels: list[tuple[float, str, str]]) -> Iterator[tuple[float, str, str]]:
    """The labels from top to bottom, moved down where they would touch."""
    last = -math.inf
    for place, words, colour in sorted(labels):
        last = max(place, last + _LABEL_GAP)
        yield last, words, colour


def course(title: str, panels: Sequence[Mapping[str, Any]]) -> str:
    """An SVG of several quantities over time (minutes), two panels a row, each from 0 to beyond its largest figure.

    A series has the same colour in every panel.
    """
    width = (WIDTH - 24) / 2
    rows = math.ceil(len(panels) / 2)
    names = list(dict.fromkeys(name for panel in panels for name in panel["series"]))
    colours = dict(zip(names, _cycle(len(names)), strict=True))

    def shapes() -> Iterator[str]:
        yield text(24, 30, title, "ink", "big")
        place = WIDTH - 24.0
        for name in reversed(names):
            yield text(place, 30, name, colours[name], "bold small", anchor="end")
            place -= 7.5 * len(name) + 14
        for number, panel in enumerate(panels):
            yield from _panel(panel, colours, 24 + number % 2 * width, 46 + number // 2 * _PANEL_HEIGHT, width - 24)

    return document(WIDTH, 46 + rows * _PANEL_HEIGHT + 8, title, shapes())


def bars(title: str, groups: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """An SVG of horizontal bars from 0 in groups, a bar for each series of a group; same series, same colour."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    colours = dict(zip(names, _cycle(len(names)), strict=True))
    highest = max((value for group in groups.values() for value in group.values()), default=1.0) or 1.0
    left, thick = 330, 18

    def shapes() -> Iterator[str]:
        yield text(24, 30, title, "ink", "big")
        y = 50.0
        for group, values in groups.items():
            yield text(24, y + 14, group, "ink", "bold small")
            for name, value in values.items():
                width = round(value / highest * (WIDTH - left - 120), 1)
                yield text(left - 8, y + 14, name, "soft", "small", anchor="end")
                yield rect(left, y + 2, width, thick - 4, colours[name], radius=2)
                yield text(left + width + 6, y + 14, f"{value:.0f}{unit}", "ink", "small")
                y += thick
            y += 10

    height = 60 + sum(thick * len(group) + 10 for group in groups.values())
    return document(WIDTH, height, title, shapes())


def _round_above(value: float) -> float:
    """The next number whose half is short, too."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10) if step * power >= value)


def _panel(
    panel: Mapping[str, Any], colours: Mapping[str, str], left: float, top: float, width: float
) -> Iterator[str]:
    series: Mapping[str, Pairs] = panel["series"]
    longest = max((a for points in series.values() for a, _ in points), default=1.0) or 1.0
    highest = _round_above(1.05 * max((b for points in series.values() for _, b in points), default=1.0) or 1.0)
    start, end, base = left + 44, left + width, top + 24 + _PANEL_PLOT

    def at(point: tuple[float, float]) -> tuple[float, float]:
        a, b = point[0] / longest, point[1] / highest
        return round(start + a * (end - start), 1), round(base - b * _PANEL_PLOT, 1)

    yield text(left, top + 12, f"{panel['title']}, {panel['unit']}" if panel["unit"] else panel["title"], "ink", "bold")
    for share in (0, 0.5, 1):
        yield line([(start, base - share * _PANEL_PLOT), (end, base - share * _PANEL_PLOT)], "rule", "thin")
        yield text(start - 6, base - share * _PANEL_PLOT + 4, short(share * highest), "soft", "small", anchor="end")
    for name, points in series.items():
        yield line([at(point) for point in points], colours[name])
    yield text(start, base + 16, "0", "soft", "small", anchor="middle")
    yield text(end, base + 16, f"{longest:.0f} min", "soft", "small", anchor="end")
