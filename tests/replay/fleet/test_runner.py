"""Many services on all cores: one that fails, or whose process dies, costs only its own row."""

import argparse
from pathlib import Path

import pytest

from adapter import cli
from adapter.commands.replay.fleet.parts import Shard
from adapter.commands.replay.fleet.runner import Task, replay_one, run_tasks
from adapter.commands.replay.fleet.services import FleetService, services_of_folder
from adapter.commands.replay.history.prometheus import PrometheusSource
from adapter.commands.replay.history.queries import Overrides, Sources
from adapter.commands.replay.history.span import Span
from adapter.runtime.faults import FaultyDocument
from adapter.settings import PrometheusServer
from tests.replay.fleet.kit import die_if_asked

POLICY = """
apiVersion: effective-load.io/v1alpha1
kind: WatermarkPolicy
metadata: {name: NAME, namespace: NAMESPACE}
spec:
  metrics:
  - {name: cpu, resource: {name: cpu}, highWatermark: 500m}
"""


def source(cache: Path = Path("unused")) -> PrometheusSource:
    server = PrometheusServer(name="main", url="http://localhost:1")
    span = Span(0, 60_000, 15_000)
    return PrometheusSource(sources=Sources(server=server), overrides=Overrides(), span=span, cache=cache, now=0.0)


def task(name: str) -> Task:
    return Task(FleetService(namespace="shop", name=name), argparse.Namespace(), source())


def write(folder: Path, file: str, *names: str, namespace: str = "shop") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    texts = [POLICY.replace("NAMESPACE", namespace).replace("NAME", name) for name in names]
    (folder / file).write_text("---".join(texts))


def test_a_process_that_dies_costs_only_its_own_service() -> None:
    names = ["a", "doomed", "b"]
    rows = {row.policy.name: row.error for row in run_tasks([task(name) for name in names], 2, die_if_asked)}
    assert rows.keys() == set(names)
    assert "ended (out of memory?)" in rows["doomed"]
    assert rows["a"] is rows["b"] is None


def test_any_error_of_a_service_is_its_row(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "web")
    (service,) = services_of_folder(tmp_path, "", Shard())
    parsed = cli.argument_parser().parse_args(["replay", "--all"])
    no_folder = tmp_path / "a.yaml" / "cache"
    assert replay_one(Task(service, parsed, source(no_folder))).error == f"--cache {no_folder}: Not a directory"


def test_the_policies_of_a_folder_are_those_of_all_its_files(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "web", "api")
    write(tmp_path / "below", "b.yml", "web", namespace="other")
    (tmp_path / "values.yaml").write_text("replicas: 3\n")
    (tmp_path / "broken.yaml").write_text("a: [")
    services = services_of_folder(tmp_path, "", Shard())
    assert [(one.namespace, one.name) for one in services] == [
        ("", "broken.yaml"), ("other", "web"), ("shop", "api"), ("shop", "web"),
    ]  # fmt: skip
    assert "broken.yaml" in services[0].fault
    assert [one.name for one in services_of_folder(tmp_path, "other", Shard())] == ["broken.yaml", "web"]
    halves = [services_of_folder(tmp_path, "", Shard(index, 2)) for index in range(2)]
    assert sorted((one.namespace, one.name) for half in halves for one in half) == [
        (one.namespace, one.name) for one in services
    ]
    with pytest.raises(FaultyDocument, match="--policies"):
        services_of_folder(tmp_path / "nowhere", "", Shard())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--all", "policy.yaml"], "POLICY: 'policy.yaml': goes with a single policy"),
        (["--all", "--csv", "x.csv"], "--csv"),
        (["--all", "--merge", "x"], "--merge: ranks parts"),
        (["--all", "--part", "x"], "--part: 'x': goes with --shard"),
        (["--all", "--suggest"], "--suggest"),
        (["--all", "--shard", "0/2", "--html", "a.html"], "--html"),
        (["--all", "--workers", "0"], "--workers: 0: must be 1 or more"),
        (["--all", "--shard", "2/2", "--policies", "."], "--shard: '2/2'"),
        (["--all", "--policies", "nowhere"], "is no folder"),
        (["--merge", "nowhere"], "--merge: 'nowhere': cannot be read"),
        ([], "POLICY: name the policy's file, or say --all or --merge"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: list[str], words: str, capsys) -> None:
    assert cli.main(["replay", *arguments]) == cli.INVALID
    assert words in capsys.readouterr().err
