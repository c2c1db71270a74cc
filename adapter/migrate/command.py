"""The command `migrate`: from texts to pairs, printed or in a folder, and the notes on them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from adapter.migrate import output
from adapter.migrate.migration import Migration, migrate
from adapter.migrate.original import MigrationError
from adapter.migrate.pair import Style
from adapter.runtime.faults import Fault

SETTINGS_FILE = "settings-part.txt"
"""No name that `kubectl apply -f DIR` reads."""


class Printed(NamedTuple):
    """What goes to standard output, and the lines for standard error."""

    output: str
    remarks: tuple[str, ...] = ()


def run(texts: Sequence[tuple[str, str]], style: Style, folder: str | None, *, json_wanted: bool) -> Printed:
    """Migrate the texts (each with its file's name) and write the files wanted. Raises MigrationError."""
    migration = migrate(texts, style)
    if folder is not None:
        _write(migration, Path(folder))
    if json_wanted:
        return Printed(json.dumps(output.as_json(migration), indent=2) + "\n")
    remarks = tuple(f"{pair.name}: {note}" for pair in migration.pairs for note in pair.notes)
    return Printed(output.as_yaml(migration) if folder is None else "", remarks)


def _write(migration: Migration, folder: Path) -> None:
    files = {_file(one.namespace, one.name): output.pair_yaml(one) for one in migration.pairs}
    if migration.settings:
        files[SETTINGS_FILE] = output.settings_yaml(migration.settings)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        advice = f"cannot be written: {error.strerror}; no file is overwritten, so name an empty folder"
        raise MigrationError([Fault("", str(error.filename or folder), advice)], "the output") from error


def _file(namespace: str, name: str) -> str:
    # No name has an underscore, so no two pairs have one file.
    return f"{namespace}_{name}.yaml" if namespace else f"{name}.yaml"
