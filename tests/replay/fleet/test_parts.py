"""Parts of a run: written and read without loss, merged only where they are all parts of one run."""

import json

import pytest

from adapter.commands.replay.fleet.parts import PolicyName, ServiceRow, Shard, merge, read_part, to_json
from adapter.commands.replay.fleet.services import read_shard
from adapter.runtime.faults import FaultyDocument
from tests.replay.fleet.kit import part, row

A, B, C = (row(name, {"hours": 10}, {"hours": 9}) for name in "abc")


def faults(parts) -> str:
    with pytest.raises(FaultyDocument) as raised:
        merge(parts)
    return str(raised.value)


def test_a_part_is_read_as_it_was_written() -> None:
    failed = ServiceRow(PolicyName("", "file.yaml"), error="no YAML")
    written = part(1, 3, [A, failed])
    assert read_part(to_json(written).encode(), "part-1.json") == written


def test_the_parts_of_one_run_are_its_services_in_order() -> None:
    whole = merge({"1": part(1, 2, [C, A]), "0": part(0, 2, [B])})
    assert whole.services == (A, B, C)
    assert whole.run == part().run


def test_missing_and_double_parts_are_named() -> None:
    said = faults({"x": part(1, 4, [A]), "y": part(1, 4, [B])})
    assert "part 1: is there 2 times (x, y); keep one" in said
    assert "of 4 parts 0, 2, 3 are missing" in said


def test_parts_of_different_runs_are_named_with_what_differs() -> None:
    said = faults({"x": part(0, 2), "y": part(1, 2, to="2026-11-09T00:00:00Z", price="2")})
    assert "y, run.to: '2026-11-09T00:00:00Z': is of another run: x has '2026-11-08T00:00:00Z'" in said
    assert "y, run.price: '2': is of another run: x has None" in said
    assert "parts in its run, and 2 in that of x" in faults({"x": part(0, 2), "y": part(1, 3)})


def test_a_service_in_two_parts_is_a_fault() -> None:
    assert "shop/a: is in several parts" in faults({"x": part(0, 2, [A]), "y": part(1, 2, [A])})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"shard":{"index":0}}',
        b"\xff",
        b"[" * 100_000,
        to_json(part(services=[ServiceRow(PolicyName("a", "b"))])).encode(),
    ],
)
def test_what_is_no_part_is_said_with_its_file(content: bytes) -> None:
    with pytest.raises(FaultyDocument, match=r"part-0\.json: .*is no part of a run"):
        read_part(content, "part-0.json")


def test_each_service_is_in_exactly_one_shard_whatever_the_others_are() -> None:
    names = [f"service-{number}" for number in range(500)]
    for name in names:
        assert [Shard(index, 7).has("shop", name) for index in range(7)].count(True) == 1
    sizes = [sum(Shard(index, 7).has("shop", name) for name in names) for index in range(7)]
    assert min(sizes) > 40
    # The split is the same on every machine and in every version.
    assert [name for name in names[:20] if Shard(0, 7).has("shop", name)] == [
        "service-6",
        "service-8",
        "service-17",
        "service-19",
    ]


@pytest.mark.parametrize("text", ["8/8", "0", "-1/2", "0/0", "a/b", "0/10001", "1/2/3", ""])
def test_a_wrong_shard_is_a_fault(text: str) -> None:
    with pytest.raises(FaultyDocument, match="--shard"):
        read_shard(text)


def test_shards_count_from_0_as_the_index_of_a_job_does() -> None:
    assert read_shard("0/8") == Shard(0, 8)
    assert read_shard(None).has("any", "service")


@pytest.mark.parametrize("shard", [{"index": 0, "count": 10**12}, {"index": 0, "count": 0}, {"index": 3, "count": 3}])
def test_a_part_of_an_impossible_run_is_refused(shard: dict[str, int]) -> None:
    content = json.dumps({"shard": shard, "run": {}, "services": []}).encode()
    with pytest.raises(FaultyDocument, match="is no part of a run"):
        read_part(content, "part.json")
