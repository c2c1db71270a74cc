"""A few shapes as SVG for light and dark pages: a picture has its own background and follows the reader's scheme."""

from collections.abc import Iterable
from html import escape

_LIGHT = {
    "paper": "#ffffff",
    "ink": "#1f2933",
    "soft": "#5b6875",
    "rule": "#cfd7de",
    "serve": "#2f8f78",
    "out": "#d5dbe1",
    "over": "#c2410c",
    "doubt": "#b7860b",
    "band": "#dff1ea",
    "edge": "#f2e3c6",
    "box": "#f3f6f8",
}
_DARK = {
    "paper": "#1b2229",
    "ink": "#e8edf2",
    "soft": "#a3b1be",
    "rule": "#43505c",
    "serve": "#43b499",
    "out": "#46525e",
    "over": "#ff8a4c",
    "doubt": "#e3b341",
    "band": "#203b35",
    "edge": "#4a3f26",
    "box": "#252e37",
}
_RULES = (
    "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;font-size:14px}"
    ".big{font-size:17px;font-weight:600}.bold{font-weight:600}.small{font-size:12px}"
    "line,path,polyline{fill:none;stroke-width:1.5}.thick{stroke-width:3}.thin{stroke-width:1}"
    ".dotted{stroke-dasharray:5 4}"
)


def document(width: int, height: int, title: str, shapes: Iterable[str]) -> str:
    """An SVG file; the title is what is read out in place of the picture."""
    dark = f"@media (prefers-color-scheme:dark){{{_colours(_DARK)}}}"
    inside = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img">\n<title>{escape(title)}</title>\n<style>{_RULES}{_colours(_LIGHT)}{dark}</style>\n'
        f'<rect class="paper-fill" width="{width}" height="{height}" rx="8"/>\n{inside}\n</svg>\n'
    )


def rect(x: float, y: float, width: float, height: float, colour: str, *, radius: float = 0) -> str:
    return f'<rect class="{colour}-fill" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'


def line(points: Iterable[tuple[float, float]], colour: str, more: str = "") -> str:
    at = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline class="{colour}-line {more}" points="{at}"/>'


def text(x: float, y: float, words: str, colour: str = "ink", more: str = "", *, anchor: str = "start") -> str:
    return f'<text class="{colour}-fill {more}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def _colours(scheme: dict[str, str]) -> str:
    return "".join(f".{name}-fill{{fill:{value}}}.{name}-line{{stroke:{value}}}" for name, value in scheme.items())
