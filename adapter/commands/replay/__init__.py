"""What would have happened: models of the stock HPA and of services, and the commands that run them.

Here the command `effective-load replay` is declared; what runs it is imported only once it runs.
"""

import argparse

from adapter.commands.terminal.command import FAILED, INVALID, OK, Command, Example, add_output


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Declare what a replay is told: the policy, the history, how pods behave, and what comes out."""
    command.add_argument(
        "policy", metavar="POLICY", nargs="?", help="YAML file with a WatermarkPolicy, and its HPA if you like"
    )
    command.add_argument(
        "--hpa", metavar="FILE", help="the HPA: its bounds and behavior, and its metrics as the HPA to compare with"
    )
    command.add_argument(
        "--against", metavar="FILE", help="a second WatermarkPolicy to compare with, and its HPA if you like"
    )
    _add_history(command)
    _add_pods(command)
    _add_fleet(command)
    command.add_argument("--price", metavar="MONEY", help="the price of a pod for an hour")
    command.add_argument("--html", metavar="FILE", help="also write a page with charts, which needs nothing else")
    add_output(command)


def run(parsed: argparse.Namespace) -> int:
    """Replay one service or many. Raises FaultyDocument."""
    from adapter.commands.replay import command
    from adapter.commands.replay.fleet import command as fleet
    from adapter.commands.replay.history.prometheus import HistoryUnavailable
    from adapter.commands.terminal import output
    from adapter.commands.terminal.waiting import Interrupted, ended_by_signals
    from adapter.kube.errors import KubeError

    play = fleet.run if parsed.all else command.run
    try:
        with ended_by_signals():
            return play(parsed, output.print_line)
    except (HistoryUnavailable, KubeError) as error:
        output.complain(f"effective-load replay: {error}")
    except Interrupted as interrupted:
        output.complain("effective-load replay: interrupted")
        return interrupted.status
    return FAILED


def _add_history(command: argparse.ArgumentParser) -> None:
    history = command.add_argument_group("history")
    history.add_argument(
        "--csv", metavar="FILE", help="columns: time, one per metric, pulled_out, replicas; - reads standard input"
    )
    history.add_argument("--prometheus", metavar="URL", help="Prometheus, Thanos or Mimir, without credentials")
    history.add_argument("--settings", metavar="FILE", help="settings with Prometheus servers and named queries")
    history.add_argument(
        "--from", dest="begin", metavar="TIME", help="RFC 3339, seconds since the epoch, or 7d for 7 days ago"
    )
    history.add_argument("--to", dest="end", metavar="TIME", help="likewise; default: now, or the end of the CSV file")
    history.add_argument("--step", metavar="DURATION", default="15s", help="of the queries; default: %(default)s")
    history.add_argument(
        "--query",
        action="append",
        default=[],
        metavar="METRIC=PROMQL",
        help="the load of the whole service, instead of the derived query; $namespace and $workload are replaced",
    )
    history.add_argument("--pulled-out-query", metavar="PROMQL", help="the number of pulled-out pods")


def _add_pods(command: argparse.ArgumentParser) -> None:
    pods = command.add_argument_group("pods")
    for name, text in (
        ("--capacity", "what one pod can carry, such as cpu=1500m; may be repeated"),
        ("--request", "what one pod requests of a resource; may be repeated"),
        ("--limit", "what one pod may use of a resource; may be repeated"),
    ):
        pods.add_argument(name, action="append", default=[], metavar="METRIC=QUANTITY", help=text)
    for name, default, text in (
        ("--starts", "30s", "until a new pod serves"),
        ("--delay", "5s", "the age of samples"),
        ("--window", "15s", "what samples are averaged over, 0s for a single moment"),
    ):
        pods.add_argument(name, metavar="DURATION", default=default, help=f"{text}; default: %(default)s")


def _add_fleet(command: argparse.ArgumentParser) -> None:
    fleet = command.add_argument_group("many services")
    fleet.add_argument("--all", action="store_true", help="every policy of the cluster")
    fleet.add_argument("-n", "--namespace", metavar="NAME", help="with --all: only the policies of this namespace")
    fleet.add_argument("--kubeconfig", metavar="FILE", help="with --all: as for serve")
    fleet.add_argument(
        "--shard", metavar="I/N", help="with --all: only part I of N, counted from 0; one line of JSON for each service"
    )


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
            "effective-load replay checkout.yaml --csv week.csv --capacity cpu=1500m --price 0.04",
            "a recorded week, with what the pods cost",
        ),
        Example("effective-load replay --all --prometheus http://localhost:9090 --from 7d", "each policy of a cluster"),
    ),
    add=add_arguments,
    run=run,
)
