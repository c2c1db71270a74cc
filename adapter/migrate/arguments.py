"""The command `effective-load migrate`: declared apart, so that the command line need not load what runs it."""

import argparse

from adapter.terminal.command import INVALID, OK, Command, Example

_WHOLE = 100


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the input, the output, and how one target is written."""
    command.add_argument("files", metavar="FILE", nargs="+", help="YAML or JSON documents; - reads standard input")
    command.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: %(default)s")
    command.add_argument("--out", metavar="DIR", help="write a file for each pair there, and none that exists")
    command.add_argument(
        "--watermarks",
        metavar="PERCENT",
        type=_low_percent,
        help="write a target as two watermarks, the low one at this percentage of it; default: strategy Ratio",
    )


def run(parsed: argparse.Namespace) -> int:
    """Migrate the files. Raises FaultyDocument."""
    from adapter.migrate import command
    from adapter.migrate.pair import Style
    from adapter.terminal import output

    texts = [(file, output.read_text(file)) for file in parsed.files]
    known = [(file, text) for file, text in texts if text is not None]
    if len(known) < len(texts):
        return INVALID
    style = Style(low_percent=parsed.watermarks)
    printed = command.run(known, style, parsed.out, json_wanted=parsed.output == "json")
    for line in printed.remarks:
        output.complain(line)
    output.print_text(printed.output)
    return OK


def _low_percent(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text[:9]) < _WHOLE:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 to {_WHOLE - 1}")


COMMAND = Command(
    name="migrate",
    summary="turn another autoscaler's objects into a policy and an HPA",
    description="Turn WatermarkPodAutoscalers, ScaledObjects, and HPAs for kube-metrics-adapter or "
    "prometheus-adapter (with its rules) into WatermarkPolicies and their HPAs, with a sentence on each field that "
    "has no exact equivalent.",
    statuses={OK: "migrated", INVALID: "the input or the arguments are invalid"},
    examples=(
        Example("kubectl get wpa,scaledobjects -n shop -o yaml | effective-load migrate -", "what runs in a namespace"),
        Example("effective-load migrate originals.yaml --out migrated", "a file for each pair"),
    ),
    add=add_arguments,
    run=run,
)
