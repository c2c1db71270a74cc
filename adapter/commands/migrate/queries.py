"""What migrated policies ask of Prometheus: PromQL as a policy may have it, and the settings that they need."""

import contextlib
import itertools
from collections.abc import Mapping
from typing import Any

import promql_parser

from adapter.runtime.faults import Fault
from adapter.usage.promql import PromqlError, parse_inputs, uses_variables

LONGEST = 4096
_AGGREGATORS = frozenset({"sum", "avg", "min", "max", "count", "stddev", "stdvar"})
UNKNOWN_URL = "http://prometheus.monitoring.svc:9090"
"""Written where the original does not say where Prometheus is."""


def fault_of(path: str, text: str) -> Fault | None:
    """Why a policy cannot have this query, None where it can."""
    if not text.strip():
        return Fault(path, text, "is required: the query")
    if len(text) > LONGEST:
        return Fault(
            path, None, f"has {len(text)} characters; a policy's PromQL has at most {LONGEST}. Record it by a rule"
        )
    if uses_variables(text):
        return Fault(path, text, "holds $namespace or $workload, which a policy's PromQL replaces; write another label")
    return syntax_fault(path, text)


def syntax_fault(path: str, text: str) -> Fault | None:
    """Why a text cannot be PromQL, None where it may be."""
    try:
        parse_inputs(text)
    except PromqlError as error:
        return Fault(path, text, str(error))
    return None


def one_number(text: str) -> str:
    """The query with every label of its result taken away, so that it is one number for the service."""
    text = text.strip()
    with contextlib.suppress(ValueError):
        tree = promql_parser.parse(text)
        if isinstance(tree, promql_parser.AggregateExpr):
            is_number = tree.modifier is None and str(tree.op) in _AGGREGATORS
        else:
            is_number = isinstance(tree, promql_parser.Call) and tree.func.name in {"scalar", "vector"}
        if is_number:
            return text
    return f"sum({text}\n)" if "#" in text else f"sum({text})"


def matcher(label: str, sign: str, value: str) -> str:
    """A label matcher with its value quoted."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{label}{sign}"{escaped}"'


def renamed(text: str, labels: Mapping[str, str]) -> str:
    """The query with labels of its result copied to other names: `{new: old}`, where they differ."""
    for new, old in labels.items():
        if new != old:
            text = f'label_replace({text}, "{new}", "$1", "{old}", "(.*)")'
    return text


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
        for name, settings in self._servers.items():
            if settings == wanted:
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
        free = next(candidate for candidate in numbered if candidate not in self._queries)
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
