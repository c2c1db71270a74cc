"""Answers metric requests from the snapshot in memory; only `desired_replicas` waits, for the live replica count.

Metrics of policies are served on the policy, on its scale target, and as External metrics. Those of the settings' named
queries are served on pods, and as External metrics.
"""

import math
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from adapter.apiserver.discovery import COMMON_METRICS, EFFECTIVE_PREFIX, POD_COUNTS, RAW_PREFIX
from adapter.apiserver.request_info import ALL_OBJECTS, POLICIES_RESOURCE, RequestInfo, RequestKind
from adapter.apiserver.status import StatusError, bad_request, not_found, unavailable
from adapter.apiserver.wire import Row, Value, custom_row, described, external_row, in_slices, metric_list, selected_by
from adapter.kube.errors import KubeError
from adapter.kube.scale import ScaleReader
from adapter.kube.selectors import LabelSelector
from adapter.load.assessment import Assessment, Decision, MetricAssessment
from adapter.load.decide import decide
from adapter.load.quantity import milli_text, nano_text
from adapter.load.samples import time_text
from adapter.load.spec import Scale
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.policy.watermark_policy import API_VERSION, KIND
from adapter.runtime.concurrency import Slices
from adapter.runtime.faults import first_names
from adapter.snapshot import Key, PodStore, PolicyView, Snapshot, SnapshotStore, TargetKey
from adapter.usage.query_results import NamedQueryResult

_MAX_ASSESSMENT_AGE = 90.0
_LATE_SECONDS = 5.0
"""A policy is assessed again once a sample stops counting; a process without processor time is later than that."""


class LiveDecision(NamedTuple):
    """A decision, and what it was made from: the policy's view, the live scale and the time (seconds)."""

    view: PolicyView
    scale: Scale
    now: float
    decision: Decision


class MetricsProvider:
    """Answers metric requests.

    `stale_reason` returns why a policy must not be decided on, or None; with an empty name it answers for all policies
    of the namespace. `unsynced_reason` says which caches are still being filled. `now` is this machine's time. An
    assessment that is older than 90 s, or whose samples no longer count, is not served.
    """

    def __init__(
        self,
        snapshots: SnapshotStore,
        scales: ScaleReader,
        stale_reason: Callable[[Key], str | None],
        unsynced_reason: Callable[[], str],
        now: Callable[[], float],
    ) -> None:
        self._snapshots, self._scales = snapshots, scales
        self._stale_reason, self._unsynced_reason, self._now = stale_reason, unsynced_reason, now

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot."""
        return self._snapshots.current

    def unsynced(self) -> str | None:
        """Which caches are still being filled; None once all are."""
        return None if self.snapshot.synced else self._unsynced_reason()

    async def answer(self, request: RequestInfo) -> bytes:
        """The list of the requested values, made in slices. Raises StatusError."""
        if request.kind is RequestKind.EXTERNAL:
            rows = await self._external(request)
        elif request.kind is RequestKind.PODS:
            rows = await _on_pods(self._fresh_snapshot(request.namespace), request, self._now())
        else:
            view = _of_object(self._fresh_snapshot(request.namespace), request)
            about, value = _described_object(view, request), await self._value(view, request)
            rows = [custom_row(request.version, about, request.metric, value)]
        return await metric_list(request.group, request.version, rows)

    async def live_decision(self, request: RequestInfo) -> LiveDecision:
        """The decision that the policy of the request has at this moment, with what it is made from.

        Raises StatusError as a request for `desired_replicas` does, but for a decision that is an error.
        """
        return await self._decision(_of_object(self._fresh_snapshot(request.namespace), request))

    async def _external(self, request: RequestInfo) -> list[Row]:
        """One error fails all, because the HPA sums the series."""
        # Queries come first: no policy has a metric of a query's name, and a query needs no watch.
        query = self.synced_snapshot(request.namespace).queries.get(request.metric)
        if query is not None:
            return await _as_external(query, request, self._now())
        rows = []
        for view in await _of_series(self._fresh_snapshot(request.namespace), request):
            labels = _series_labels(view, request.metric) or {}
            rows.append(external_row(request.metric, labels, await self._value(view, request)))
        return rows

    def synced_snapshot(self, namespace: str) -> Snapshot:
        """The current snapshot. Raises StatusError 503 until every cache is filled."""
        if not self.snapshot.synced:
            raise unavailable(self._stale_reason(Key(namespace, "")) or self._unsynced_reason())
        return self.snapshot

    def _fresh_snapshot(self, namespace: str) -> Snapshot:
        if sentence := self._stale_reason(Key(namespace, "")):
            raise unavailable(sentence)
        return self.synced_snapshot(namespace)

    async def _value(self, view: PolicyView, request: RequestInfo) -> Value:
        if request.metric != DESIRED_REPLICAS:
            self._check_fresh(view)
            return _metric_value(view, request.metric)
        decision = (await self._decision(view)).decision
        if decision.served is None:
            sentence = decision.error or "no decision"
            # The HPA shows the policy's name beside the error if it asked by that name.
            raise unavailable(sentence if request.resource == POLICIES_RESOURCE else f"{name_of(view)}: {sentence}")
        sampled_at = _sampled_at(view, require_assessment(view))
        return Value(milli_text(decision.served), sampled_at)

    def _check_fresh(self, view: PolicyView) -> None:
        if sentence := self._stale_reason(Key(view.policy.namespace, view.policy.name)):
            raise unavailable(sentence)
        if (assessment := view.assessment) is None:
            return
        stale_at = math.inf if assessment.stale_at is None else assessment.stale_at + _LATE_SECONDS
        if self._now() > min(assessment.at + _MAX_ASSESSMENT_AGE, stale_at):
            raise unavailable(f"{name_of(view)} was last assessed at {time_text(assessment.at)}")

    async def _decision(self, view: PolicyView) -> LiveDecision:
        self._check_fresh(view)
        assessment = require_assessment(view)
        if view.bounds is None or not view.scale_path:
            raise unavailable(f"the HPA or the scale target of {name_of(view)} is not known yet")
        try:
            scale = await self._scales.read(view.scale_path, view.scale, view.scale_proven_at)
        except KubeError as error:
            fault = f"GET {view.scale_path}: {error.public}"
            raise unavailable(f"the live replica count cannot be read: {fault}") from error
        now = self._now()
        return LiveDecision(view, scale, now, decide(assessment, scale, view.bounds, now))


def name_of(view: PolicyView) -> str:
    """The policy in a sentence."""
    return f"WatermarkPolicy {view.policy.namespace}/{view.policy.name}"


def require_assessment(view: PolicyView) -> Assessment:
    """The policy's assessment. Raises StatusError with the policy's problem, or 503 before the first assessment."""
    if view.problem is not None:
        raise StatusError(view.problem.code, view.problem.message, reason=view.problem.reason)
    if view.assessment is None:
        raise unavailable(f"{name_of(view)} has not been assessed yet")
    return view.assessment


def _series_labels(view: PolicyView, metric: str) -> dict[str, str] | None:
    """The labels of the metric's one series, with its `metric` unless all policies have it; None if there is none."""
    if metric in COMMON_METRICS:
        return {"policy": view.policy.name}
    names = (
        each.name for each in view.policy.metrics if metric in {EFFECTIVE_PREFIX + each.name, RAW_PREFIX + each.name}
    )
    return next(({"policy": view.policy.name, "metric": name} for name in names), None)


