"""The command `explain`: a policy's decision as a page, from the server's own inputs.

Here the command `effective-load explain` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.terminal.command import FAILED, INVALID, NO_DECISION, OK, Command, Example, add_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the policy, the cluster and the output."""
    parser.add_argument("policy", metavar="POLICY", help="the WatermarkPolicy: NAME or NAMESPACE/NAME")
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", default="", help="default: as for kubectl")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="default: in-cluster, else $KUBECONFIG, else ~/.kube/config"
    )
    parser.add_argument("--context", metavar="NAME", default="", help="of the kubeconfig; default: its current one")
    parser.add_argument("-w", "--watch", action="store_true", help="draw the page again whenever something changes")
    parser.add_argument("--save", metavar="FILE", help="write the document that `decide` reads; - is standard output")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Explain the decision."""
    from adapter.commands.explain import command

    return command.run(parsed)


COMMAND = Command(
    name="explain",
    summary="explain the decision of a policy in a cluster",
    description="Show what a policy's HPA is served and why: each stage's sentence, the pods that count and those left "
    "out, the load in its band, how fresh each input is, and what the HPA will do and did last. The server hands out "
    "the inputs of its decision, and this command decides on them again. It takes the rights to read of the role view. "
    "As a kubectl plugin: kubectl effective-load explain POLICY.",
    statuses={
        OK: "a count is served; also after Ctrl-C with --watch",
        NO_DECISION: "an error is served instead of a count",
        FAILED: "the decision cannot be read, such as where a permission is missing",
        INVALID: "the arguments are invalid",
    },
    examples=(
        Example("effective-load explain checkout -n shop", "the decision as a page"),
        Example("kubectl effective-load explain checkout --watch", "the same as a plugin, drawn again at each change"),
        Example("effective-load explain shop/checkout --save checkout.json", "the inputs, for whom it puzzles"),
        Example("effective-load decide checkout.json", "and the decision on them, anywhere"),
    ),
    add=add_arguments,
    run=run,
)
