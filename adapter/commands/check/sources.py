"""The sources of the load: metrics.k8s.io and Prometheus; and what each knows of a policy's pods."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from adapter.commands.check.report import Section, reason
from adapter.commands.check.world import World
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

NOT_FROM_HERE = (
    "what the cluster's settings name is asked only where they are made for: run the check in a pod of the server, or "
    "give --settings"
)
_MARGIN_SECONDS = 2.0
_SETTLED_SECONDS = 120.0
"""A pod that has been Ready for this long has samples of every source."""
_SKEW_SECONDS = 10.0
_SLOW_WINDOW = 300.0
_SHORT_WINDOW = 60.0
"""A range of two usual scrape intervals: it often holds one sample."""
_NAMED = 3
_NOWHERE = "-"
"""The namespace of a query that is about none: no namespace has this name."""
_LOOK = "kubectl -n kube-system get pods -l k8s-app=metrics-server, and kubectl top pods"
_CREDENTIALS = "give the server username and passwordFile, or bearerTokenFile, that it accepts"
_ELSEWHERE = "url leads to something else, such as a page to log in; name the server's own address"
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


@dataclass(slots=True, kw_only=True)
class Answers:
    """What the sources answered: the usage of pods by namespace, and the source of queries if it was asked."""

    usages: dict[str, Mapping[str, Usage]] = field(default_factory=dict)
    prometheus: Prometheus | None = None
    catalog: QueryCatalog | None = None


async def check_sources(
    session: Session | None, settings: Settings | None, world: World, now: Callable[[], float], *, may_contact: bool
) -> tuple[list[Section], Answers]:
    """Each source: whether it answers, the age of its samples, its clock. `settings`: None where they are unknown.

    Without `may_contact` no Prometheus is asked: the settings are not from this place, and the credentials that they
    name must not be sent from here to where they say.
    """
    answers = Answers(catalog=catalog_of(settings) if settings is not None else None)
    sections = [await _metrics_server(session, settings or Settings(), world, answers)] if session is not None else []
    servers = settings.prometheus.servers if settings is not None else ()
    if settings is not None and servers and may_contact:
        probes = {one.name: WorkloadQuery(Query(prom_ql="vector(1)", server=one.name), _NOWHERE, "") for one in servers}
        asked = {query for policy in world.policies.values() for _, query in _queries(policy.value, world)}
        allowed = {one for one in asked if isinstance(catalog_of(settings).resolve(one), InstantQuery)}
        source = answers.prometheus = await _asked(settings, {*probes.values(), *allowed}, now)
        used = {query.query.name for query in asked}  # those are reported with their policies
        for server in servers:
            section = _server(Section(f"Prometheus {server.name}"), source.samples(*probes[server.name]), server.url)
            shared = {one.name for one in settings.prometheus.queries if one.server == server.name} - used
            for result in source.named_results():
                if result.name in shared and result.error:
                    section.warning(f"query {result.name}: {result.error}")
            sections.append(section)
    else:
        sections += [Section(f"Prometheus {one.name}").skipped(f"{one.url}: {NOT_FROM_HERE}") for one in servers]
    return [section for section in sections if section.findings], answers


async def _metrics_server(session: Session, settings: Settings, world: World, answers: Answers) -> Section:
    """Whether metrics.k8s.io answers for each namespace with policies on cpu or memory."""
    section, options = Section("metrics.k8s.io"), settings.resource_metrics
    policies = [one.value for one in world.policies.values() if one.value is not None]
    for namespace in sorted({one.namespace for one in policies if any(metric.resource for metric in one.metrics)}):
        try:
            body = await session.get(
                POD_METRICS.collection(namespace), timeout=options.timeout_seconds,
                largest=options.max_answer_mib * MIB, aggregated=True,
            )  # fmt: skip
            usages = answers.usages[namespace] = decode_usages(body)
        except Forbidden as error:
            return section.skipped(f"the usage of pods, for {reason(error)}")
        except (KubeError, SourceError) as error:
            return section.error(
                f"it does not answer, so policies on cpu and memory hold their counts: {error}; install metrics-"
                f"server, or find out why it fails ({_LOOK})"
            )
        newest = max((usage.at for usage in usages.values()), default=None)
        settled = [pod for one in policies if one.namespace == namespace for pod in _settled(one, world, session.now())]
        if newest is None:
            if settled:
                section.error(f"it has no sample of any pod of namespace {namespace} ({_LOOK})")
            continue
        age = session.now() - newest
        if age > options.max_age_seconds:
            section.error(
                f"its newest sample of namespace {namespace} is {age:.0f} s old; at most "
                f"{options.max_age_seconds:g} s count ({_LOOK})"
            )
        elif age < -_SKEW_SECONDS:
            section.error(f"its newest sample of namespace {namespace} is dated {-age:.0f} s ahead: set nodes' clocks")
        else:
            section.ok(f"it answers for namespace {namespace}: {len(usages)} pods, the newest sample {age:.0f} s old")
    return section


async def _asked(settings: Settings, queries: set[WorkloadQuery], now: Callable[[], float]) -> Prometheus:
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
    slowest = max(server.timeout_seconds for server in prometheus.servers)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * slowest + _MARGIN_SECONDS):
            while not running.done() and (
                left or any(result.fetched_at is None and not result.error for result in source.named_results())
            ):
                changed.clear()
                await changed.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return source


def _server(section: Section, probe: QuerySamples, url: str) -> Section:
    if probe.total is None:
        why = probe.error or "no answer in time"
        advice = next((f": {advice}" for part, advice in _ADVICE.items() if part in why), "")
        return section.error(f"{url} cannot be asked: {why}; policies with its queries hold their counts{advice}")
    skew = probe.total.at + probe.ahead - (probe.fetched_at or probe.total.at)
    if abs(skew) > _SKEW_SECONDS:
        ahead = "ahead of" if skew > 0 else "behind"
        return section.error(
            f"its clock is {abs(skew):.0f} s {ahead} the API server's, so samples seem old or new: set it by NTP"
        )
    return section.ok(f"{url} answers")


# --- what the sources know of a policy ---


def add_samples(section: Section, policy: Policy, world: World, answers: Answers, now: float) -> None:
    """Add what the sources have of a policy's pods."""
    settled, usages = _settled(policy, world, now), answers.usages.get(policy.namespace)
    if usages is not None and settled and any(metric.resource for metric in policy.metrics):
        without = [pod for pod in settled if pod.name not in usages]
        if without:
            _lacking(section, f"metrics.k8s.io has no sample of {len(without)} of {len(settled)} Ready pods", without)
        else:
            section.ok(f"metrics.k8s.io has samples of all {len(settled)} Ready pods")
    for metric, query in _queries(policy, world):
        if answers.prometheus is not None and answers.catalog is not None:
            resolved = answers.catalog.resolve(query)
            if isinstance(resolved, InstantQuery):
                samples = answers.prometheus.samples(*query)
                _add_query(section, metric, resolved, samples, policy, settled, now)
                if refusal := answers.prometheus.count_refusal(resolved):
                    section.warning(
                        f"metric {metric.name}: the samples in the windows of its query cannot be counted ({refusal}): "
                        "after a start and after a gap it shrinks nothing for one window"
                    )


