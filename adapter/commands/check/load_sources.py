"""metrics-server and Prometheus: whether they answer, how old their samples are, and whether they cover the pods."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_low

from adapter.commands.check.report import ReportSection, reason
from adapter.kube.api import POD_METRICS
from adapter.kube.errors import Forbidden, KubeError
from adapter.kube.session import Session
from adapter.load.pods import Pod
from adapter.load.samples import QuerySamples, Usage
from adapter.load.spec import Metric, Policy, Query
from adapter.runtime.faults import first_names
from adapter.runtime.http import MIB
from adapter.runtime.source_errors import SourceError
from adapter.settings import Settings
from adapter.telemetry.metrics import Metrics
from adapter.usage.prometheus import Prometheus
from adapter.usage.query_catalog import InstantQuery, QueryCatalog, WorkloadQuery
from adapter.usage.resource_metrics import decode_usages

MARGIN_SECONDS = 2.0
ONLY_WITH_SETTINGS = (
    "what the cluster's settings name is asked only where they are made for: run the check in a pod of the server, or "
    "give --settings"
)
SETTLED_SECONDS = 120.0
"""A pod that has been Ready for this long has samples of every source."""
_SKEW_SECONDS = 10.0
_NAMED = 3
_NOWHERE = "-"
"""The namespace of a query that is about none: no namespace has this name."""
_SLOW_WINDOW = 300.0
_LOOK = "kubectl -n kube-system get pods -l k8s-app=metrics-server, and kubectl top pods"


@dataclass(frozen=True, slots=True)
class Scaled:
    """A policy with the pods of its target, and the target's name; without both where they are unknown.

    `section` has what the sources say about the policy, for the policy's own section.
    """

    policy: Policy
    pods: Sequence[Pod]
    workload: str
    section: ReportSection = field(default_factory=lambda: ReportSection("policy"))

    def settled(self, now: float) -> list[Pod]:
        """The pods that have been Ready for so long that every source knows them."""
        ready = [pod for pod in self.pods if pod.is_ready and not pod.deleting]
        return [pod for pod in ready if now - max(pod.ready_since, pod.created_at) > SETTLED_SECONDS]


def _names(names: Iterable[str]) -> str:
    return first_names(sorted(names), _NAMED)


# --- metrics-server ---


async def check_metrics_server(session: Session, settings: Settings, scaled: Sequence[Scaled]) -> list[ReportSection]:
    """The findings about metrics.k8s.io: of each namespace with policies on cpu or memory."""
    using = [
        scaled_policy
        for scaled_policy in scaled
        if any(metric.resource is not None for metric in scaled_policy.policy.metrics)
    ]
    section, options = ReportSection("metrics.k8s.io"), settings.resource_metrics
    for namespace in sorted({scaled_policy.policy.namespace for scaled_policy in using}):
        try:
            body = await session.get(
                POD_METRICS.collection(namespace),
                timeout=options.timeout_seconds,
                largest=options.max_answer_mib * MIB,
                aggregated=True,
            )
            usages = decode_usages(body)
        except Forbidden as error:
            section.skipped(f"the usage of pods, for {reason(error)}")
            break
        except (KubeError, SourceError) as error:
            section.wrong(
                f"it does not answer, so policies on cpu and memory hold their counts: {error}; install metrics-"
                f"server, or find out why it fails ({_LOOK})"
            )
            break
        here = [scaled_policy for scaled_policy in using if scaled_policy.policy.namespace == namespace]
        _usages(section, here, usages, session.now(), options.max_age_seconds)
    return [section] * bool(using)


def _usages(
    section: ReportSection, scaled: Sequence[Scaled], usages: Mapping[str, Usage], now: float, max_age: float
) -> None:
    """The findings about the answer of one namespace."""
    namespace = scaled[0].policy.namespace
    newest = max((usage.at for usage in usages.values()), default=None)
    if newest is None:
        if any(scaled_policy.settled(now) for scaled_policy in scaled):
            section.wrong(f"it has no sample of any pod of namespace {namespace} ({_LOOK})")
        return
    age = now - newest
    if age > max_age:
        text = (
            f"its newest sample of namespace {namespace} is {age:.0f} s old, and {max_age:g} s is the most that counts"
        )
        section.wrong(f"{text} ({_LOOK})")
    elif age < -_SKEW_SECONDS:
        section.wrong(f"its newest sample of namespace {namespace} is dated {-age:.0f} s ahead: set the nodes' clocks")
    else:
        section.ok(f"it answers for namespace {namespace}: {len(usages)} pods, the newest sample {age:.0f} s old")
    for scaled_policy in scaled:
        settled = scaled_policy.settled(now)
        without = [pod.name for pod in settled if pod.name not in usages]
        if without:
            text = f"metrics.k8s.io has no sample of {len(without)} of {len(settled)} Ready pods ({_names(without)})"
            scaled_policy.section.wrong(f"{text}: {_LOOK}")
        elif settled:
            scaled_policy.section.ok(f"metrics.k8s.io has samples of all {len(settled)} Ready pods")


# --- Prometheus ---


async def check_prometheus(
    settings: Settings, scaled: Sequence[Scaled], now: Callable[[], float], *, may_contact_sources: bool
) -> list[ReportSection]:
    """The findings about every Prometheus server; those about the queries of policies are added to the policies.

    Without `may_contact_sources` no server is asked: the settings are not from this place, and the credentials that
    they name must not be sent from here to where they say.
    """
    servers, catalog = settings.prometheus.servers, catalog_of(settings)
    source: Prometheus | None = None
    sections: list[ReportSection] = []
    if not may_contact_sources:
        for server in servers:
            section = ReportSection(f"Prometheus {server.name}")
            sections.append(section.skipped(f"{server.url}: {ONLY_WITH_SETTINGS}"))
    elif servers:
        probes = {
            server.name: WorkloadQuery(Query(prom_ql="vector(1)", server=server.name), _NOWHERE, "")
            for server in servers
        }
        asked = [query for scaled_policy, _, query in _queries(scaled) if scaled_policy.workload]
        allowed = {query for query in asked if isinstance(catalog.resolve(query), InstantQuery)}
        source = await _polled(settings, {*probes.values(), *allowed}, now)
        used = {query.query.name for _, _, query in _queries(scaled)}  # those are told at their policies
        for server in servers:
            section = ReportSection(f"Prometheus {server.name}")
            sections.append(section)
            _server(section, source.samples(*probes[server.name]), server.url)
            shared = {query.name for query in settings.prometheus.queries if query.server == server.name}
            for result in source.named_results():
                if result.name in shared - used and result.error:
                    section.wrong(f"query {result.name}: {result.error}")
    for scaled_policy, metric, query in _queries(scaled):
        _add_query(scaled_policy, metric, query, catalog.resolve(query), source, now())
    return sections


def _queries(scaled: Iterable[Scaled]) -> Iterator[tuple[Scaled, Metric, WorkloadQuery]]:
    """The policies' metrics that are queries."""
    for scaled_policy in scaled:
        for metric in scaled_policy.policy.metrics:
            if metric.query is not None:
                yield (
                    scaled_policy,
                    metric,
                    WorkloadQuery(
                        metric.query, scaled_policy.policy.namespace, scaled_policy.workload or scaled_policy.policy.hpa
                    ),
                )


