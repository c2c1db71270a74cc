"""The edge between requests for metrics and the picture in memory: the only wait is for the live replica count."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from adapter.apiserver import external_metrics, object_metrics, pod_metrics, query_metrics, wire
from adapter.apiserver.directory import Directory
from adapter.apiserver.policy_figures import DESIRED, EFFECTIVE, assessed, desired, figure, labels
from adapter.apiserver.routes import EVERY, PODS, POLICIES, Route
from adapter.apiserver.status import StatusError, not_found, unavailable
from adapter.apiserver.wire import ExternalItem, Item, Value
from adapter.kube.errors import KubeError
from adapter.load.assessment import Assessment, Decision
from adapter.load.pipeline import decide
from adapter.load.spec import Bounds, Scale
from adapter.snapshot import Key, PolicyView, SnapshotStore

_AT_ONCE = 16  # live scale reads of one listing under way together
_OLDEST_ASSESSMENT = 90.0
_MOST_WRITTEN = 4096

Decide = Callable[[Assessment, Scale, Bounds, float], Decision]


class LiveScales(Protocol):
    """Reads a target's replica count as it is now (`adapter.kube.scale.ScaleReader`). Raises KubeError."""

    async def read(self, scale_path: str, watched: Scale | None, confirmed_at: float | None) -> Scale: ...


