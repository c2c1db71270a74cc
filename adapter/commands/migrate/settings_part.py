"""The part of the adapter's settings that migrated policies need: Prometheus servers and named queries."""

import itertools
from collections.abc import Mapping
from typing import Any

UNKNOWN_URL = "http://prometheus.monitoring.svc:9090"
"""Written where the original does not say where Prometheus is."""


class SettingsPart:
    """Collects what the policies of one run need; equal servers are listed once.

    A copy goes its own way: nothing is changed in place.
    """

    def __init__(self) -> None:
        self._servers: dict[str, dict[str, Any]] = {}
        self._queries: dict[str, dict[str, Any]] = {}
        self._inline = False

    def server(self, url: str, options: Mapping[str, Any] | None = None) -> str:
        """The name of the server with this URL and these further keys, added where it is new."""
        wanted = {"url": url or UNKNOWN_URL, **(options or {})}
        for name, known in self._servers.items():
            if known == wanted:
                return name
        name = "prometheus" if not self._servers else f"prometheus-{len(self._servers) + 1}"
        self._servers = {**self._servers, name: wanted}
        return name

    def inline(self) -> None:
        """A policy has PromQL of its own."""
        self._inline = True

    def placeholder(self, name: str) -> str:
        """A named query that somebody has to write, and its name in the settings.

        Until then it asks for a series that does not exist: no answer, so the count stays.
        """
        numbered = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        free = next(one for one in numbered if one not in self._queries)
        text = f"write_here_the_promql_of_{free.replace('-', '_').replace('.', '_')}"
        query = {"name": free, "server": self.server(""), "query": text, "scope": "Service"}
        self._queries = {**self._queries, free: query}
        return free

    def data(self) -> dict[str, Any]:
        """The settings' keys, empty where the policies need none."""
        if not self._servers:
            return {}
        servers = [{"name": name, **keys} for name, keys in self._servers.items()]
        part: dict[str, Any] = {"inlineQueries": True} if self._inline else {}
        part["servers"] = servers
        if self._queries:
            part["queries"] = list(self._queries.values())
        return {"prometheus": part}
