"""Samples in columns are the samples: whatever pods, containers and resources an answer has, in whatever order."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapter.load.samples import PodUsage
from adapter.load.steps import finish
from adapter.load.usage_columns import UsageColumnsBuilder
from tests.load.kit import NOW, columns_of

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 1 << 70))
POD = st.tuples(
    st.sampled_from([NOW - 10, NOW - 5]),
    st.sampled_from([0.0, 15.0]),
    st.dictionaries(st.sampled_from(["app", "proxy", "log"]), AMOUNTS),
)
ANSWER = st.dictionaries(st.sampled_from([f"web-{number}" for number in range(6)]), POD)


def objects(pods: dict[str, Any]) -> dict[str, PodUsage]:
    return {name: PodUsage(*pod) for name, pod in pods.items()}


@given(ANSWER, ANSWER, st.randoms())
def test_columns_equal_an_object_for_each_pod_whatever_the_last_answer_had(
    before: dict[str, Any], now: dict[str, Any], random: Any
) -> None:
    last = columns_of(objects(before))
    for pods in (now, dict(random.sample(list(now.items()), len(now)))):
        last = columns_of(objects(pods), last)
        assert last == objects(pods)
        assert set(last) == set(pods)
        assert "nobody" not in last


@given(ANSWER, ANSWER)
def test_times_are_the_same_exactly_where_pods_and_times_are(before: dict[str, Any], now: dict[str, Any]) -> None:
    def times(pods: dict[str, Any]) -> dict[str, float]:
        return {name: pod[0] for name, pod in pods.items()}

    last = columns_of(objects(before))
    assert columns_of(objects(now), last).has_same_times(last) == (times(before) == times(now))


@given(ANSWER, st.lists(st.sampled_from([f"web-{number}" for number in range(7)]), unique=True))
def test_a_block_is_the_samples_of_its_pods_or_none_where_one_lacks(pods: dict[str, Any], names: list[str]) -> None:
    def value(name: str, containers: tuple[str, ...]) -> int | None:
        amounts = [pods[name][2].get(each, {}).get("cpu") for each in containers] if name in pods else [None]
        return None if None in amounts else sum(amounts)

    table = columns_of(objects(pods))
    for containers in ("app", ("app",), ("app", "proxy")):
        each = (containers,) if isinstance(containers, str) else containers
        values = [value(name, each) for name in names]
        block = table.block(names, containers if isinstance(containers, str) else [each] * len(names), "cpu")
        if None in values:
            assert block is None
        else:
            assert block == ([pods[name][0] for name in names], values, [pods[name][1] for name in names])


def test_of_two_pods_of_one_name_the_later_one_counts() -> None:
    builder = UsageColumnsBuilder()
    for at in (NOW - 9, NOW):
        builder.fill("app", "cpu", [builder.add("web-0", at, 15.0, ("app",))], [int(at)])
    table = finish(builder.columns())
    assert dict(table) == {"web-0": PodUsage(NOW, 15.0, {"app": {"cpu": int(NOW)}})}
    again = UsageColumnsBuilder(table)
    again.fill("app", "cpu", [again.add("web-0", NOW + 1, 15.0, ("app",))], [5])
    assert finish(again.columns())["web-0"].containers == {"app": {"cpu": 5}}


def test_pods_that_are_the_same_share_the_rows_of_the_last_answer() -> None:
    pods = {f"web-{number}": (NOW, 15.0, {"app": {"cpu": number}}) for number in range(5)}
    last = columns_of(objects(pods))
    assert columns_of(objects(dict(reversed(pods.items()))), last).rows is last.rows
    assert columns_of(objects({"web-0": pods["web-0"]}), last).rows is not last.rows


def test_containers_named_after_their_services_take_no_memory_in_the_pods_without_them() -> None:
    builder = UsageColumnsBuilder()
    for number in range(400):
        name = f"service-{number}"
        builder.fill(name, "cpu", [builder.add(f"{name}-0", NOW, 15.0, (name,))], [number])
    table = finish(builder.columns())
    assert sum(len(table.amounts(f"service-{number}", "cpu") or ()) for number in range(400)) == 400
    assert table["service-7-0"].containers == {"service-7": {"cpu": 7}}
    assert table.block(["service-7-0", "service-8-0"], [("service-7",), ("service-8",)], "cpu") is not None
    assert table.block(["service-8-0"], "service-7", "cpu") is None
    again = UsageColumnsBuilder(table)
    for number in reversed(range(400)):
        name = f"service-{number}"
        again.fill(name, "cpu", [again.add(f"{name}-0", NOW, 15.0, (name,))], [number])
    other = finish(again.columns())
    assert other.rows is table.rows
    assert other == table
