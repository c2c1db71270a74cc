"""Pods by namespace and by owner, so that a target's pods are found without looking at all others."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from adapter.kube.label_index import Pods
from adapter.load.pods import Pod
from adapter.snapshot import Key


class PodIndex:
    """All known pods. A pod is filed under its controller's name, and under that without the pod's template hash."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, Pods] = defaultdict(Pods)
        self._by_owner: dict[Key, dict[str, Pod]] = defaultdict(dict)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        """Take one change: `old` is what was there, `new` what is there now."""
        if old is not None:
            self._drop(old)
        if new is not None:
            self._by_namespace[new.namespace].put(new)
            for key in owners(new):
                self._by_owner[key][new.name] = new

    def _drop(self, pod: Pod) -> None:
        known = self._by_namespace.get(pod.namespace)
        if known is not None:
            known.drop(pod.name)
            if not known:
                del self._by_namespace[pod.namespace]
        for key in owners(pod):
            self._disown(key, pod.name)

    def _disown(self, owner: Key, name: str) -> None:
        found = self._by_owner.get(owner)
        if found is not None:
            found.pop(name, None)
            if not found:
                del self._by_owner[owner]

    def owned(self, namespace: str, name: str) -> Iterable[Pod]:
        """The pods whose controller may be the one of that name, by themselves or through a ReplicaSet."""
        return self._by_owner.get(Key(namespace, name), {}).values()

    def namespace(self, namespace: str) -> Mapping[str, Pod]:
        """All pods of a namespace, by name."""
        return self._by_namespace.get(namespace, {})

    def namespaces(self) -> Mapping[str, Pods]:
        """All pods by namespace and name: a live view, for readers that do not await in between."""
        return self._by_namespace

    def get(self, namespace: str, name: str) -> Pod | None:
        """One pod."""
        return self.namespace(namespace).get(name)


def owners(pod: Pod) -> Iterator[Key]:
    """The names that a target of this pod may have."""
    if pod.owner is None:
        return
    yield Key(pod.namespace, pod.owner.name)
    stem = pod.owner.name.removesuffix(f"-{pod.template_hash}") if pod.template_hash else pod.owner.name
    if stem != pod.owner.name:
        yield Key(pod.namespace, stem)
