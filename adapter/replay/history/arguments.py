"""The arguments for a history from Prometheus; light, as the command line imports them."""

from typing import Any


def add_prometheus(history: Any) -> None:
    """Declare where a history is read, the time it covers, and the queries for it."""
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
