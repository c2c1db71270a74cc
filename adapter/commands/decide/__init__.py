"""The `decide` document: one policy with every input of its decision, read, written and decided on.

Here the command `effective-load decide` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.terminal.command import INVALID, NO_DECISION, OK, Command, Example, add_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the document and the output."""
    parser.add_argument("file", metavar="FILE", help="YAML or JSON document; - reads standard input")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Decide on the document. Raises FaultyDocument."""
    from adapter.commands.decide.reader import decision_json, read_document
    from adapter.commands.files import read_text
    from adapter.commands.terminal import output

    decision = decision_json(read_document(read_text(parsed.file)))
    if parsed.output == "json":
        output.print_json(decision)
    else:
        output.print_lines(decision["explanation"])
    return OK if decision["error"] is None else NO_DECISION


COMMAND = Command(
    name="decide",
    summary="decide on a file",
    description="Compute the decision of a policy from one document with all its inputs, and explain it.",
    statuses={OK: "a count was decided", NO_DECISION: "the decision is an error", INVALID: "the document is invalid"},
    examples=(
        Example("effective-load decide checkout.yaml", "the decision in sentences"),
        Example("effective-load explain checkout --save - | effective-load decide - -o json", "of a live policy"),
    ),
    add=add_arguments,
    run=run,
)
