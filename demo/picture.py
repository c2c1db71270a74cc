"""The timeline as a picture: what each HPA set, what each one saw, and what the serving pods had to carry.

The data of the picture is pure; `draw` alone knows matplotlib. The same timeline gives the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.sharing import share
from demo.timeline import Mark, Side, Timeline, lasting, side_of, summed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, GRID = "#1f2933", "#6b7785", "#e6eaee"
OURS_COLOUR, STOCK_COLOUR, NEED_COLOUR = "#0b6fb8", "#d9661f", "#d5dbe1"
BAND_COLOUR, OVER_COLOUR = "#e3f1e5", "#c62f3b"
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
    """When its serving pods carried more than the high watermark: (from, until)."""


@dataclass(frozen=True)
class Picture:
    """Everything that is drawn. `needed` is the demand in serving pods at the high watermark each."""

    times: Sequence[float]
    needed: Sequence[float]
    ours: Track
    stock: Track
    marks: tuple[Mark, ...]
    high: int
    low: int
    end: float
    captions: tuple[str, str]


def picture(timeline: Timeline) -> Picture:
    """What the timeline's picture shows; every line goes on to the end. Raises ValueError for an empty timeline."""
    if not timeline.ticks:
        raise ValueError("nothing was seen, so there is nothing to draw")
    times = [tick.at for tick in timeline.ticks]
    return Picture(
        times=(*times, timeline.end),
        needed=_held([float(Fraction(tick.demand, timeline.high)) for tick in timeline.ticks]),
        ours=_track(timeline, "ours"),
        stock=_track(timeline, "stock"),
        marks=tuple(timeline.marks),
        high=timeline.high,
        low=timeline.low,
        end=timeline.end,
        captions=(_caption(timeline, "ours"), _caption(timeline, "stock")),
    )


def _track(timeline: Timeline, name: str) -> Track:
    sides = [side_of(tick, name) for tick in timeline.ticks]
    return Track(
        replicas=_held([side.replicas for side in sides]),
        serving=_held([side.serving for side in sides]),
        seen=_held([side.seen for side in sides]),
        raw=_held([side.raw for side in sides]),
        carried=_held([share(tick.demand, side_of(tick, name).serving) for tick in timeline.ticks]),
        over=_stretches(timeline, name),
    )


def _held(values: Sequence[Any]) -> Sequence[Any]:
    """The last value once more: lines are steps, and the last step lasts until the end."""
    return (*values, values[-1])


def _stretches(timeline: Timeline, name: str) -> tuple[tuple[float, float], ...]:
    found: list[tuple[float, float]] = []
    for tick, seconds in lasting(timeline):
        side: Side = side_of(tick, name)
        if tick.demand <= side.serving * timeline.high:
            continue
        if found and found[-1][1] == tick.at:
            found[-1] = (found[-1][0], tick.at + seconds)
        else:
            found.append((tick.at, tick.at + seconds))
    return tuple(found)


def _caption(timeline: Timeline, name: str) -> str:
    account = summed(timeline, name)
    return f"{account.overloaded:.0f} s above {timeline.high}m · {account.pod_minutes:.1f} pod-minutes"


# -- drawing