_ELSEWHERE = "url leads to something else, such as a page to log in; name the server's own address"
_CREDENTIALS = "give the server username and passwordFile, or bearerTokenFile, that it accepts"
_ADVICE = {
    "HTTP 401": _CREDENTIALS,
    "HTTP 403": _CREDENTIALS,
    "HTTP 404": "url needs the path under which its API is, and no more",
    "HTTP 3": _ELSEWHERE,
    "not what is expected": _ELSEWHERE,
    "connection refused": "nothing listens there: compare url with kubectl get services",
    "cannot be resolved": "correct the name in url",
    "not trusted": "give the CA that signed it as caFile",
    "TLS failed": "does it speak https, as url says?",
    "timed out": "is it overloaded, is timeoutSeconds too short, or does a network policy drop the connection?",
}
"""What to do about a Prometheus server, by a part of its error."""


def catalog_of(settings: Settings) -> QueryCatalog:
    """The queries that the settings allow."""
    prometheus = settings.prometheus
    names = [server.name for server in prometheus.servers]
    return QueryCatalog(names, prometheus.queries, inline_allowed=prometheus.inline_queries)


async def _polled(settings: Settings, queries: set[WorkloadQuery], now: Callable[[], float]) -> Prometheus:
    """A source whose queries, the settings' own included, have all been asked once, or had their time."""
    left, changed = set(queries), asyncio.Event()

    def on_change(users: frozenset[WorkloadQuery]) -> None:
        left.difference_update(users)
        changed.set()

    prometheus = settings.prometheus
    source = Prometheus(
        prometheus.servers, prometheus.queries, inline_allowed=True, on_change=on_change, clock=now, metrics=Metrics()
    )
    source.set_queries(queries)
    running = asyncio.create_task(source.run())
    slowest = max((server.timeout_seconds for server in prometheus.servers), default=0.0)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * slowest + MARGIN_SECONDS):
            while not running.done() and (
                left or any(result.fetched_at is None and not result.error for result in source.named_results())
            ):
                changed.clear()
                await changed.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return source


