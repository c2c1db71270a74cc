"""The replay of what Prometheus recorded sets the counts that the real control plane has set.

`python -m lab.benchmarks.replay_check` plays longer, with ramps, cooldowns and falling loads.
"""

from pathlib import Path

from lab.benchmarks.replay_check import replayed_from
from lab.benchmarks.replay_play import Stretch, play_on, scrape, settings
from lab.harness.prometheus import Exporter, Prometheus
from lab.harness.workloads import Workloads
from tests.e2e.conftest import MakeAdapter

STILL = 10.0
"""Longer than a pulled-out pod waits for its replacement, and a sync of the HPA."""


def test_the_replay_of_a_recorded_load_sets_the_same_counts(
    make_adapter: MakeAdapter, workloads: Workloads, exporter: Exporter, tmp_path: Path
) -> None:
    prometheus = Prometheus([exporter])
    adapter = make_adapter(settings(prometheus.url))
    scrape(prometheus, exporter, adapter)
    with prometheus:
        record = play_on(workloads, exporter, [Stretch(753), Stretch(753, pulled_out=1)], STILL)
        changes = replayed_from(record, prometheus, tmp_path)
    assert [one["replicas"] for one in record["changes"]] == [8, 9]  # the pulled-out one is replaced after 5 s
    assert [change.after for change in changes] == [8, 9]
