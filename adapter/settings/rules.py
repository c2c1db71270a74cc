"""Rules that span keys of the settings. They read the raw file, so that their faults are listed beside all others."""

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from adapter.runtime.faults import Fault
from adapter.settings.base import age_faults, default_of, is_number, raw_items, raw_section, repeated_faults, type_of
from adapter.settings.notifications import label_faults, route_faults
from adapter.settings.prometheus import PrometheusServer, query_faults, server_faults
from adapter.settings.registries import Registry
from adapter.settings.registry_rules import registry_faults
from adapter.settings.server import tls_faults
from adapter.settings.sources import AnswersSettings, ResourceMetricsSettings
from adapter.settings.upstreams import UPSTREAM_GROUPS, Upstream, upstream_faults


def spanning_faults(document: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of the raw document that span keys. Wrongly typed parts are left to pydantic."""
    yield from tls_faults(raw_section(document, "server", "tls"))
    yield from age_faults("resourceMetrics", raw_section(document, "resourceMetrics"), ResourceMetricsSettings)
    prometheus = raw_section(document, "prometheus")
    servers, queries = raw_items(prometheus, "servers"), raw_items(prometheus, "queries")
    yield from repeated_faults("prometheus.servers", servers)
    yield from repeated_faults("prometheus.queries", queries)
    for index, server in servers:
        yield from server_faults(f"prometheus.servers[{index}]", server)
    for index, query in queries:
        yield from query_faults(f"prometheus.queries[{index}]", query, [s.get("name") for _, s in servers])
    yield from upstream_faults(document)
    yield from _total_faults(document)

    label = raw_section(document, "companion", "production").get("label")
    yield from label_faults("companion.production.label", label)
    routes = raw_items(raw_section(document, "companion", "notifications"), "routes")
    yield from repeated_faults("companion.notifications.routes", routes)
    for index, route in routes:
        yield from route_faults(f"companion.notifications.routes[{index}]", route)
    for index, registry in raw_items(document, "registries"):
        yield from registry_faults(f"registries[{index}]", registry)
    yield from repeated_faults("registries", raw_items(document, "registries"))


def _total_faults(document: Mapping[str, Any]) -> Iterator[Fault]:
    """The faults of limits of one answer that exceed the budget of all answers."""
    total = raw_section(document, "answers").get("maxTotalMiB", default_of(AnswersSettings, "max_total_mib"))
    resource_metrics = raw_section(document, "resourceMetrics")
    limits = [("resourceMetrics", resource_metrics, default_of(ResourceMetricsSettings, "max_answer_mib"))]
    by_type = {type_of(kind): kind for kind in get_args(Registry) if "max_answer_mib" in kind.model_fields}
    limits += [
        (f"registries[{index}]", one, default_of(by_type[str(one["type"])], "max_answer_mib"))
        for index, one in raw_items(document, "registries")
        if str(one.get("type")) in by_type
    ]
    servers = raw_items(raw_section(document, "prometheus"), "servers")
    default = default_of(PrometheusServer, "max_answer_mib")
    limits += [(f"prometheus.servers[{index}]", one, default) for index, one in servers]
    default = default_of(Upstream, "max_answer_mib")
    upstreams = raw_section(document, "upstreams")
    limits += [
        (f"upstreams.{one}", raw_section(upstreams, one), default) for one in UPSTREAM_GROUPS if one in upstreams
    ]
    for path, section, usual in limits:
        limit = section.get("maxAnswerMiB", usual)
        if is_number(limit) and is_number(total) and limit > total:
            yield Fault(f"{path}.maxAnswerMiB", limit, f"must not be more than answers.maxTotalMiB ({total})")
