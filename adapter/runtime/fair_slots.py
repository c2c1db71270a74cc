"""Bounded places, shared fairly between namespaces: no tenant can take the places of the others."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Claim(NamedTuple, Generic[T]):
    """A namespace's wish for a place for an item. `since` orders claims of one namespace: the smaller is the older."""

    namespace: str
    since: tuple[str, ...]
    item: T


def grant_slots(claims: Iterable[Claim[T]], each: int, total: int | None = None) -> frozenset[tuple[str, T]]:
    """The claims that have a place, as namespace and item: of each namespace the oldest `each`.

    Beyond `total` items every namespace's oldest comes before any namespace's second, and so on. The same claims have
    the same places in every process, in whatever order they come.
    """
    held: dict[str, dict[T, tuple[str, ...]]] = defaultdict(dict)
    for namespace, since, item in claims:
        known = held[namespace].get(item)
        if known is None or since < known:
            held[namespace][item] = since
    if all(len(items) <= each for items in held.values()):
        chosen = {(namespace, item) for namespace, items in held.items() for item in items}
        if total is None or len({item for _, item in chosen}) <= total:
            return frozenset(chosen)
    return _oldest(held, each, total)


def _oldest(held: dict[str, dict[T, tuple[str, ...]]], each: int, total: int | None) -> frozenset[tuple[str, T]]:
    ranked = [
        (rank, items[item], namespace, item)
        for namespace, items in held.items()
        for rank, item in enumerate(sorted(items, key=items.__getitem__)[:each])
    ]
    taken: set[T] = set()
    for *_, item in sorted(ranked, key=lambda one: one[:3]):
        if total is None or len(taken) < total:
            taken.add(item)
    return frozenset((namespace, item) for _, _, namespace, item in ranked if item in taken)
