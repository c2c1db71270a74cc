"""What a migration has to say about fields of the original that have no exact equivalent."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from adapter.runtime.faults import shorten


class NoteKind(StrEnum):
    """What became of a field."""

    DIFFERS = "Differs"
    """It was carried over, and works differently."""
    LOST = "Lost"
    """It has no equivalent."""
    KEPT = "Kept"
    """It stays in the HPA as it was."""
    IRRELEVANT = "Irrelevant"
    """It has no bearing on the replica count."""
    TO_DO = "ToDo"
    """Somebody has to do something."""


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence on one field of the original: `field` is its path (empty: the whole object), with its value."""

    kind: NoteKind
    field: str
    value: object
    sentence: str

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        shown = "" if self.value is None else f"{shorten(self.value)}: "
        return printable(f"{self.kind.value}: {where}{shown}{self.sentence}")


def printable(text: str) -> str:
    """The text with everything that is no printable character escaped, so that it stays on one line."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


class Notes:
    """Collects the notes on one object."""

    def __init__(self) -> None:
        self._notes: list[Note] = []
        self._known: set[tuple[NoteKind, str, str]] = set()

    def add(self, kind: NoteKind, field: str, value: object, sentence: str) -> None:
        """Add a note, once."""
        if (kind, field, sentence) not in self._known:
            self._known.add((kind, field, sentence))
            self._notes.append(Note(kind, field, value, sentence))

    def all(self) -> tuple[Note, ...]:
        """The notes by kind: what to do first, then what is lost, what differs, what is kept, and the rest."""
        order: Iterable[NoteKind] = (
            NoteKind.TO_DO, NoteKind.LOST, NoteKind.DIFFERS, NoteKind.KEPT, NoteKind.IRRELEVANT,
        )  # fmt: skip
        return tuple(note for kind in order for note in self._notes if note.kind is kind)
