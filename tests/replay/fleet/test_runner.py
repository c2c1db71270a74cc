"""Many services on all cores: one that fails, or whose process dies, costs only its own row."""

import argparse
import json

import pytest

from adapter import cli
from adapter.commands.replay.fleet import command
from adapter.commands.replay.fleet.runner import Task, replay_one, run_tasks
from adapter.commands.replay.fleet.services import FleetService, Shard
from adapter.commands.replay.history.prometheus import PrometheusSource
from adapter.commands.replay.history.queries import Overrides, Sources
from adapter.commands.replay.history.span import Span
from adapter.settings import PrometheusServer
from tests.load.kit import cpu, policy
from tests.replay.fleet.kit import die_if_asked


def source() -> PrometheusSource:
    server = PrometheusServer(name="main", url="http://localhost:1")
    span = Span(0, 60_000, 15_000)
    return PrometheusSource(sources=Sources(server=server), overrides=Overrides(), span=span)


def task(name: str) -> Task:
    return Task(FleetService(namespace="shop", name=name), argparse.Namespace(), source())


def test_a_process_that_dies_costs_only_its_own_service() -> None:
    names = ["a", "doomed", "b"]
    rows = {row.name: row.error for row in run_tasks([task(name) for name in names], die_if_asked)}
    assert rows.keys() == set(names)
    assert "ended (out of memory?)" in rows["doomed"]
    assert rows["a"] is rows["b"] is None


def test_any_error_of_a_service_is_its_row() -> None:
    service = FleetService(namespace="shop", name="web", policy=policy(cpu("500m")))
    parsed = cli.argument_parser().parse_args(["replay", "--all"])
    said = replay_one(Task(service, parsed, source())).error
    assert said is not None
    assert "the query is" in said


def test_each_service_is_in_one_shard_whatever_the_others_are() -> None:
    names = [f"service-{number}" for number in range(100)]
    shards = [Shard(index, 4) for index in range(4)]
    assert all(sum(shard.has("shop", name) for shard in shards) == 1 for name in names)
    assert all(any(shard.has("shop", name) for name in names) for shard in shards)


def test_a_shard_is_a_line_of_json_for_each_of_its_services(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    async def services_of_cluster(kubeconfig, namespaces, tolerance, shard) -> list[FleetService]:
        assert shard == Shard(1, 2)
        return [FleetService(namespace="shop", name=name, fault="no HPA") for name in ("api", "web")]

    monkeypatch.setattr(command, "services_of_cluster", services_of_cluster)
    arguments = ["replay", "--all", "--shard", "1/2", "--prometheus", "http://localhost:1", "--from", "1h"]
    assert cli.main(arguments) == cli.FAILED
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"policy": {"namespace": "shop", "name": name}, "error": "no HPA"} for name in ("api", "web")
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--all", "policy.yaml"], "POLICY: 'policy.yaml': goes with a single policy"),
        (["--all", "--csv", "x.csv"], "--csv"),
        (["--all", "--html", "x.html"], "--html"),
        (["--all", "--shard", "2/2"], "--shard: '2/2': write I/N"),
        (["--all", "--shard", "half"], "--shard: 'half': write I/N"),
        ([], "POLICY: name the policy's file, or say --all"),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: list[str], words: str, capsys) -> None:
    assert cli.main(["replay", *arguments]) == cli.INVALID
    assert words in capsys.readouterr().err
