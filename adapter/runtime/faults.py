"""What is wrong with a document that somebody wrote: every fault with its place, what stands there, and what to do."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_SHOWN = 80
_LONGEST_INTEGER = 1024
"""Bits."""
_MOST = 100


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: `path` (`spec.metrics[0].name`; empty: the whole document), the value found, what to do about it."""

    path: str
    value: object
    advice: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        shown = "" if self.value is None else f"{shorten(self.value)}: "
        return f"{where}{shown}{self.advice}"


class FaultyDocument(Exception):  # noqa: N818  base of SettingsError and PolicyError, never raised itself
    """A document cannot be used; `faults` lists everything that is wrong with it.

    FaultyDocument
    ├── SettingsError   the adapter's own configuration file (adapter.settings)
    └── PolicyError     a WatermarkPolicy or an HPA (adapter.policy)
    """

    def __init__(self, faults: Iterable[Fault], title: str = "") -> None:
        self.faults = tuple(faults)
        self.title = title
        super().__init__(self.faults)

    def __str__(self) -> str:
        sentences = "; ".join(map(str, self.faults))
        return f"{self.title}: {sentences}" if self.title else sentences


def first_faults(faults: Sequence[Fault]) -> list[Fault]:
    """As many faults as anybody reads, and how many more there are."""
    more = len(faults) - _MOST
    rest = [Fault("", None, f"and {more} more faults; mend these first")] if more > 0 else []
    return [*faults[:_MOST], *rest]


def shorten(value: object) -> str:
    """The value as it would be written, cut to one readable line. No more of it is written than that."""
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > _SHOWN:
            return f"{text[:_SHOWN]}…"
    return text


def _pieces(value: object) -> Iterator[str]:
    """The pieces of the value's text, the outer ones first: they end before a deep value does."""
    if isinstance(value, dict):
        yield "{"
        for number, (key, one) in enumerate(value.items()):
            yield ", " if number else ""
            yield from _pieces(key)
            yield ": "
            yield from _pieces(one)
        yield "}"
    elif isinstance(value, list):
        yield "["
        for number, one in enumerate(value):
            yield ", " if number else ""
            yield from _pieces(one)
        yield "]"
    elif isinstance(value, str):
        yield repr(value[: _SHOWN + 1])
    elif isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER:
        yield hex(value)  # Python writes no decimal number of so many digits
    else:
        yield repr(value)


def path_of(parts: Iterable[str | int]) -> str:
    """`("spec", "metrics", 0, "name")` as `spec.metrics[0].name`."""
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        else:
            path += f".{part}" if path else part
    return path


def closest(name: str, known: Iterable[str]) -> str:
    """`, did you mean X?` for a mistyped key, empty where nothing is near; case and underscores do not count."""
    by_folded = {key.lower(): key for key in known}
    found = difflib.get_close_matches(name.lower().replace("_", ""), by_folded, n=1)
    return f", did you mean {by_folded[found[0]]}?" if found else ""
