"""Writes reference documents and the code of README.zh.md from what they repeat."""

import argparse
import ast
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from adapter import settings
from adapter.cli import COMMANDS
from adapter.commands.terminal.command import Command
from adapter.settings import RESTART, Settings
from adapter.settings.base import Section, models_in, type_of
from adapter.telemetry.metrics import Metrics
from tools.policy_reference import policy, spec_schema

DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_MADE = "<!-- Made by `python -m tools.checks --write`. -->\n"


_CONFIGURATION = """\
Server, companion and `effective-load check` read one YAML file, `--settings FILE`. Every key is optional unless it says
*required*. Every fault is named at once, with its path; a key that is not known is one.

The file is read again within seconds of a change. These keys apply at the next start only, and a change of them is
logged: {restart}.
An invalid file changes nothing while they run: the old settings stay, and the log,
`effective_load_settings_reloads_total` and `effective_load_settings_last_reload_successful` show it.
"""
_METRICS = """\
Served as Prometheus text by every pod of server and companion, on the telemetry port under `/metrics`, beside the usual
`process_…` metrics. Their names stay. Histograms are exposed as `…_bucket`, `…_sum` and `…_count`. Each pod reports
all policies as it sees them: take `max by (namespace, policy)` of what is about policies, and no sum. These series have
a label `namespace` of their own, so scrape with `honor_labels: true` ([monitoring.md](monitoring.md#scrape)).
"""
_CLI = """\
# Command line

<!-- Made by `python -m tools.checks --write`. -->

`effective-load COMMAND --help` shows the same on a terminal. The image has the command as its entry point; on a laptop,
`pip install .` in a clone installs it. Then `kubectl effective-load COMMAND` works as well.

Colours appear on a terminal only, and never if `NO_COLOR` is set. `check` and `explain` show
on a terminal what they wait for. Text is for people and may change; `-o json` is for programs, and its keys stay.

`eval "$(register-python-argcomplete effective-load)"` in `~/.bashrc` or `~/.zshrc` completes commands and arguments at
the tab key.

An exit status of 130 or 143 says that a signal ended the command.
"""


def configuration() -> str:
    """The settings reference: one table a section, in the order of the file."""
    preface = _CONFIGURATION.format(restart=", ".join(f"`{name}`" for name in RESTART))
    return "\n".join([f"# Configuration\n\n{_MADE}", preface, *_keys([Settings], "")])


def metrics() -> str:
    """The metrics reference: one row a metric."""
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels) or '–'} | {text} |"
        for name, kind, labels, text in Metrics().names()
    ]
    head = "| metric | type | labels | what it says |\n|---|---|---|---|"
    return "\n".join([f"# Metrics\n\n{_MADE}", _METRICS, head, *rows, ""])


def cli() -> str:
    """The reference of the command line: a section for each command, or for several that take and say the same."""
    alike: dict[tuple[str, ...], list[Command]] = {}
    for command in COMMANDS:
        alike.setdefault((*_arguments(command), str(command.statuses)), []).append(command)
    return "\n".join([_CLI, *map(_section, alike.values())])


def _section(commands: Sequence[Command]) -> str:
    (command, *_), rows = commands, _arguments(commands[0])
    examples = [f"# {example.does}\n{example.line}" for one in commands for example in one.examples]
    statuses = " ".join(f"**{status}**: {_cell(meaning)}." for status, meaning in command.statuses.items())
    return "\n".join(
        [
            f"## {', '.join(one.name for one in commands)}\n",
            *(f"{one.description}\n" for one in commands),
            *(["| argument | what it says |\n|---|---|", *rows, ""] if rows else []),
            "```sh",
            *examples,
            "```\n",
            f"Exit status: {statuses}\n",
        ]
    )


def _arguments(command: Command) -> list[str]:
    """A row for each argument."""
    parser = argparse.ArgumentParser()
    command.add(parser)
    actions = [
        one for one in parser._actions if one.help != argparse.SUPPRESS and not isinstance(one, argparse._HelpAction)
    ]
    return [f"| {_argument(one)} | {_cell((one.help or '') % vars(one))} |" for one in actions]


def _argument(action: argparse.Action) -> str:
    """An argument as it is typed, with its choices or the name of its value."""
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    if action.choices and not action.metavar:
        value = "|".join(map(str, action.choices))
    shown = [f"`{one}`" for one in action.option_strings]
    return " ".join(filter(None, (", ".join(shown), f"`{_cell(value)}`" if value else "")))


