"""Narrates the story as lines of text: a row of figures at each event, and the reasons beneath it.

Pure: a narrator takes ticks and events and returns lines. Loads are in millicores for each pod.
"""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from adapter.load.quantity import nano_text, parse_quantity
from lab.demo.curve import COUNTS, Chapter
from lab.demo.objects import CALM_DOWN, FEWEST, HIGH, LOW, MOST, OURS, PULLED_OUT, REPLACE_AFTER, STOCK
from lab.demo.timeline import Recovery, Side, Tick, Timeline, counts, overloaded, summed

_NANO = re.compile(r"(?<![\w.-])\d+[nu](?!\w)")
_INDENT = " " * 9
_HEARTBEAT = 20.0
_PATIENCE = 12.0
"""Seconds of continuous overload after which the narrator explains why the stock HPA does not act."""
BOLD, DIM, WARN, GOOD = "1", "2", "1;33", "1;36"
"""What a terminal shows a text in, by its escape sequence."""

LEGEND = f"""\
{OURS:15} HPA on desired_replicas (tolerance 0) of a policy: high watermark {HIGH}m, low {LOW}m,
{"":15} a pod annotated {PULLED_OUT} for {REPLACE_AFTER} s is replaced
{STOCK:15} equal pods, equal load; HPA on CPU, averageValue {HIGH}m, default tolerance of 10 %
{"":15} both: {FEWEST} to {MOST} replicas, scale-down stabilized for {CALM_DOWN} s

effective  the adapter's average CPU of serving pods; raw: of all running pods
average    the stock HPA's metric; carries: the load of each of its serving pods
"""
HEAD = (
    "                │  effective load                        │  stock CPU HPA",
    "  time   demand │ pods  out  effective     raw  band     │ pods  out  average  carries",
    "────────────────┼────────────────────────────────────────┼─────────────────────────────",
)


@dataclass(frozen=True)
class Rescale:
    """A change of a count by an HPA: the message of its event, and the adapter's reasons."""

    service: str
    before: int
    after: int
    message: str = ""
    why: Sequence[str] = ()


def tidy(sentence: str) -> str:
    """A sentence with its quantities in whole milli-units: 1142857142n → 1143m."""
    return _NANO.sub(lambda match: nano_text(round(parse_quantity(match[0]) * 1000) * 10**6), sentence)


def _row(tick: Tick) -> str:
    """One line of figures under HEAD."""
    ours, stock = tick.ours, tick.stock
    carried = tick.carried(stock)
    figures = f"{ours.replicas:4} {ours.out or '·':>4} {_milli(ours.seen):>10} {_milli(ours.raw):>7}  {_band(ours):8}"
    carries = "nobody" if carried is None else _milli(carried)
    right = f"{stock.replicas:4} {stock.out or '·':>4} {_milli(stock.seen):>8} {carries:>8}"
    over = " !" if overloaded(tick, stock, HIGH) else ""
    time = f"{int(tick.at) // 60}:{int(tick.at) % 60:02d}"
    return f" {time:>5} {_milli(tick.demand):>8} │ {figures} │ {right}{over}"


def _milli(load: int | None) -> str:
    return "-" if load is None else f"{load}m"


def _band(side: Side) -> str:
    """The effective average's place in the watermark band, with the policy's tolerance of 1 %."""
    if side.seen is None:
        return "no data"
    if side.seen > HIGH * Fraction(101, 100):
        return "above"
    return "below" if side.seen < LOW * Fraction(99, 100) else "inside"


