"""Draws the timeline: each HPA's counts and metric, and the load of the serving pods.

The picture's data is pure; only `draw` uses matplotlib. The same timeline gives the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.demo.sharing import share
from lab.demo.timeline import Mark, Side, Timeline, lasting, side_of, summed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID = "#1f2933", "#6b7785", "#e6eaee"
OURS_COLOUR, STOCK_COLOUR, NEED_COLOUR = "#0b6fb8", "#d9661f", "#d5dbe1"
BAND_COLOUR, BAND_EDGE, GREEN = "#e3f1e5", "#7fb089", "#3d7d4b"
TOLERANCE_COLOUR, TOLERANCE_EDGE, OVER_COLOUR = "#fbe8dc", "#eab08c", "#c62f3b"
Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Track:
    """One service's lines: counts of pods, and loads in millicores a pod. None is a gap."""

    replicas: Numbers
    serving: Numbers
    seen: Numbers
    raw: Numbers
    carried: Numbers
    over: tuple[tuple[float, float], ...]
    """Periods in which its serving pods carried more than the high watermark: (from, until)."""


@dataclass(frozen=True)
class BlindPeriod:
    """The longest overload after a mark during which the stock HPA's average did not exceed its target."""

    since: float
    until: float
    seen: int
    carried: int


@dataclass(frozen=True)
class Picture:
    """The picture's data. `needed` is the demand in serving pods at the high watermark each."""

    times: Sequence[float]
    needed: Sequence[float]
    ours: Track
    stock: Track
    marks: tuple[Mark, ...]
    high: int
    low: int
    end: float
    captions: tuple[str, str]
    blind: BlindPeriod | None = None


def picture(timeline: Timeline) -> Picture:
    """The picture's data from a timeline; every line extends to the end. Raises ValueError for an empty timeline."""
    if not timeline.ticks:
        raise ValueError("the timeline has no tick, so there is nothing to draw")
    times = [tick.at for tick in timeline.ticks]
    return Picture(
        times=(*times, timeline.end),
        needed=_extended([float(Fraction(tick.demand, timeline.high)) for tick in timeline.ticks]),
        ours=_track(timeline, "ours"),
        stock=_track(timeline, "stock"),
        marks=tuple(timeline.marks),
        high=timeline.high,
        low=timeline.low,
        end=timeline.end,
        captions=(_caption(timeline, "ours"), _caption(timeline, "stock")),
        blind=_longest_blind_period(timeline),
    )


def _longest_blind_period(timeline: Timeline) -> BlindPeriod | None:
    longest: BlindPeriod | None = None
    since = timeline.marks[0].at if timeline.marks else timeline.end
    for start, end in _stretches(timeline, "stock"):
        ticks = [tick for tick in timeline.ticks if max(start, since) <= tick.at < end and tick.stock.seen is not None]
        settled = ticks[len(ticks) // 2] if ticks else None
        if settled is None or settled.stock.seen is None or settled.stock.seen > timeline.target:
            continue
        blind = BlindPeriod(max(start, since), end, settled.stock.seen, settled.carried(settled.stock) or 0)
        if longest is None or blind.until - blind.since > longest.until - longest.since:
            longest = blind
    return longest


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """Rising heights, each moved up to be at least `gap` above the one below."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + gap) if placed else height)
    return placed


def _track(timeline: Timeline, name: str) -> Track:
    sides = [side_of(tick, name) for tick in timeline.ticks]
    return Track(
        replicas=_extended([side.replicas for side in sides]),
        serving=_extended([side.serving for side in sides]),
        seen=_extended([side.seen for side in sides]),
        raw=_extended([side.raw for side in sides]),
        carried=_extended([share(tick.demand, side_of(tick, name).serving) for tick in timeline.ticks]),
        over=_stretches(timeline, name),
    )


def _extended(values: Sequence[Any]) -> Sequence[Any]:
    """Repeats the last value: lines are steps, and the last step lasts until the end."""
    return (*values, values[-1])


def _stretches(timeline: Timeline, name: str) -> tuple[tuple[float, float], ...]:
    stretches: list[tuple[float, float]] = []
    for tick, seconds in lasting(timeline):
        side: Side = side_of(tick, name)
        if tick.demand <= side.serving * timeline.high:
            continue
        if stretches and stretches[-1][1] == tick.at:
            stretches[-1] = (stretches[-1][0], tick.at + seconds)
        else:
            stretches.append((tick.at, tick.at + seconds))
    return tuple(stretches)


def _caption(timeline: Timeline, name: str) -> str:
    account = summed(timeline, name)
    return f"above {timeline.high}m for {account.overloaded:.0f} s"


# -- drawing


def draw(data: Picture, *paths: Path) -> None:
    """Writes the picture; each path's suffix selects the format (svg, png)."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(_STYLE):
        figure = _figure(plt, data)
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, dpi=150, metadata=metadata, facecolor="white")
        plt.close(figure)


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

