"""The command `effective-load replay`: declared apart, so that the command line need not load what runs it."""

import argparse
from typing import Any

from adapter.replay.fleet.arguments import add_fleet
from adapter.replay.history.arguments import add_prometheus
from adapter.terminal.command import FAILED, INVALID, OK, Command, Example, add_output


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare what a replay is told: the policy, the history, how pods behave, and what comes out."""
    command.add_argument(
        "policy", metavar="POLICY", nargs="?", help="YAML file with a WatermarkPolicy, and its HPA if you like"
    )
    command.add_argument(
        "--hpa", metavar="FILE", help="the HPA: its bounds and behavior, and its metrics as the HPA to compare with"
    )
    command.add_argument(
        "--against",
        metavar="FILE",
        help="a second WatermarkPolicy to compare with, or the object that `migrate` made POLICY of",
    )
    _add_history(command)
    _add_pods(command)
    add_fleet(command)
    command.add_argument("--price", metavar="MONEY", help="the price of a pod for an hour")
    command.add_argument("--html", metavar="FILE", help="also write a page with charts, which needs nothing else")
    command.add_argument(
        "--suggest", action="store_true", help="also suggest watermarks, velocity and cooldown; nothing is applied"
    )
    add_output(command)


def run(parsed: argparse.Namespace) -> int:
    """Replay one service or many. Raises FaultyDocument."""
    from adapter.kube.errors import KubeError
    from adapter.replay import command
    from adapter.replay.fleet import command as fleet
    from adapter.replay.history.prometheus import HistoryUnavailable
    from adapter.runtime.signals import Interrupted, ended_by_signals
    from adapter.terminal import output

    play = fleet.run if parsed.all or parsed.merge else command.run
    try:
        with ended_by_signals():
            return play(parsed, output.print_line)
    except (HistoryUnavailable, KubeError) as error:
        output.complain(f"effective-load replay: {error}")
    except Interrupted as interrupted:
        kept = f"; the finished parts of the history are in {parsed.cache}" if parsed.cache else ""
        output.complain(f"effective-load replay: interrupted{kept}")
        return interrupted.status
    return FAILED


def _add_history(command: argparse.ArgumentParser) -> None:
    history = command.add_argument_group("history")
    history.add_argument(
        "--csv", metavar="FILE", help="columns: time, one per metric, pulled_out, replicas; - reads standard input"
    )
    add_prometheus(history)


def _add_pods(command: argparse.ArgumentParser) -> None:
    pods = command.add_argument_group("pods")
    _add_amounts(pods, "--capacity", "what one pod can carry, such as cpu=1500m; may be repeated")
    _add_amounts(pods, "--request", "what one pod requests of a resource; may be repeated")
    _add_amounts(pods, "--limit", "what one pod may use of a resource; may be repeated")
    pods.add_argument(
        "--total",
        action="append",
        default=[],
        metavar="METRIC",
        help="the policy's query gives one number for the service",
    )
    pods.add_argument(
        "--starts", metavar="DURATION", default="30s", help="until a new pod serves; default: %(default)s"
    )
    pods.add_argument(
        "--stops", metavar="DURATION", default="5s", help="until a deleted pod is gone; default: %(default)s"
    )
    pods.add_argument("--sync", metavar="DURATION", default="15s", help="the HPA's sync period; default: %(default)s")
    pods.add_argument("--delay", metavar="DURATION", default="0s", help="the age of samples; default: %(default)s")
    pods.add_argument("--window", metavar="DURATION", help="what samples are averaged over; default: a single moment")
    pods.add_argument("--replicas", metavar="N", type=int, help="the count at the beginning; default: the recorded one")
    pods.add_argument(
        "--open", action="store_true", help="pods carry what they carried at the recorded count, whatever is scaled"
    )


def _add_amounts(pods: Any, name: str, text: str) -> None:
    pods.add_argument(name, action="append", default=[], metavar="METRIC=QUANTITY", help=text)


COMMAND = Command(
    name="replay",
    summary="replay a history for a policy and for the stock HPA",
    description="Replay the load of a service in closed loop: what the stock HPA on the raw and on the effective "
    "average, this policy and perhaps another one would have done.",
    statuses={OK: "replayed", FAILED: "no data", INVALID: "the arguments, files or the history are invalid"},
    examples=(
        Example(
            "effective-load replay checkout.yaml --prometheus http://localhost:9090 --from 7d --html week.html",
            "last week, from Prometheus, with a page of charts",
        ),
        Example(
            "effective-load replay checkout.yaml --csv week.csv --capacity cpu=1500m --price 0.04 --suggest",
            "a recorded week, with other watermarks that fit it",
        ),
        Example("effective-load replay --all --prometheus http://localhost:9090 --from 7d", "each policy of a cluster"),
    ),
    add=add_arguments,
    run=run,
)