class MetricsProvider:
    """Answers metric requests.

    `stale` gives the sentence why nothing may be decided on a policy now, None where it may; with an empty name, on any
    policy of that namespace. `filling` gives the one that says what is waited for until the picture is synced. `now` is
    the API server's time. An assessment older than `oldest` seconds is no ground for an answer.
    """

    def __init__(
        self,
        picture: SnapshotStore,
        scales: LiveScales,
        stale: Callable[[Key], str | None],
        filling: Callable[[], str],
        now: Callable[[], float],
        *,
        decide: Decide = decide,
        oldest: float = _OLDEST_ASSESSMENT,
    ) -> None:
        self._picture = picture
        self._scales = scales
        self._stale = stale
        self._filling = filling
        self._now = now
        self._decide = decide
        self._oldest = oldest
        self._directory: Directory | None = None
        picture.subscribe(self._forget)
        self._written: dict[Route, tuple[object, bytes]] = {}

    @property
    def directory(self) -> Directory:
        """The current picture, ordered for requests."""
        if self._directory is None or self._directory.snapshot is not self._picture.current:
            self._directory = Directory(self._picture.current)
        return self._directory

    def _forget(self, _changed: object) -> None:
        self._directory = None

    async def custom(self, route: Route) -> bytes:
        """A MetricValueList. Raises StatusError."""
        directory = self._fresh(route.namespace)
        if route.resource == PODS:
            return wire.custom(route.version, self._on_pods(directory, route))
        views = object_metrics.chosen(directory, route)
        if route.name != EVERY:
            return await self._one(views[0], route)
        values = await self._every(views, route.metric)
        return wire.custom(route.version, [_item(view, route, value) for view, value in values])

    async def _one(self, view: PolicyView, route: Route) -> bytes:
        """One object's value. Until its policy is assessed again it is the same bytes, but for `desired_replicas`."""
        self._refuse_old(view)
        if route.metric == DESIRED:
            # Whoever asks by the policy's own name, as an HPA shows it, need not be told that name.
            value = await self._desired(view, named=route.resource == POLICIES)
            return wire.custom(route.version, [_item(view, route, value)])
        # Every assessment counts its pods anew, so the counts stand for it; the whole view would be kept from its end.
        token = None if view.assessment is None else view.assessment.counts
        written = self._written.get(route)
        if written is not None and written[0] is token and view.problem is None:
            return written[1]
        body = wire.custom(route.version, [_item(view, route, figure(view, route.metric))])
        if route.is_small:
            if len(self._written) >= _MOST_WRITTEN:
                self._written.clear()
            self._written[route] = (token, body)
        return body

    async def external(self, route: Route) -> bytes:
        """An ExternalMetricValueList. Raises StatusError; one error fails all, for the HPA adds up what it gets."""
        # No policy has a metric of a query's name, and a query needs no watch.
        items = query_metrics.as_external(self._filled(route.namespace).snapshot, route, self._now())
        if items is not None:
            return wire.external(items)
        directory = self._fresh(route.namespace)
        views = external_metrics.chosen(directory, route)
        if not views:
            raise external_metrics.unknown(directory, route)
        values = [(view, await self._value(view, route.metric)) for view in views]
        return wire.external(
            ExternalItem(metric=route.metric, labels=labels(view, route.metric), value=value) for view, value in values
        )

    def _filled(self, namespace: str) -> Directory:
        directory = self.directory
        if not directory.snapshot.synced:
            cause = self._stale(Key(namespace, ""))
            raise unavailable(f"the Kubernetes caches are still being filled: {cause}" if cause else self._filling())
        return directory

    def _fresh(self, namespace: str) -> Directory:
        directory = self._filled(namespace)
        if sentence := self._stale(Key(namespace, "")):
            raise unavailable(sentence)
        return directory

    def _on_pods(self, directory: Directory, route: Route) -> list[Item]:
        if not route.namespace:
            raise not_found("pods have metrics in a namespace only")
        items = pod_metrics.of_policies(directory, route)
        if items is None:
            items = query_metrics.on_pods(directory.snapshot, route, self._now())
        if items is None:
            raise _unknown_on_pods(directory, route)
        return items

    async def _every(self, views: tuple[PolicyView, ...], metric: str) -> list[tuple[PolicyView, Value]]:
        """The values that there are; a policy in error is left out of a listing, which no HPA asks for."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(view: PolicyView) -> tuple[PolicyView, Value] | None:
            async with gate:
                try:
                    return view, await self._value(view, metric)
                except StatusError:
                    return None

        return [found for found in await asyncio.gather(*map(one, views)) if found]

    async def _value(self, view: PolicyView, metric: str) -> Value:
        self._refuse_old(view)
        return await self._desired(view) if metric == DESIRED else figure(view, metric)

    def _refuse_old(self, view: PolicyView) -> None:
        if sentence := self._stale(Key(view.policy.namespace, view.policy.name)):
            raise unavailable(sentence)
        if view.assessment is not None and (age := self._now() - view.assessment.at) > self._oldest:
            raise unavailable(
                f"WatermarkPolicy {view.policy.namespace}/{view.policy.name} was last assessed {age:.0f} s ago"
            )

    async def _desired(self, view: PolicyView, *, named: bool = False) -> Value:
        assessment = assessed(view)
        if view.bounds is None or not view.scale_path:
            raise unavailable(
                f"the HPA or the scale target of {view.policy.namespace}/{view.policy.name} is not known yet"
            )
        try:
            scale = await self._scales.read(view.scale_path, view.scale, view.scale_proven_at)
        except KubeError as error:
            raise unavailable(f"the live replica count cannot be read: {error.public}") from error
        return desired(view, self._decide(assessment, scale, view.bounds, self._now()), named=named)


def _item(view: PolicyView, route: Route, value: Value) -> Item:
    return Item(described=object_metrics.described(view, route), metric=route.metric, value=value)


def _unknown_on_pods(directory: Directory, route: Route) -> StatusError:
    names = {EFFECTIVE + own.name for view in directory.policies(route.namespace) for own in view.policy.metrics}
    if route.metric in names:
        return not_found(f"metricLabelSelector {route.series} selects no policy with {route.metric}")
    names.update(name for name, query in directory.snapshot.queries.items() if query.by_pod)
    known = f"there are {', '.join(sorted(names))}" if names else "no policy and no query is here"
    return not_found(f"no metric {route.metric} on pods in namespace {route.namespace}; {known}", name=route.metric)
