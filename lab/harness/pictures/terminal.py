"""Runs commands in a pseudo-terminal and draws what they print, with its colours, as SVG.

A recording shows its lines one after the other, in the rhythm in which they came; a reader who wants no animation, and
a viewer that knows none, sees all of them. What differs in each run (suffixes of pods' names, ports, temporary
folders) is written in one way, so that a difference between two pictures means something.
"""

import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
_ENDING = 60.0
_PLAYED = 20.0
"""Seconds of the longest moving picture."""
_POD = re.compile(r"\b((?:[a-z0-9]+-)+)([0-9a-f]{7,10})-([a-z0-9]{5})\b")
_PORT = re.compile(r"(127\.0\.0\.1|localhost):\d{4,5}")
_FOLDER = re.compile(r"(/tmp/effective-load-cluster)-\w+")
_NORMAL = ("1b2229", "f06054", "5fbe8c", "e3b341", "68a0eb", "c88cdc", "50bec8", "dee5ec")
_BRIGHT = ("788794", "ff8070", "78d7a5", "f0c85f", "87b9fa", "dca5f0", "6ed7e1", "ffffff")
_THEME = TerminalTheme(
    (27, 34, 41),
    (222, 229, 236),
    *([tuple(bytes.fromhex(colour)) for colour in colours] for colours in (_NORMAL, _BRIGHT)),
)
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


Lines = Sequence[tuple[float, str]]
"""What a command printed: each line with the second in which it was complete."""


@contextmanager
def printing(
    command: str, environment: Mapping[str, str], *, width: int = WIDTH, seconds: float = 60.0
) -> Iterator[Iterator[tuple[float, str]]]:
    """A command in a terminal, as an iterator over its lines; it is ended with the block, or when the time is over."""
    shown = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(width), "LINES": str(_ROWS)}
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    # util-linux' `script` gives the command a terminal.
    process = subprocess.Popen(
        ["script", "-qefc", f"stty cols {width} rows {_ROWS}; {command}", "/dev/null"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=inherited | shown | dict(environment),
        cwd=ROOT,
        start_new_session=True,
    )
    began, over = time.monotonic(), threading.Timer(seconds, process.terminate)
    over.start()
    try:
        yield (
            (time.monotonic() - began, line.decode(errors="replace").rstrip("\r\n").rsplit("\r", 1)[-1])
            for line in process.stdout or ()
        )
    finally:
        over.cancel()
        try:
            process.communicate(b"\x03", timeout=_ENDING)  # Ctrl-C
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            raise


def draw(name: str, command: str, lines: Lines, *, moving: bool = False, width: int = WIDTH) -> str:
    """The SVG of a command and of the lines that it printed, each with its time; a moving picture plays them."""
    console = Console(record=True, width=width, file=StringIO(), force_terminal=True, color_system="truecolor")
    prompt = Text.assemble(("$ ", "bold green"), (command, "bold"))
    times = []
    for at, text in [(0.0, prompt), *((at, Text.from_ansi(line)) for at, line in lines)]:
        for row in text.wrap(console, width) or [Text()]:
            console.print(row, soft_wrap=True)
            times.append(at)
    identity = "t-" + re.sub(r"[^a-z0-9]+", "-", name.lower())
    title = shlex.split(command)[0]
    svg = console.export_svg(title=title, theme=_THEME, code_format=_FORMAT, unique_id=identity)
    return _played(svg, times) if moving else svg


@dataclass
class Steady:
    """Writes what differs in each run in one way: suffixes of pods' names by their first appearance, ports, folders."""

    names: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        def named(match: re.Match[str]) -> str:
            return f"{match[1]}{match[2]}-{self.names.setdefault(match[3], f'pod{len(self.names) + 1:02d}')}"

        text = _PORT.sub(r"\1:6443", _POD.sub(named, text))
        return _FOLDER.sub(r"\1", text).replace(f"{ROOT}/", "")


def _played(svg: str, times: Sequence[float]) -> str:
    """Each line of the picture appears at its time; the whole lasts 20 s at most."""
    pace = min(1.0, _PLAYED / max(*times, 1.0))

    def late(match: re.Match[str]) -> str:
        at = times[min(int(match[2]), len(times) - 1)]
        return f'{match[0]} style="animation:shown .1s {at * pace:.1f}s both"' if at else match[0]

    played = re.sub(r'<text(?=[^>]*clip-path="url\(#([^"]*)-line-(\d+)\)")', late, svg)
    still = "@media (prefers-reduced-motion:reduce){text{animation:none!important}}"
    return played.replace("</style>", f"@keyframes shown{{from{{opacity:0}}to{{opacity:1}}}}{still}\n</style>", 1)
