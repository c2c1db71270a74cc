"""The model and the real controller, sync by sync, with the same random HPAs, pods and values."""

import copy
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from adapter.hpa.controller import Controller, Sync, Values
from adapter.hpa.pods import ModelPod
from adapter.policy.hpa import parse_hpa
from lab.harness.control_plane import ControlPlane
from lab.harness.processes import free_ports
from lab.harness.workloads import until
from tests.replay.hpa.kit import FLAGS, GROUP, KIND, NAMESPACE, Line, Series, SeriesServer, create, register, syncs

DECISIONS = int(os.environ["EFFECTIVE_LOAD_HPA_DECISIONS"])
SECONDS = 60 + DECISIONS / 8
"""The controller makes about 45 decisions a second, on a busy machine fewer."""
HPAS = 48
LATE_SECONDS = 0.02
"""How much the log's times may be off what the controller compared, on an idle machine: its line is written later."""
pytestmark = [pytest.mark.e2e, pytest.mark.versions, pytest.mark.timeout(300 + SECONDS)]


@pytest.fixture
def played() -> Iterator[tuple[dict[str, Series], dict[str, list[Line]]]]:
    """Every HPA's series, and its syncs as the controller's log has them."""
    rng = random.Random(5)
    flags = {"downscale-stabilization": "5s", "cpu-initialization-period": "40s", "initial-readiness-delay": "10s"}
    # The garbage collector of pods makes terminating ones without a node Failed.
    controllers = "*,-pod-garbage-collector-controller"
    off = dict.fromkeys(("scheduler", "kwok", "metrics_server"), False)
    with ControlPlane(nodes=0, **off, hpa_sync=0.43, hpa_flags=flags, controllers=controllers) as cluster:
        series = {one.name: one for one in (_series(rng, number, time.time()) for number in range(HPAS))}
        [port] = free_ports(1)
        pair = cluster.pki.cluster.issue("series", hosts=["localhost", "127.0.0.1"], file="series")
        with SeriesServer(series, (pair.cert_file, pair.key_file), port):
            register(cluster, port)
            create(cluster, series)
            log = cluster.hpa_log

            def decided() -> int:
                return sum(1 for name, _ in syncs(log.lines()) if name in series)

            until(lambda: decided() >= DECISIONS, SECONDS, lambda: f"only {decided()} decisions", every=5.0)
            found = defaultdict(list)
            for name, line in syncs(log.lines()):
                found[name].append(line)
            yield series, found


def _series(rng: random.Random, number: int, now: float) -> Series:
    name, scale = f"h{number}", rng.choice((4_000, 15_000, 60_000))
    minimum = rng.choice((1, 1, 2, 5))
    maximum = minimum + rng.choice((0, 10, 40, 200))
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": f"{GROUP}/v1", "kind": KIND, "name": name},
        "minReplicas": minimum,
        "maxReplicas": maximum,
        "metrics": [_metric(rng, name, index) for index in range(rng.choice((1, 1, 2)))],
    }
    if rng.random() < 0.8:
        spec["behavior"] = {direction: _rules(rng) for direction in ("scaleUp", "scaleDown") if rng.random() < 0.8} or {
            "scaleUp": {}
        }
    walk = {"value": float(scale)}

    def draw(values: random.Random) -> float:
        walk["value"] = min(max(walk["value"] * values.uniform(0.6, 1.6), 300.0), 300_000.0)
        return walk["value"]

    return Series(
        name=name,
        hpa={
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec,
        },
        replicas=rng.randint(0 if rng.random() < 0.1 else 1, 60),
        status_replicas=rng.choice((1, 3, 10, 30)),
        pods=tuple(_pod(rng, f"{name}-{index}", now) for index in range(rng.randint(1, 8))),
        draw=draw,
    )


def _metric(rng: random.Random, name: str, index: int) -> dict[str, Any]:
    identifier = {"name": f"{name}.m{index}"}
    average = {"type": "AverageValue", "averageValue": f"{rng.choice((1000, 700, 2500))}m"}
    value = {"type": "Value", "value": f"{rng.choice((4000, 9000))}m"}
    described = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "name": name}
    choices: list[dict[str, Any]] = [
        {"type": "External", "external": {"metric": identifier, "target": average}},
        {"type": "External", "external": {"metric": identifier, "target": value}},
        {"type": "Object", "object": {"metric": identifier, "describedObject": described, "target": average}},
        {"type": "Object", "object": {"metric": identifier, "describedObject": described, "target": value}},
        {"type": "Pods", "pods": {"metric": identifier, "target": average}},
    ]
    if index == 0:  # once an HPA: the stand-in cannot tell two requests for a resource apart
        utilization = {"type": "Utilization", "averageUtilization": rng.choice((50, 80, 150))}
        choices += [
            {"type": "Resource", "resource": {"name": "cpu", "target": each}} for each in (utilization, average)
        ]
    return rng.choice(choices)


