"""Index of objects by label: a selector finds its matches without scanning the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from adapter.kube.selectors import LabelSelector, Operator, Requirement
from adapter.load.pods import Pod
from adapter.runtime.concurrency import Slices

MOST_SHAPES = 16
"""The number of selector shapes with an index; beyond it the least recently used one is dropped."""


class Labelled(Protocol):
    """Anything with labels."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels."""


K = TypeVar("K")
T = TypeVar("T", bound=Labelled)


class Shape(NamedTuple):
    """The keys and other requirements of a selector, without the values that it asks for."""

    keys: tuple[str, ...]
    others: tuple[Requirement, ...]

    def values(self, labels: Mapping[str, str]) -> tuple[str, ...] | None:
        """The values under the keys; None where one is absent, or another requirement is not met."""
        if any(key not in labels for key in self.keys) or not all(each.matches(labels) for each in self.others):
            return None
        return tuple(labels[key] for key in self.keys)


class LabelIndex(Generic[K, T]):
    """Finds items by selector. The first selector of a shape builds an index, which `change` keeps up to date.

    `items` returns all items with their keys; `change` must be called for each that is added or removed. Matches come
    in the order of `items`, provided that a changed item moves to the end there.
    """

    def __init__(self, items: Callable[[], Iterable[tuple[K, T]]]) -> None:
        self._items = items
        self._shelves: dict[Shape, dict[tuple[str, ...], dict[K, T]]] = {}
        self._unfinished: dict[int, list[tuple[K, T | None, T | None]]] = {}
        """The changes since each index that is being built was begun, by its identity."""

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The indexed shapes, the last used one last."""
        return tuple(self._shelves)

    def change(self, key: K, old: T | None, new: T | None) -> None:
        """Applies one change from `old` to `new`."""
        for shape, shelf in self._shelves.items():
            _change(shelf, shape, key, old, new)
        for changes in self._unfinished.values():
            changes.append((key, old, new))

    async def select(self, selector: LabelSelector, slices: Slices) -> list[T]:
        """The items that the selector matches, all at one moment; a new index is built in slices."""
        if not selector.requirements:
            return [item for _, item in self._items()]
        equal: list[Requirement] = []
        others: list[Requirement] = []
        for each in selector.requirements:
            (equal if each.operator is Operator.IN and len(each.values) == 1 else others).append(each)
        shape = Shape(tuple(each.key for each in equal), tuple(others))
        shelf = self._shelves.get(shape)
        if shelf is None:
            shelf = {}
            changes = self._unfinished[id(shelf)] = []
            try:
                for key, item in list(self._items()):
                    _change(shelf, shape, key, None, item)
                    await slices.breathe()
            finally:
                del self._unfinished[id(shelf)]
            for key, old, new in changes:
                _change(shelf, shape, key, old, new)
        self._shelves.pop(shape, None)  # the last used index comes last
        if len(self._shelves) >= MOST_SHAPES:
            del self._shelves[next(iter(self._shelves))]
        self._shelves[shape] = shelf
        return list(shelf.get(tuple(each.values[0] for each in equal), {}).values())


def _change(shelf: dict[tuple[str, ...], dict[K, T]], shape: Shape, key: K, old: T | None, new: T | None) -> None:
    if old is not None and (values := shape.values(old.labels)) in shelf:
        shelf[values].pop(key, None)
        if not shelf[values]:
            del shelf[values]
    if new is not None and (values := shape.values(new.labels)) is not None:
        shelf.setdefault(values, {})[key] = new


@dataclass(frozen=True, slots=True)
class _Group(Generic[K]):
    """The objects of one owner that have the same labels."""

    owner: K
    labels: Mapping[str, str]


DistinctLabels = Mapping[frozenset[tuple[str, str]], Mapping[str, str]]
"""Labels that differ, by their items."""


def distinct_labels(labels: Iterable[Mapping[str, str]]) -> DistinctLabels:
    """The different ones of many labels."""
    objects = {id(each): each for each in labels}  # Pods of one template share their labels as one object.
    return {frozenset(each.items()): each for each in objects.values()}


class OwnersByLabels(Generic[K]):
    """Finds the owners of objects that match a selector. Most owners' objects all have the same labels."""

    def __init__(self) -> None:
        self._groups: dict[K, dict[frozenset[tuple[str, str]], _Group[K]]] = {}
        self._index: LabelIndex[tuple[K, frozenset[tuple[str, str]]], _Group[K]] = LabelIndex(
            lambda: (
                ((owner, items), group) for owner, groups in self._groups.items() for items, group in groups.items()
            )
        )

    def __len__(self) -> int:
        return len(self._groups)

    def put(self, owner: K, labels: DistinctLabels) -> None:
        """Replaces the labels of all objects of an owner (`distinct_labels`); empty ones drop the owner."""
        groups = self._groups.setdefault(owner, {})
        # Each pod of a StatefulSet has labels of its own: only those that changed are indexed.
        for items in groups.keys() - labels.keys():
            self._index.change((owner, items), groups.pop(items), None)
        for items in labels.keys() - groups.keys():
            groups[items] = _Group(owner, labels[items])
            self._index.change((owner, items), None, groups[items])
        if not groups:
            del self._groups[owner]

    async def select(self, selector: LabelSelector, slices: Slices) -> set[K]:
        """The owners with a matching object."""
        return {group.owner for group in await self._index.select(selector, slices)}


class PodStore(Mapping[str, Pod]):
    """A namespace's pods; the last changed one comes last."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self._by_name: dict[str, Pod] = {pod.name: pod for pod in pods}
        self._index: LabelIndex[str, Pod] = LabelIndex(self._by_name.items)

    def __getitem__(self, name: str) -> Pod:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def values(self) -> ValuesView[Pod]:
        """The pods, as fast as a dict gives them."""
        return self._by_name.values()

    def put(self, pod: Pod) -> None:
        """Adds a pod or replaces the one of that name."""
        self.drop(pod.name)
        self._by_name[pod.name] = pod
        self._index.change(pod.name, None, pod)

    def drop(self, name: str) -> None:
        """Removes a pod, if it is here."""
        old = self._by_name.pop(name, None)
        if old is not None:
            self._index.change(name, old, None)

    async def select(self, selector: LabelSelector | None, slices: Slices) -> list[Pod]:
        """The matching pods at one moment, all of them without a selector."""
        return list(self._by_name.values()) if selector is None else await self._index.select(selector, slices)
