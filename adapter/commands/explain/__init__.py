"""The `explain` command: the server's decision on a policy, and what the HPA does with it.

Here the command `effective-load explain` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.terminal.command import (
    FAILED,
    INVALID,
    NO_DECISION,
    OK,
    Command,
    Example,
    namespace_name,
    policy_name,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the policy, the cluster and the output."""
    parser.add_argument(
        "policy", metavar="POLICY", type=policy_name, help="the WatermarkPolicy: NAME or NAMESPACE/NAME"
    )
    parser.add_argument(
        "-n", "--namespace", metavar="NAMESPACE", type=namespace_name, default="", help="default: as for kubectl"
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="default: in-cluster, else $KUBECONFIG, else ~/.kube/config"
    )
    parser.add_argument("--context", metavar="NAME", default="", help="of the kubeconfig; default: its current one")
    parser.add_argument("--save", metavar="FILE", help="write the document that `decide` reads; - is standard output")


def run(parsed: argparse.Namespace) -> int:
    """Explain the decision. Raises FaultyDocument for arguments that contradict each other."""
    import asyncio

    from adapter.commands.explain import page
    from adapter.commands.terminal import output
    from adapter.kube.errors import KubeError
    from adapter.runtime.faults import Fault, FaultyDocument
    from adapter.telemetry import logs

    logs.configure("error", "console")  # the page has the errors
    if (namespace := parsed.policy[0]) and parsed.namespace not in {"", namespace}:
        advice = f"POLICY names namespace {namespace}, and -n names {parsed.namespace}: leave one of them out"
        raise FaultyDocument([Fault("", None, advice)])
    try:
        return asyncio.run(page.explain(parsed))
    except KubeError as error:
        output.complain(f"effective-load explain: no cluster can be asked: {error}")
        output.complain("  name a kubeconfig by --kubeconfig or $KUBECONFIG")
        return FAILED


COMMAND = Command(
    name="explain",
    summary="explain the decision of a policy in a cluster",
    description="Show what a policy's HPA is served and why: the count and its bounds, the load in its band, the pods "
    "that are left out, how fresh each input is, and what the HPA will do and did last. The server decides, and this "
    "command shows its decision. The rights of the role view suffice. "
    "As a kubectl plugin: kubectl effective-load explain POLICY.",
    statuses={
        OK: "a count is served",
        NO_DECISION: "an error is served instead of a count",
        FAILED: "the decision cannot be read, such as where a right is missing",
        INVALID: "the arguments are invalid",
    },
    examples=(
        Example("effective-load explain checkout -n shop", "the decision as a page"),
        Example("kubectl effective-load explain checkout", "the same as a plugin; watch(1) draws it again"),
        Example("effective-load explain shop/checkout --save checkout.json", "the inputs, for a report of a fault"),
        Example("effective-load decide checkout.json", "the decision on them, anywhere"),
    ),
    add=add_arguments,
    run=run,
)