def _is_selected(view: PolicyView, metric: str, selector: LabelSelector | None) -> bool:
    """Whether the policy has the metric, and the selector selects its one series."""
    labels = _series_labels(view, metric)
    return labels is not None and (selector is None or selector.matches(labels))


def _metric_value(view: PolicyView, metric: str) -> Value:
    """The value of a metric other than `desired_replicas`.

    Raises StatusError: 404 for a metric that the policy does not have, 503 with the cause if it has no value.
    """
    if metric in POD_COUNTS:
        assessment = require_assessment(view)
        return Value(milli_text(1000 * assessment.counts.get(POD_COUNTS[metric], 0)), assessment.at)
    labels = _series_labels(view, metric)
    if labels is None:
        prefixed = (prefix + each.name for each in view.policy.metrics for prefix in (EFFECTIVE_PREFIX, RAW_PREFIX))
        known = ", ".join((*COMMON_METRICS, *prefixed))
        raise not_found(f"{name_of(view)} has no metric {metric}; it has {known}", name=metric)
    found = next((one for one in require_assessment(view).metrics if one.name == labels["metric"]), None)
    usage = None if found is None else found.raw if metric.startswith(RAW_PREFIX) else found.usage
    if found is None or usage is None or found.error is not None:
        fault = "not assessed yet" if found is None else found.error or "no serving pod has a sample"
        raise unavailable(f"metric {labels['metric']} of {name_of(view)}: {fault}")
    return Value(nano_text(usage), _sampled_at(view, found), found.window)


def _sampled_at(view: PolicyView, found: MetricAssessment | Assessment) -> float:
    """The time of the oldest sample in a value, else that of the assessment."""
    return require_assessment(view).at if found.sampled_at is None else found.sampled_at


def _described_object(view: PolicyView, request: RequestInfo) -> Row:
    """The object that the answer describes."""
    policy, target = view.policy, view.target
    if request.resource == POLICIES_RESOURCE:
        return described(KIND, policy.namespace, policy.name, API_VERSION)
    assert target is not None  # it was found by its target
    return described(target.kind, policy.namespace, target.name, target.api_version)


