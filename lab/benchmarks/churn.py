"""Pods that are replaced at an even rate, on the real API server: deleted, started anew, ready after some seconds."""

import datetime as dt
import threading
import time
from types import TracebackType
from typing import Self

from lab.benchmarks import scene, store
from lab.benchmarks.registered import Registries

READY_AFTER_SECONDS = 5
_Pods = dict[str, tuple[scene.Service, int]]


class Churn:
    """Replaces `per_second` pods while it is open, one of each service in turn, in all that lists them."""

    def __init__(self, services: list[scene.Service], etcd: int, registries: Registries, per_second: float) -> None:
        self._services, self._etcd, self._registries, self._rate = services, etcd, registries, per_second
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._born: dict[str, dict[int, tuple[float, bool]]] = {}
        """When the pods of a service that were replaced began, and whether they are ready, by index."""
        self._beat = 0
        self.replaced = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        if self.error is not None and error is None:
            raise self.error

    def _run(self) -> None:
        try:
            self._replace_all()
        except Exception as error:  # noqa: BLE001  shown by the main thread
            self.error = error

    def _replace_all(self) -> None:
        waiting: list[_Pods] = []
        began = time.monotonic()
        while not self._over.is_set():
            second = len(waiting)
            pods = self._next(int(self._rate * (second + 1)) - int(self._rate * second))
            waiting.append(pods)
            self._write(pods, ready=False)
            if second >= READY_AFTER_SECONDS:
                self._write(waiting[second - READY_AFTER_SECONDS], ready=True)
            self._over.wait(max(0.0, began + second + 1 - time.monotonic()))
        for pods in waiting[-READY_AFTER_SECONDS:]:
            self._write(pods, ready=True)

    def _next(self, count: int) -> _Pods:
        pods: _Pods = {}
        for _ in range(count):
            service = self._services[self._beat % len(self._services)]
            index = 1 + self._beat // len(self._services) % (service.replicas - 1)  # the first one beats
            pods[f"/registry/pods/{service.namespace}/{service.pod_names[index]}"] = service, index
            self._beat += 1
        return pods

    def _write(self, pods: _Pods, *, ready: bool) -> None:
        """New pods in the place of the old ones, or the new ones ready."""
        if not ready:
            self._registries.replace(pods, join=False)
        now = time.time()
        for service, index in pods.values():
            known = self._born.setdefault(service.name, {})
            known[index] = (known[index][0], True) if ready else (now, False)
        if not ready:
            store.delete(self._etcd, pods)
            self.replaced += len(pods)
        changed = [(key, self._pod(*one)) for key, one in pods.items()]
        slices = [
            (f"/registry/endpointslices/{one.namespace}/{one.name}", self._slice(one)) for one, _ in pods.values()
        ]
        store.put(self._etcd, [*changed, *slices])
        if ready:
            self._registries.replace(pods, join=True)

    def _pod(self, service: scene.Service, index: int) -> scene.Object:
        born, ready = self._born[service.name][index]
        pod, moment = scene.pod(service, index), _time(born)
        pod["metadata"] |= {"uid": _uid(pod["metadata"]["uid"], born), "creationTimestamp": moment}
        pod["status"]["startTime"] = moment
        for condition in pod["status"]["conditions"]:
            condition["lastTransitionTime"] = _time(time.time()) if ready else moment
            if condition["type"] in {"Ready", "ContainersReady"}:
                condition["status"] = str(ready)
        return pod

    def _slice(self, service: scene.Service) -> scene.Object:
        item = scene.endpoint_slice(service)
        for index, (born, ready) in self._born[service.name].items():
            endpoint = item["endpoints"][index]
            endpoint["conditions"] = {"ready": ready, "serving": ready, "terminating": False}
            endpoint["targetRef"]["uid"] = _uid(endpoint["targetRef"]["uid"], born)
        return item


def _uid(uid: str, born: float) -> str:
    return f"{int(born):08x}{uid[8:]}"


def _time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
