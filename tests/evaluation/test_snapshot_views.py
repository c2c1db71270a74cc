"""The views of all policies in a snapshot: what changes is new, what others hold stays."""

from hypothesis import given
from hypothesis import strategies as st

from adapter.load.spec import Policy
from adapter.snapshot import Key, PolicyView, PolicyViews

KEYS = st.builds(Key, st.sampled_from(["shop", "bank"]), st.sampled_from(["a", "b", "c"]))
CHANGES = st.dictionaries(KEYS, st.one_of(st.none(), st.integers(1, 9)))


def view(key: Key, generation: int) -> PolicyView:
    return PolicyView(policy=Policy(namespace=key.namespace, name=key.name, generation=generation, hpa="", metrics=()))


@given(st.lists(CHANGES, max_size=6))
def test_views_are_those_of_a_plain_map_after_every_change(changes: list[dict[Key, int | None]]) -> None:
    views, plain = PolicyViews(), dict[Key, PolicyView]()
    for change in changes:
        new = {key: None if generation is None else view(key, generation) for key, generation in change.items()}
        before, copied = views, dict(plain)
        views = views.changed(new)
        for key, one in new.items():
            plain.pop(key, None)
            if one is not None:
                plain[key] = one
        assert dict(views) == plain
        assert len(views) == len(plain)
        assert dict(before) == copied
        assert views.get(Key("other", "a")) is None
