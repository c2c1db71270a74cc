"""Answers metric requests from the snapshot in memory; only `desired_replicas` waits, for the live replica count."""

import math
from collections.abc import Callable
from typing import NamedTuple

from adapter.apiserver import policy_metrics, query_metrics
from adapter.apiserver.policy_metrics import name_of
from adapter.apiserver.request_info import PODS_RESOURCE, POLICIES_RESOURCE, RequestInfo, RequestKind
from adapter.apiserver.status import unavailable
from adapter.apiserver.wire import Row, Value, custom_row, external_row, metric_list
from adapter.kube.errors import KubeError
from adapter.kube.scale import ScaleReader
from adapter.load.assessment import Assessment, Decision
from adapter.load.decide import decide
from adapter.load.quantity import milli_text
from adapter.load.samples import time_text
from adapter.load.spec import Bounds, Scale
from adapter.policy.hpa import DESIRED_REPLICAS
from adapter.snapshot import Key, PolicyView, Snapshot, SnapshotStore

_MAX_ASSESSMENT_AGE = 90.0
_LATE_SECONDS = 5.0
"""A policy is assessed again once a sample stops counting; a process without processor time is later than that."""

Decide = Callable[[Assessment, Scale, Bounds, float], Decision]


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
        *,
        decide: Decide = decide,
    ) -> None:
        self._snapshots, self._scales = snapshots, scales
        self._stale_reason, self._unsynced_reason = stale_reason, unsynced_reason
        self._now, self._decide = now, decide

    @property
    def snapshot(self) -> Snapshot:
        """The current snapshot."""
        return self._snapshots.current

    async def answer(self, request: RequestInfo) -> bytes:
        """The list of the requested values, made in slices. Raises StatusError."""
        if request.kind is RequestKind.EXTERNAL:
            rows = await self._external(request)
        elif request.resource == PODS_RESOURCE:
            rows = await query_metrics.on_pods(self._fresh_snapshot(request.namespace), request, self._now())
        else:
            view = policy_metrics.of_object(self._fresh_snapshot(request.namespace), request)
            about, value = policy_metrics.described_object(view, request), await self._value(view, request)
            rows = [custom_row(request.version, about, request.metric, value)]
        return await metric_list(request.group, request.version, rows)

    async def live_decision(self, request: RequestInfo) -> LiveDecision:
        """The decision that the policy of the request has at this moment, with what it is made from.

        Raises StatusError as a request for `desired_replicas` does, but for a decision that is an error.
        """
        return await self._decision(policy_metrics.of_object(self._fresh_snapshot(request.namespace), request))

    async def _external(self, request: RequestInfo) -> list[Row]:
        """One error fails all, because the HPA sums the series."""
        # Queries come first: no policy has a metric of a query's name, and a query needs no watch.
        query = self.synced_snapshot(request.namespace).queries.get(request.metric)
        if query is not None:
            return await query_metrics.as_external(query, request, self._now())
        rows = []
        for view in await policy_metrics.of_series(self._fresh_snapshot(request.namespace), request):
            labels = policy_metrics.series_labels(view, request.metric) or {}
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
            return policy_metrics.metric_value(view, request.metric)
        decision = (await self._decision(view)).decision
        if decision.served is None:
            sentence = decision.error or "no decision"
            # The HPA shows the policy's name beside the error if it asked by that name.
            raise unavailable(sentence if request.resource == POLICIES_RESOURCE else f"{name_of(view)}: {sentence}")
        sampled_at = policy_metrics.sampled_at(view, policy_metrics.require_assessment(view))
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
        assessment = policy_metrics.require_assessment(view)
        if view.bounds is None or not view.scale_path:
            raise unavailable(f"the HPA or the scale target of {name_of(view)} is not known yet")
        try:
            scale = await self._scales.read(view.scale_path, view.scale, view.scale_proven_at)
        except KubeError as error:
            raise unavailable(f"the live replica count cannot be read: {error.public}") from error
        now = self._now()
        return LiveDecision(view, scale, now, self._decide(assessment, scale, view.bounds, now))