def _server(section: ReportSection, probe: QuerySamples, url: str) -> None:
    if probe.total is None:
        reason = probe.error or "no answer in time"
        advice = next((f": {advice}" for part, advice in _ADVICE.items() if part in reason), "")
        text = f"{url} cannot be asked: {reason}; policies with its queries hold their counts{advice}"
        section.wrong(text)
        return
    section.ok(f"{url} answers")
    skew = probe.total.at + probe.ahead - (probe.fetched_at or probe.total.at)
    if abs(skew) > _SKEW_SECONDS:
        ahead = "ahead of" if skew > 0 else "behind"
        section.wrong(
            f"its clock is {abs(skew):.0f} s {ahead} the API server's, so samples seem old or new: set it by NTP"
        )


def _add_query(
    scaled: Scaled,
    metric: Metric,
    query: WorkloadQuery,
    resolved: InstantQuery | str,
    source: Prometheus | None,
    now: float,
) -> None:
    """The findings about a policy's query: refused, failed, or what it answers for the target's pods."""
    section = scaled.section
    if isinstance(resolved, str):
        section.wrong(f"metric {metric.name}: {resolved}")
        return
    if source is None or not scaled.workload:
        return
    samples = source.samples(*query)
    if samples.error or samples.fetched_at is None:
        text = f"metric {metric.name}: {samples.error or 'its query had no answer in time'}"
        section.wrong(text)
        return
    _answer(section, metric, resolved, samples, scaled, now)
    _windows(section, metric, resolved, samples, source.count_refusal(resolved))


def _answer(
    section: ReportSection, metric: Metric, query: InstantQuery, samples: QuerySamples, scaled: Scaled, now: float
) -> None:
    """What a query's answer is worth for the target's pods."""
    named = f"metric {metric.name}: its query"
    behind = samples.behind if metric.floor else 0.0  # a floor asks for the past
    if samples.total is not None:
        _age(section, named, now - behind - samples.total.at, samples.max_age, "one number")
        return
    settled = scaled.settled(now)
    if not samples.pods:
        by = f"by ({', '.join(query.labels)})"
        section.wrong(
            f"{named} answers no series for namespace {scaled.policy.namespace}: run it in Prometheus, and keep the "
            f"labels that name the pods: {by}"
        )
        return
    without = [pod.name for pod in settled if pod.name not in samples.pods]
    if settled and len(without) == len(settled):
        section.wrong(
            f"{named} answers for {len(samples.pods)} pods ({_names(samples.pods)}), none of them a pod of the target: "
            f"label {query.pod_label} has to be the pod's name"
        )
    elif without:
        section.wrong(f"{named} has no series of {len(without)} of {len(settled)} Ready pods ({_names(without)})")
    ours = [point.at for pod in scaled.pods if (point := samples.pods.get(pod.name)) is not None]
    if ours:
        covered = f"{len(ours)} of {len(scaled.pods)} pods"
        _age(section, named, now - behind - max(ours), samples.max_age, covered)


def _windows(section: ReportSection, metric: Metric, query: InstantQuery, samples: QuerySamples, refusal: str) -> None:
    """What is worth knowing of the windows that a query reads; `refusal`: why their samples are not counted."""
    named = f"metric {metric.name}: its query"
    if query.window > _SLOW_WINDOW:
        section.note(
            f"{named} reads {query.window:g} s back: new pods and changes of the load count in full only after that; "
            f"{_SLOW_WINDOW:g} s and less are usual"
        )
    for rule in query.inputs.recorded:
        section.note(
            f"{named} reads the recording rule {rule}: samples that were missing in its windows cannot be counted, so "
            "after a gap it may read too little; query rate(…) and the like themselves"
        )
    if refusal:
        section.note(
            f"{named} has windows whose samples cannot be counted ({refusal}): after a start and after a gap it "
            "shrinks nothing for one window"
        )
    held = {name: point.count for name, point in samples.pods.items() if point.count is not None and point.count >= 0}
    usual = median_low(held.values()) if held else 0
    if partial := [name for name, count in held.items() if count < usual]:
        section.note(f"{named} has windows with fewer than {usual} samples, of {len(partial)} pods ({_names(partial)})")


def _age(section: ReportSection, named: str, age: float, most: float, covered: str) -> None:
    if age > most:
        section.wrong(
            f"{named} answers {covered}, from samples that are {age:.0f} s old; {most:g} s is the most that counts"
        )
    else:
        section.ok(f"{named} answers {covered}, from samples that are {max(0.0, age):.0f} s old")