def draw(shown: Picture, *paths: Path) -> None:
    """Writes the picture; the suffix of each path says as what (svg, png)."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    style: Any = {
        "svg.hashsalt": "effective-load",  # or every run would name its clip paths anew
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "axes.edgecolor": GRID,
        "text.color": INK,
        "axes.labelcolor": SOFT,
        "xtick.color": SOFT,
        "ytick.color": SOFT,
    }
    with mpl.rc_context(style):
        figure = _figure(plt, shown)
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
            figure.savefig(path, dpi=150, metadata=metadata, facecolor="white")
        plt.close(figure)


def _figure(plt: Any, shown: Picture) -> "Figure":
    figure: Figure
    figure, (counts, ours, stock) = plt.subplots(
        3, 1, figsize=(10, 9.2), sharex=True, gridspec_kw={"height_ratios": [1.25, 1, 1], "hspace": 0.42}
    )
    figure.subplots_adjust(left=0.075, right=0.835, top=0.9, bottom=0.06)
    figure.text(0.075, 0.965, "The same load, the same pull-out, two HPAs", fontsize=15, fontweight="bold")
    _counts(counts, shown)
    ceiling = _ceiling(shown)
    _loads(ours, shown, shown.ours, ceiling, OURS_COLOUR)
    _loads(stock, shown, shown.stock, ceiling, STOCK_COLOUR)
    _title(ours, "HPA on effective load", "CPU a pod, millicores: what it sees", shown.captions[0], OURS_COLOUR)
    _title(stock, "Stock CPU HPA", "CPU a pod, millicores: what it sees", shown.captions[1], STOCK_COLOUR)
    stock.set_xlabel("time, minutes:seconds")
    stock.set_xlim(0, shown.end)
    stock.xaxis.set_major_locator(plt.MultipleLocator(20 if shown.end <= 240 else 60))
    stock.xaxis.set_major_formatter(lambda value, _: f"{int(value) // 60}:{int(value) % 60:02d}")
    _marks((counts, ours, stock), shown)
    return figure


def _counts(axes: "Axes", shown: Picture) -> None:
    axes.fill_between(shown.times, 0, shown.needed, step="post", color=NEED_COLOUR, linewidth=0)
    for track, colour, order in ((shown.stock, STOCK_COLOUR, 2), (shown.ours, OURS_COLOUR, 3)):
        axes.step(shown.times, _gaps(track.serving), where="post", color=colour, linewidth=1.1, linestyle=(0, (2, 2)))
        axes.step(shown.times, _gaps(track.replicas), where="post", color=colour, linewidth=2.4, zorder=order)
    top = max(count or 0 for track in (shown.ours, shown.stock) for count in track.replicas)
    axes.set_ylim(0, top + 1.5)
    _plain(axes)
    _title(axes, "Replicas", "dotted: those of them that serve", "", INK)
    _labels(
        axes,
        [
            (shown.ours.replicas[-1], "effective load", OURS_COLOUR),
            (shown.stock.replicas[-1], "stock CPU HPA", STOCK_COLOUR),
            (shown.needed[-1], f"demand, in pods\nof {shown.high}m each", SOFT),
        ],
        gap=(top + 1.5) * 0.085,
    )


def _loads(axes: "Axes", shown: Picture, track: Track, ceiling: float, colour: str) -> None:
    axes.axhspan(shown.low, shown.high, color=BAND_COLOUR, linewidth=0)
    for since, until in track.over:
        axes.axvspan(since, until, ymax=0.035, color=OVER_COLOUR, linewidth=0)
    for level in (shown.low, shown.high):
        axes.axhline(level, color="#7fb089", linewidth=0.8)
    axes.step(shown.times, _gaps(track.carried), where="post", color=INK, linewidth=1.1, linestyle=(0, (2, 2)))
    if any(value is not None for value in track.raw):
        axes.step(shown.times, _gaps(track.raw), where="post", color=SOFT, linewidth=1.3)
    axes.step(shown.times, _gaps(track.seen), where="post", color=colour, linewidth=2.4)
    axes.set_ylim(0, ceiling)
    _plain(axes)


def _gaps(values: Numbers) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _ceiling(shown: Picture) -> float:
    tracks = (shown.ours, shown.stock)
    loads = [load for track in tracks for line in (track.seen, track.carried, track.raw) for load in line if load]
    return max([shown.high * 1.4, *(load * 1.1 for load in loads)])


def _plain(axes: "Axes") -> None:
    axes.grid(axis="y", color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _title(axes: "Axes", name: str, what: str, caption: str, colour: str) -> None:
    title = axes.text(0, 1.07, name, transform=axes.transAxes, fontsize=11.5, fontweight="bold", color=colour)
    axes.annotate(f"  {what}", (1, 0), xycoords=title, va="bottom", fontsize=9.5, color=SOFT)
    axes.text(1, 1.07, caption, transform=axes.transAxes, ha="right", fontsize=9.5, color=INK)


def _labels(axes: "Axes", labels: list[tuple[float | None, str, str]], gap: float) -> None:
    """Names at the lines' ends, moved apart where lines end close together."""
    placed: list[float] = []
    for value, text, colour in sorted(labels, key=lambda label: label[0] or 0):
        height = max([value or 0, *(other + gap for other in placed[-1:])])
        placed.append(height)
        axes.annotate(
            text, (1, height), xycoords=("axes fraction", "data"), xytext=(8, 0), textcoords="offset points",
            va="center", fontsize=9.5, color=colour, annotation_clip=False,
        )  # fmt: skip


def _marks(rows: Sequence["Axes"], shown: Picture) -> None:
    for mark in shown.marks:
        for axes in rows:
            axes.axvline(mark.at, color=INK, linewidth=0.9, linestyle=(0, (1, 2)))
        rows[0].text(mark.at + shown.end * 0.008, rows[0].get_ylim()[1], mark.text, va="top", fontsize=9.5)