def chinese_readme() -> str:
    """README.zh.md with the code blocks of README.md, in their order; the text between them is people's."""
    english, chinese = ((DOCS.parent / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md"))
    blocks, text = _BLOCK.findall(english), _BLOCK.split(chinese)
    if len(blocks) != len(text) - 1:
        return chinese  # a block came or went: a test of README says so, and a translator places it
    return "".join(part for pair in zip(text, [*blocks, ""], strict=True) for part in pair)


FILES = {
    DOCS / "configuration.md": configuration,
    DOCS / "metrics.md": metrics,
    DOCS / "policy.md": policy,
    DOCS.parent / "adapter/policy/schema.json": spec_schema,
    DOCS / "cli.md": cli,
    DOCS.parent / "README.zh.md": chinese_readme,
}


def _keys(models: Sequence[type[BaseModel]], prefix: str) -> Iterator[str]:
    """A table of keys, sections within it included; then the lists of sections, each with a table of its own.

    Where sections are told apart by their type, a first column says which types have a key.
    """
    inner: dict[tuple[str, str], list[type[BaseModel]]] = {}
    rows: dict[str, list[str]] = {}
    for model in models:
        for row in _rows(model, prefix, "", inner):
            rows.setdefault(row, []).append(type_of(model) if len(models) > 1 else "")
    if len(models) > 1:
        yield from (f"- `type: {type_of(model)}`: {_cell(model.__doc__ or '')}" for model in models)
        yield "\n| of | key | type | default | what it says |\n|---|---|---|---|---|"
        shared = sorted(rows.items(), key=lambda row: len(row[1]) == 1)
        yield from (f"| {'all' if len(of) == len(models) else ', '.join(of)} {row}" for row, of in shared)
        yield ""
    elif rows:
        yield "\n".join(["| key | type | default | what it says |\n|---|---|---|---|", *rows, ""])
    for (key, text), found in inner.items():
        yield f"## `{key}`\n\n{text}\n"
        yield from _keys(found, f"{key}.")


def _rows(
    model: type[BaseModel], prefix: str, within: str, inner: dict[tuple[str, str], list[type[BaseModel]]]
) -> Iterator[str]:
    """A row for each key; `inner` gets the lists of sections, and the sections of the file itself."""
    described = field_docs(model)
    alike: dict[type[BaseModel], list[str]] = {}
    for field in model.model_fields.values():
        for section in sections_of(field):
            alike.setdefault(section, []).append(str(field.alias))
    for name, field in model.model_fields.items():
        text, key = _cell(described.get(name, "")), f"{within}{field.alias}"
        found, is_list = sections_of(field), get_origin(field.annotation) is tuple
        if is_list and found:
            inner[f"{prefix}{key}[]", text] = found
        elif found and not prefix:
            inner[key, text] = found
        elif found:
            yield f"| `{key}` | section | | {text} |"
            if field.alias == alike[found[0]][-1]:
                yield from _rows(found[0], prefix, f"{key if len(alike[found[0]]) == 1 else f'{within}*'}.", inner)
        elif field.alias != "type":
            yield f"| `{key}` | {_type(field)} | {_default(field)} | {text} |"


def sections_of(field: FieldInfo) -> list[type[BaseModel]]:
    """The sections that a key may hold, or that its list may: several where they are told apart by their type."""
    return list(dict.fromkeys(models_in(field.annotation)))


def _type(field: FieldInfo) -> str:
    annotation: Any = field.annotation
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{one}`" for one in get_args(annotation))
    if get_origin(annotation) is tuple:
        return "list of texts"
    if type(None) in get_args(annotation):
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    number = "seconds" if str(field.alias).lower().endswith("seconds") else "number"
    names = {str: "text", int: "whole number", float: number, bool: "true or false"}
    return names.get(annotation, "mapping of texts")


def _default(field: FieldInfo) -> str:
    if field.default_factory is settings.own_namespace:
        return "see there"
    if field.default_factory is not None:
        return "`{}`"
    if field.default is PydanticUndefined:
        return "*required*"
    if isinstance(field.default, bool):
        return f"`{str(field.default).lower()}`"
    if field.default is None:
        return "–"
    written = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"`{written if written and isinstance(written, str) else json.dumps(written)}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """The docstrings under a model's fields, inherited ones included, by field; a field without one is missing."""
    documented: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Section) and base is not Section:
            (written,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            for pair in itertools.pairwise(getattr(written, "body", ())):
                match pair:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        documented[name] = text
    return {name: documented[name] for name in model.model_fields if name in documented}