@dataclass
class Narrator:
    """Formats events as lines; remembers only the last row and the current overload, to avoid repetitions."""

    colour: bool = False
    _told: float | None = None
    _over_since: float | None = None
    _explained: bool = False

    def opening(self) -> list[str]:
        return [*LEGEND.splitlines(), "", *(self._paint(DIM, line) for line in HEAD)]

    def narrate(self, tick: Tick, chapters: Sequence[Chapter] = (), rescales: Sequence[Rescale] = ()) -> list[str]:
        """The lines of one tick, empty if nothing has changed."""
        beneath = [*self._rescales(rescales), *self._stuck(tick)]
        for chapter in chapters:
            if chapter.pull_out:
                each = _milli(tick.carried(tick.stock))
                beneath.insert(
                    0, f"{_INDENT}{chapter.pull_out} fewer pods share the demand: {each} for each of the others"
                )
        if not beneath and not chapters and self._told is not None and tick.at - self._told < _HEARTBEAT:
            return []
        self._told = tick.at
        opened = [self._paint(BOLD, f"\n{_INDENT}{chapter.title}") for chapter in chapters]
        return [*opened, _row(tick), *beneath]

    def ending(self, tick: Tick) -> list[str]:
        """The final row, unless it was the last one printed."""
        return [] if self._told == tick.at else [_row(tick)]

    def _paint(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colour else text

    def _rescales(self, rescales: Sequence[Rescale]) -> Iterator[str]:
        for rescale in rescales:
            step = f"{rescale.service}: {rescale.before} → {rescale.after}"
            message = f"   HPA: {rescale.message}" if rescale.message else ""
            yield _INDENT + self._paint(GOOD if rescale.service == OURS else WARN, step) + message
            for sentence in rescale.why:
                yield from self._wrapped(tidy(sentence))

    def _stuck(self, tick: Tick) -> Iterator[str]:
        """Explains once, when the stock service's overload lasts, why its HPA does not act."""
        if not overloaded(tick, tick.stock, HIGH):
            self._over_since, self._explained = None, False
            return
        self._over_since = tick.at if self._over_since is None else self._over_since
        side = tick.stock
        if self._explained or side.seen is None or tick.at - self._over_since < _PATIENCE or side.seen * 10 > HIGH * 11:
            return
        self._explained = True
        near = "within 10 % of" if side.seen * 10 >= HIGH * 9 else "below"
        idle = f", {side.out} idle ones included" if side.out else ""
        each = f"each of the {side.serving} that serve carries" if side.serving > 1 else "the one that serves carries"
        carries = f"{each} {_milli(tick.carried(side))}" if side.serving else "none of them serves"
        yield _INDENT + self._paint(WARN, f"{STOCK}: stays at {side.replicas}")
        yield from self._wrapped(
            f"its HPA averages {_milli(side.seen)} over {side.pods} pods{idle}: {near} its {HIGH}m; {carries}"
        )

    def _wrapped(self, sentence: str) -> Iterator[str]:
        for line in textwrap.wrap(sentence, 110, initial_indent=f"{_INDENT}  ", subsequent_indent=f"{_INDENT}    "):
            yield self._paint(DIM, line)


def closing(timeline: Timeline) -> list[str]:
    """The table at the end."""
    ours, stock = (_totals(timeline, name) for name in ("ours", "stock"))
    width = max(map(len, ours))
    head = f"{'':{width}}   {'effective load':>16}   {'stock CPU HPA':>16}"
    rule = "─" * len(head)
    return [head, rule, *(f"{label:{width}}   {ours[label]:>16}   {stock[label]:>16}" for label in ours), rule]


def _totals(timeline: Timeline, name: str) -> dict[str, str]:
    total = summed(timeline, name)
    return {
        f"seconds with more than {HIGH}m for each serving pod": f"{total.overloaded:.0f} s",
        f"after the pull-out, back under {HIGH}m": _recovered(total.recovery),
        "highest load of a serving pod": "no pod served" if total.worst is None else _milli(total.worst),
        "pod-minutes used": f"{total.pod_minutes:.1f}",
        "rescales": f"{total.rescales}",
        "replicas at the end": f"{total.final}",
    }


def _recovered(recovery: Recovery | None) -> str:
    """The recovery in short: its duration, or that demand fell."""
    if recovery is None:
        return "-"
    if recovery.seconds is None:
        return "never"
    return f"after {recovery.seconds:.0f} s" if recovery.by_itself else "when demand fell"


def agree(timeline: Timeline) -> bool:
    """Whether both services had the counts of the story, in its order."""
    return all(counts(timeline, name) == expected for name, expected in COUNTS.items())


def comparison(timeline: Timeline) -> list[str]:
    """The counts of each service in order, beside those that follow from the load."""
    lines = ["", "The counts:"]
    for service, (name, expected) in zip((OURS, STOCK), COUNTS.items(), strict=True):
        done, wanted = (" → ".join(map(str, found)) for found in (counts(timeline, name), expected))
        lines.append(f"  {service:15} {done}" + ("" if done == wanted else f"   DIFFERENT: expected {wanted}"))
    if agree(timeline):
        return [*lines, "They are those that follow from the load, count by count."]
    return [
        *lines,
        "On a busy machine samples and syncs come late, and a count may be added or skipped: run the demo again.",
        "If the difference stays, please report it.",
    ]