def _lacking(section: Section, text: str, pods: Sequence[Pod]) -> None:
    """An error about pods without samples; if all are on one node, that is the likely cause."""
    names = first_names(sorted(pod.name for pod in pods), _NAMED)
    nodes = {pod.host_ip for pod in pods}
    node = (
        f", all on the node with address {next(iter(nodes))}"
        if len(pods) > 1 and len(nodes) == 1 and all(nodes)
        else ""
    )
    section.error(f"{text} ({names}{node}): {_LOOK}" if "metrics.k8s.io" in text else f"{text} ({names}{node})")


def _settled(policy: Policy, world: World, now: float) -> list[Pod]:
    """The pods that have been Ready for so long that every source knows them."""
    workload = world.workload_of_policy(policy)
    ready = [pod for pod in workload.pods if pod.is_ready and not pod.deleting] if workload is not None else []
    return [pod for pod in ready if now - max(pod.ready_since, pod.created_at) > _SETTLED_SECONDS]


def _queries(policy: Policy | None, world: World) -> Iterator[tuple[Metric, WorkloadQuery]]:
    """The policy's metrics that are queries, each with its target's name; none where the target is unknown."""
    workload = world.workload_of_policy(policy) if policy is not None else None
    if policy is not None and workload is not None:
        for metric in policy.metrics:
            if metric.query is not None:
                yield metric, WorkloadQuery(metric.query, policy.namespace, workload.reference.name)


def _add_query(
    section: Section,
    metric: Metric,
    query: InstantQuery,
    samples: QuerySamples,
    policy: Policy,
    settled: Sequence[Pod],
    now: float,
) -> None:
    """What a query answers for the target's pods; those that are `settled` have samples."""
    named = f"metric {metric.name}: its query"
    behind = samples.behind if metric.floor else 0.0  # a floor asks for the past
    newest = [samples.total.at] if samples.total is not None else [point.at for point in samples.pods.values()]
    if samples.error or samples.fetched_at is None:
        section.error(f"metric {metric.name}: {samples.error or 'its query had no answer in time'}")
        return
    if not newest:
        section.error(f"{named} {_empty(query, samples, policy.namespace)}")
        return
    if samples.total is None:
        without = [pod for pod in settled if pod.name not in samples.pods]
        if settled and len(without) == len(settled):
            section.error(
                f"{named} answers for {len(samples.pods)} pods ({first_names(sorted(samples.pods), _NAMED)}), none of "
                f"them a pod of the target: label {query.pod_label} has to be the pod's name"
            )
        elif without:
            _lacking(section, f"{named} has no series of {len(without)} of {len(settled)} Ready pods", without)
    age = now - behind - max(newest)
    if age > samples.max_age:
        section.error(f"{named} answers from samples that are {age:.0f} s old; at most {samples.max_age:g} s count")
    else:
        section.ok(f"{named} answers from samples that are {max(0.0, age):.0f} s old")
    if query.window > _SLOW_WINDOW:
        section.warning(
            f"{named} reads {query.window:g} s back: new pods and changes of the load count in full only after that; "
            f"{_SLOW_WINDOW:g} s and less are usual"
        )


def _empty(query: InstantQuery, samples: QuerySamples, namespace: str) -> str:
    """Why a query answers no series: a range with fewer than two samples, or labels."""
    if 0 < query.window <= _SHORT_WINDOW:
        return (
            f"answers no series for namespace {namespace}: a range of {query.window:g} s may hold fewer than two "
            "samples, and rate(…) needs two; make it four scrape intervals"
        )
    by = f", and keep the labels that name the pods: by ({', '.join(query.labels)})" if samples.by_pod else ""
    return f"answers no series for namespace {namespace}: run it in Prometheus{by}"
