"""A migrated pair does in closed loop what the original did, where no note says otherwise."""

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.cli import INVALID, OK, main
from adapter.commands.migrate.migration import migrate
from adapter.commands.replay.autoscalers import PolicyAutoscaler
from adapter.commands.replay.originals import autoscaler_of
from adapter.commands.replay.service import Judge, Run, Setup, Tick
from adapter.commands.replay.simulation import simulate
from adapter.load.quantity import NANO
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from tests.migrate.kit import EXAMPLES, SCALED, WPA, Object, changed, text_of

START = 1_767_225_600.0
SCALES = {"watermarkpodautoscaler": 300, "kube-metrics-adapter": 900, "prometheus-adapter": 400, "scaledobject": 200}


def loads(metric: str, mean: float, hours: float = 5.0) -> Iterator[Tick]:
    """Waves with jumps, of which each lasts for several syncs."""
    for index in range(int(hours * 240)):
        wave = 1 + 0.6 * math.sin(index / 90) + (0.7 if index % 700 > 640 else 0.0)
        yield Tick(START + 15 * index, {metric: round(mean * wave * NANO)})


def example(name: str) -> str:
    """The original's text."""
    return (EXAMPLES / f"{name}.yaml").read_text()


def played(text: str, ticks: Iterator[Tick] | None = None, mean: float = 300.0) -> tuple[Run, Run]:
    """The original, and the pair that it becomes, over the same load."""
    [pair] = migrate([("it", text)]).pairs
    assert pair.original is not None
    [metric] = pair.policy["spec"]["metrics"]
    name = metric["name"]
    is_total = "by (namespace, pod)" not in metric["query"].get("promQL", "")
    policy = PolicyAutoscaler(parse_policy(pair.policy), parse_hpa(pair.hpa), totals=(name,) if is_total else ())
    setup = Setup(replicas=6, starts=5.0, stops=1.0)
    original, ours = simulate(
        loads(name, mean) if ticks is None else ticks,
        setup,
        [autoscaler_of(pair.original, "theirs"), policy],
        Judge({}),
    )
    return original, ours


@pytest.mark.parametrize("name", SCALES)
def test_a_migrated_pair_has_the_counts_of_its_original(name: str) -> None:
    original, ours = played(example(name), mean=SCALES[name])
    assert original.summary.changes > 15
    assert abs(ours.summary.pod_seconds / original.summary.pod_seconds - 1) < 0.03
    assert (ours.summary.peak, ours.summary.least) == (original.summary.peak, original.summary.least)


def random_wpa(seed: int) -> Object:
    """An object with random options; its metric is one number for the service."""
    chance = random.Random(seed)
    high = chance.choice([40, 85, 100])
    metric = {"metricName": "q", "metricSelector": {}, "highWatermark": f"{high}", "lowWatermark": f"{high // 2}"}
    # A step of convergence is rounded to a multiple here, and not there.
    multiple = chance.choice([1, 3])
    converge = chance.choice(["", "highwatermark", "lowwatermark"]) if multiple == 1 else ""
    options = {
        "minReplicas": chance.choice([1, 5]),
        "maxReplicas": chance.choice([20, 60]),
        "tolerance": chance.choice(["10m", "100m"]),
        "scaleUpLimitFactor": chance.choice([20, 100]),
        "scaleDownLimitFactor": chance.choice([10, 50]),
        "upscaleForbiddenWindowSeconds": chance.choice([1, 120]),
        "downscaleForbiddenWindowSeconds": chance.choice([1, 300]),
        "replicaScalingAbsoluteModulo": multiple,
        "convergeTowardsWatermark": converge,
        "upscaleDelayAboveWatermarkSeconds": chance.choice([0, 60]),
    }
    return {**WPA, "spec": {**WPA["spec"], **options, "metrics": [{"type": "External", "external": metric}]}}


@pytest.mark.parametrize("seed", range(8))
def test_the_pair_of_any_watermark_pod_autoscaler_follows_it_closely(seed: int) -> None:
    original, ours = played(text_of(random_wpa(seed)), loads("q", 900, hours=3.0))
    assert abs(ours.summary.pod_seconds / original.summary.pod_seconds - 1) < 0.02
    assert abs(ours.summary.peak - original.summary.peak) <= 2
    assert abs(ours.summary.least - original.summary.least) <= 2


def test_keda_goes_to_zero_after_its_cooldown_and_comes_back_which_the_pair_does_not() -> None:
    def ticks() -> Iterator[Tick]:
        for index in range(240):
            yield Tick(START + 15 * index, {"prometheus-0": 0 if 20 <= index < 160 else 300 * NANO})

    original, ours = played(text_of(changed(SCALED, "spec", "minReplicaCount", to=0)), ticks())
    falls = [change for change in original.changes if change.after == 0]
    rises = [change for change in original.changes if change.before == 0]
    assert [round((one.at - START) / 60) for one in falls] == [10]  # 5 minutes after the last load
    assert rises[0].at - START >= 160 * 15
    assert rises[0].after == 1
    assert ours.summary.least == 1


def test_the_command_replays_a_pair_against_the_original(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = str(EXAMPLES / "scaledobject.yaml")
    assert main(["migrate", original]) == OK
    pair, history = tmp_path / "pair.yaml", tmp_path / "history.csv"
    pair.write_text(capsys.readouterr().out)
    rows = [f"{tick.at:.0f},{tick.load['prometheus-0'] / NANO}" for tick in loads("prometheus-0", 200, 2.0)]
    history.write_text("\n".join(["time,prometheus-0", *rows]))
    arguments = ["replay", str(pair), "--csv", str(history), "--total", "prometheus-0", "--against"]
    assert main([*arguments, original]) == OK
    assert "ScaledObject thumbnails, --against" in capsys.readouterr().out
    other = tmp_path / "other.yaml"
    other.write_text("kind: Service\napiVersion: v1\nmetadata: {name: a}\n")
    assert main([*arguments, str(other)]) == INVALID
    assert "cannot be migrated; known are" in capsys.readouterr().err
