"""Finds pods by label, and owners of pods by the labels of these."""

from collections.abc import Iterable, Iterator, Mapping, ValuesView
from typing import Generic, TypeVar

from adapter.kube.selectors import LabelSelector
from adapter.load.pods import Pod
from adapter.runtime.concurrency import Slices

K = TypeVar("K")

DistinctLabels = tuple[Mapping[str, str], ...]
"""Labels that differ as objects: pods of one template share theirs."""


def distinct_labels(labels: Iterable[Mapping[str, str]]) -> DistinctLabels:
    """The different ones of many labels."""
    return tuple({id(each): each for each in labels}.values())


class OwnersByLabels(Generic[K]):
    """Finds the owners of pods that match a selector. Most owners' pods all have the same labels."""

    def __init__(self) -> None:
        self._labels: dict[K, DistinctLabels] = {}

    def __len__(self) -> int:
        return len(self._labels)

    def put(self, owner: K, labels: DistinctLabels) -> None:
        """Replaces the labels of all pods of an owner (`distinct_labels`); empty ones drop the owner."""
        if labels:
            self._labels[owner] = labels
        else:
            self._labels.pop(owner, None)

    async def select(self, selector: LabelSelector, slices: Slices) -> set[K]:
        """The owners with a matching pod."""
        found = set()
        for owner, labels in list(self._labels.items()):
            if any(map(selector.matches, labels)):
                found.add(owner)
            await slices.breathe()
        return found


class PodStore(Mapping[str, Pod]):
    """A namespace's pods; the last changed one comes last."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self._by_name: dict[str, Pod] = {pod.name: pod for pod in pods}

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

    def drop(self, name: str) -> None:
        """Removes a pod, if it is here."""
        self._by_name.pop(name, None)

    async def select(self, selector: LabelSelector | None, slices: Slices) -> list[Pod]:
        """The matching pods, all of them without a selector. 500 pods of one template take 0.1 ms."""
        pods = list(self._by_name.values())
        if selector is None:
            return pods
        matches: dict[int, bool] = {}  # by labels: pods of one template share them
        found = []
        for pod in pods:
            match = matches.get(id(pod.labels))
            if match is None:
                match = matches[id(pod.labels)] = selector.matches(pod.labels)
                await slices.breathe()
            if match:
                found.append(pod)
        return found
