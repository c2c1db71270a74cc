"""Indexes a snapshot for requests: policies by namespace, names of all metrics."""

from collections.abc import Mapping
from functools import cached_property

from adapter.snapshot import Key, PolicyView, Snapshot


class SnapshotIndex:
    """Indexes of one snapshot, built on first use."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @cached_property
    def _by_namespace(self) -> Mapping[str, tuple[PolicyView, ...]]:
        by_namespace: dict[str, list[PolicyView]] = {}
        for key, view in sorted(self.snapshot.policies.items()):
            by_namespace.setdefault(key.namespace, []).append(view)
        return {namespace: tuple(views) for namespace, views in by_namespace.items()}

    def policies(self, namespace: str) -> tuple[PolicyView, ...]:
        """The namespace's policies, by name."""
        return self._by_namespace.get(namespace, ())

    def policy(self, namespace: str, name: str) -> PolicyView | None:
        """The policy of that name, None if there is none."""
        return self.snapshot.policies.get(Key(namespace, name))

    @cached_property
    def metric_names(self) -> tuple[str, ...]:
        """The names of all policies' metrics, sorted."""
        return tuple(sorted({m.name for view in self.snapshot.policies.values() for m in view.policy.metrics}))

    @cached_property
    def target_resources(self) -> tuple[str, ...]:
        """The resources that policies scale (`deployments.apps`), sorted."""
        return tuple(sorted({key.resource for key in self.snapshot.by_target}))
