"""What would have happened: the recorded load of services in closed loop, for the stock HPA and for policies.

Here the command `effective-load replay` is declared; what runs it is imported only once it runs.
"""

import argparse
import functools
from typing import Any

from adapter.commands.terminal.command import FAILED, INVALID, OK, Command, Example

_WIDEST_OPTION = 34


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare the arguments: the policy, the history, how pods behave, and the output. The help fits 40 lines."""
    command.usage = "effective-load replay FILE… (--csv FILE | --prometheus URL --from TIME) [options]"
    command.formatter_class = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=_WIDEST_OPTION)
    add = command.add_argument
    add("files", metavar="FILE", nargs="+", help="policy, its HPA and workload; of many policies: a table")
    add("--against", metavar="FILE", help="another WatermarkPolicy to compare with")
    add("--csv", metavar="FILE", help="time, metrics, pulled_out, replicas")
    add("--prometheus", metavar="URL", help="Prometheus, Thanos or Mimir")
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
    """Replay one policy or many. Returns the exit status. Raises FaultyDocument."""
    from concurrent.futures import BrokenExecutor

    from adapter.commands.replay import inputs
    from adapter.commands.replay.prometheus import HistoryUnavailable
    from adapter.commands.terminal import output
    from adapter.commands.terminal.waiting import Interrupted, ended_by_signals
    from adapter.policy.watermark_policy import KIND

    try:
        with ended_by_signals():
            objects = inputs.read_objects(parsed.files, parsed.csv)
            policies = [one for one in objects if one.kind == KIND]
            return _run_one(parsed, policies[0], objects) if len(policies) == 1 else _run_all(parsed, objects)
    except HistoryUnavailable as error:
        output.complain(f"effective-load replay: {error}")
    except BrokenExecutor:
        output.complain(
            "effective-load replay: a process ended, perhaps out of memory; replay fewer policies at a time"
        )
    except Interrupted as interrupted:
        output.complain("effective-load replay: interrupted")
        return interrupted.status
    return FAILED


def _run_one(parsed: argparse.Namespace, policy: Any, objects: Any) -> int:
    from adapter.commands.replay import report, sweep
    from adapter.commands.replay.compare import compare
    from adapter.commands.replay.inputs import read_service, read_ticks
    from adapter.commands.replay.page import write_page
    from adapter.commands.terminal import output

    service = read_service(parsed, policy, objects)
    ticks = read_ticks(parsed, service)
    if not ticks:
        output.complain("effective-load replay: the history has no data for that time; change --from and --to")
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


def _run_all(parsed: argparse.Namespace, objects: Any) -> int:
    from adapter.commands.replay import fleet
    from adapter.commands.terminal import output

    rows = fleet.replay_all(parsed, objects)
    output.print_json(fleet.data(rows)) if parsed.output == "json" else output.print_lines(fleet.lines(rows))
    return OK if any(not row.error for row in rows) else FAILED


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
