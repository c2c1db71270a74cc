"""Pods by label, against a look at every one of them."""

from hypothesis import given
from hypothesis import strategies as st

from adapter.kube.selectors import LabelSelector, parse_selector
from adapter.load.pods import Pod
from adapter.runtime.concurrency import Slices
from adapter.snapshot import PodStore

keys = st.sampled_from(["app", "tier", "size"])
some = st.sampled_from(["a", "b", "1", "7"])
labelled = st.dictionaries(keys, some)
clauses = st.one_of(
    st.builds("{}={}".format, keys, some),
    st.builds("{}!={}".format, keys, some),
    st.builds("{} in ({},{})".format, keys, some, some),
    st.builds("{}>{}".format, keys, st.sampled_from(["0", "5"])),
    st.builds("!{}".format, keys),
    keys,
)
selectors = st.lists(clauses, max_size=3).map(lambda found: parse_selector(",".join(found)))


def pod(name: str, labels: dict[str, str]) -> Pod:
    return Pod(namespace="shop", name=name, uid=name, created_at=0.0, labels=labels)


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | labelled), max_size=30), selectors)
async def test_selected_pods_are_those_that_match_in_the_order_of_change(
    changes: list[tuple[int, dict[str, str] | None]], selector: LabelSelector
) -> None:
    pods, known = PodStore(), dict[str, dict[str, str]]()
    for number, labels in changes:
        known.pop(name := f"p{number}", None)
        if labels is None:
            pods.pop(name, None)
        else:
            pods.put(pod(name, labels))
            known[name] = labels
    expected = [name for name, labels in known.items() if selector.matches(labels)]
    assert [each.name for each in await pods.select(selector, Slices())] == expected
    assert [each.name for each in await pods.select(None, Slices())] == list(known)


async def test_pods_that_share_labels_are_selected_alike() -> None:
    shared = {"app": "web"}
    pods = PodStore()
    for name, labels in (("a", shared), ("b", {"app": "db"}), ("c", shared)):
        pods.put(pod(name, labels))
    assert [each.name for each in await pods.select(parse_selector("app=web"), Slices())] == ["a", "c"]
