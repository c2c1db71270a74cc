"""The `check` command: what stands between a policy and its HPA, in a cluster or in files.

Here the command `effective-load check` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.terminal.command import FAILED, INVALID, OK, Command, Example, add_output, is_name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the settings, the cluster or the files, the policy and the output."""
    parser.add_argument(
        "--settings", metavar="FILE", help="settings file (YAML); default: the ConfigMap of the installation"
    )
    parser.add_argument(
        "--manifests",
        metavar="PATH",
        default="",
        help="check the policies, HPAs, workloads and settings of these YAML files instead; - reads standard input",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="as for serve")
    parser.add_argument("--policy", metavar="NAMESPACE/NAME", default="", help="only this policy and its HPA")
    parser.add_argument("-v", "--verbose", action="store_true", help="also report what is in order, a line each")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Run the checks and print their report. Raises FaultyDocument for invalid settings or a missing path."""
    import asyncio

    from rich.console import Console

    from adapter.commands.check import report
    from adapter.commands.check.run import check_cluster, check_files
    from adapter.commands.terminal import output
    from adapter.runtime.faults import Fault, FaultyDocument
    from adapter.settings import load_settings
    from adapter.telemetry import logs

    logs.configure("error", "console")  # the report has the errors
    if parsed.manifests and (parsed.kubeconfig or parsed.policy):
        raise FaultyDocument([Fault("--manifests", None, "asks no cluster: leave --kubeconfig and --policy out")])
    if parsed.policy and not all(map(is_name, parsed.policy.partition("/")[::2])):
        raise FaultyDocument([Fault("--policy", parsed.policy, "write NAMESPACE/NAME")])
    settings = load_settings(parsed.settings) if parsed.settings else None
    if parsed.manifests:
        findings = check_files(parsed.manifests, settings)
    else:
        with Console(stderr=True).status("checking"):  # on a terminal alone
            findings = asyncio.run(check_cluster(settings, parsed.policy, parsed.kubeconfig))
    if parsed.output == "json":
        output.print_json(report.data(findings))
    else:
        output.print_lines(map(output.printable, report.lines(findings, verbose=parsed.verbose)))
    return FAILED if report.has_errors(findings) else OK


COMMAND = Command(
    name="check",
    summary="check an installation, or files for CI",
    description="Check what stands between a policy and its HPA, in layers: API server, rights, installation, sources, "
    "registries, policies and HPAs. The first layer with an error names the cause; the layers below it wait. What this "
    "account may not see is skipped. With --manifests, check files instead.",
    statuses={OK: "no error", FAILED: "an error", INVALID: "the settings or the arguments are invalid"},
    examples=(
        Example("effective-load check", "everything, with the current cluster of kubectl"),
        Example("effective-load check --policy shop/checkout -v", "one policy, every step"),
        Example("helm template shop . | effective-load check --manifests -", "files, with the line of each error"),
    ),
    add=add_arguments,
    run=run,
)
