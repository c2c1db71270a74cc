"""What would have happened: the recorded load of a service in closed loop, for the stock HPA and for a policy.

Here the command `effective-load replay` is declared; what runs it is imported only once it runs.
"""

import argparse
import functools

from adapter.commands.terminal.command import FAILED, INVALID, OK, Command, Example


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments: the policy, the history, how pods behave, and the output."""
    command.usage = "effective-load replay FILE… (--csv FILE | --prometheus SERVER --from TIME) [options]"
    command.formatter_class = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=34)
    add = command.add_argument
    add("files", metavar="FILE", nargs="+", help="policy, its HPA and workload")
    add("--csv", metavar="FILE", help="time, metrics, pulled_out")
    add("--prometheus", metavar="SERVER", help="Prometheus, Thanos or Mimir, or a server of --settings")
    add("--settings", metavar="FILE", help="settings with servers and named queries")
    add("--from", dest="begin", metavar="TIME", help="RFC 3339, epoch seconds, or 7d (ago)")
    add("--to", dest="end", metavar="TIME", help="likewise; default: the end of the history")
    add("--step", metavar="DURATION", default="15s", help="of the queries; default: %(default)s")
    add("--query", action="append", default=[], metavar="COLUMN=PROMQL", help="instead of the derived query")
    add("--capacity", action="append", default=[], metavar="METRIC=QUANTITY", help="what a pod can carry")
    add("--pod-startup", metavar="DURATION", default="30s", help="until a pod serves; default: %(default)s")
    add("--sample-age", metavar="DURATION", default="5s", help="of samples; default: %(default)s")
    add("--window", metavar="DURATION", default="15s", help="of samples; 0s: a moment; default: %(default)s")
    add("--html", metavar="FILE", help="also write a page with charts")
    add("--sweep", action="store_true", help="try up to 24 other settings of the policy")
    add("-o", "--output", choices=("text", "json"), default="text", help="default: %(default)s")


def run(parsed: argparse.Namespace) -> int:
    """Replay one policy. Returns the exit status. Raises FaultyDocument."""
    from adapter.commands.replay import report, sweep
    from adapter.commands.replay.compare import compare
    from adapter.commands.replay.inputs import read_service
    from adapter.commands.replay.page import write_page
    from adapter.commands.replay.prometheus import HistoryUnavailable
    from adapter.commands.terminal import output

    try:
        service, ticks = read_service(parsed)
    except HistoryUnavailable as error:
        output.complain(f"effective-load replay: {error}")
        return FAILED
    result = compare(service, ticks)
    data, lines = report.data(result), [*report.lines(result)]
    if parsed.sweep:
        data["sweep"], more = sweep.sweep(result)
        lines += ["", *more]
    if parsed.html:
        write_page(parsed.html, result)
    output.print_json(data) if parsed.output == "json" else output.print_lines(lines)
    return OK


COMMAND = Command(
    name="replay",
    summary="replay a history for a policy and for the stock HPA",
    description="Replay recorded load for a WatermarkPolicy and for the stock HPA.",
    statuses={OK: "replayed", FAILED: "no data", INVALID: "invalid arguments, files or history"},
    examples=(
        Example(
            "effective-load replay checkout.yaml --prometheus http://localhost:9090 --from 7d",
            "last week; files may have the HPA and the workload, too",
        ),
    ),
    add=add_arguments,
    run=run,
)
