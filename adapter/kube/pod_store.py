"""The pods of one namespace by name, found by selector as well."""

from collections.abc import Collection, Iterable, Iterator, Mapping, ValuesView

from adapter.kube.label_index import LabelIndex
from adapter.kube.selectors import Selector
from adapter.load.pods import Pod


class Pods(Mapping[str, Pod]):
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

    def selected(self, selector: Selector | None) -> Collection[Pod]:
        """The pods that the selector matches, all without one: a live view."""
        return self._by_name.values() if selector is None else self._index.selected(selector)
