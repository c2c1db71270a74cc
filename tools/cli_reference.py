"""Writes docs/cli.md from the table of commands."""

import argparse

from adapter.cli import COMMANDS
from adapter.commands.terminal.command import Command

_HEAD = """\
# Command line

<!-- Made by `python -m tools.checks --write`. -->

`effective-load COMMAND --help` shows the same on a terminal. The image has the command as its entry point; on a laptop,
`pip install .` in a clone installs it. Then `kubectl effective-load COMMAND` works as well.

Colours appear on a terminal only, and never where `NO_COLOR` is set. What takes longer than two seconds says on a
terminal what it waits for. Text is for people and may change; `-o json` is for programs, and its keys stay.

`eval "$(effective-load completion bash)"` in `~/.bashrc` completes commands, arguments and the names of policies at the
tab key; zsh and fish [work alike](#completion). kubectl completes the plugin without that.

An exit status of 130 or 143 says that a signal ended the command.
"""


def cli() -> str:
    """The reference of the command line: a section for each command."""
    return "\n".join([_HEAD, *map(_section, COMMANDS)])


def _section(command: Command) -> str:
    parser = argparse.ArgumentParser()
    command.add(parser)
    actions = [one for one in parser._actions if not isinstance(one, argparse._HelpAction)]
    rows = [f"| {_argument(one)} | {_cell((one.help or '') % vars(one))} |" for one in actions]
    examples = [f"# {example.does}\n{example.line}" for example in command.examples]
    statuses = [f"| {status} | {_cell(meaning)} |" for status, meaning in command.statuses.items()]
    return "\n".join(
        [
            f"## {command.name}\n\n{command.description}\n",
            *(["| argument | what it says |\n|---|---|", *rows, ""] if rows else []),
            "```sh",
            *examples,
            "```\n",
            "| exit status | meaning |\n|---|---|",
            *statuses,
            "",
        ]
    )


def _argument(action: argparse.Action) -> str:
    """An argument as it is typed, with its choices or the name of its value."""
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    if action.choices and not action.metavar:
        value = "|".join(map(str, action.choices))
    shown = [f"`{one}`" for one in action.option_strings]
    return " ".join(filter(None, (", ".join(shown), f"`{_cell(value)}`" if value else "")))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
