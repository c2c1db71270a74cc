"""Holds the replay against reality: `python -m lab.benchmarks.replay_check` plays a load and replays what was recorded.

The load is played on the real control plane, with the stock HPA, the adapter and a Prometheus that scrapes both pods
and adapter. Then the counts are replayed from that Prometheus alone, with the queries that `replay` derives. Both must
set the same counts in the same order; their times differ by the phase of syncs and scrapes.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from adapter.commands.replay.autoscalers import PolicyAutoscaler
from adapter.commands.replay.history.prometheus import PrometheusHistory
from adapter.commands.replay.history.queries import choose_sources, derive_queries
from adapter.commands.replay.history.span import Span
from adapter.commands.replay.hpas import judge_of
from adapter.commands.replay.service import Change, Setup, Tick
from adapter.commands.replay.simulation import simulate
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from adapter.settings import parse_settings
from lab.benchmarks import record
from lab.benchmarks.replay_play import Record, play, settings
from lab.harness.prometheus import Prometheus

STEP = 1000
"""Milliseconds, as often as Prometheus scrapes."""
STARTS, STOPS = 2.0, 1.0
"""Seconds until a pod of KWOK is Ready, and until a deleted one is gone."""
DELAY = 2.0
"""Seconds from a load to a decision about it: a scrape a second, and a poll a second."""


def replayed(record: Record, folder: Path) -> list[Change]:
    """The changes of the count in a replay of the data in a folder."""
    with Prometheus(flags={"storage.tsdb.path": str(folder / "prometheus")}) as prometheus:
        return replayed_from(record, prometheus, folder / "cache")


def replayed_from(record: Record, prometheus: Prometheus, cache: Path) -> list[Change]:
    """The changes of the count in a replay of what a Prometheus recorded."""
    ticks = list(_history(record, prometheus, cache))
    hpa = parse_hpa(record["hpa"])
    policy = parse_policy(record["policy"])
    setup = Setup(
        replicas=record["replicas"], starts=STARTS, stops=STOPS, sync=record["syncSeconds"], delay=DELAY, lasts=10.0
    )
    first = record["firstSync"]  # the phase of the real syncs
    ticks = [_holding(ticks, first), *(tick for tick in ticks if tick.at > first)]
    (run,) = simulate(ticks, setup, [PolicyAutoscaler(policy, hpa)], judge_of(policy, setup))
    return [change for change in run.changes if change.at <= record["ended"]]


def _holding(ticks: Sequence[Tick], at: float) -> Tick:
    """The tick that holds at a moment, from then on."""
    return [tick for tick in ticks if tick.at <= at][-1]._replace(at=at)


def _history(record: Record, prometheus: Prometheus, cache: Path) -> PrometheusHistory:
    sources = choose_sources(parse_settings(yaml.safe_dump(settings(prometheus.url))), "", "")
    queries = derive_queries(parse_policy(record["policy"]), parse_hpa(record["hpa"]).target, sources)
    first, last = round(record["began"]) * STEP - 5 * STEP, round(record["ended"]) * STEP
    return PrometheusHistory(queries, Span(first, last, STEP), cache, now=time.time())


def compared(record: Record, changes: Sequence[Change]) -> dict[str, Any]:
    """The figures of the check; `same` says whether the sequences of counts are equal."""
    real = record["changes"]
    counts = [one["replicas"] for one in real]
    replays = [change.after for change in changes]
    late = [abs(change.at - one["at"]) for one, change in zip(real, changes, strict=False)]
    return {
        "seconds": round(record["ended"] - record["began"]),
        "syncSeconds": record["syncSeconds"],
        "syncs": record["syncs"],
        "failedSyncs": record["failed"],
        "stretches": len(record["stretches"]),
        "changes": len(counts),
        "same": counts == replays,
        "firstDifference": _first_difference(counts, replays),
        "apartSeconds": {"median": round(sorted(late)[len(late) // 2], 2), "most": round(max(late), 2)} if late else {},
        "counts": [record["replicas"], *counts],
        "replayed": [record["replicas"], *replays],
    }


def _first_difference(counts: Sequence[int], replays: Sequence[int]) -> int | None:
    for number in range(max(len(counts), len(replays))):
        if counts[number : number + 1] != replays[number : number + 1]:
            return number
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, replay, compare; the status is 1 where the counts differ."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.replay_check", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800, help="how long to play (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of the load (default: %(default)s)")
    parser.add_argument(
        "--folder", type=Path, help="for the record and the data of Prometheus (default: a temporary one)"
    )
    parser.add_argument("--replay-only", action="store_true", help="replay what the folder holds from an earlier run")
    parser.add_argument("-o", dest="output", metavar="FILE", type=Path)
    parsed = parser.parse_args(arguments)
    folder = parsed.folder or Path(tempfile.mkdtemp(prefix="replay-check-"))
    if parsed.replay_only:
        played = json.loads((folder / "record.json").read_text())
    else:
        played = play(parsed.seconds, folder, parsed.seed)
    figures = compared(played, replayed(played, folder))
    print(json.dumps(figures, indent=2))
    if parsed.output:
        record.write(parsed.output, figures)
    return 0 if figures["same"] else 1


if __name__ == "__main__":
    sys.exit(main())
