"""Finds pods by label, and owners of pods by the labels of these."""

from collections.abc import Iterable, Mapping
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


class PodStore(dict[str, Pod]):
    """A namespace's pods by name; the last changed one comes last."""

    def put(self, pod: Pod) -> None:
        """Adds a pod or replaces the one of that name."""
        self.pop(pod.name, None)
        self[pod.name] = pod

    async def select(self, selector: LabelSelector | None, slices: Slices) -> list[Pod]:
        """The matching pods, all of them without a selector. 500 pods of one template take 0.1 ms."""
        pods = list(self.values())
        if selector is None:
            return pods
        matches: dict[int, bool] = {}  # by labels: pods of one template share them
        for pod in pods:
            if id(pod.labels) not in matches:
                matches[id(pod.labels)] = selector.matches(pod.labels)
                await slices.breathe()
        return [pod for pod in pods if matches[id(pod.labels)]]
