"""Faults of documents that people write: each with its path, the value found, and the remedy."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: `path` (`spec.metrics[0].name`; empty: the whole document), the value found, and the remedy."""

    path: str
    value: object
    advice: str

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        value = "" if self.value is None else f"{shorten(self.value)}: "
        return f"{where}{value}{self.advice}"

    def within(self, place: str, separator: str = ".") -> "Fault":
        """The fault of a part, as one of the whole document that has the part at `place`."""
        return replace(self, path=f"{place}{separator}{self.path}".rstrip(separator))


class FaultyDocument(Exception):  # noqa: N818  base of SettingsError and PolicyError, never raised itself
    """A document cannot be used; `faults` lists all its faults."""

    def __init__(self, faults: Iterable[Fault], title: str = "") -> None:
        self.faults, self.title = tuple(faults), title
        super().__init__(self.faults)

    def __str__(self) -> str:
        sentences = "; ".join(map(str, self.faults))
        return f"{self.title}: {sentences}" if self.title else sentences


def shorten(value: object) -> str:
    """The value as Python writes it, cut to one readable line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def first_names(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{rest}"


def path_of(parts: Iterable[str | int]) -> str:
    """`("spec", "metrics", 0, "name")` as `spec.metrics[0].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


def closest(name: str, names: Iterable[str]) -> str:
    """`, did you mean X?` for a mistyped key, empty where none is close; ignores case and underscores."""
    by_folded = {key.lower(): key for key in names}
    matches = difflib.get_close_matches(name.lower().replace("_", ""), by_folded, n=1)
    return f", did you mean {by_folded[matches[0]]}?" if matches else ""
