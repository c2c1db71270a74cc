"""Kubernetes as the registry: whether EndpointSlices list a pod as serving.

A pod may be listed several times: in the slices of several Services, once for each address family, and twice while it
moves between slices. It is out only where no copy serves, because any serving copy sends it traffic.
`Endpoint.is_serving` reads one copy: `serving`, else `ready`; unknown means serving (the API's own rule). For a Service
with publishNotReadyAddresses `ready` is always true, and `serving` is still correct.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from adapter.kube.objects import EndpointSlice
from adapter.runtime.decoding import Decoder, shared


class _Copy(NamedTuple):
    slice_name: str
    uid: str
    serving: bool


class Listing(NamedTuple):
    """The relevant part of an EndpointSlice: its copies of the pods of its own namespace, by pod name."""

    namespace: str
    name: str
    copies: Mapping[str, tuple[_Copy, ...]]


_SLICE = Decoder(EndpointSlice)


def decode_listing(body: bytes | msgspec.Raw) -> Listing:
    """The listing of an EndpointSlice, in a third of its memory. Raises msgspec.MsgspecError for anything else."""
    return listing(_SLICE.decode(body))


def listing(endpoint_slice: EndpointSlice, namespace: str = "", name: str = "") -> Listing:
    """The listing of a slice, under a `name` of its own; `namespace`: of one that does not name its own."""
    namespace = shared(endpoint_slice.metadata.namespace or namespace)
    name = name or endpoint_slice.metadata.name
    copies: dict[str, tuple[_Copy, ...]] = {}
    for endpoint in endpoint_slice.endpoints or ():
        target = endpoint.target_ref
        if target is not None and target.kind == "Pod" and target.namespace in {"", namespace}:
            copies[target.name] = (*copies.get(target.name, ()), _Copy(name, target.uid, endpoint.is_serving))
    return Listing(namespace, name, copies)


class Endpoints:
    """The copies of every pod in all slices, kept up to date by `change`.

    `on_change` is called with namespace and name of each pod whose copies changed, after the change.
    """

    def __init__(self, on_change: Callable[[str, str], None] = lambda _, __: None) -> None:
        self._on_change = on_change
        self.pods: dict[tuple[str, str], tuple[_Copy, ...]] = {}
        """By namespace and pod name; mostly one copy each, for every pod of the cluster."""

    def change(self, old: Listing | None, new: Listing | None) -> None:
        """A slice was added (`old` None), changed, or deleted (`new` None)."""
        current = new or old
        assert current is not None
        before, after = old.copies if old else {}, new.copies if new else {}
        for name in before.keys() | after.keys():
            if before.get(name) == after.get(name):
                continue
            listed = self.pods.pop((current.namespace, name), ())
            copies = tuple(copy for copy in listed if copy.slice_name != current.name) + after.get(name, ())
            if copies:
                self.pods[current.namespace, name] = copies
            self._on_change(current.namespace, name)

    def endpoint_serving(self, namespace: str, pod_name: str, pod_uid: str) -> bool | None:
        """True where a listed copy of the pod serves, False where none does, None where no slice lists it."""
        copies = self.pods.get((namespace, pod_name), ())
        # Without a UID on either side the name matches; a copy with another UID is of an earlier pod.
        states = [copy.serving for copy in copies if not copy.uid or not pod_uid or copy.uid == pod_uid]
        return any(states) if states else None
