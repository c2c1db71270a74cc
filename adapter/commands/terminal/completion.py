"""Tab completion: for shells by argcomplete, and for kubectl by its convention for plugins."""

import argparse
import io
import os
import shlex
import sys
from collections.abc import Callable, Sequence

from adapter.commands.terminal.command import OK, Command, Example
from adapter.commands.terminal.output import print_line, print_text

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

    One each line, with a tab before its description; the last line is a directive of cobra.
    """
    text = _completions(parser, words)
    lines = [line for line in text.split("\n") if line]
    for line in lines:
        print_line(line)
    print_line(f":{_NO_FILES if lines else _FILES_TOO}")
    return OK


def _completions(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Argcomplete's completions for fish, which have kubectl's form."""
    import argcomplete.io
    from argcomplete.finders import CompletionFinder

    class Finder(CompletionFinder):
        """Leaves file descriptor 9 alone: it is the shell's only where a shell asks."""

        def _init_debug_stream(self) -> None:
            argcomplete.io.debug_stream = sys.stderr

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
        Finder()(parser, always_complete_options=False, exit_method=_end, output_stream=stream)
    except _EndedError:
        pass
    finally:
        os.environ.clear()
        os.environ.update(kept)
    return stream.getvalue()


class _EndedError(Exception):
    """argcomplete has written its answer."""


def _end(_status: int = 0) -> None:
    raise _EndedError


def names_completer(names: Callable[[argparse.Namespace], Sequence[str]]) -> Callable[..., list[str]]:
    """A completer for names that `names` finds by the other arguments; one that fails completes nothing."""

    def completions(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
        try:
            return [name for name in names(parsed_args) if name.startswith(prefix)]
        except Exception:  # noqa: BLE001  a shell that completes must not show a traceback
            return []

    return completions


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def _run(parsed: argparse.Namespace) -> int:
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
    add=_add_arguments,
    run=_run,
)
