"""The count that is asked for is the count that the real HPA sets; in coarse mode it is that, or the current one.

Each step has an HPA and a target of its own, and the metric's value is what the adapter serves for the step.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from adapter.load.assessment import Limited
from adapter.load.decide import served_value, within_hpa_tolerance
from adapter.load.spec import Bounds, HpaTolerance, Scale
from adapter.policy.behavior import count_metric, hpa_manifest
from adapter.policy.hpa import DEFAULT_TOLERANCE, CrossVersionReference, parse_hpa
from lab.harness import binaries
from lab.harness.control_plane import ControlPlane
from lab.harness.processes import free_ports
from lab.harness.workloads import until
from tests.replay.hpa.kit import GROUP, KIND, NAMESPACE, PLURAL, Series, SeriesServer, create, register
from tests.vectors.test_vectors import EXPECTED, answered

pytestmark = pytest.mark.timeout(600)

MAXIMUM = 1000
TOLERANCE = HpaTolerance(DEFAULT_TOLERANCE, DEFAULT_TOLERANCE)
GATE = "HPAConfigurableTolerance"
EXACT, COARSE = "exact", "coarse"
MODES = {EXACT: binaries.HPA_TOLERANCE, COARSE: binaries.HPA_TOLERANCE_GATE}
"""Which modes the version can have."""


class Step(NamedTuple):
    """From a count with this many pods to the count that is asked for."""

    current: int
    pods: int
    wanted: int


def steps_of_the_vectors() -> Iterator[Step]:
    """What each vector asks for. At 0 the HPA asks no metric; that is another test's."""
    for name in EXPECTED:
        answer = answered(name)
        if answer["desiredReplicas"] and answer["current"]:
            yield Step(answer["current"], answer["current"], answer["desiredReplicas"])


def steps_of_a_surge() -> Iterator[Step]:
    """Steps while pods surge."""
    for current in (1, 2, 5, 9, 10, 11, 19, 20, 21, 50, 99, 100, 101, 150, 200):
        for surge in (1, max(1, current // 8)):
            yield Step(current, current + surge, current)
            yield Step(current, current + surge, current + 1)


def steps_at_the_tolerance() -> Iterator[Step]:
    """From each count of 1 to 200 the largest steps of at most 10 %, and the smallest beyond; from some also others."""
    for current in range(1, 201):
        changes = {current // 10, current // 10 + 1}
        if current % 10 < 2:
            changes |= {1, current // 2, current}
        for change in changes:
            for wanted in (current + change, current - change):
                if wanted >= 1:
                    yield Step(current, current, wanted)


ALL = sorted({*steps_of_the_vectors(), *steps_of_a_surge(), *steps_at_the_tolerance()})


class Made(NamedTuple):
    """What the real controller has made of the steps that were answered: each HPA as it is stored, and the count."""

    mode: str
    hpas: dict[Step, dict[str, Any]]
    counts: dict[Step, int]


def served(step: Step, mode: str) -> int | None:
    """The value that the adapter serves in milli-units; None where it answers with an error."""
    bounds = Bounds(minimum=1, maximum=MAXIMUM, tolerance=TOLERANCE if mode == COARSE else None)
    found = within_hpa_tolerance(
        Limited(step.wanted, None), Scale(replicas=step.current, status_replicas=step.pods), bounds
    )
    return None if isinstance(found, str) else served_value(found.desired, step.pods)


def series(name: str, step: Step, value: int) -> Series:
    """The target of a step and its HPA, which asks for the count as README says, with tolerance 0."""
    target = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "name": name}
    metric = count_metric(name)
    metric["object"] |= {"describedObject": target, "metric": {"name": f"{name}.count"}}
    limits = {"policies": [{"type": "Pods", "value": MAXIMUM, "periodSeconds": 1}]}
    calm = {"stabilizationWindowSeconds": 0, "tolerance": "0"}
    behavior = {"scaleUp": {**calm, **limits}, "scaleDown": calm}
    bounds = Bounds(minimum=1, maximum=MAXIMUM)
    hpa = hpa_manifest(
        {"name": name, "namespace": NAMESPACE}, name, CrossVersionReference(*target.values()), bounds, behavior
    )
    hpa["spec"]["metrics"] = [metric]
    return Series(
        name=name,
        hpa=hpa,
        replicas=step.current,
        status_replicas=step.pods,
        pods=(),
        draw=lambda _: float(value),
    )


@pytest.fixture(scope="module", params=[mode for mode, there in MODES.items() if there])
def made(request: pytest.FixtureRequest) -> Made:
    """Every step, when its HPA has had three answers and more."""
    mode: str = request.param
    values = {step: value for step in ALL if (value := served(step, mode)) is not None}
    names = {f"s{number}": step for number, step in enumerate(values)}
    all_series = {name: series(name, step, values[step]) for name, step in names.items()}
    off = dict.fromkeys(("scheduler", "kwok", "metrics_server"), False)
    gates = f"{GATE}=false" if mode == COARSE else ""
    with ControlPlane(nodes=0, **off, hpa_sync=1, gates=gates) as cluster:
        [port] = free_ports(1)
        pair = cluster.pki.cluster.issue("series", hosts=["localhost", "127.0.0.1"], file="series")
        with SeriesServer(all_series, (pair.cert_file, pair.key_file), port) as server:
            register(cluster, port)
            create(cluster, all_series)

            def behind() -> list[str]:
                with server.lock:
                    return [
                        name
                        for name, one in all_series.items()
                        if sum(given != "failed" for given in one.given[f"{name}.count"]) < 3
                    ]

            until(lambda: not behind(), 400, lambda: f"not asked thrice: {behind()[:9]}", every=1.0)
            targets = cluster.client.list(f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/{PLURAL}")
    counts = {item["metadata"]["name"]: item["spec"]["replicas"] for item in targets}
    return Made(
        mode,
        {step: all_series[name].hpa for name, step in names.items()},
        {step: counts[name] for name, step in names.items()},
    )


def test_the_api_server_keeps_the_tolerance_where_hpas_have_one(made: Made) -> None:
    assert {parse_hpa(hpa).sets_tolerance for hpa in made.hpas.values()} == {made.mode == EXACT}


def test_the_real_hpa_sets_the_count_that_is_asked_for_or_in_coarse_mode_keeps_the_current_one(made: Made) -> None:
    held = [step for step, count in made.counts.items() if count != step.wanted]
    unanswered = [step for step in ALL if step not in made.counts]
    print(f"{made.mode}: {len(ALL)} steps, {len(held)} held, {len(unanswered)} without an answer")
    assert all(made.counts[step] == step.current for step in held)
    assert bool(held) is bool(unanswered) is (made.mode == COARSE)
