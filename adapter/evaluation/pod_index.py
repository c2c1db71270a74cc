"""Index of pods by namespace and by owner, which finds the pods of a target without a scan."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from adapter.kube.label_index import Pods
from adapter.load.pods import Pod
from adapter.snapshot import Key


class PodIndex:
    """All pods. A pod is indexed by its controller's name, and by that name without the pod's template hash."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, Pods] = defaultdict(Pods)
        self._by_owner: dict[Key, dict[str, Pod]] = defaultdict(dict)

    def change(self, old: Pod | None, new: Pod | None) -> None:
        """Apply a watch event: `old` is None for a new pod, `new` is None for a deleted one."""
        if old is not None:
            self._drop(old)
        if new is not None:
            self._by_namespace[new.namespace].put(new)
            for key in owners(new):
                self._by_owner[key][new.name] = new

    def _drop(self, pod: Pod) -> None:
        pods = self._by_namespace.get(pod.namespace)
        if pods is not None:
            pods.drop(pod.name)
            if not pods:
                del self._by_namespace[pod.namespace]
        for key in owners(pod):
            owned = self._by_owner.get(key)
            if owned is not None:
                owned.pop(pod.name, None)
                if not owned:
                    del self._by_owner[key]

    def owned(self, namespace: str, name: str) -> Iterable[Pod]:
        """Pods whose controller has this name, directly or through a ReplicaSet; its kind is not compared."""
        return self._by_owner.get(Key(namespace, name), {}).values()

    def namespace(self, namespace: str) -> Mapping[str, Pod]:
        """The pods of a namespace, by name."""
        return self._by_namespace.get(namespace, {})

    def namespaces(self) -> Mapping[str, Pods]:
        """All pods by namespace and name. The map is live: readers must not await while they use it."""
        return self._by_namespace

    def get(self, namespace: str, name: str) -> Pod | None:
        """One pod."""
        return self.namespace(namespace).get(name)


def owners(pod: Pod) -> Iterator[Key]:
    """The names that the scale target of this pod may have."""
    if pod.owner is None:
        return
    yield Key(pod.namespace, pod.owner.name)
    stem = pod.owner.name.removesuffix(f"-{pod.template_hash}") if pod.template_hash else pod.owner.name
    if stem != pod.owner.name:
        yield Key(pod.namespace, stem)
