"""Shipped scenarios: loads and events that every autoscaler is put through, in the model of `replay`.

Here the command `effective-load scenarios` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.terminal.command import INVALID, OK, Command, Example, add_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the scenarios to play and the output."""
    parser.add_argument("names", metavar="NAME", nargs="*", default=[], help="only these; default: all")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Play the scenarios. Raises FaultyDocument for an unknown name."""
    from adapter.commands.replay.scenarios.command import lines
    from adapter.commands.terminal import output
    from adapter.commands.terminal.waiting import waiting

    with waiting("playing the scenarios"):
        played = list(lines(parsed.names, as_json=parsed.output == "json"))
    output.print_lines(played)
    return OK


COMMAND = Command(
    name="scenarios",
    summary="play the shipped scenarios in the model",
    description="Play the shipped scenarios (a spike, a mass pull-out, a registry outage, ...) in the model of a "
    "service with the stock HPA, with it on the effective average, and with policies, and compare them.",
    statuses={OK: "played", INVALID: "a name is unknown"},
    examples=(
        Example("effective-load scenarios", "all of them in one table"),
        Example("effective-load scenarios pull-out spike -o json", "two of them, for programs"),
    ),
    add=add_arguments,
    run=run,
)
