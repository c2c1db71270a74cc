"""The command `hpa`: plays a file through the model of the stock HPA.

Here the command `effective-load hpa` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.terminal.command import INVALID, OK, Command, Example, add_document


def run(parsed: argparse.Namespace) -> int:
    """Play the document's syncs. Raises FaultyDocument."""
    from adapter.commands.hpa import document as hpa_document
    from adapter.commands.terminal import output

    text = output.read_text(parsed.file)
    if text is None:
        return INVALID
    document = hpa_document.read(text)
    if parsed.output == "json":
        steps = [hpa_document.as_data(document, played) for played in hpa_document.play(document)]
        output.print_json({"steps": steps})
    else:
        output.print_lines(hpa_document.lines(document))
    return OK


COMMAND = Command(
    name="hpa",
    summary="play the stock HPA on a file",
    description="Play syncs of the stock HorizontalPodAutoscaler (Kubernetes 1.34 to 1.37) from one document: what "
    "each recommends and sets, and the conditions that it shows.",
    statuses={OK: "played", INVALID: "the document is invalid"},
    examples=(
        Example("effective-load hpa syncs.yaml", "each sync in sentences; docs/hpa.md has the format"),
        Example("effective-load hpa syncs.yaml -o json", "for programs"),
    ),
    add=add_document,
    run=run,
)
