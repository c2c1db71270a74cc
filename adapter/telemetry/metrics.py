"""All metrics of the adapter, in a registry of its own. Released names never change: `tests/recorded` lists them."""

import asyncio
import platform
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from adapter.runtime.concurrency import Slices
from adapter.telemetry import series
from adapter.telemetry.series import PolicyRow, RegistryRow

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
SLICE_SECONDS = 0.0005
"""How long the rows of a scrape may keep the event loop from requests."""
_SLOW = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The metric objects that the packages write to; each scrape calls `policy_rows` and `registry_rows`.

    A scrape draws the rows of policies in slices and yields to the event loop in between, so that iterable must stay
    valid while state changes (for example a generator over an immutable snapshot).
    """

    def __init__(
        self,
        policy_rows: Callable[[], Iterable[PolicyRow]] = tuple,
        registry_rows: Callable[[], Iterable[RegistryRow]] = tuple,
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.policy_rows = policy_rows
        self.registry_rows = registry_rows
        ProcessCollector(registry=self.registry)
        gauge = partial(Gauge, namespace="effective_load", registry=self.registry)
        counter = partial(Counter, namespace="effective_load", registry=self.registry)
        histogram = partial(Histogram, namespace="effective_load", registry=self.registry)
        self.api_requests = histogram(
            "api_request_duration_seconds",
            "Time to answer a request to the metrics API",
            ("group", "resource_kind", "code"),
            buckets=_FAST,
        )
        self.scale_reads = histogram(
            "scale_read_duration_seconds", "Time to read a target's live scale", ("result",), buckets=_FAST
        )
        self.authentications = counter("authentication_total", "Authenticated requests", ("method", "result"))
        self.authorization_reviews = counter(
            "authorization_reviews_total", "SubjectAccessReviews, without cached answers", ("result",)
        )
        self.certificate_expiry = gauge(
            "certificate_expiry_timestamp_seconds", "When a certificate in use expires", ("certificate",)
        )
        self.errors = counter("errors_total", "Errors that were answered or logged, by reason", ("reason",))
        self.upstream_requests = histogram(
            "upstream_request_duration_seconds",
            "Time to answer a request that an upstream adapter answers",
            ("group", "code"),
            buckets=_SLOW,
        )
        self.upstream_errors = counter(
            "upstream_errors_total", "Requests to an upstream adapter without a usable answer", ("group", "reason")
        )
        self.upstream_up = gauge("upstream_up", "1 if an upstream adapter's last discovery succeeded", ("group",))
        self.source_up = gauge("source_up", "1 if the last fetch of a load source succeeded", ("source",))
        self.source_success = gauge(
            "source_last_success_timestamp_seconds", "When a load source last answered", ("source",)
        )
        self.source_duration = histogram(
            "source_fetch_duration_seconds", "Time to fetch from a load source", ("source",), buckets=_SLOW
        )
        self.source_errors = counter("source_errors_total", "Failed fetches of a load source", ("source", "reason"))
        self.registry_up = gauge("registry_up", "1 if a service registry's last answer was valid", ("registry",))
        self.registry_errors = counter(
            "registry_errors_total", "Failed or invalid answers of a service registry", ("registry", "reason")
        )
        self.registry_changes = counter(
            "registry_changes_total", "Valid answers about a service that differed from the last one", ("registry",)
        )
        self.registry_reconnects = counter(
            "registry_reconnects_total", "First answers of a service registry after a failure", ("registry",)
        )
        self.companion_leader = gauge("companion_leader", "1 if this replica of the companion leads")
        self.companion_writes = counter(
            "companion_writes_total", "Actions of the companion by kind and result", ("action", "result")
        )
        self.notifications = counter("notifications_total", "Notifications by route and result", ("route", "result"))
        self.watch_proof = gauge(
            "watch_last_proof_timestamp_seconds", "When a watch last proved that it is alive", ("resource",)
        )
        self.watch_restarts = counter("watch_restarts_total", "Watches that were started again", ("resource", "reason"))
        self.watch_objects = gauge("watch_objects", "Objects of a watch", ("resource",))
        self.watch_stale = gauge(
            "watch_stale", "Watches that are not used: never filled, or too long without proof of life", ("resource",)
        )
        self.clock_skew = gauge("clock_skew_seconds", "This machine's clock less the API server's")
        self.settings_reloads = counter("settings_reloads_total", "Changed settings files that were read", ("result",))
        self.settings_accepted = gauge(
            "settings_last_reload_successful", "1 if the settings file was accepted, 0 if older settings stay"
        )
        self.settings_accepted.set(1)
        self.build_info = gauge("build_info", "1, with the running version as labels", ("version", "python"))
        self.build_info.labels(version=package_version(), python=platform.python_version()).set(1)

    def forget_watch(self, resource: str) -> None:
        """Remove the series of a resource that is no longer watched."""
        for metric in (self.watch_proof, self.watch_restarts, self.watch_objects, self.watch_stale):
            metric.remove_by_labels({"resource": resource})

    async def exposition(self) -> bytes:
        """The exposition in Prometheus text format 0.0.4, written in a thread."""
        slices = Slices(SLICE_SECONDS)
        policies = []
        for row in self.policy_rows():
            policies.append(row)
            await slices.breathe()
        return await asyncio.to_thread(self._write, policies, list(self.registry_rows()))

    def _write(self, policies: list[PolicyRow], services: list[RegistryRow]) -> bytes:
        return b"".join([generate_latest(self.registry), *series.exposition(policies, services)])

    def names(self) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
        """(name, type, labels, help) of every metric of ours, the process collector's excluded; sorted by name."""
        instruments = [one for one in vars(self).values() if isinstance(one, Gauge | Counter | Histogram)]
        yield from sorted(
            [
                *((name, "gauge", labels, text) for name, labels, text in series.names()),
                *(
                    (m._name + ("_total" if m._type == "counter" else ""), m._type, m._labelnames, m._documentation)  # noqa: SLF001  prometheus-client names them nowhere else before a first sample
                    for m in instruments
                ),
            ]
        )


def package_version() -> str:
    """The installed package's version, or `unknown` in a bare source tree."""
    try:
        return version("effective-load")
    except PackageNotFoundError:
        return "unknown"
