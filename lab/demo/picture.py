"""Draws the timeline: each HPA's counts and metric, and the load of the serving pods.

Only `draw` uses matplotlib. The same timeline gives the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.demo.timeline import Timeline, overloads, side_of, summed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID = "#1f2933", "#6b7785", "#e6eaee"
BAND_COLOUR, BAND_EDGE, GREEN = "#e3f1e5", "#7fb089", "#3d7d4b"
NEED_COLOUR, TOLERANCE_COLOUR, TOLERANCE_EDGE, OVER_COLOUR = "#d5dbe1", "#fbe8dc", "#eab08c", "#c62f3b"
COLOURS = {"ours": "#0b6fb8", "stock": "#d9661f"}
_STYLE: Any = {
    "svg.hashsalt": "effective-load",  # otherwise clip paths get random names
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.edgecolor": GRID,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
}
_DOTTED: Any = {"linewidth": 1.2, "linestyle": (0, (2, 1.6))}
_LOADS = "CPU a pod, millicores; dotted: what a serving pod carries"


@dataclass(frozen=True)
class BlindPeriod:
    """The longest overload after a mark during which the stock HPA's average did not exceed its target."""

    since: float
    until: float
    seen: int
    carried: int


def blind_period(timeline: Timeline) -> BlindPeriod | None:
    """With what the HPA saw in the middle of it, and what serving pods carried; None where it saw each overload."""
    longest: BlindPeriod | None = None
    pulled_out = timeline.marks[0].at if timeline.marks else timeline.end
    for start, until in overloads(timeline, "stock"):
        since = max(start, pulled_out)
        ticks = [tick for tick in timeline.ticks if since <= tick.at < until and tick.stock.seen is not None]
        settled = ticks[len(ticks) // 2] if ticks else None
        if settled is None or settled.stock.seen is None or settled.stock.seen > timeline.target:
            continue
        if longest is None or until - since > longest.until - longest.since:
            longest = BlindPeriod(since, until, settled.stock.seen, settled.carried(settled.stock) or 0)
    return longest


def draw(timeline: Timeline, *paths: Path) -> None:
    """Writes the picture; each path's suffix selects the format (svg, png)."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(_STYLE):
        figure = _figure(plt, timeline)
        for path in paths:
            metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, dpi=150, metadata=metadata, facecolor="white")
        plt.close(figure)


def _figure(plt: Any, timeline: Timeline) -> "Figure":
    figure: Figure
    figure, (counts, ours, stock) = plt.subplots(
        3, 1, figsize=(10, 9.4), sharex=True, gridspec_kw={"height_ratios": [1.2, 1, 1], "hspace": 0.36}
    )
    figure.subplots_adjust(left=0.055, right=0.83, top=0.875, bottom=0.06)
    figure.text(0.055, 0.965, "Same load, same pull-out, two HPAs", fontsize=16, fontweight="bold")
    subtitle = (
        f"A stock kube-controller-manager, two equal services: a policy with watermarks {timeline.low}m and"
        f" {timeline.high}m, and a CPU target of {timeline.high}m."
    )
    figure.text(0.055, 0.938, subtitle, fontsize=9.5, color=SOFT)
    for axes in (counts, ours, stock):
        axes.grid(axis="y", color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
    _counts(counts, timeline)
    ceiling = _ceiling(timeline)
    _ours(ours, timeline, ceiling)
    _stock(stock, timeline, ceiling)
    stock.set_xlim(0, timeline.end)
    stock.xaxis.set_major_locator(plt.MultipleLocator(20 if timeline.end <= 240 else 60))
    stock.xaxis.set_major_formatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02d}")
    stock.tick_params(axis="x", pad=7)
    for mark in timeline.marks:
        for axes in (counts, ours, stock):
            axes.axvline(mark.at, color=INK, linewidth=0.9, linestyle=(0, (1, 2)))
        counts.text(mark.at + timeline.end * 0.008, counts.get_ylim()[1], mark.text, va="top", fontsize=9.5)
    return figure


def _counts(axes: "Axes", timeline: Timeline) -> None:
    needed = [tick.demand / timeline.high for tick in timeline.ticks]
    times = [*(tick.at for tick in timeline.ticks), timeline.end]
    axes.fill_between(times, 0, [*needed, needed[-1]], step="post", color=NEED_COLOUR, linewidth=0)
    for name, order in (("stock", 2), ("ours", 3)):
        _line(axes, timeline, _of(timeline, name, "serving"), COLOURS[name], **_DOTTED)
        _line(axes, timeline, _of(timeline, name, "replicas"), COLOURS[name], linewidth=2.6, zorder=order)
    replicas = {name: _of(timeline, name, "replicas") for name in COLOURS}
    top = max(max(count or 0 for count in counts) for counts in replicas.values()) + 1.5
    axes.set_ylim(0, top)
    _title(axes, "Replicas", "dotted: those that serve", "", INK)
    last = [
        (replicas["ours"][-1], "on effective load", COLOURS["ours"]),
        (replicas["stock"][-1], "stock CPU HPA", COLOURS["stock"]),
        (needed[-1], f"demand, in pods\nof {timeline.high}m each", SOFT),
    ]
    _labels(axes, last, gap=top * 0.12)


def _ours(axes: "Axes", timeline: Timeline, ceiling: float) -> None:
    axes.axhspan(timeline.low, timeline.high, color=BAND_COLOUR, linewidth=0)
    for level in (timeline.low, timeline.high):
        axes.axhline(level, color=BAND_EDGE, linewidth=0.9)
    raw = _of(timeline, "ours", "raw")
    _line(axes, timeline, raw, SOFT, linewidth=1.4)
    _loads(axes, timeline, "ours", ceiling, "On effective load")
    last = [
        (timeline.high, f"high watermark {timeline.high}m", GREEN),
        (timeline.low, f"low watermark {timeline.low}m", GREEN),
        (_of(timeline, "ours", "seen")[-1], "effective: what it sees", COLOURS["ours"]),
        (raw[-1], "raw: all running pods", SOFT),
    ]
    _labels(axes, last, gap=ceiling * 0.105)


def _stock(axes: "Axes", timeline: Timeline, ceiling: float) -> None:
    axes.axhspan(timeline.high * 0.9, timeline.high * 1.1, color=TOLERANCE_COLOUR, linewidth=0)
    axes.axhline(timeline.high, color=TOLERANCE_EDGE, linewidth=0.9)
    _loads(axes, timeline, "stock", ceiling, "Stock CPU HPA")
    last = [
        (timeline.high, f"target {timeline.high}m ± 10 %", COLOURS["stock"]),
        (_of(timeline, "stock", "seen")[-1], "average: what it sees", COLOURS["stock"]),
    ]
    _labels(axes, last, gap=ceiling * 0.105)
    blind = blind_period(timeline)
    if blind is not None:
        text = f"carries {blind.carried}m,\nsees {blind.seen}m, stays"
        axes.text((blind.since + blind.until) / 2, blind.seen * 0.84, text, ha="center", va="top", fontsize=9.5)


def _loads(axes: "Axes", timeline: Timeline, name: str, ceiling: float, title: str) -> None:
    _line(axes, timeline, _carried(timeline, name), INK, **_DOTTED)
    _line(axes, timeline, _of(timeline, name, "seen"), COLOURS[name], linewidth=2.6)
    for since, until in overloads(timeline, name):
        axes.axvspan(since, until, ymax=0.035, color=OVER_COLOUR, linewidth=0)
    axes.set_ylim(0, ceiling)
    axes.set_yticks(range(0, int(ceiling), 500))
    over = f"above {timeline.high}m for {summed(timeline, name).overloaded:.0f} s"
    _title(axes, title, _LOADS, over, COLOURS[name])


def _of(timeline: Timeline, name: str, figure: str) -> list[float | None]:
    return [getattr(side_of(tick, name), figure) for tick in timeline.ticks]


def _carried(timeline: Timeline, name: str) -> list[int | None]:
    return [tick.carried(side_of(tick, name)) for tick in timeline.ticks]


def _line(axes: "Axes", timeline: Timeline, values: Sequence[float | None], colour: str, **style: Any) -> None:
    """Steps, the last of which lasts until the end; None is a gap."""
    times = [*(tick.at for tick in timeline.ticks), timeline.end]
    heights = [float("nan") if value is None else value for value in (*values, values[-1])]
    axes.step(times, heights, where="post", color=colour, **style)


def _ceiling(timeline: Timeline) -> float:
    lines = [
        line
        for name in COLOURS
        for line in (_of(timeline, name, "seen"), _of(timeline, name, "raw"), _carried(timeline, name))
    ]
    return max([timeline.high * 1.4, *(load * 1.08 for line in lines for load in line if load)])


def _title(axes: "Axes", name: str, what: str, caption: str, colour: str) -> None:
    title = axes.text(0, 1.06, name, transform=axes.transAxes, fontsize=12, fontweight="bold", color=colour)
    axes.annotate(f"   {what}", (1, 0.08), xycoords=title, va="bottom", fontsize=9.5, color=SOFT)
    axes.text(1, 1.06, caption, transform=axes.transAxes, ha="right", fontsize=9.5, color=OVER_COLOUR)


def _labels(axes: "Axes", labels: list[tuple[float | None, str, str]], gap: float) -> None:
    """Labels at the lines' ends, each at least `gap` above the one below where lines end close together."""
    height = float("-inf")
    for value, text, colour in sorted(
        ((value, text, colour) for value, text, colour in labels if value is not None), key=lambda label: label[0]
    ):
        height = max(value, height + gap)
        axes.annotate(
            text, (1, height), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
            va="center", fontsize=9.5, color=colour, annotation_clip=False,
        )  # fmt: skip
