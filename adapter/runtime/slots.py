"""Slots by namespace: how many items of others (kinds, services) a namespace may have watched for it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Claim(NamedTuple, Generic[T]):
    """A namespace's claim to a slot for an item. `since` orders the claims of one namespace, the oldest first."""

    namespace: str
    since: tuple[str, ...]
    item: T


def grant_slots(claims: Iterable[Claim[T]], each: int, total: int | None = None) -> frozenset[tuple[str, T]]:
    """The claims that get a slot, as namespace and item: the oldest `each` of every namespace.

    If there are more than `total` items, every namespace's oldest comes before any namespace's second, and so on.
    The result depends on the claims alone, not on their order, so all replicas agree.
    """
    held: dict[str, dict[T, tuple[str, ...]]] = defaultdict(dict)
    for namespace, since, item in claims:
        held[namespace][item] = min(since, held[namespace].get(item, since))
    ranked = sorted(
        (
            (rank, items[item], namespace, item)
            for namespace, items in held.items()
            for rank, item in enumerate(sorted(items, key=items.__getitem__)[:each])
        ),
        key=lambda place: place[:3],
    )
    taken = dict.fromkeys(item for *_, item in ranked)
    granted = set(list(taken)[:total])
    return frozenset((namespace, item) for _, _, namespace, item in ranked if item in granted)
