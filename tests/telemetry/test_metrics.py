"""The adapter's own metrics: names, and series from rows."""

import asyncio
import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from adapter.load.assessment import Verdict
from adapter.load.spec import HELD, Mode
from adapter.telemetry.metrics import Metrics
from adapter.telemetry.series import MODES, VERDICTS, MetricRow, PolicyRow, RegistryRow

_ROWS = ("effective_load_registry_instances", "effective_load_registry_instances_age_seconds")

SERVICE = RegistryRow(
    registry="nacos", registry_namespace="prod", group="BLUE", service="web", age=1.5, instances={"in": 4, "out": 1}
)

CHECKOUT = PolicyRow(
    namespace="shop",
    policy="checkout",
    metrics=(
        MetricRow(name="cpu", effective=1.5, raw=1.1, high=1.2, low=0.4, missing=1, sample_age=12.5),
        MetricRow(name="memory", effective=None, raw=None, high=0.8, low=None, target=0.7),
    ),
    desired=7,
    current=5,
    minimum=3,
    maximum=7,
    lower=9,
    upper=20,
    suppressed=2,
    decision_age=0.25,
    mode="Held",
    verdict="Above",
    held_by="Bounds",
    pods={"serving": 5, "pulledOut": 2},
    conditions={"Ready": True, "InputsFresh": False},
)


EXPECTED: dict[str, dict[str, float]] = {
    "effective": {"cpu": 1.5},
    "raw": {"cpu": 1.1},
    "high_watermark": {"cpu": 1.2, "memory": 0.8},
    "low_watermark": {"cpu": 0.4},
    "target": {"memory": 0.7},
    "missing_pods": {"cpu": 1, "memory": 0},
    "desired_replicas": {"": 7},
    "current_replicas": {"": 5},
    "min_replicas": {"": 3},
    "max_replicas": {"": 7},
    "sample_age_seconds": {"cpu": 12.5},
    "decision_age_seconds": {"": 0.25},
    "pods": {"serving": 5, "pulledOut": 2},
    "mode": {"Active": 0, "Observe": 0, "Paused": 0, "Held": 1},
    "verdict": {"Above": 1, "Inside": 0, "Below": 0, "Error": 0},
    "held": {"Bounds": 1},
    "condition": {"Ready": 1, "InputsFresh": 0},
    "error": {},
}


async def samples(metrics: Metrics) -> list[Sample]:
    text = (await metrics.exposition()).decode()
    types = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(types) == len(set(types)), "a family is written once for all policies"
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def of(found: list[Sample], name: str) -> dict[str, float]:
    """Values of one policy metric by its own label (empty if it has none)."""
    rows = [sample for sample in found if sample.name == f"effective_load_policy_{name}"]
    return {next((v for k, v in row.labels.items() if k not in {"namespace", "policy"}), ""): row.value for row in rows}


async def test_every_listed_metric_is_written_once_it_has_a_sample() -> None:
    faulty = PolicyRow(namespace="a", policy="b", error="HpaMissing", held_by="Doubt")
    metrics = Metrics(lambda: [faulty, CHECKOUT], lambda: [SERVICE])
    for name, kind, labels, _ in metrics.names():
        instrument = next(
            (m for m in vars(metrics).values() if getattr(m, "_name", "") == name.removesuffix("_total")), None
        )
        if instrument is None or name.endswith("build_info"):
            continue
        child = instrument.labels(*labels) if labels else instrument
        {"gauge": lambda c: c.set(1), "counter": lambda c: c.inc(), "histogram": lambda c: c.observe(1)}[kind](child)
    written = {sample.name for sample in await samples(metrics)}
    histograms = {name for name, kind, *_ in metrics.names() if kind == "histogram"}
    assert written >= ({name for name, *_ in metrics.names()} - histograms) | {f"{name}_count" for name in histograms}
    assert not {name for name in written if name.endswith("_created")}


async def test_a_row_becomes_its_series_without_those_of_missing_values() -> None:
    found = await samples(Metrics(lambda: [CHECKOUT]))
    assert {name: of(found, name) for name in EXPECTED} == EXPECTED


async def test_a_registrys_service_becomes_its_series() -> None:
    silent = RegistryRow(registry="nacos", registry_namespace="", group="", service="api")
    found = await samples(Metrics(registry_rows=lambda: [SERVICE, silent]))
    rows = {(s.name, s.labels["service"], s.labels.get("state")): s.value for s in found if s.name.startswith(_ROWS)}
    assert rows == {
        ("effective_load_registry_instances_age_seconds", "web", None): 1.5,
        ("effective_load_registry_instances", "web", "in"): 4,
        ("effective_load_registry_instances", "web", "out"): 1,
    }
    labels = next(s.labels for s in found if s.name == "effective_load_registry_instances_age_seconds")
    assert labels == {"registry": "nacos", "registry_namespace": "prod", "group": "BLUE", "service": "web"}


def test_modes_and_verdicts_are_those_of_the_load_package() -> None:
    assert {*(mode.value for mode in Mode), HELD} == set(MODES)
    assert {verdict.value for verdict in Verdict} == set(VERDICTS)


@given(st.text(max_size=20), st.floats())
def test_any_label_and_any_number_survive_the_text_format(label: str, value: float) -> None:
    row = PolicyRow(namespace="n", policy="p", metrics=(MetricRow(name=label, effective=value),))
    found = of(asyncio.run(samples(Metrics(lambda: [row]))), "effective")
    (read,) = found.values()
    assert read == value or (math.isnan(read) and math.isnan(value))
    # The parser splits lines at more characters than the format does; those labels are compared for the rest.
    assert [*found] == [label] or len(label.splitlines()) > 1 or label != label.strip()


async def test_other_tasks_run_while_a_scrape_is_written() -> None:
    rows = [CHECKOUT] * 500
    scrape = asyncio.create_task(Metrics(lambda: rows).exposition())
    turns = 0
    while not scrape.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 100