def _of_object(snapshot: Snapshot, request: RequestInfo) -> PolicyView:
    """The policy of the requested object. HPAs name it; of pods alone all (`*`) can be asked for.

    Raises StatusError 404 if the object has no policy, or metricLabelSelector does not select the series.
    """
    key: Key | None = Key(request.namespace, request.name)
    if request.resource != POLICIES_RESOURCE:
        key = snapshot.by_target.get(TargetKey(request.namespace, request.resource, request.name))
    view = snapshot.policies.get(key) if key is not None else None
    if view is None:
        kind, _, group = request.resource.partition(".")
        is_policy = request.resource == POLICIES_RESOURCE
        missing = "there is no WatermarkPolicy" if is_policy else f"no WatermarkPolicy scales {request.resource}"
        hint = f"`kubectl get watermarkpolicies -n {request.namespace}` lists those that exist"
        message = f"{missing} {request.name} in namespace {request.namespace}; {hint}"
        raise not_found(message, kind=kind, group=group, name=request.name)
    if _series_labels(view, request.metric) and not _is_selected(view, request.metric, request.series):
        raise not_found(f"metricLabelSelector {request.series} does not select {request.metric} of {request.name}")
    return view


async def _of_series(snapshot: Snapshot, request: RequestInfo) -> list[PolicyView]:
    """The policies whose External series of this metric the selector selects.

    Raises StatusError 404 if none is selected. `desired_replicas` has to select one policy, because the HPA sums the
    series that it gets: 400 if several are.
    """
    named = request.labels.value("policy") if request.labels else None  # one of thousands is found at once
    one = snapshot.policies.get(Key(request.namespace, named or ""))
    every = snapshot.policies_in(request.namespace) if named is None else [one] if one else []
    views = await in_slices(view if _is_selected(view, request.metric, request.labels) else None for view in every)
    how = "select one by its name: matchLabels: {policy: NAME}"
    if not views:
        asked = f"an external metric {request.metric}{selected_by(request.labels)}"
        message = f"no WatermarkPolicy in namespace {request.namespace} has {asked}; {how}"
        raise not_found(message, name=request.metric)
    if request.metric == DESIRED_REPLICAS and len(views) > 1:
        names = first_names([view.policy.name for view in views], 5)
        raise bad_request(f"{len(views)} policies are selected ({names}), and the HPA would add up their counts; {how}")
    return views


# --- named queries ---


async def _on_pods(snapshot: Snapshot, request: RequestInfo, now: float) -> list[Row]:
    """The values of a query by pod. Raises StatusError 503 and 404."""
    query = snapshot.queries.get(request.metric)
    if query is None or not query.by_pod or not request.namespace:
        causes = "pods of a namespace have the metrics of prometheus.queries with scope Pods, and no others"
        raise not_found(f"{request.metric} has no value on pods: {causes}", name=request.metric)
    _refuse_stale(query, now)
    pods = snapshot.pods.get(request.namespace, PodStore())
    chosen = [pods[request.name]] if request.name in pods else []
    if request.name == ALL_OBJECTS:
        chosen = await pods.select(request.labels, Slices())
    series = query.series.get(request.namespace, {})

    def rows() -> Iterator[Row | None]:
        for pod in chosen:
            fresh = [each for each in series.get(pod.name, ()) if now - each.point.at <= query.max_age]
            counting = [each for each in fresh if request.series is None or request.series.matches(each.labels)]
            if len(counting) > 1:
                by = f"sum by ({query.namespace_label}, {query.pod_label})"
                raise unavailable(
                    f"query {query.name} has several series of pod {pod.name}; write it as `{by} (…)`, or select one"
                )
            about = described("Pod", pod.namespace, pod.name, "v1")
            for each in counting:
                value = Value(nano_text(each.point.value), each.point.at)
                yield custom_row(request.version, about, request.metric, value)
            yield None

    return await in_slices(rows()) or _no_sample(query, request, "pod")


async def _as_external(query: NamedQueryResult, request: RequestInfo, now: float) -> list[Row]:
    """The series of a query in the namespace. Raises StatusError 503 and 404."""
    _refuse_stale(query, now)

    def rows() -> Iterator[Row | None]:
        for each in chain.from_iterable(query.series.get(request.namespace, {}).values()):
            if request.labels is None or request.labels.matches(each.labels):
                at = each.point.at
                if now - at > query.max_age:
                    raise _too_old(query, f"query {query.name}: a series that counts was sampled at {time_text(at)}")
                yield external_row(query.name, each.labels, Value(nano_text(each.point.value), at))
            else:
                yield None

    return await in_slices(rows()) or _no_sample(query, request, "series")


def _refuse_stale(query: NamedQueryResult, now: float) -> None:
    if query.fetched_at is None:
        raise unavailable(f"query {query.name} has not been answered yet{f': {query.error}' if query.error else ''}")
    if now - query.fetched_at > query.max_age:
        raise _too_old(query, f"query {query.name} was last answered at {time_text(query.fetched_at)}")


def _too_old(query: NamedQueryResult, event: str) -> StatusError:
    return unavailable(f"{event}, the limit is {query.max_age:g} s{f'; {query.error}' if query.error else ''}")


def _no_sample(query: NamedQueryResult, request: RequestInfo, subject: str) -> list[Row]:
    """Raises StatusError: 503 if the last poll failed, else 404."""
    if query.error is not None:
        raise unavailable(f"query {query.name}: {query.error}")
    chosen = f"{subject}{selected_by(request.labels, request.series)} in namespace {request.namespace}"
    raise not_found(f"query {query.name} has no fresh sample of a {chosen}")
