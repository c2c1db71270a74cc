"""HTML that is escaped by construction, the document around it, which loads and sends nothing, and figures for people.

Everything is inline. The document's content policy admits only the styles and the script whose hashes it names, so
that text from a policy cannot run even if an escape were missing.
"""

import base64
import hashlib
import html
import json
from collections.abc import Iterable
from importlib import resources
from itertools import dropwhile, islice
from pathlib import Path

from adapter.runtime.faults import Fault, FaultyDocument

LIBRARY_VERSION = "1.6.32"
LIBRARY = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uPlot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""The unmodified files of the published uPlot package, with their SHA-256."""

_IN_JSON = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})
_VOID = {"meta", "br", "input"}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
NOT_KNOWN = "–"


class Html(str):
    """Markup; a plain string is text and is escaped where it becomes part of markup."""

    __slots__ = ()


def tag(name: str, /, *children: str | Iterable[str], **attributes: str | bool | None) -> Html:
    """An element. Strings are escaped unless they are Html. An attribute's `_` at the end is dropped, within it is `-`.

    An attribute that is None or False is left away, one that is True has no value.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        parts.append(f" {attribute}" if value is True else f' {attribute}="{html.escape(str(value))}"')
    parts.append(">")
    if name in _VOID:
        return Html("".join(parts))
    return Html(f"{''.join(parts)}{join(children)}</{name}>")


def join(children: Iterable[str | Iterable[str]]) -> Html:
    """Markup of several children, one after the other."""
    return Html(
        "".join(
            child if isinstance(child, Html) else html.escape(child) if isinstance(child, str) else join(child)
            for child in children
        )
    )


def document(title: str, body: Html, data: object) -> str:
    """The whole page. `data` is what the charts draw, as JSON data."""
    names = ("uPlot.min.css", "page.css", "uPlot.LICENSE", "uPlot.iife.min.js", "page.js")
    assets = resources.files(__package__).joinpath("assets")
    library, styles, licence, *scripts = (assets.joinpath(name).read_text(encoding="utf-8") for name in names)
    style = f"{library}\n{styles}"
    script = "\n".join([f"/*! uPlot {LIBRARY_VERSION}\n{licence.strip()}\n*/", *scripts])
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        Html('<link rel="icon" href="data:,">'),
        tag("title", title),
        tag("style", Html(style)),
    )
    payload = tag("script", Html(embedded(data)), type="application/json", id="data")
    page = tag("html", head, tag("body", body, payload, tag("script", Html(script))), lang="en")
    return f"<!doctype html>\n{page}\n"


def write_text(file: str, page: str) -> None:
    """Write a page to the file of `--html`. Raises FaultyDocument where that fails."""
    try:
        Path(file).write_text(page, encoding="utf-8")
    except OSError as error:
        raise FaultyDocument([Fault("--html", file, f"cannot be written: {error.strerror}")], "no page") from error


def embedded(data: object) -> str:
    """JSON that is safe within a script element: nothing in it can end the element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_IN_JSON)


def _hash(content: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}"


def duration_text(seconds: float) -> str:
    """A duration by its two largest units: 5 h 40 min; 0 min for none."""
    rest = round(seconds)
    parts = []
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        parts.append((count, unit))
    largest = islice(dropwhile(lambda part: part[0] == 0, parts), 2)
    return " ".join(f"{count} {unit}" for count, unit in largest if count) or "0 min"


def count_text(value: float) -> str:
    """A number with thousands separated; below 100 with one digit after the point, where it has one."""
    short = round(value, 1 if abs(value) < 100 else 0)
    return f"{short:,.0f}" if float(short).is_integer() else f"{short:,.1f}"


def share_text(share: float | None) -> str:
    """A share as percent; a small one is never shown as nothing."""
    if share is None:
        return NOT_KNOWN
    return "< 0.01 %" if 0 < share < 0.0001 else f"{100 * share:.3g} %"


def change_text(value: float, before: float) -> str:
    """How much more or less than before, in percent with its sign."""
    if before == 0:
        return "±0 %" if value == 0 else NOT_KNOWN
    change = round(100 * (value / before - 1), 1)
    return "±0 %" if change == 0 else f"{change:+.1f} %".replace("-", "−")
