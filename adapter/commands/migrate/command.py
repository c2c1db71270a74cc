"""The command `migrate`: from texts to pairs, printed or in a folder, and the notes on them."""

import json
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from adapter.commands.migrate.migration import Migration, migrate
from adapter.commands.migrate.original import MigrationError, Note, printable
from adapter.commands.migrate.pair import Migrated, Style
from adapter.runtime.faults import Fault

SETTINGS_FILE = "settings-part.txt"
"""No name that `kubectl apply -f DIR` reads."""

_WIDTH = 116
_SETTINGS = "The adapter's settings need this as well (docs/configuration.md):"


class Printed(NamedTuple):
    """What goes to standard output, and the lines for standard error: remarks, then what could not be migrated."""

    output: str
    remarks: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def run(texts: Sequence[tuple[str, str]], style: Style, folder: str | None, *, json_wanted: bool) -> Printed:
    """Migrate the texts (each with its file's name) and write the files wanted. Raises MigrationError."""
    migration = migrate(texts, style)
    if folder is not None:
        _write(migration, Path(folder))
    if json_wanted:
        text = json.dumps(as_json(migration), indent=2) + "\n"
        return Printed(text, refused=tuple(map(str, migration.refused)))
    remarks = tuple(f"{pair.name}: {note}" for pair in migration.pairs for note in pair.notes)
    notes = tuple(map(str, migration.notes)) if folder is not None else ()
    text = as_yaml(migration) if folder is None else ""
    return Printed(text, notes + remarks, tuple(map(str, migration.refused)))


def _write(migration: Migration, folder: Path) -> None:
    # No name has an underscore, so no two pairs have one file.
    files = {f"{pair.namespace}_{pair.name}.yaml".lstrip("_"): pair_yaml(pair) for pair in migration.pairs}
    if migration.settings:
        files[SETTINGS_FILE] = settings_yaml(migration.settings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        advice = f"cannot be written: {error.strerror}; no file is overwritten, so name an empty folder"
        raise MigrationError([Fault("", str(error.filename or folder), advice)], "the output") from error


def as_json(migration: Migration) -> dict[str, Any]:
    """The migration as JSON data."""
    return {
        "pairs": [
            {
                "source": pair.source,
                "from": pair.place,
                "policy": pair.policy,
                "hpa": pair.hpa,
                "notes": [_note(note) for note in pair.notes],
            }
            for pair in migration.pairs
        ],
        "settings": migration.settings,
        "notes": [_note(note) for note in migration.notes],
        "refused": [
            {"from": one.place, "kind": one.kind, "name": one.name, "reasons": [str(fault) for fault in one.faults]}
            for one in migration.refused
        ],
    }


def _note(note: Note) -> dict[str, Any]:
    return {"kind": note.kind.value, "field": note.field, "value": _finite(note.value), "sentence": note.sentence}


def _finite(value: Any) -> Any:
    """The value with numbers that JSON does not have as texts."""
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_yaml(migration: Migration) -> str:
    """Every pair as two documents, with its notes as comments, and the settings as one more comment at the top."""
    lines = dump(migration.settings).splitlines() if migration.settings else []
    parts = [f"# {_SETTINGS}", *(f"#   {printable(line)}" for line in lines)] if lines else []
    parts += [*comments(migration.notes), *comments(migration.refused)]
    for pair in migration.pairs:
        parts += ["---" if parts else "", pair_yaml(pair).rstrip("\n")]
    return "\n".join(part for part in parts if part) + "\n"


def pair_yaml(pair: Migrated) -> str:
    """One pair as two documents with its notes as comments."""
    heading = printable(f"{pair.source} {pair.name}, from {pair.place}")
    lines = [*_wrapped(heading), *comments(pair.notes), dump(pair.policy), "---", dump(pair.hpa)]
    return "\n".join(lines) + "\n"


def settings_yaml(settings: Mapping[str, Any]) -> str:
    """The part of the settings."""
    return dump(settings) + "\n"


def comments(notes: Iterable[object]) -> Iterator[str]:
    """The notes, or other sentences, as comments of YAML."""
    for note in notes:
        yield from _wrapped(str(note))


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False, break_on_hyphens=False
    )


class _Dumper(yaml.SafeDumper):
    """Never writes an alias: kubectl reads them, people do not."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  PyYAML calls it
        return True


def dump(data: Mapping[str, Any]) -> str:
    """An object as YAML, without an end of line."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=_WIDTH)
    return text.rstrip("\n")
