"""The command line: the table of commands. Each package of `adapter.commands` declares its command."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from functools import partial

from adapter.commands.check import COMMAND as CHECK
from adapter.commands.decide import COMMAND as DECIDE
from adapter.commands.explain import COMMAND as EXPLAIN
from adapter.commands.migrate import COMMAND as MIGRATE
from adapter.commands.replay import COMMAND as REPLAY
from adapter.commands.terminal import output
from adapter.commands.terminal.command import FAILED, INVALID, NO_DECISION, OK, Command, Example, declare
from adapter.runtime.faults import FaultyDocument, closest

__all__ = ["COMMANDS", "FAILED", "INVALID", "NO_DECISION", "OK", "main"]


def main(arguments: Sequence[str] | None = None, prog: str = "effective-load") -> int:
    """Run one command. Returns the exit status: 0, 1 (failed), 2 (invalid input) or 3 (`decide`: no decision)."""
    parser = argument_parser(prog)
    if "_ARGCOMPLETE" in os.environ:  # the shell asks for completions
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options=False)
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        parser.print_help(sys.stderr)
        parser.exit(INVALID)
    names = [command.name for command in COMMANDS]
    if given[0] not in names and not given[0].startswith("-"):
        parser.error(f"there is no command {given[0]!r}{closest(given[0], names)}; there are {', '.join(names)}")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal of another encoding lacks some characters
    if sys.stdout is None:  # closed by `>&-`
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    try:
        try:
            parsed = parser.parse_args(given)
            status: int = parsed.run(parsed)
        finally:  # of `--help` as well, which ends the program
            output.flush()
    except KeyboardInterrupt:
        return 130  # as a shell reports a command that Ctrl-C ended
    except FaultyDocument as error:
        output.print_faults(error)
        return INVALID
    except OSError as error:  # of the output, such as a full disk
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes once more
        output.complain(f"{prog} {given[0]}: {error.strerror or error}")
        return FAILED
    return status


def plugin() -> int:
    """As `kubectl effective-load`: kubectl finds `kubectl-effective_load` in the PATH."""
    return main(prog="kubectl effective-load")


def argument_parser(prog: str = "effective-load") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Lets the stock HorizontalPodAutoscaler scale on effective load.",
        epilog="`effective-load COMMAND --help` has the arguments, examples and exit statuses of a command.",
    )
    parser.add_argument(
        "--version", action=_VersionAction, nargs=0, default=argparse.SUPPRESS, help="show the version and exit"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in COMMANDS:
        declare(commands, command)
    return parser


class _VersionAction(argparse.Action):
    """Prints the version; it is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from adapter.telemetry.metrics import package_version

        output.print_lines([f"{parser.prog} {package_version()}"])
        parser.exit()


def _add_connection(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--settings", metavar="FILE", help="settings file (YAML); without it every setting is the default"
    )
    command.add_argument(
        "--kubeconfig", metavar="FILE", help="default: in-cluster, else $KUBECONFIG, else ~/.kube/config"
    )


def _run(action: str, parsed: argparse.Namespace) -> int:
    import asyncio
    import gc

    gc.disable()  # what is imported stays, so a collection finds nothing; `assembly` collects later
    # Packages import these where they are installed, for what is not used here: 0.2 s and 10 MiB.
    for package in ("rich", "colorama", "better_exceptions", "kubernetes_validate"):
        sys.modules.setdefault(package, None)  # type: ignore[arg-type]  # None: the import fails
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it looks for some in every installed package
    from adapter.assembly import run
    from adapter.kube.errors import KubeError

    if action == "serve":
        from adapter.server_process import ServerProcess

        running = run(ServerProcess, parsed.settings, parsed.kubeconfig)
    else:
        from adapter.companion_process import CompanionProcess

        running = run(CompanionProcess, parsed.settings, parsed.kubeconfig)
    try:
        return asyncio.run(running)
    except (KubeError, OSError) as error:
        output.complain(f"effective-load cannot {action}: {error}")
        return FAILED


_STATUSES = {
    OK: "ended by a signal",
    FAILED: "the API server cannot be reached or the port is taken, or a part of it failed",
    INVALID: "the settings are invalid",
}

SERVE = Command(
    name="serve",
    summary="serve the metrics API",
    description="Serve the metrics API.",
    statuses=_STATUSES,
    examples=(
        Example("effective-load serve --settings settings.yaml", "in a pod, or with the current cluster of kubectl"),
        Example("effective-load serve --settings settings.yaml --kubeconfig ~/.kube/kind", "with another cluster"),
    ),
    add=_add_connection,
    run=partial(_run, "serve"),
)

COMPANION = Command(
    name="companion",
    summary="run the companion",
    description="Run the companion: the leader among its replicas writes the status of the policies, and whatever "
    "else the settings enable.",
    statuses=_STATUSES,
    examples=(Example("effective-load companion --settings settings.yaml", "in a pod, or with kubectl's cluster"),),
    add=_add_connection,
    run=partial(_run, "run the companion"),
)

COMMANDS = (SERVE, COMPANION, EXPLAIN, DECIDE, CHECK, REPLAY, MIGRATE)
"""Every command, in the order of `--help`."""


if __name__ == "__main__":
    sys.exit(main())
