"""Runs commands in a pseudo-terminal and draws what they print, with its colours, as SVG.

A recording shows its lines one after the other, in the rhythm in which they came; a reader who wants no animation, and
a viewer that knows none, sees all of them. What differs in each run (suffixes of pods' names, ports, temporary
folders) is written in one way, so that a difference between two pictures means something.
"""

import codecs
import errno
import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[3]
WIDTH = 120
"""Columns of the terminal."""
_ROWS = 60
_LONGEST = 60.0
_ENDING = 60.0
_PLAYED = 20.0
"""Seconds of the longest moving picture."""
_READ = 65_536
_POD = re.compile(r"\b((?:[a-z0-9]+-)+)([0-9a-f]{7,10})-([a-z0-9]{5})\b")
_PORT = re.compile(r"(127\.0\.0\.1|localhost):\d{4,5}")
_FOLDER = re.compile(r"(/tmp/effective-load-cluster)-\w+")
_NORMAL = ["1b2229", "f06054", "5fbe8c", "e3b341", "68a0eb", "c88cdc", "50bec8", "dee5ec"]
_BRIGHT = ["788794", "ff8070", "78d7a5", "f0c85f", "87b9fa", "dca5f0", "6ed7e1", "ffffff"]
# Like rich's own, without the fonts that it would load from elsewhere.
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 16px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


@dataclass
class Recording:
    """What a command printed: pieces of text with the seconds since the start of the recording."""

    pieces: list[tuple[float, str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(piece for _, piece in self.pieces)

    def listen(
        self, pieces: Iterable[str], seconds: float = _LONGEST, until: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Keeps pieces until they end, `until` is true of all text, or the time is over."""
        began = time.monotonic()
        for piece in pieces:
            self.pieces.append((time.monotonic() - began, piece))
            if until(self.text) or time.monotonic() - began > seconds:
                break

    def lines(self) -> list[tuple[float, str]]:
        """Each line, with the time when it was complete."""
        lines, rest, last = [], "", 0.0
        for at, piece in self.pieces:
            *whole, rest = (rest + piece).replace("\r\n", "\n").split("\n")
            lines += [(at, line.rsplit("\r", 1)[-1]) for line in whole]
            last = at
        return [*lines, (last, rest)] if rest else lines


def record(
    command: Sequence[str], environment: Mapping[str, str], seconds: float = _LONGEST, width: int = WIDTH
) -> Recording:
    """Runs a command in a pseudo-terminal until it ends or the time is over."""
    recording = Recording()
    with following(command, environment, width) as pieces:
        recording.listen(pieces, seconds)
    return recording


@contextmanager
def following(command: Sequence[str], environment: Mapping[str, str], width: int = WIDTH) -> Iterator[Iterator[str]]:
    """A running command, as an iterator over what it prints; it and its children are ended at the end of the block."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, width, 0, 0))
    shown = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(width), "LINES": str(_ROWS)}
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=inherited | shown | dict(environment),
        cwd=ROOT,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield _pieces(ours)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        _drain(ours, until=lambda: process.poll() is not None)
        os.close(ours)
        process.wait(_ENDING)


def _drain(terminal: int, until: Callable[[], bool]) -> None:
    """Reads what still comes: a process that cannot write would not end."""
    give_up = time.monotonic() + _ENDING
    for _ in _pieces(terminal):
        if until() or time.monotonic() > give_up:
            return


def _pieces(terminal: int) -> Iterator[str]:
    """What a terminal shows; an empty text after each second without anything."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        ready, _, _ = select.select([terminal], [], [], 1.0)
        try:
            data = os.read(terminal, _READ) if ready else b""
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return  # the command has closed its end
        if ready and not data:
            return
        yield decoder.decode(data)


def draw(
    name: str, command: str, lines: Sequence[tuple[float, str]], *, moving: bool = False, width: int = WIDTH
) -> str:
    """The SVG of a command and of the lines that it printed, each with its time; a moving picture plays them."""
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True, color_system="truecolor")
    times = []
    for at, line in [(0.0, Text.assemble(("$ ", "bold green"), (command, "bold"))), *_texts(lines)]:
        for row in line.wrap(console, width) or [Text()]:
            console.print(row, soft_wrap=True)
            times.append(at)
    title = shlex.split(command)[0]
    identity = "t-" + re.sub(r"[^a-z0-9]+", "-", name.lower())
    svg = console.export_svg(title=title, theme=_theme(), code_format=_FORMAT, unique_id=identity)
    return _played(svg, times) if moving else svg


@dataclass
class Steady:
    """Writes what differs in each run in one way: suffixes of pods' names by their first appearance, ports, folders."""

    names: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        text = _PORT.sub(r"\1:6443", _POD.sub(self._named, text))
        return _FOLDER.sub(r"\1", text).replace(f"{ROOT}/", "")

    def lines(self, lines: Iterable[tuple[float, str]]) -> list[tuple[float, str]]:
        return [(at, self.text(line)) for at, line in lines]

    def _named(self, match: re.Match[str]) -> str:
        return f"{match[1]}{match[2]}-{self.names.setdefault(match[3], f'pod{len(self.names) + 1:02d}')}"


def _theme() -> TerminalTheme:
    def colours(names: Sequence[str]) -> list[tuple[int, int, int]]:
        return [(int(name[:2], 16), int(name[2:4], 16), int(name[4:], 16)) for name in names]

    return TerminalTheme((27, 34, 41), (222, 229, 236), colours(_NORMAL), colours(_BRIGHT))


def _texts(lines: Iterable[tuple[float, str]]) -> Iterator[tuple[float, Text]]:
    return ((at, Text.from_ansi(line)) for at, line in lines)


def _played(svg: str, times: Sequence[float]) -> str:
    """Each line of the picture appears at its time; the whole lasts 20 s at most."""
    pace = min(1.0, _PLAYED / max(*times, 1.0))

    def late(match: re.Match[str]) -> str:
        at = times[min(int(match[2]), len(times) - 1)]
        return f'{match[0]} style="animation:shown .1s {at * pace:.1f}s both"' if at else match[0]

    played = re.sub(r'<text(?=[^>]*clip-path="url\(#([^"]*)-line-(\d+)\)")', late, svg)
    still = "@media (prefers-reduced-motion:reduce){text{animation:none!important}}"
    return played.replace("</style>", f"@keyframes shown{{from{{opacity:0}}to{{opacity:1}}}}{still}\n</style>", 1)
