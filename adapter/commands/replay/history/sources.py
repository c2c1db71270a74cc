"""The Prometheus servers and named queries that histories are read from."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from adapter.runtime.faults import Fault, FaultyDocument
from adapter.settings import NamedQuery, PrometheusServer, Settings

_TITLE = "the server with the history is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where histories are read: the settings' servers and named queries, and the server for all else.

    With `is_only` the server answers the named queries as well, whatever server the settings name for them.
    """

    server: PrometheusServer
    servers: Mapping[str, PrometheusServer] = field(default_factory=dict)
    queries: Sequence[NamedQuery] = ()
    is_only: bool = False


def choose_sources(settings: Settings | None, server: str, url: str) -> Sources:
    """The sources of `--settings`, `--server` and `--prometheus` (empty: not given). Raises FaultyDocument."""
    known = {one.name: one for one in settings.prometheus.servers} if settings else {}
    queries = settings.prometheus.queries if settings else ()
    if url and server:
        raise _faulty("--prometheus", url, "leave --server away: the address already says which server")
    if url:
        if not re.match(r"https?://[^/\s]", url):
            raise _faulty("--prometheus", url, "write the address where its API begins, such as http://prometheus:9090")
        return Sources(server=PrometheusServer(name=url, url=url), queries=queries, is_only=True)
    names = ", ".join(known) or "none"
    if server:
        if server not in known:
            raise _faulty("--server", server, f"is not among the settings' prometheus.servers ({names})")
        return Sources(server=known[server], servers=known, queries=queries)
    if len(known) != 1:
        advice = "name the server with --prometheus URL, or with --settings FILE"
        raise _faulty("--server", None, f"{advice} and --server NAME (the settings have {names})")
    return Sources(server=next(iter(known.values())), servers=known, queries=queries)


def _faulty(option: str, value: str | None, advice: str) -> FaultyDocument:
    return FaultyDocument([Fault(option, value, advice)], _TITLE)
