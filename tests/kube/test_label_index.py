"""The index by labels against a plain look at every item."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from adapter.kube.label_index import MOST_SHAPES, LabelIndex, OwnersByLabels, PodStore, distinct_labels
from adapter.kube.selectors import LabelSelector, parse_selector
from adapter.load.pods import Pod
from adapter.runtime.concurrency import Slices

keys = st.sampled_from(["app", "tier", "size"])
some = st.sampled_from(["a", "b", "1", "7"])
labelled = st.dictionaries(keys, some)
clauses = st.one_of(
    st.builds("{}={}".format, keys, some),
    st.builds("{}=".format, keys),
    st.builds("{}!={}".format, keys, some),
    st.builds("{} in ({},{})".format, keys, some, some),
    st.builds("{} notin ({},{})".format, keys, some, some),
    st.builds("{}>{}".format, keys, st.sampled_from(["0", "5"])),
    st.builds("!{}".format, keys),
    keys,
)
selectors = st.lists(clauses, max_size=3).map(lambda found: parse_selector(",".join(found)))
changes = st.tuples(st.integers(0, 5), st.none() | labelled)


def pod(name: str, labels: dict[str, str]) -> Pod:
    return Pod(namespace="shop", name=name, uid=name, created_at=0.0, labels=labels)


def change(pods: PodStore, number: int, labels: dict[str, str] | None) -> None:
    """The pod gets these labels, or goes."""
    if labels is None:
        pods.drop(f"p{number}")
    else:
        pods.put(pod(f"p{number}", labels))


@given(st.lists(st.one_of(changes, selectors), max_size=30))
async def test_whatever_comes_and_goes_the_same_pods_are_selected_in_the_same_order_as_by_a_look_at_each(
    steps: list[tuple[int, dict[str, str] | None] | LabelSelector],
) -> None:
    pods = PodStore()
    for step in steps:
        if isinstance(step, LabelSelector):
            assert await pods.select(step, Slices()) == [each for each in pods.values() if step.matches(each.labels)]
        else:
            change(pods, *step)
    for asked in [step for step in steps if isinstance(step, LabelSelector)]:
        assert await pods.select(asked, Slices()) == [each for each in pods.values() if asked.matches(each.labels)]


@given(st.lists(changes, max_size=9), st.lists(changes, min_size=1, max_size=9), selectors)
async def test_what_changes_while_an_index_is_built_is_in_the_index(
    first: list[tuple[int, dict[str, str] | None]],
    later: list[tuple[int, dict[str, str] | None]],
    selector: LabelSelector,
) -> None:
    pods = PodStore()
    for each in first:
        change(pods, *each)
    asked = asyncio.ensure_future(pods.select(selector, Slices(0.0)))
    for each in later:
        await asyncio.sleep(0)
        change(pods, *each)
    await asked
    assert await pods.select(selector, Slices()) == [one for one in pods.values() if selector.matches(one.labels)]


@given(st.lists(st.one_of(st.tuples(st.integers(0, 4), st.lists(labelled, max_size=3)), selectors), max_size=30))
async def test_owners_are_found_by_any_of_their_objects(
    steps: list[tuple[int, list[dict[str, str]]] | LabelSelector],
) -> None:
    index, known = OwnersByLabels[int](), dict[int, list[dict[str, str]]]()
    for step in steps:
        if isinstance(step, LabelSelector):
            assert await index.select(step, Slices()) == {
                owner for owner, own in known.items() if any(map(step.matches, own))
            }
        else:
            index.put(step[0], distinct_labels(step[1]))
            known[step[0]] = step[1]
    assert len(index) == sum(1 for own in known.values() if own)


@dataclass
class Counted:
    """A store that counts how many of its items were looked at."""

    items: dict[int, Pod]
    seen: int = 0
    index: LabelIndex[int, Pod] = field(init=False)

    def __post_init__(self) -> None:
        self.index = LabelIndex(self._look)

    def _look(self) -> Iterator[tuple[int, Pod]]:
        for entry in self.items.items():
            self.seen += 1
            yield entry


async def test_an_index_is_built_in_slices() -> None:
    pods, turns = PodStore(pod(f"p{number}", {}) for number in range(100)), 0
    asked = asyncio.ensure_future(pods.select(parse_selector("!app,!tier"), Slices(0.0)))
    while not asked.done():
        turns += 1
        await asyncio.sleep(0)
    assert (len(await asked), turns > 100) == (100, True)


async def test_one_look_at_all_items_serves_all_selectors_of_a_shape() -> None:
    store = Counted({number: pod(f"p{number}", {"app": f"a{number % 50}", "tier": "x"}) for number in range(500)})
    for number in range(50):
        assert len(await store.index.select(parse_selector(f"app=a{number},tier=x"), Slices())) == 10
    assert store.seen == 500


async def test_the_shape_that_was_not_used_for_longest_is_forgotten() -> None:
    store = Counted({1: pod("p1", {"app": "a"})})
    for number in range(MOST_SHAPES):
        await store.index.select(parse_selector(f"key{number}"), Slices())
    await store.index.select(parse_selector("key0"), Slices())
    await store.index.select(parse_selector("one-more"), Slices())
    assert len(store.index.shapes) == MOST_SHAPES
    seen = store.seen
    await store.index.select(parse_selector("key0"), Slices())
    assert store.seen == seen
    await store.index.select(parse_selector("key1"), Slices())
    assert store.seen == seen + 1
