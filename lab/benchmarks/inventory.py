"""What the pipeline keeps in memory: bytes by owner and kind of object, each counted for its first owner."""

import enum
import gc
import sys
import time
import types
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

_SKIPPED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.FrameType,
    types.CodeType,
    enum.Enum,
)


def owners(engine: Any) -> Iterable[tuple[str, list[Any]]]:
    """The parts of the pipeline, in the order in which they claim what several of them share."""
    watches = {reflector.name: reflector for reflector in engine._reflectors}  # noqa: SLF001
    evaluator = _evaluator(engine)
    memories = [memory for _, memory in evaluator._memories.values()]  # noqa: SLF001
    views = list(engine.snapshots.current.policies.values())
    assessments = [view.assessment for view in views if view.assessment is not None]
    index = engine._index  # noqa: SLF001
    yield "pods: the objects", list(watches["pods"].items.values())
    yield "pods: the watch's maps", [_copy_of(watches["pods"])]
    yield "pods: the index by namespace and owner", [index.pods.__dict__]
    yield "EndpointSlices", [_copy_of(watches["endpointslices"]), engine._endpoints.__dict__]  # noqa: SLF001
    yield "samples of metrics.k8s.io", [engine._resource_metrics._states]  # noqa: SLF001
    yield "samples of queries", [engine._prometheus.__dict__]  # noqa: SLF001
    yield "rosters", [engine.registries.__dict__]
    yield "policies: the objects", [_copy_of(watches["watermarkpolicies"])]
    yield "HPAs", [_copy_of(watches["horizontalpodautoscalers"])]
    yield "targets", [engine._targets.__dict__]  # noqa: SLF001
    yield "policies: the pods of a target", [evaluator._target_pods]  # noqa: SLF001
    yield "policies: memory of samples", [memory.samples for memory in memories]
    yield "policies: memory", memories
    yield "policies: assessments of metrics", [each.metrics for each in assessments]
    yield "policies: samples", [each.readings for each in assessments]
    yield "policies: assessments", assessments
    yield "policies: inputs", [view.inputs for view in views]
    yield "policies: views", views
    yield "snapshot", [engine.snapshots.current]
    yield "index of links", [index.__dict__]
    yield "queue", [engine._queue.__dict__]  # noqa: SLF001
    yield "rest of the engine", [engine.__dict__]


def inventory(engine: Any) -> dict[str, Any]:
    """Bytes by owner and type, the numbers of objects, and what a collection of all garbage takes."""
    was_on, began = gc.isenabled(), time.thread_time()
    garbage = gc.collect()
    collected = time.thread_time() - began
    gc.disable()
    seen: set[int] = set()
    sizes: dict[str, Any] = {}
    for owner, roots in owners(engine):
        kinds = _claimed(roots, seen)
        ordered = sorted(kinds.items(), key=lambda one: -one[1][1])
        sizes[owner] = {
            "bytes": sum(size for _, size in kinds.values()),
            "kinds": {kind: {"count": count, "bytes": size} for kind, (count, size) in ordered[:8]},
        }
    if was_on:
        gc.enable()
    return {
        "full_collection_ms": round(1000 * collected, 1),
        "garbage": garbage,
        "pods": len({id(pod) for one in engine._reflectors if one.name == "pods" for pod in one.items.values()}),  # noqa: SLF001
        "policies": len(engine._index.policies),  # noqa: SLF001
        "owners": sizes,
    }


def _claimed(roots: list[Any], seen: set[int]) -> dict[str, tuple[int, int]]:
    kinds: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    stack = list(roots)
    while stack:
        one = stack.pop()
        if id(one) in seen or isinstance(one, _SKIPPED) or _is_immortal(one):
            continue
        seen.add(id(one))
        count = kinds[type(one).__name__]
        count[0] += 1
        count[1] += sys.getsizeof(one)  # with the collector's head
        stack += gc.get_referents(one)
        if isinstance(one, dict):  # a table of texts does not tell its keys
            stack += one
    return {kind: (count, size) for kind, (count, size) in kinds.items()}


def _copy_of(watch: Any) -> list[Any]:
    return [watch._items, watch._versions]  # noqa: SLF001


def _is_immortal(one: Any) -> bool:
    return one is None or isinstance(one, bool) or (isinstance(one, int) and -5 <= one <= 256) or one == ()


def _evaluator(engine: Any) -> Any:
    return engine._worker._evaluate.__self__  # noqa: SLF001
