"""What would have happened: the recorded load of services in closed loop, for the stock HPA and for policies.

Here the command `effective-load replay` is declared; what runs it is imported only once it runs.
"""

import argparse
import functools
import json

from adapter.commands.terminal.command import FAILED, INVALID, OK, Command, Example

_WIDEST_OPTION = 34


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments: the policy, the history, how pods behave, and the output. The help fits 40 lines."""
    command.usage = "effective-load replay POLICY (--csv FILE | --prometheus URL --from TIME) [options]"
    command.formatter_class = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=_WIDEST_OPTION)
    add = command.add_argument
    add("policy", metavar="POLICY", nargs="?", help=argparse.SUPPRESS)
    add("--hpa", metavar="FILE", help="HPA: bounds, behavior and today's metrics")
    add("--against", metavar="FILE", help="a second WatermarkPolicy to compare with")
    add("--csv", metavar="FILE", help="time, metrics, pulled_out, replicas")
    add("--prometheus", metavar="URL", help="Prometheus, Thanos or Mimir")
    add("--settings", metavar="FILE", help="settings with servers and named queries")
    add("--from", dest="begin", metavar="TIME", help="RFC 3339, epoch seconds, or 7d (ago)")
    add("--to", dest="end", metavar="TIME", help="likewise; default: the end of the history")
    add("--step", metavar="DURATION", default="15s", help="of the queries; default: %(default)s")
    add("--query", action="append", default=[], metavar="METRIC=PROMQL", help="load of the service")
    add("--pulled-out-query", metavar="PROMQL", help="number of pulled-out pods")
    add("--capacity", action="append", default=[], metavar="METRIC=QUANTITY", help="what a pod can carry")
    add("--request", action="append", default=[], metavar="METRIC=QUANTITY", help="what a pod requests")
    add("--limit", action="append", default=[], metavar="METRIC=QUANTITY", help="what a pod may use")
    add("--pod-startup", metavar="DURATION", default="30s", help="until a pod serves; default: %(default)s")
    add("--sample-age", metavar="DURATION", default="5s", help="of samples; default: %(default)s")
    add("--window", metavar="DURATION", default="15s", help="of samples; 0s: a moment; default: %(default)s")
    add("--price", metavar="MONEY", help="of a pod for an hour")
    add("--html", metavar="FILE", help="also write a page with charts")
    add("--sweep", action="store_true", help="try up to 24 other settings of the policy")
    add("--all", action="store_true", help="every policy of the cluster")
    add("-n", "--namespace", metavar="NAME", help="with --all: of this namespace only")
    add("--kubeconfig", metavar="FILE", help="with --all: the cluster")
    add("-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s")


def run(parsed: argparse.Namespace) -> int:
    """Replay one service or many. Returns the exit status. Raises FaultyDocument."""
    from adapter.commands.replay.prometheus_history import HistoryUnavailable
    from adapter.commands.terminal import output
    from adapter.commands.terminal.waiting import Interrupted, ended_by_signals
    from adapter.kube.errors import KubeError

    try:
        with ended_by_signals():
            return _run_all(parsed) if parsed.all else _run_one(parsed)
    except (HistoryUnavailable, KubeError) as error:
        output.complain(f"effective-load replay: {error}")
    except Interrupted as interrupted:
        output.complain("effective-load replay: interrupted")
        return interrupted.status
    return FAILED


def _run_one(parsed: argparse.Namespace) -> int:
    from adapter.commands.replay import report, sweep
    from adapter.commands.replay.compare import compare
    from adapter.commands.replay.inputs import read_service, read_ticks
    from adapter.commands.replay.page import write_page
    from adapter.commands.terminal import output

    service, ticks = read_ticks(parsed, read_service(parsed))
    if not ticks:
        output.complain("effective-load replay: the history has no data for that time; change --from and --to")
        return FAILED
    result = compare(service, ticks)
    found = sweep.sweep(result) if parsed.sweep else None
    if parsed.html:
        write_page(parsed.html, result)
    if parsed.output == "json":
        output.print_line(json.dumps(report.data(result) | ({"sweep": sweep.data(found)} if found else {}), indent=2))
    else:
        output.print_lines([*report.lines(result), *(["", *sweep.lines(found)] if found else [])])
    return OK


def _run_all(parsed: argparse.Namespace) -> int:
    from adapter.commands.replay import fleet
    from adapter.commands.terminal import output
    from adapter.load.quantity import parse_quantity

    rows = fleet.replay_all(parsed)
    price = None if parsed.price is None else parse_quantity(parsed.price)
    if parsed.output == "json":
        output.print_json(fleet.data(rows, price))
    else:
        output.print_lines(fleet.lines(rows, price))
    return OK if any(not row.error for row in rows) else FAILED


COMMAND = Command(
    name="replay",
    summary="replay a history for a policy and for the stock HPA",
    description="Replay recorded load for the WatermarkPolicy in the file POLICY and for the stock HPA.",
    statuses={OK: "replayed", FAILED: "no data", INVALID: "invalid arguments, files or history"},
    examples=(
        Example(
            "effective-load replay checkout.yaml --prometheus http://localhost:9090 --from 7d",
            "last week; the file of the policy may also have its HPA and workload",
        ),
    ),
    add=add_arguments,
    run=run,
)
