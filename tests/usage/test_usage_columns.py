"""Samples in columns are the samples: whatever pods, containers and resources an answer has, in whatever order."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapter.load.samples import PodUsage
from adapter.usage.usage_columns import NO_USAGE, UsageColumns, UsageColumnsBuilder
from tests.load.kit import NOW

AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 1 << 70))
POD = st.tuples(
    st.sampled_from([NOW - 10, NOW - 5]),
    st.sampled_from([0.0, 15.0]),
    st.dictionaries(st.sampled_from(["app", "proxy", "log"]), AMOUNTS),
)
ANSWER = st.dictionaries(st.sampled_from([f"web-{number}" for number in range(6)]), POD)


def objects(pods: dict[str, Any]) -> dict[str, PodUsage]:
    return {name: PodUsage(*pod) for name, pod in pods.items()}


def columns_of(pods: Mapping[str, PodUsage], last: UsageColumns = NO_USAGE) -> UsageColumns:
    """The same samples in columns."""
    builder = UsageColumnsBuilder(last)
    for name, one in pods.items():
        row = builder.add(name, one.at, one.window, tuple(one.containers))
        for each, amounts in one.containers.items():
            for resource, amount in amounts.items():
                builder.fill(each, resource, [row], [amount])
    return builder.columns()


def plain(columns: UsageColumns) -> dict[str, PodUsage]:
    """The samples that columns hold, an object for each pod."""
    return {name: PodUsage(one.at, one.window, one.containers) for name, one in columns.items()}


@given(ANSWER, ANSWER, st.randoms())
def test_columns_equal_an_object_for_each_pod_whatever_the_last_answer_had(
    before: dict[str, Any], now: dict[str, Any], random: Any
) -> None:
    last = columns_of(objects(before))
    for pods in (now, dict(random.sample(list(now.items()), len(now)))):
        last = columns_of(objects(pods), last)
        assert plain(last) == objects(pods)
        assert set(last) == set(pods)
        assert "nobody" not in last


@given(ANSWER, ANSWER)
def test_times_are_the_same_exactly_where_pods_and_times_are(before: dict[str, Any], now: dict[str, Any]) -> None:
    def times(pods: dict[str, Any]) -> dict[str, float]:
        return {name: pod[0] for name, pod in pods.items()}

    last = columns_of(objects(before))
    assert columns_of(objects(now), last).has_same_times(last) == (times(before) == times(now))


def test_of_two_pods_of_one_name_the_later_one_counts() -> None:
    builder = UsageColumnsBuilder()
    for at in (NOW - 9, NOW):
        builder.fill("app", "cpu", [builder.add("web-0", at, 15.0, ("app",))], [int(at)])
    table = builder.columns()
    assert plain(table) == {"web-0": PodUsage(NOW, 15.0, {"app": {"cpu": int(NOW)}})}
    again = UsageColumnsBuilder(table)
    again.fill("app", "cpu", [again.add("web-0", NOW + 1, 15.0, ("app",))], [5])
    assert again.columns()["web-0"].containers == {"app": {"cpu": 5}}


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
    table = builder.columns()
    assert sum(len(columns["cpu"]) for columns in table._amounts.values()) == 400  # noqa: SLF001  the memory that it takes
    assert table["service-7-0"].containers == {"service-7": {"cpu": 7}}
