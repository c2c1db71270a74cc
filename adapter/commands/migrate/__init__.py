"""Turns the objects of other autoscalers into a WatermarkPolicy and an HPA, with a note on all that differs.

Here the command `effective-load migrate` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.terminal.command import FAILED, INVALID, OK, Command, Example


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the input, and how one target is written."""
    command.add_argument(
        "files", metavar="FILE", nargs="+", help="a file or folder of YAML or JSON; - reads standard input"
    )
    command.add_argument(
        "--watermarks",
        metavar="PERCENT",
        type=int,
        help="write a target as two watermarks, the low one at this percentage of it; default: strategy Ratio",
    )


def run(parsed: argparse.Namespace) -> int:
    """Migrate the files. Raises FaultyDocument."""
    from adapter.commands.files import read_files
    from adapter.commands.migrate import write
    from adapter.commands.terminal import output

    if parsed.watermarks is not None and not 0 < parsed.watermarks < 100:
        output.complain("effective-load migrate: --watermarks: write a percentage from 1 to 99")
        return INVALID
    objects, faults = read_files(parsed.files)
    migration = write.migrate(objects, low_percent=parsed.watermarks)
    remarks = [f"{pair.name}: {note}" for pair in migration.pairs for note in pair.notes]
    for line in (*faults, *migration.refused, *remarks):
        output.complain(output.printable(str(line)))
    if not migration.pairs:
        return INVALID
    output.print_text(write.as_yaml(migration))
    return FAILED if migration.refused or faults else OK


COMMAND = Command(
    name="migrate",
    summary="turn another autoscaler's objects into a policy and an HPA",
    description="Turn WatermarkPodAutoscalers, ScaledObjects and HPAs (with prometheus-adapter's ConfigMap, where that "
    "serves their metrics) into WatermarkPolicies and their HPAs, with a note on all that differs. A WatermarkPolicy "
    "alone becomes its HPA. Other objects are passed over.",
    statuses={
        OK: "migrated",
        FAILED: "some objects cannot be migrated, each named with its reason (the others are)",
        INVALID: "nothing can be migrated, or the arguments are invalid",
    },
    examples=(
        Example("kubectl get wpa,scaledobjects,hpa -n shop -o yaml | effective-load migrate -", "a whole namespace"),
        Example("effective-load migrate originals.yaml > migrated.yaml", "the notes are on standard error as well"),
        Example("effective-load migrate policy.yaml", "the HPA of a policy"),
    ),
    add=add_arguments,
    run=run,
)