def _rules(rng: random.Random) -> dict[str, Any]:
    rules: dict[str, Any] = {}
    if rng.random() < 0.7:
        rules["stabilizationWindowSeconds"] = rng.choice((0, 1, 2, 4))
    if rng.random() < 0.5:
        rules["tolerance"] = rng.choice(("0", "0.05", "0.07", "0.3"))
    if rng.random() < 0.8:
        rules["policies"] = [
            {
                "type": rng.choice(("Pods", "Percent")),
                "value": rng.choice((1, 3, 10, 30, 80, 100, 150)),
                "periodSeconds": rng.choice((1, 2, 3, 6)),
            }
            for _ in range(rng.choice((1, 1, 2)))
        ]
        rules["selectPolicy"] = rng.choice(("Max", "Max", "Min", "Disabled"))
    return rules


def _pod(rng: random.Random, name: str, now: float) -> ModelPod:
    started = float(int(now - rng.choice((10, 60, 600))))
    return ModelPod(
        name=name,
        phase=rng.choices(("Running", "Pending", "Failed"), (8, 1, 1))[0],
        deleting=rng.random() < 0.1,
        ready=rng.choices(("True", "False", ""), (8, 2, 1))[0],
        ready_since=started + rng.choice((0, 3, 12, 20)),
        started=started if rng.random() < 0.95 else None,
        containers={"app": {"cpu": rng.choice((500, 1000, 2000))}},
    )


def _compared(series: Series, lines: list[Line]) -> tuple[list[str], int]:
    """As `_played`; no log says how long the first sync waited before its first request, so what fits best counts.

    Where the first sync asks nothing, because the count is out of bounds, its own line says when it began.
    """
    outcomes = []
    for waited in (0.0, 0.3, 1.0):
        outcomes.append(_played(series, lines, waited))
        if not outcomes[-1][0]:
            break
    return min(outcomes, key=lambda outcome: len(outcome[0]))


def _played(series: Series, lines: list[Line], waited: float) -> tuple[list[str], int]:
    """What differs, a line each, and how often a time had to be nudged."""
    assert series.first_asked is not None
    begun_at = min(series.first_asked - waited, lines[0].normalized_at)
    controller = Controller(parse_hpa(series.hpa), FLAGS)
    names = [metric.name for metric in parse_hpa(series.hpa).metrics]
    # The times that the controller compared are between two of a sync's lines, which a busy machine draws apart.
    late = max(LATE_SECONDS, *(line.written_at - line.normalized_at for line in lines))
    nudges = (0.0, -LATE_SECONDS, LATE_SECONDS, -late, late)
    differences, nudged, asked, replicas = [], 0, 0, series.replicas
    for line in lines:
        replicas = replicas if line.failed else line.current
        computed = line.proposed is not None or line.failed
        values = [series.given[name][asked] for name in names] if computed else ["not asked"] * len(names)
        asked += computed
        for nudge in nudges:
            trial = copy.deepcopy(controller)
            sync = _sync(trial, line, nudge, replicas, values, series, begun_at)
            if _agrees(sync, line, replicas):
                nudged += nudge != 0.0
                controller = trial
                break
        else:
            differences.append(f"{series.name} at {replicas}: {line} but {sync}")
            _sync(controller, line, 0.0, replicas, values, series, begun_at)
        replicas = replicas if line.failed else line.desired
    return differences, nudged


def _sync(
    controller: Controller,
    line: Line,
    nudge: float,
    replicas: int,
    values: list[Values],
    series: Series,
    begun_at: float,
) -> Sync:
    return controller.sync(
        line.normalized_at + nudge,
        replicas,
        values,
        series.pods,
        series.status_replicas,
        begun_at=begun_at,
        written_at=line.written_at,
    )


def _agrees(sync: Sync, line: Line, replicas: int) -> bool:
    if line.failed:
        return sync.replicas == replicas and sync.recommendation is None
    return sync.replicas == line.desired and (line.proposed is None or max(0, line.proposed) == sync.recommendation)


def test_every_count_of_the_real_controller_is_that_of_the_model(
    played: tuple[dict[str, Series], dict[str, list[Line]]],
) -> None:
    series, found = played
    outcomes = [_compared(series[name], lines) for name, lines in found.items()]
    decisions = sum(len(lines) for lines in found.values())
    differences = [one for each, _ in outcomes for one in each]
    nudged = sum(count for _, count in outcomes)
    print(f"{decisions} decisions of {len(found)} HPAs, {len(differences)} differences, {nudged} nudged")
    assert decisions >= DECISIONS
    assert not differences, "\n".join(differences[:10])
    assert nudged <= decisions / 50
    assert sum(line.desired != line.current for lines in found.values() for line in lines) > decisions / 20
