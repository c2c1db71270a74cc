"""The `check` command: whether registries can be asked, know their services, and list the pods of the policies.

Here the command `effective-load check` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.terminal.command import FAILED, INVALID, OK, Command, Example, add_output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the settings, the cluster, the policy and the output."""
    parser.add_argument(
        "--settings",
        metavar="FILE",
        help="settings file (YAML); default: the ConfigMap of the installation, else every default",
    )
    parser.add_argument(
        "--manifests",
        metavar="DIR",
        default="",
        help="check the policies, HPAs, workloads and settings of the YAML files there instead, without a cluster; "
        "- reads standard input",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="as for serve; without a cluster no policy is checked")
    parser.add_argument(
        "--policy",
        metavar="NAMESPACE/NAME",
        default="",
        help="only this policy, with every link between it and its HPA",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="also report what is in order, a line each")
    add_output(parser)


def run(parsed: argparse.Namespace) -> int:
    """Run the checks and print their report. Raises FaultyDocument for invalid settings."""
    import asyncio

    from adapter.commands.check import command, report
    from adapter.commands.check.manifest_links import check_folder, check_stream
    from adapter.commands.terminal import output
    from adapter.commands.terminal.waiting import waiting
    from adapter.settings import load_settings
    from adapter.telemetry import logs

    logs.configure("error", "console")  # the report has the errors
    settings = load_settings(parsed.settings) if parsed.settings else None
    if parsed.manifests and (parsed.kubeconfig or parsed.policy):
        given = "--kubeconfig" if parsed.kubeconfig else "--policy"
        output.complain(f"effective-load check: {given} is about a cluster, and --manifests does not ask one")
        return INVALID
    if parsed.policy and not all(parsed.policy.partition("/")):
        output.complain(f"effective-load check: --policy {parsed.policy!r}: write NAMESPACE/NAME")
        return INVALID
    if parsed.manifests == "-":
        text = output.read_text("-")
        if text is None:
            return INVALID
        sections = check_stream(text, settings)
    elif parsed.manifests:
        sections = check_folder(parsed.manifests, settings)
    else:
        with waiting("checking"):
            sections = asyncio.run(command.run_checks(settings, parsed.policy, parsed.kubeconfig))
    if parsed.output == "json":
        output.print_json(report.report_data(sections))
    else:
        output.print_lines(report.report_lines(sections, verbose=parsed.verbose))
    return OK if report.all_ok(sections) else FAILED


COMMAND = Command(
    name="check",
    summary="check an installation: rights, APIs, sources, registries, policies and HPAs; or files for CI",
    description="Check what stands between a policy and its HPA, causes first: rights, APIServices, certificates, "
    "metrics-server, Prometheus, registries, policies, pods and HPAs; each fault with what to do. What this account "
    "may not see is not checked, and said so. With --manifests, check files instead, without a cluster.",
    statuses={OK: "no fault", FAILED: "a fault", INVALID: "the settings or the arguments are invalid"},
    examples=(
        Example("effective-load check", "everything, with the current cluster of kubectl"),
        Example("effective-load check --policy shop/checkout -v", "one policy, every step"),
        Example("effective-load check --manifests deploy/", "files, with the line of each fault: for CI"),
    ),
    add=add_arguments,
    run=run,
)
