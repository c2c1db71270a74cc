"""Narrates the story as lines of text: a row of figures at each event, and the reasons beneath it.

Pure: a narrator takes ticks and events and returns lines. Loads are in millicores for each pod.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from adapter.load.quantity import nano_text, parse_quantity
from lab.demo.curve import Chapter
from lab.demo.objects import CALM_DOWN, FEWEST, MOST, OURS, PULLED_OUT, REPLACE_AFTER, STOCK
from lab.demo.timeline import Recovery, Side, Sum, Tick, Timeline, counts, overloaded, summed

_NANO = re.compile(r"(?<![\w.-])\d+[nu](?!\w)")
_INDENT = " " * 9
_WIDTH = 110
_HEARTBEAT = 20.0
_PATIENCE = 12.0
"""Seconds of continuous overload after which the narrator explains why the stock HPA does not act."""

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


@dataclass(frozen=True)
class Style:
    """Formats lines: plain, or with a terminal's escape sequences."""

    colour: bool = False

    def bold(self, text: str) -> str:
        return self._in("1", text)

    def dim(self, text: str) -> str:
        return self._in("2", text)

    def warn(self, text: str) -> str:
        return self._in("33", text)

    def good(self, text: str) -> str:
        return self._in("36", text)

    def _in(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colour else text


def clock(seconds: float) -> str:
    """Seconds as minutes and seconds: 75 → "1:15"."""
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02d}"


def milli(load: int | None) -> str:
    return "-" if load is None else f"{load}m"


def tidy(sentence: str) -> str:
    """A sentence with its quantities in whole milli-units: 1142857142n → 1143m."""

    def rounded(match: re.Match[str]) -> str:
        return nano_text(round(parse_quantity(match[0]) * 1000) * 10**6)

    return _NANO.sub(rounded, sentence)


def legend(timeline: Timeline) -> list[str]:
    """The description of both services, printed before the first row."""
    high, low, target = milli(timeline.high), milli(timeline.low), milli(timeline.target)
    return [
        f"{OURS:15} HPA on desired_replicas (tolerance 0) of a policy: high watermark {high}, low {low},",
        f"{'':15} a pod annotated {PULLED_OUT} for {REPLACE_AFTER} s is replaced",
        f"{STOCK:15} equal pods, equal load; HPA on CPU, averageValue {target}, default tolerance of 10 %",
        f"{'':15} both: {FEWEST} to {MOST} replicas, scale-down stabilized for {CALM_DOWN} s",
        "",
        "effective  the adapter's average CPU of serving pods; raw: of all running pods",
        "average    the stock HPA's metric; carries: the load of each of its serving pods",
    ]


def row(tick: Tick, timeline: Timeline) -> str:
    """One line of figures under HEAD."""
    ours, stock = tick.ours, tick.stock
    left = f"{ours.replicas:4} {_count(ours.out)} {milli(ours.seen):>10} {milli(ours.raw):>7}  {band(ours, timeline):8}"
    carried = tick.carried(stock)
    carries = "nobody" if carried is None else milli(carried)
    right = f"{stock.replicas:4} {_count(stock.out)} {milli(stock.seen):>8} {carries:>8}"
    over = " !" if overloaded(tick, stock, timeline.high) else ""
    return f" {clock(tick.at):>5} {milli(tick.demand):>8} │ {left} │ {right}{over}"


def band(side: Side, timeline: Timeline) -> str:
    """The effective average's place in the watermark band, with the policy's tolerance of 1 %."""
    if side.seen is None:
        return "no data"
    if side.seen > timeline.high * Fraction(101, 100):
        return "above"
    return "below" if side.seen < timeline.low * Fraction(99, 100) else "inside"


def _count(number: int) -> str:
    return f"{number:4}" if number else "   ·"


