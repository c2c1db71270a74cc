"""The results of a query, literally: each rule of dating and grouping as it is said, with no thought of its cost."""

from collections.abc import Sequence

from adapter.load.quantity import QuantityError, parse_number
from adapter.load.samples import Point, QuerySamples
from adapter.usage.promql import INPUT_LABEL, QueryInputs
from adapter.usage.query_catalog import InstantQuery
from tests.usage.fakes import PlainSample

Times = Sequence[tuple[int, str, str, float]]
"""Number of the selector, namespace, pod, and time of the newest sample."""


def times_of(found: Sequence[PlainSample]) -> Times:
    """The times as an answer has them."""
    return [
        (int(s.labels.get(INPUT_LABEL, "0")), s.labels.get("namespace", ""), s.labels.get("pod", ""), float(s.value))
        for s in found
    ]


def date(inputs: QueryInputs, times: Times, namespace: str, pod: str) -> float | None:
    """The time of a value."""
    dates = [_of_selector([t[1:] for t in times if t[0] == n], namespace, pod) for n in range(len(inputs.selectors))]
    known = [at for at in dates if at is not None]
    if not known or (len(known) < len(dates) and not inputs.alternatives):
        return None
    return min(known)


def _of_selector(times: Sequence[tuple[str, str, float]], namespace: str, pod: str) -> float | None:
    if pod and any(its_pod for _, its_pod, _ in times):
        own = [at for ns, its_pod, at in times if (ns, its_pod) == (namespace, pod)]
        return next(iter(own or [at for ns, its_pod, at in times if (ns, its_pod) == ("", pod)]), None)
    if namespace and any(ns for ns, _, _ in times):
        times = [one for one in times if one[0] == namespace]
    return max((at for _, _, at in times), default=None)


def series(
    asked: InstantQuery, inputs: QueryInputs, found: Sequence[PlainSample], times: Times
) -> dict[str, list[tuple[str, frozenset[tuple[str, str]], int, float]]]:
    """Pod, labels, value and time of every series that counts, by namespace."""
    by_namespace: dict[str, list[tuple[str, frozenset[tuple[str, str]], int, float]]] = {}
    for sample in found:
        namespace, pod = sample.labels.get("namespace", ""), sample.labels.get("pod", "")
        pod = "" if asked.by_pod is False else pod
        at = date(inputs, times, namespace, pod)
        try:
            value = parse_number(sample.value)
        except QuantityError:
            continue
        if at is not None:
            by_namespace.setdefault(namespace, []).append((pod, frozenset(sample.labels.items()), value, at))
    return by_namespace


def samples(
    asked: InstantQuery, inputs: QueryInputs, found: Sequence[PlainSample], times: Times, namespace: str
) -> tuple[dict[str, Point], Point | None, bool]:
    """The points of the pods, the total, and whether the answer is faulty, for one namespace."""
    counts = series(asked, inputs, found, times)
    pods = [s.labels.get("pod", "") for s in found if s.labels.get("namespace", "") == namespace]
    everywhere = [(s.labels.get("namespace", ""), s.labels.get("pod", "")) for s in found]
    by_pod = asked.by_pod if asked.by_pod is not None else any(pod for _, pod in everywhere)
    undated = bool(found) and all(
        date(inputs, times, ns, "" if asked.by_pod is False else pod) is None for ns, pod in everywhere
    )
    if by_pod:
        named = [pod for pod in pods if pod]
        unlabelled = bool(found) and not any(ns for ns, _ in everywhere)
        faulty = undated or unlabelled or len(named) > len(set(named)) or (bool(pods) and not named)
        points = {pod: Point(at, value) for pod, _, value, at in counts.get(namespace, []) if pod}
        return ({}, None, True) if faulty else (points, None, False)
    if undated or len([1 for ns, _ in everywhere if ns in {namespace, ""}]) > 1:
        return {}, None, True
    own = [*counts.get(namespace, []), *counts.get("", [])]
    return {}, (Point(own[0][3], own[0][2]) if own else None), False


def plainly(found: QuerySamples) -> tuple[dict[str, Point], Point | None, bool]:
    """The same of the adapter's samples."""
    return dict(found.pods), found.total, found.error is not None
