"""A command of the command line: its arguments, examples and exit statuses, declared without what runs it.

`--help` and tab completion declare every command. So a module that holds a Command imports what its `run` needs only
within `run`.
"""

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

OK, FAILED, INVALID, NO_DECISION = 0, 1, 2, 3
"""Exit statuses."""
_KINDS = {"watermarkpolicy", "watermarkpolicies", "wmp"}
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?", re.ASCII)


class Example(NamedTuple):
    """A command line, as it is typed, and what it does."""

    line: str
    does: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command: `summary` is its line in the list of commands, `statuses` the meaning of each exit status.

    `add` declares the arguments; `run` gets the parsed ones and returns the exit status.
    """

    name: str
    summary: str
    description: str
    statuses: Mapping[int, str]
    examples: tuple[Example, ...]
    add: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def declare(commands: Any, command: Command) -> None:
    """Add a command to the subparsers of the command line."""
    examples = [f"{_filled(f'# {one.does}', '  ', '  # ')}\n  {one.line}" for one in command.examples]
    statuses = [_filled(f"{status}  {meaning}", "  ", "     ") for status, meaning in command.statuses.items()]
    parser = commands.add_parser(
        command.name,
        help=command.summary,
        description=_filled(command.description),
        epilog="\n".join(["examples:", *examples, "", "exit status:", *statuses]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add(parser)
    parser.set_defaults(run=command.run)


def add_output(parser: argparse.ArgumentParser) -> None:
    """The argument `-o text|json`."""
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s")


def is_name(text: str) -> bool:
    """Whether a text can be the name of an object."""
    return _NAME.fullmatch(text) is not None


def policy_name(text: str) -> tuple[str, str]:
    """The type of an argument that names a policy: its namespace (empty where not named) and its name.

    Before a slash kubectl prints the kind: `watermarkpolicy.effective-load.io/checkout`.
    """
    before, slash, name = text.rpartition("/")
    if before.partition(".")[0].lower() in _KINDS:
        before = slash = ""
    if is_name(name) and (is_name(before) or not slash):
        return before, name
    raise argparse.ArgumentTypeError(f"{text[:80]!r} is not NAME or NAMESPACE/NAME")


def namespace_name(text: str) -> str:
    """The type of an argument that names a namespace."""
    if not text or is_name(text):
        return text
    raise argparse.ArgumentTypeError(f"{text[:80]!r} is not the name of a namespace")


def _filled(text: str, first: str = "", rest: str = "") -> str:
    width = max(40, min(100, shutil.get_terminal_size().columns - 2))
    wrapper = textwrap.TextWrapper(width, first, rest, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(text)