@dataclass
class Narrator:
    """Formats events as lines; remembers only the last row and the current overload, to avoid repetitions."""

    timeline: Timeline
    style: Style = field(default_factory=Style)
    _told: float | None = None
    _over_since: float | None = None
    _explained: bool = False

    def opening(self) -> list[str]:
        return [*legend(self.timeline), "", *(self.style.dim(line) for line in HEAD)]

    def narrate(self, tick: Tick, chapters: Sequence[Chapter] = (), rescales: Sequence[Rescale] = ()) -> list[str]:
        """The lines of one tick, empty if nothing has changed."""
        beneath = [*self._chapters(tick, chapters), *self._rescales(rescales), *self._stuck(tick)]
        if not beneath and not chapters and self._told is not None and tick.at - self._told < _HEARTBEAT:
            return []
        self._told = tick.at
        opened = [self.style.bold(f"\n{_INDENT}{chapter.title}") for chapter in chapters]
        return [*opened, row(tick, self.timeline), *beneath]

    def ending(self, tick: Tick) -> list[str]:
        """The final row, unless it was the last one printed."""
        return [] if self._told == tick.at else [row(tick, self.timeline)]

    def _chapters(self, tick: Tick, chapters: Sequence[Chapter]) -> Iterator[str]:
        for chapter in chapters:
            if chapter.pull_out:
                each = milli(tick.carried(tick.stock))
                yield f"{_INDENT}{chapter.pull_out} fewer pods share the demand: {each} for each of the others"

    def _rescales(self, rescales: Sequence[Rescale]) -> Iterator[str]:
        for one in rescales:
            step = f"{one.service}: {one.before} → {one.after}"
            paint = self.style.good if one.service == OURS else self.style.warn
            yield _INDENT + paint(self.style.bold(step)) + (f"   HPA: {one.message}" if one.message else "")
            for sentence in one.why:
                yield from (self.style.dim(line) for line in _wrapped(tidy(sentence)))

    def _stuck(self, tick: Tick) -> Iterator[str]:
        """Explains once, when the stock service's overload lasts, why its HPA does not act."""
        if not overloaded(tick, tick.stock, self.timeline.high):
            self._over_since, self._explained = None, False
            return
        self._over_since = tick.at if self._over_since is None else self._over_since
        side = tick.stock
        if self._explained or side.seen is None or tick.at - self._over_since < _PATIENCE:
            return
        if side.seen * 10 <= self.timeline.target * 11:
            self._explained = True
            yield _INDENT + self.style.warn(self.style.bold(f"{STOCK}: stays at {side.replicas}"))
            yield from (self.style.dim(line) for line in _wrapped(self._why_stuck(tick)))

    def _why_stuck(self, tick: Tick) -> str:
        side, target = tick.stock, self.timeline.target
        near = "within 10 % of" if side.seen is not None and side.seen * 10 >= target * 9 else "below"
        idle = f", {side.out} idle ones included" if side.out else ""
        metric = f"its HPA averages {milli(side.seen)} over {side.pods} pods{idle}: {near} its {milli(target)}"
        if not side.serving:
            return f"{metric}; none of them serves"
        each = f"each of the {side.serving} that serve carries" if side.serving > 1 else "the one that serves carries"
        return f"{metric}; {each} {milli(tick.carried(side))}"


def _wrapped(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, _WIDTH, initial_indent=f"{_INDENT}  ", subsequent_indent=f"{_INDENT}    ")


def closing(timeline: Timeline) -> list[str]:
    """The table at the end."""
    ours, stock = summed(timeline, "ours"), summed(timeline, "stock")
    rows = [(label, show(ours), show(stock)) for label, show in _lines(timeline)]
    width = max(len(label) for label, _, _ in rows)
    head = f"{'':{width}}   {'effective load':>16}   {'stock CPU HPA':>16}"
    rule = "─" * len(head)
    return [head, rule, *(f"{label:{width}}   {left:>16}   {right:>16}" for label, left, right in rows), rule]


def agree(model: Timeline, real: Timeline) -> bool:
    """Whether both services had the same counts in the model and on the control plane, in the same order."""
    return all(counts(model, name) == counts(real, name) for name in ("ours", "stock"))


def comparison(model: Timeline, real: Timeline) -> list[str]:
    """What the model said before, beside what the control plane did: the counts of each service in order."""
    lines = ["", "The counts, in the model and on the real control plane:"]
    for service, name in ((OURS, "ours"), (STOCK, "stock")):
        said, done = counts(model, name), counts(real, name)
        if said == done:
            lines.append(f"  {service:15} {_sequence(done)}   both the same")
        else:
            lines.append(f"  {service:15} model {_sequence(said)}, control plane {_sequence(done)}   DIFFERENT")
    if agree(model, real):
        return [*lines, "The model and the real HPA controller agree, count by count."]
    return [
        *lines,
        "They do not agree. On a busy machine samples and syncs come late, and a count may be added or skipped: run",
        "the demo again. If the difference stays, the model or the adapter is wrong; please report it.",
    ]


def _sequence(numbers: Sequence[int]) -> str:
    return " → ".join(str(number) for number in numbers) or "none"


def recovered(recovery: Recovery | None) -> str:
    """The recovery in short: its duration, or that demand fell."""
    if recovery is None:
        return "-"
    if recovery.seconds is None:
        return "never"
    return f"after {recovery.seconds:.0f} s" if recovery.by_itself else "when demand fell"


def _lines(timeline: Timeline) -> list[tuple[str, Callable[[Sum], str]]]:
    high = milli(timeline.high)
    return [
        (f"seconds with more than {high} for each serving pod", lambda s: f"{s.overloaded:.0f} s"),
        ("longest overload in a row", lambda s: f"{s.longest:.0f} s"),
        (f"after the pull-out, back under {high}", lambda s: recovered(s.recovery)),
        ("highest load of a serving pod", lambda s: "no pod served" if s.worst is None else milli(s.worst)),
        (f"demand beyond {high} a serving pod, core-seconds", lambda s: f"{s.excess:.0f}"),
        ("pod-minutes used", lambda s: f"{s.pod_minutes:.1f}"),
        ("rescales", lambda s: f"{s.rescales}"),
        ("replicas at the end", lambda s: f"{s.final}"),
    ]
