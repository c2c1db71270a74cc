"""Kubernetes as the registry: whether EndpointSlices list a pod as serving.

A pod may be listed several times: in the slices of several Services, once for each address family, and twice while it
moves between slices. It is out only where all copies say so, because any copy that serves sends it traffic.
`Endpoint.is_serving` reads one copy: `serving`, else `ready`, and what is unknown serves (the API's own rule). For a
Service with publishNotReadyAddresses `ready` is always true, and `serving` still tells the truth.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from adapter.kube.objects import EndpointSlice
from adapter.runtime.decoding import Decoder


class _Copy(NamedTuple):
    """A slice's word about a pod."""

    slice_name: str
    uid: str
    serving: bool


class _Place(NamedTuple):
    """The namespaced name of a pod."""

    namespace: str
    name: str


class Listing(NamedTuple):
    """What counts of an EndpointSlice: its copies of the pods of its own namespace, by pod name."""

    namespace: str
    name: str
    copies: Mapping[str, tuple[_Copy, ...]]


_SLICE = Decoder(EndpointSlice)


def decode_slice(body: bytes | msgspec.Raw) -> EndpointSlice:
    """An EndpointSlice. Raises msgspec.MsgspecError for anything else."""
    return _SLICE.decode(body)


def decode_listing(body: bytes | msgspec.Raw) -> Listing:
    """What counts of an EndpointSlice, in a third of its memory. Raises msgspec.MsgspecError for anything else."""
    return listing(decode_slice(body))


def listing(one: EndpointSlice) -> Listing:
    """The pods that a slice lists."""
    namespace = sys.intern(one.metadata.namespace)
    copies: dict[str, tuple[_Copy, ...]] = {}
    for name, copy in _copies(one, namespace):
        copies[name] = (*copies.get(name, ()), copy)
    return Listing(namespace, one.metadata.name, copies)


def endpoints_serving(slices: Iterable[EndpointSlice], namespace: str, pod_name: str, pod_uid: str) -> bool | None:
    """What these slices say of a pod: True where a copy serves, False where none does, None where none is listed."""
    copies = [
        copy
        for one in slices
        if one.metadata.namespace in {"", namespace}
        for name, copy in _copies(one, namespace)
        if name == pod_name
    ]
    return _verdict(copies, pod_uid)


class Endpoints:
    """What all slices say of every pod, kept up to date by `change`; `on_change` hears of each pod whose word changed.

    `on_change` is called with namespace and name once the new word can be asked for.
    """

    def __init__(self, on_change: Callable[[str, str], None]) -> None:
        self._on_change = on_change
        self._pods: dict[str, dict[str, tuple[_Copy, ...]]] = {}
        """By namespace and pod name: mostly one copy each, and there is one for every pod of the cluster."""

    def change(self, old: Listing | None, new: Listing | None) -> None:
        """A slice came (`old` None), changed, or went (`new` None)."""
        found = new or old
        assert found is not None
        before = old.copies if old is not None else {}
        after = new.copies if new is not None else {}
        for name in before.keys() | after.keys():
            if before.get(name) != after.get(name):
                self._file(_Place(found.namespace, name), found.name, after.get(name, ()))

    def endpoint_serving(self, namespace: str, pod_name: str, pod_uid: str) -> bool | None:
        """True where a listed copy of the pod serves, False where none does, None where no slice lists it."""
        return _verdict(self._filed(namespace, pod_name), pod_uid)

    def _filed(self, namespace: str, pod_name: str) -> tuple[_Copy, ...]:
        return self._pods.get(namespace, {}).get(pod_name, ())

    def _file(self, pod: _Place, slice_name: str, copies: tuple[_Copy, ...]) -> None:
        before = self._filed(*pod)
        after = tuple(copy for copy in before if copy.slice_name != slice_name) + copies
        pods = self._pods.setdefault(pod.namespace, {})
        if after:
            pods[pod.name] = after
        else:
            pods.pop(pod.name, None)
        if not pods:
            del self._pods[pod.namespace]
        if _words(before) != _words(after):
            self._on_change(*pod)


def _words(copies: Iterable[_Copy]) -> dict[str, bool]:
    """What is said of each UID that bore the pod's name."""
    words: dict[str, bool] = {}
    for copy in copies:
        words[copy.uid] = words.get(copy.uid, False) or copy.serving
    return words


def _verdict(copies: Iterable[_Copy], uid: str) -> bool | None:
    found = None
    for copy in copies:
        # A copy without a UID, or a caller without one, is matched by name; one with another UID is of an earlier pod.
        if not copy.uid or not uid or copy.uid == uid:
            if copy.serving:
                return True
            found = False
    return found


def _copies(one: EndpointSlice, namespace: str) -> Iterator[tuple[str, _Copy]]:
    """The pods of this namespace that a slice lists."""
    for endpoint in one.endpoints or ():
        target = endpoint.target_ref
        if target is not None and target.kind == "Pod" and target.namespace in {"", namespace}:
            yield target.name, _Copy(one.metadata.name, target.uid, endpoint.is_serving)
