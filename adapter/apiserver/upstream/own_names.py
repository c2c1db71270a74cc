"""Which metrics are this adapter's own.

That depends on names and settings alone, never on which policies exist: a metric of ours that fails, or whose policy is
gone, is an error here and never another adapter's number.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, Self

from adapter.apiserver.policy_figures import COMMON_METRICS, EFFECTIVE_PREFIX, RAW_PREFIX
from adapter.apiserver.request_info import CUSTOM, PODS_RESOURCE, POLICIES_RESOURCE
from adapter.usage.promql import uses_variables


class Query(Protocol):
    """The part of a named query of the settings that counts here."""

    @property
    def name(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def query(self) -> str: ...


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The reserved names on every resource, and the named queries where they are served: on pods, as External."""

    on_pods: frozenset[str] = frozenset()
    external: frozenset[str] = frozenset()

    @classmethod
    def of(cls, queries: Iterable[Query]) -> Self:
        """The names of the settings' queries that are served: those without variables."""
        scopes = {query.name: query.scope for query in queries if not uses_variables(query.query)}
        return cls(frozenset(name for name, scope in scopes.items() if scope == "Pods"), frozenset(scopes))

    def includes(self, group: str, resource: str, metric: str) -> bool:
        """Whether a metric of a resource (External: any text) is ours."""
        if metric in COMMON_METRICS or metric.startswith((EFFECTIVE_PREFIX, RAW_PREFIX)):
            return True
        if group != CUSTOM:
            return metric in self.external
        return resource == POLICIES_RESOURCE or (resource == PODS_RESOURCE and metric in self.on_pods)
