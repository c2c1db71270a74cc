"""Turns the objects of other autoscalers into a WatermarkPolicy and a native HPA, with a note on all that differs.

Here the command `effective-load migrate` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.terminal.command import FAILED, INVALID, OK, Command, Example, whole_number


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the input, the output, and how one target is written."""
    command.add_argument("files", metavar="FILE", nargs="+", help="YAML or JSON documents; - reads standard input")
    command.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: %(default)s")
    command.add_argument(
        "--watermarks",
        metavar="PERCENT",
        type=whole_number(99),
        help="write a target as two watermarks, the low one at this percentage of it; default: strategy Ratio",
    )
    add_kubernetes(command)


def run(parsed: argparse.Namespace) -> int:
    """Migrate the files. Raises FaultyDocument."""
    from adapter.commands.migrate import migration
    from adapter.commands.migrate.pair import Style
    from adapter.commands.terminal import output

    texts = [(file, output.read_text(file)) for file in parsed.files]
    readable = [(file, text) for file, text in texts if text is not None]
    if len(readable) < len(texts):
        return INVALID
    style = Style(low_percent=parsed.watermarks, tolerance=hpas_have_tolerance(parsed))
    migrated = migration.migrate(readable, style)
    remarks = [f"{pair.name}: {note}" for pair in migrated.pairs for note in pair.notes]
    for line in (*(remarks if parsed.output == "yaml" else ()), *migrated.refused):
        output.complain(str(line))
    if parsed.output == "json":
        output.print_json(migration.as_json(migrated))
    else:
        output.print_text(migration.as_yaml(migrated))
    return FAILED if migrated.refused else OK


def add_kubernetes(parser: argparse.ArgumentParser) -> None:
    """Declare the version of the cluster."""
    parser.add_argument(
        "--kubernetes",
        metavar="VERSION",
        type=_version,
        help="write HPAs for this version, such as 1.34: before 1.35 without `tolerance`, which the API server drops "
        "there; default: 1.35 or newer",
    )


def hpas_have_tolerance(parsed: argparse.Namespace) -> bool:
    """Whether the HPAs may have `tolerance`."""
    from adapter.commands.cluster import TOLERANCE_SINCE

    return parsed.kubernetes is None or parsed.kubernetes >= TOLERANCE_SINCE


def _version(text: str) -> tuple[int, int]:
    from adapter.commands.cluster import parse_version

    found = parse_version(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no version such as 1.34")
    return found


COMMAND = Command(
    name="migrate",
    summary="turn another autoscaler's objects into a policy and an HPA",
    description="Turn WatermarkPodAutoscalers, ScaledObjects, and HPAs for prometheus-adapter (with its rules) "
    "into WatermarkPolicies and their HPAs, with a sentence on each field that has no exact equivalent. HPAs that "
    "KEDA makes itself are left out.",
    statuses={
        OK: "migrated",
        FAILED: "some objects cannot be migrated, each named with its reason (the others are)",
        INVALID: "nothing can be migrated, or the arguments are invalid",
    },
    examples=(
        Example("kubectl get wpa,scaledobjects -n shop -o yaml | effective-load migrate -", "what runs in a namespace"),
        Example("effective-load migrate originals.yaml > migrated.yaml", "the notes are on standard error as well"),
    ),
    add=add_arguments,
    run=run,
)
