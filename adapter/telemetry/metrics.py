"""All metrics of the adapter, in a registry of its own. Released names never change: `tests/recorded` lists them."""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from adapter.runtime.concurrency import Slices
from adapter.telemetry.rows import POLICY_FAMILIES, REGISTRY_FAMILIES, Family, PolicyRow, R, RegistryRow, format_row

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_SLOW = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The metric objects that the rooms write to; each scrape calls `policy_rows` and `registry_rows`.

    A scrape draws rows in slices and yields to the event loop in between, so the iterable must stay valid while state
    changes (for example a generator over an immutable snapshot).
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
        self.authentications = counter(
            "authentication_total", "Requests by how they proved who asks", ("method", "result")
        )
        self.authorization_reviews = counter(
            "authorization_reviews_total",
            "SubjectAccessReviews that were asked, cached answers not counted",
            ("result",),
        )
        self.certificate_expiry = gauge(
            "certificate_expiry_timestamp_seconds", "When a certificate in use expires", ("certificate",)
        )
        self.errors = counter("errors_total", "Errors that were answered or logged, by reason", ("reason",))
        self.upstream_requests = histogram(
            "upstream_request_duration_seconds",
            "Time to answer a request that an upstream adapter was asked for",
            ("group", "code"),
            buckets=_SLOW,
        )
        self.upstream_errors = counter(
            "upstream_errors_total", "Requests to an upstream adapter without a usable answer", ("group", "reason")
        )
        self.upstream_up = gauge(
            "upstream_up", "1 where an upstream adapter last answered which metrics it has", ("group",)
        )
        self.source_up = gauge("source_up", "1 where the last fetch of a load source succeeded", ("source",))
        self.source_success = gauge(
            "source_last_success_timestamp_seconds", "When a load source last answered", ("source",)
        )
        self.source_duration = histogram(
            "source_fetch_duration_seconds", "Time to fetch from a load source", ("source",), buckets=_SLOW
        )
        self.source_errors = counter("source_errors_total", "Failed fetches of a load source", ("source", "reason"))
        self.registry_up = gauge("registry_up", "1 where a service registry last answered", ("registry",))
        self.registry_errors = counter(
            "registry_errors_total",
            "Answers of a service registry that failed or were not valid",
            ("registry", "reason"),
        )
        self.registry_changes = counter(
            "registry_changes_total", "Valid answers about a service that differed from the one before", ("registry",)
        )
        self.registry_reconnects = counter(
            "registry_reconnects_total",
            "Times that a service registry answered again after it had failed",
            ("registry",),
        )
        self.companion_leader = gauge("companion_leader", "1 where this replica of the companion leads")
        self.companion_writes = counter(
            "companion_writes_total", "Actions of the companion by kind and how they ended", ("action", "result")
        )
        self.notifications = counter(
            "notifications_total", "Notifications by route and how they ended", ("route", "result")
        )
        self.watch_proof = gauge(
            "watch_last_proof_timestamp_seconds", "When a watch last proved that it is alive", ("resource",)
        )
        self.watch_restarts = counter("watch_restarts_total", "Watches that began anew", ("resource", "reason"))
        self.watch_objects = gauge("watch_objects", "Objects a watch holds", ("resource",))
        self.watch_stale = gauge(
            "watch_stale",
            "Watches of a resource that are not believed: never filled, or without proof that they are alive for 90 s",
            ("resource",),
        )
        self.clock_skew = gauge("clock_skew_seconds", "This machine's clock less the API server's")
        self.settings_reloads = counter("settings_reloads_total", "Settings files that were read anew", ("result",))
        self.settings_accepted = gauge(
            "settings_last_reload_successful", "1 where the settings file was accepted, 0 where older settings run on"
        )
        self.settings_accepted.set(1)
        self.build_info = gauge("build_info", "1, labelled with what runs", ("version", "python"))
        self.build_info.labels(version=package_version(), python=platform.python_version()).set(1)

    def forget_watch(self, resource: str) -> None:
        """Remove the series of a resource that is no longer watched."""
        for metric in (self.watch_proof, self.watch_restarts, self.watch_objects, self.watch_stale):
            metric.remove_by_labels({"resource": resource})

    async def exposition(self) -> bytes:
        """The exposition in Prometheus text format 0.0.4, rendered in slices of at most about 2 ms."""
        parts = []
        slices = Slices()
        for family in self.registry.collect():
            parts.append(generate_latest(_SingleFamily(family)))
            await slices.breathe()
        parts += await _render_families(POLICY_FAMILIES, self.policy_rows(), slices)
        parts += await _render_families(REGISTRY_FAMILIES, self.registry_rows(), slices)
        return b"".join(parts)

    def names(self) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
        """(name, type, labels, help) of every metric of ours, the process collector's excluded; sorted by name."""
        yield from sorted(
            [
                *((f.name, "gauge", f.labels, f.help) for f in POLICY_FAMILIES),
                *((f.name, "gauge", f.labels, f.help) for f in REGISTRY_FAMILIES),
                *(
                    (m._name + ("_total" if m._type == "counter" else ""), m._type, m._labelnames, m._documentation)  # noqa: SLF001  prometheus-client names them nowhere else before a first sample
                    for m in vars(self).values()
                    if isinstance(m, Gauge | Counter | Histogram)
                ),
            ]
        )


def package_version() -> str:
    """The installed package's version, or `unknown` in a bare source tree."""
    try:
        return version("effective-load")
    except PackageNotFoundError:
        return "unknown"


class _SingleFamily:
    """A registry of one family for prometheus-client's writer, without the `_created` series."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        self._family.samples = [s for s in self._family.samples if not s.name.endswith("_created")]
        yield self._family


async def _render_families(families: Sequence[Family[R]], rows: Iterable[R], slices: Slices) -> list[bytes]:
    by_family: list[list[str]] = [[] for _ in families]
    for row in rows:
        for pieces, piece in zip(by_family, format_row(families, row), strict=True):
            pieces.append(piece)
        await slices.breathe()
    rendered = []
    for family, pieces in zip(families, by_family, strict=True):
        rendered.append((family.header + "".join(pieces)).encode())
        await slices.breathe()
    return rendered
