"""Parts of a run: written and read without loss, merged only where they are all parts of one run."""

import json

import pytest

from adapter.commands.replay.fleet.parts import FleetPart, PolicyName, ServiceRow, Shard, merge, read_part, to_json
from adapter.commands.replay.fleet.services import read_shard
from adapter.runtime.faults import FaultyDocument
from tests.replay.fleet.kit import part, row

A, B, C = (row(name, {"hours": 10}, {"hours": 9}) for name in "abc")


def test_a_part_is_read_as_it_was_written() -> None:
    failed = ServiceRow(PolicyName("", "file.yaml"), error="no YAML")
    written = part(1, 3, [A, failed])
    assert read_part(to_json(written).encode(), "part-1.json") == written


def test_the_parts_of_one_run_are_its_services_in_order() -> None:
    whole = merge({"1": part(1, 2, [C, A]), "0": part(0, 2, [B])})
    assert whole.services == (A, B, C)
    assert whole.run == part().run


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (part(1, 4, [A]), part(1, 4, [B]), "part 1: is there 2 times (x, y); keep one"),
        (part(1, 4, [A]), part(1, 4, [B]), "of 4 parts 0, 2, 3 are missing"),
        (part(0, 2), part(1, 2, price="2"), "y, run.price: '2': is of another run: x has None"),
        (part(0, 2), part(1, 3), "parts in its run, and 2 in that of x"),
        (part(0, 2, [A]), part(1, 2, [A]), "shop/a: is in several parts"),
    ],
)
def test_parts_that_are_not_those_of_one_run_are_named(x: FleetPart, y: FleetPart, said: str) -> None:
    with pytest.raises(FaultyDocument) as raised:
        merge({"x": x, "y": y})
    assert said in str(raised.value)


def of_shard(index: int, count: int) -> bytes:
    return json.dumps({"shard": {"index": index, "count": count}, "run": {}, "services": []}).encode()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="no shard"),
        pytest.param(b'{"shard":{"index":0}}', id="half a shard"),
        pytest.param(of_shard(0, 10**12), id="too many shards"),
        pytest.param(of_shard(0, 0), id="no shards"),
        pytest.param(of_shard(3, 3), id="a shard beyond the last"),
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(to_json(part(services=[ServiceRow(PolicyName("a", "b"))])).encode(), id="an empty row"),
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
    first = [number for number in range(20) if Shard(0, 7).has("shop", f"service-{number}")]
    assert first == [6, 8, 17, 19], "the split is the same on every machine and in every version"


@pytest.mark.parametrize("text", ["8/8", "0", "-1/2", "0/0", "a/b", "0/10001", "1/2/3", ""])
def test_a_wrong_shard_is_a_fault(text: str) -> None:
    with pytest.raises(FaultyDocument, match="--shard"):
        read_shard(text)


def test_shards_count_from_0_as_the_index_of_a_job_does() -> None:
    assert read_shard("0/8") == Shard(0, 8)
    assert read_shard(None).has("any", "service")
