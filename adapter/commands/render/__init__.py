"""The command `render`: the HPA that fits a policy, and the policy and HPA that take the place of a stock HPA.

Here the command `effective-load render` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.migrate import add_kubernetes
from adapter.commands.terminal.command import INVALID, OK, Command, Example, whole_number

_MOST_REPLICAS = 2**31 - 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the input, what the HPA of a policy is to have, and the output."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("file", metavar="POLICY_FILE", nargs="?", help="WatermarkPolicies; - reads standard input")
    source.add_argument(
        "--from-hpa", metavar="FILE", help="HPAs on cpu or memory, as of `kubectl get hpa -o yaml`; - reads stdin"
    )
    parser.add_argument(
        "--target",
        metavar="[VERSION/]KIND/NAME",
        help="what the HPA of a policy scales, such as Deployment/web or argoproj.io/v1alpha1/Rollout/web; default: "
        "the Deployment with the name of the HPA",
    )
    parser.add_argument(
        "--min-replicas",
        metavar="N",
        type=whole_number(_MOST_REPLICAS),
        help="default: the least with which the policy's watermarks do not flap (strategy Step: step.minPods)",
    )
    parser.add_argument(
        "--max-replicas",
        metavar="N",
        type=whole_number(_MOST_REPLICAS),
        help="default: the largest maximum of the policy's schedules",
    )
    add_kubernetes(parser)
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="yaml", help="default: %(default)s")


def run(parsed: argparse.Namespace) -> int:
    """Render the file. Raises FaultyDocument."""
    from adapter.commands.migrate import hpas_have_tolerance
    from adapter.commands.render import command
    from adapter.commands.terminal import output

    file = parsed.from_hpa or parsed.file
    text = output.read_text(file)
    if text is None:
        return INVALID
    wanted = command.Wanted(
        target=parsed.target,
        minimum=parsed.min_replicas,
        maximum=parsed.max_replicas,
        tolerance=hpas_have_tolerance(parsed),
    )
    rendered = command.from_hpas(file, text, wanted) if parsed.from_hpa else command.from_policies(file, text, wanted)
    output.print_text(command.as_json(rendered) if parsed.output == "json" else command.as_yaml(rendered))
    return OK


COMMAND = Command(
    name="render",
    summary="write the HPA that fits a policy, or a policy and its HPA from a stock HPA",
    description="Write the HorizontalPodAutoscaler that fits a WatermarkPolicy: one metric for the replica count, "
    "tolerance 0, and no limit that is tighter than the policy's. With --from-hpa, read a HorizontalPodAutoscaler on "
    "cpu or memory instead, and write the policy and the HPA that take its place, with today's target between the "
    "watermarks; bounds and behavior stay.",
    statuses={
        OK: "rendered",
        INVALID: "the input or the arguments are invalid, or there is no equivalent",
    },
    examples=(
        Example("effective-load render policy.yaml --max-replicas 50", "the HPA of a policy"),
        Example("kubectl get hpa web -n shop -o yaml | effective-load render --from-hpa -", "an HPA that runs today"),
    ),
    add=add_arguments,
    run=run,
)
