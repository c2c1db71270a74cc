"""What `migrate` writes: YAML with the notes as comments, or JSON."""

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from adapter.migrate.migration import Migration
from adapter.migrate.notes import Note, printable
from adapter.migrate.pair import Migrated

_WIDTH = 116
_SETTINGS = "The adapter's settings need this as well (docs/configuration.md):"


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
    parts = [*_settings_comment(migration.settings), *comments(migration.notes)]
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


def _settings_comment(settings: Mapping[str, Any]) -> Iterator[str]:
    if settings:
        yield f"# {_SETTINGS}"
        for line in dump(settings).splitlines():
            yield f"#   {printable(line)}"


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
