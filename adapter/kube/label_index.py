"""Objects by their labels: what a selector matches is found without a look at the others."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, ValuesView
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from adapter.kube.selectors import LabelSelector, Operator, Requirement
from adapter.load.pods import Pod
from adapter.runtime.slices import Slices

MOST_SHAPES = 16
"""So many shapes of selectors an index is kept for; of more, the one that was not used for longest goes."""


class Labelled(Protocol):
    """Anything with labels."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels."""


K = TypeVar("K")
T = TypeVar("T", bound=Labelled)


class Shape(NamedTuple):
    """What selectors that differ only in the values they ask for have in common: keys, and all other requirements."""

    keys: tuple[str, ...]
    others: tuple[Requirement, ...]

    def values(self, labels: Mapping[str, str]) -> tuple[str, ...] | None:
        """The values under the keys; None where one is absent, or another requirement is not met."""
        found = []
        for key in self.keys:
            value = labels.get(key)
            if value is None:
                return None
            found.append(value)
        for requirement in self.others:
            if not requirement.matches(labels):
                return None
        return tuple(found)


class LabelIndex(Generic[K, T]):
    """Finds items by selector. An index is made when a shape of selector is first asked for, and then kept up to date.

    `items` gives all items with their keys; `change` has to be told of each that comes or goes. Items that are
    selected come in the order of `items`, provided a changed one goes to the end there.
    """

    def __init__(self, items: Callable[[], Iterable[tuple[K, T]]]) -> None:
        self._items = items
        self._shelves: dict[Shape, dict[tuple[str, ...], dict[K, T]]] = {}

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes there is an index for, the last used one last."""
        return tuple(self._shelves)

    def change(self, key: K, old: T | None, new: T | None) -> None:
        """Take one change: `old` is what was there, `new` what is there now."""
        for shape, shelf in self._shelves.items():
            if old is not None:
                _remove(shelf, shape, key, old)
            if new is not None:
                _file(shelf, shape, key, new)

    def selected(self, selector: LabelSelector) -> Collection[T]:
        """The items that the selector matches."""
        if not selector.requirements:
            return [item for _, item in self._items()]
        shape, values = _taken_apart(selector)
        shelf = self._shelves.pop(shape, None)
        if shelf is None:
            shelf = {}
            for key, item in self._items():
                _file(shelf, shape, key, item)
        self._keep(shape, shelf)
        return shelf.get(values, {}).values()

    async def prepare(self, shapes: Iterable[Shape], slices: Slices) -> None:
        """Make the indices of these shapes beforehand. No item may come or go meanwhile."""
        for shape in shapes:
            shelf: dict[tuple[str, ...], dict[K, T]] = {}
            for key, item in self._items():
                _file(shelf, shape, key, item)
                await slices.breathe()
            self._keep(shape, shelf)

    def _keep(self, shape: Shape, shelf: dict[tuple[str, ...], dict[K, T]]) -> None:
        if len(self._shelves) >= MOST_SHAPES:
            del self._shelves[next(iter(self._shelves))]
        self._shelves[shape] = shelf


def _taken_apart(selector: LabelSelector) -> tuple[Shape, tuple[str, ...]]:
    equal = [each for each in selector.requirements if each.operator is Operator.IN and len(each.values) == 1]
    others = tuple(each for each in selector.requirements if each.operator is not Operator.IN or len(each.values) != 1)
    return Shape(tuple(each.key for each in equal), others), tuple(each.values[0] for each in equal)


def _file(shelf: dict[tuple[str, ...], dict[K, T]], shape: Shape, key: K, item: T) -> None:
    values = shape.values(item.labels)
    if values is not None:
        shelf.setdefault(values, {})[key] = item


def _remove(shelf: dict[tuple[str, ...], dict[K, T]], shape: Shape, key: K, item: T) -> None:
    values = shape.values(item.labels)
    found = shelf.get(values) if values is not None else None
    if found is not None and values is not None:
        found.pop(key, None)
        if not found:
            del shelf[values]


@dataclass(frozen=True, slots=True)
class _Group(Generic[K]):
    """The objects of one owner that have the same labels."""

    owner: K
    labels: Mapping[str, str]


class OwnersByLabels(Generic[K]):
    """Finds the owners that have an object which a selector matches. Most owners' objects all have the same labels."""

    def __init__(self) -> None:
        self._groups: dict[K, tuple[_Group[K], ...]] = {}
        self._index: LabelIndex[tuple[K, int], _Group[K]] = LabelIndex(self._entries)

    def __len__(self) -> int:
        return len(self._groups)

    def put(self, owner: K, labels: Iterable[Mapping[str, str]]) -> None:
        """Take in the labels of all objects of an owner, in place of those that were known; none: forget the owner."""
        distinct = {id(each): each for each in labels}.values()
        # A StatefulSet's pods have labels of their own, each: comparing every two of them would take long.
        different = list({frozenset(each.items()): each for each in reversed(distinct)}.values())[::-1]
        known = self._groups.get(owner, ())
        if [group.labels for group in known] == different:
            return
        self._groups.pop(owner, None)
        for number, group in enumerate(known):
            self._index.change((owner, number), group, None)
        if different:
            self._groups[owner] = tuple(_Group(owner, each) for each in different)
            for number, group in enumerate(self._groups[owner]):
                self._index.change((owner, number), None, group)

    def selected(self, selector: LabelSelector) -> set[K]:
        """The owners with an object that the selector matches."""
        return {group.owner for group in self._index.selected(selector)}

    def _entries(self) -> Iterator[tuple[tuple[K, int], _Group[K]]]:
        for owner, groups in self._groups.items():
            for number, group in enumerate(groups):
                yield (owner, number), group


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
        """Take in a pod, in place of the one of that name."""
        self.drop(pod.name)
        self._by_name[pod.name] = pod
        self._index.change(pod.name, None, pod)

    def drop(self, name: str) -> None:
        """Forget a pod, if it is here."""
        old = self._by_name.pop(name, None)
        if old is not None:
            self._index.change(name, old, None)

    def selected(self, selector: LabelSelector | None) -> Collection[Pod]:
        """The pods that the selector matches, all without one: a live view."""
        return self._by_name.values() if selector is None else self._index.selected(selector)
