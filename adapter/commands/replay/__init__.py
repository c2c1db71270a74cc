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
        "--against",
        metavar="FILE",
        help="a second WatermarkPolicy to compare with, or the object that `migrate` made POLICY of",
    )
    _add_history(command)
    _add_pods(command)
    _add_fleet(command)
    command.add_argument("--price", metavar="MONEY", help="the price of a pod for an hour")
    command.add_argument("--html", metavar="FILE", help="also write a page with charts, which needs nothing else")
    command.add_argument(
        "--suggest", action="store_true", help="also suggest watermarks and a pace downwards; nothing is applied"
    )
    command.add_argument(
        "--shortfall",
        metavar="PERCENT",
        help="with --suggest: how much of the load may be beyond the pods' capacity, such as 0.1%%; default: as now",
    )
    command.add_argument(
        "--front",
        action="store_true",
        help="also show the pod-hours of each autoscaler at equal shortfall, for several of them; needs --capacity",
    )
    add_output(command)


def run(parsed: argparse.Namespace) -> int:
    """Replay one service or many. Raises FaultyDocument."""
    from adapter.commands.replay import command
    from adapter.commands.replay.fleet import command as fleet
    from adapter.commands.replay.history.prometheus import HistoryUnavailable
    from adapter.commands.terminal import output
    from adapter.commands.terminal.waiting import Interrupted, ended_by_signals
    from adapter.kube.errors import KubeError

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
    history.add_argument("--prometheus", metavar="URL", help="Prometheus, Thanos or Mimir, without credentials")
    history.add_argument("--settings", metavar="FILE", help="settings with Prometheus servers and named queries")
    history.add_argument("--server", metavar="NAME", help="the server of the settings; default: the only one")
    history.add_argument(
        "--from", dest="begin", metavar="TIME", help="RFC 3339, seconds since the epoch, or 7d for 7 days ago"
    )
    history.add_argument("--to", dest="end", metavar="TIME", help="likewise; default: now, or the end of the CSV file")
    history.add_argument("--step", metavar="DURATION", default="15s", help="of the queries; default: %(default)s")
    history.add_argument(
        "--cache", metavar="DIR", help="keep finished parts of the history here: an interrupted run goes on from them"
    )
    history.add_argument(
        "--query",
        action="append",
        default=[],
        metavar="METRIC=PROMQL",
        help="the load of the whole service, instead of the derived query; $namespace and $workload are replaced",
    )
    history.add_argument("--pulled-out-query", metavar="PROMQL", help="the number of pulled-out pods")
    history.add_argument("--replicas-query", metavar="PROMQL", help="the number of replicas")


def _add_pods(command: argparse.ArgumentParser) -> None:
    pods = command.add_argument_group("pods")
    for name, text in (
        ("--capacity", "what one pod can carry, such as cpu=1500m; may be repeated"),
        ("--request", "what one pod requests of a resource; may be repeated"),
        ("--limit", "what one pod may use of a resource; may be repeated"),
    ):
        pods.add_argument(name, action="append", default=[], metavar="METRIC=QUANTITY", help=text)
    text = "the policy's query gives one number for the service"
    pods.add_argument("--total", action="append", default=[], metavar="METRIC", help=text)
    for name, default, text in (
        ("--starts", "30s", "until a new pod serves"),
        ("--stops", "5s", "until a deleted pod is gone"),
        ("--sync", "15s", "the HPA's sync period"),
        ("--delay", "5s", "the age of samples"),
        ("--window", "15s", "what samples are averaged over, 0s for a single moment"),
    ):
        pods.add_argument(name, metavar="DURATION", default=default, help=f"{text}; default: %(default)s")
    pods.add_argument("--replicas", metavar="N", type=int, help="the count at the beginning; default: the recorded one")
    pods.add_argument(
        "--open", action="store_true", help="pods carry what they carried at the recorded count, whatever is scaled"
    )


def _add_fleet(command: argparse.ArgumentParser) -> None:
    fleet = command.add_argument_group("many services")
    fleet.add_argument("--all", action="store_true", help="every policy of the cluster, or of --policies DIR")
    fleet.add_argument("-n", "--namespace", metavar="NAME", help="with --all: only the policies of this namespace")
    fleet.add_argument("--policies", metavar="DIR", help="with --all: the policies in the YAML files of this folder")
    fleet.add_argument("--kubeconfig", metavar="FILE", help="with --all: as for serve")
    fleet.add_argument("--workers", metavar="N", type=int, help="processes; default: one a core")
    fleet.add_argument(
        "--shard", metavar="I/N", help="with --all: only part I of N (0 to N-1), as JSON for --merge; such as 0/8"
    )
    fleet.add_argument("--part", metavar="FILE", help="with --shard: write the part here, not to standard output")
    fleet.add_argument("--merge", metavar="PART", nargs="+", help="rank the parts of a run, without replaying anything")
    fleet.add_argument(
        "--annotate",
        action="store_true",
        help="with --all: also search watermarks for each policy, and write what is recommended into the policy's "
        "annotation effective-load.io/recommendation, which only people read",
    )
    fleet.add_argument(
        "--top", metavar="N", type=int, default=20, help="services in each ranking of the text; default: %(default)s"
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
            "effective-load replay checkout.yaml --csv week.csv --capacity cpu=1500m --price 0.04 --suggest",
            "a recorded week, with other watermarks that fit it",
        ),
        Example("effective-load replay --all --prometheus http://localhost:9090 --from 7d", "each policy of a cluster"),
    ),
    add=add_arguments,
    run=run,
)