_CARRIED = "dotted: what a serving pod carries"


def _figure(plt: Any, data: Picture) -> "Figure":
    figure: Figure
    figure, (counts, ours, stock) = plt.subplots(
        3, 1, figsize=(10, 9.4), sharex=True, gridspec_kw={"height_ratios": [1.2, 1, 1], "hspace": 0.36}
    )
    figure.subplots_adjust(left=0.055, right=0.83, top=0.875, bottom=0.06)
    figure.text(0.055, 0.965, "Same load, same pull-out, two HPAs", fontsize=16, fontweight="bold")
    subtitle = (
        f"A stock kube-controller-manager, two equal services: a policy with watermarks {data.low}m and {data.high}m,"
        f" and a CPU target of {data.high}m."
    )
    figure.text(0.055, 0.938, subtitle, fontsize=9.5, color=SOFT)
    _counts(counts, data)
    ceiling = _ceiling(data)
    _ours(ours, data, ceiling)
    _stock(stock, data, ceiling)
    stock.set_xlim(0, data.end)
    stock.xaxis.set_major_locator(plt.MultipleLocator(20 if data.end <= 240 else 60))
    stock.xaxis.set_major_formatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02d}")
    stock.tick_params(axis="x", pad=7)
    _marks((counts, ours, stock), data)
    return figure


def _counts(axes: "Axes", data: Picture) -> None:
    axes.fill_between(data.times, 0, data.needed, step="post", color=NEED_COLOUR, linewidth=0)
    for track, colour, order in ((data.stock, STOCK_COLOUR, 2), (data.ours, OURS_COLOUR, 3)):
        axes.step(data.times, _gaps(track.serving), where="post", color=colour, **_DOTTED)
        axes.step(data.times, _gaps(track.replicas), where="post", color=colour, linewidth=2.6, zorder=order)
    top = max(count or 0 for track in (data.ours, data.stock) for count in track.replicas) + 1.5
    axes.set_ylim(0, top)
    _plain(axes)
    _title(axes, "Replicas", "dotted: those that serve", "", INK)
    last = [
        (data.ours.replicas[-1], "on effective load", OURS_COLOUR),
        (data.stock.replicas[-1], "stock CPU HPA", STOCK_COLOUR),
        (data.needed[-1], f"demand, in pods\nof {data.high}m each", SOFT),
    ]
    _labels(axes, last, gap=top * 0.12)


