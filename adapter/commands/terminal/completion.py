"""Tab completion: for shells by argcomplete, and for kubectl by its convention for plugins."""

import argparse
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from adapter.commands.terminal.command import OK, Command, Example
from adapter.commands.terminal.output import print_lines, print_text

SHELLS = ("bash", "zsh", "fish")
_FILES_TOO, _NO_FILES = 0, 4
"""Directives of cobra, which kubectl's completion is made with."""


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and exit, where it asks for completions; else return at once."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options=False)


def complete_for_kubectl(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """Print the completions of the last of these words, as kubectl wants them from `kubectl_complete-PLUGIN`.

    One each line, with a tab before its description, as argcomplete writes them for fish; the last line is a directive
    of cobra.
    """
    import argcomplete.io
    from argcomplete.finders import CompletionFinder

    class Finder(CompletionFinder):
        """Leaves file descriptor 9 alone: it is the shell's only where a shell asks."""

        def _init_debug_stream(self) -> None:
            argcomplete.io.debug_stream = sys.stderr

    def end(_status: int = 0) -> None:
        raise _EndedError

    *before, last = words or [""]
    line = " ".join([parser.prog.partition(" ")[0], *map(shlex.quote, before), last])
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_SHELL": "fish",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_DFS": "\t",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line.encode())),
    }
    stream = io.StringIO()
    kept = dict(os.environ)
    os.environ.update(asked)
    try:
        Finder()(parser, always_complete_options=False, exit_method=end, output_stream=stream)
    except _EndedError:
        pass
    finally:
        os.environ.clear()
        os.environ.update(kept)
    lines = [line for line in stream.getvalue().split("\n") if line]
    print_lines([*lines, f":{_NO_FILES if lines else _FILES_TOO}"])
    return OK


class _EndedError(Exception):
    """argcomplete has written its answer."""


def names_completer(names: Callable[[argparse.Namespace], Sequence[str]]) -> Callable[..., list[str]]:
    """A completer for names that `names` finds by the other arguments; one that fails completes nothing."""

    def completions(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        try:
            return [name for name in names(parsed_args) if name.startswith(prefix)]
        except Exception:  # noqa: BLE001  a shell that completes must not show a traceback
            return []

    return completions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shell."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(parsed: argparse.Namespace) -> int:
    """Print the shell's script."""
    from argcomplete.shell_integration import shellcode

    print_text(shellcode(["effective-load"], shell=parsed.shell))
    return OK


COMMAND = Command(
    name="completion",
    summary="print the tab completion of a shell",
    description="Print the script that completes this program's commands, arguments and policies at the tab key. "
    "kubectl completes the plugin by itself, where kubectl_complete-effective_load is in the PATH.",
    statuses={OK: "printed"},
    examples=(
        Example('eval "$(effective-load completion bash)"', "in ~/.bashrc"),
        Example('eval "$(effective-load completion zsh)"', "in ~/.zshrc, after compinit"),
        Example("effective-load completion fish > ~/.config/fish/completions/effective-load.fish", "once"),
    ),
    add=add_arguments,
    run=run,
)