def _ours(axes: "Axes", data: Picture, ceiling: float) -> None:
    axes.axhspan(data.low, data.high, color=BAND_COLOUR, linewidth=0)
    for level in (data.low, data.high):
        axes.axhline(level, color=BAND_EDGE, linewidth=0.9)
    axes.step(data.times, _gaps(data.ours.raw), where="post", color=SOFT, linewidth=1.4)
    _loads(axes, data, data.ours, ceiling, OURS_COLOUR)
    _title(axes, "On effective load", f"CPU a pod, millicores; {_CARRIED}", data.captions[0], OURS_COLOUR)
    last = [
        (data.high, f"high watermark {data.high}m", GREEN),
        (data.low, f"low watermark {data.low}m", GREEN),
        (data.ours.seen[-1], "effective: what it sees", OURS_COLOUR),
        (data.ours.raw[-1], "raw: all running pods", SOFT),
    ]
    _labels(axes, last, gap=ceiling * 0.105)


def _stock(axes: "Axes", data: Picture, ceiling: float) -> None:
    axes.axhspan(data.high * 0.9, data.high * 1.1, color=TOLERANCE_COLOUR, linewidth=0)
    axes.axhline(data.high, color=TOLERANCE_EDGE, linewidth=0.9)
    _loads(axes, data, data.stock, ceiling, STOCK_COLOUR)
    _title(axes, "Stock CPU HPA", f"CPU a pod, millicores; {_CARRIED}", data.captions[1], STOCK_COLOUR)
    last = [
        (data.high, f"target {data.high}m ± 10 %", STOCK_COLOUR),
        (data.stock.seen[-1], "average: what it sees", STOCK_COLOUR),
    ]
    _labels(axes, last, gap=ceiling * 0.105)
    if data.blind is not None:
        middle = (data.blind.since + data.blind.until) / 2
        text = f"carries {data.blind.carried}m,\nsees {data.blind.seen}m, stays"
        axes.text(middle, data.blind.seen * 0.84, text, ha="center", va="top", fontsize=9.5)


def _loads(axes: "Axes", data: Picture, track: Track, ceiling: float, colour: str) -> None:
    axes.step(data.times, _gaps(track.carried), where="post", color=INK, **_DOTTED)
    axes.step(data.times, _gaps(track.seen), where="post", color=colour, linewidth=2.6)
    for since, until in track.over:
        axes.axvspan(since, until, ymax=0.035, color=OVER_COLOUR, linewidth=0)
    axes.set_ylim(0, ceiling)
    axes.set_yticks(range(0, int(ceiling), 500))
    _plain(axes)


def _gaps(values: Numbers) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _ceiling(data: Picture) -> float:
    tracks = (data.ours, data.stock)
    loads = [load for track in tracks for line in (track.seen, track.carried, track.raw) for load in line if load]
    return max([data.high * 1.4, *(load * 1.08 for load in loads)])


def _plain(axes: "Axes") -> None:
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _title(axes: "Axes", name: str, what: str, caption: str, colour: str) -> None:
    title = axes.text(0, 1.06, name, transform=axes.transAxes, fontsize=12, fontweight="bold", color=colour)
    axes.annotate(f"   {what}", (1, 0.08), xycoords=title, va="bottom", fontsize=9.5, color=SOFT)
    axes.text(1, 1.06, caption, transform=axes.transAxes, ha="right", fontsize=9.5, color=OVER_COLOUR)


def _labels(axes: "Axes", labels: list[tuple[float | None, str, str]], gap: float) -> None:
    """Labels at the lines' ends, moved apart where lines end close together."""
    known = sorted(((value, text, colour) for value, text, colour in labels if value is not None), key=lambda x: x[0])
    for height, (_, text, colour) in zip(apart([value for value, _, _ in known], gap), known, strict=True):
        axes.annotate(
            text, (1, height), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
            va="center", fontsize=9.5, color=colour, annotation_clip=False,
        )  # fmt: skip


def _marks(rows: Sequence["Axes"], data: Picture) -> None:
    for mark in data.marks:
        for axes in rows:
            axes.axvline(mark.at, color=INK, linewidth=0.9, linestyle=(0, (1, 2)))
        rows[0].text(mark.at + data.end * 0.008, rows[0].get_ylim()[1], mark.text, va="top", fontsize=9.5)
