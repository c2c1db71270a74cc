"""Which services the policies of a Kubernetes namespace may follow; decided before any registry is asked."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from adapter.registries.source import Claim, ServiceKey
from adapter.settings.registries import Registry


class ServiceAllowlist:
    """The services that the settings allow policies to name."""

    def __init__(self, registries: Iterable[Registry]) -> None:
        self._settings = {registry.name: registry for registry in registries}

    def refusal(self, key: ServiceKey, namespace: str) -> str:
        """Why a policy of this namespace may not name this service; empty where it may."""
        settings = self._settings.get(key.registry)
        if settings is None:
            names = ", ".join(sorted(self._settings)) or "none yet"
            return f"registry {key.registry!r} is not in the adapter's settings ({names}); name one of them"
        if not settings.allow:
            return ""
        separator = settings.group_separator
        is_forged = separator and (separator in key.service or separator in key.group + separator[0])
        registry_namespace, own_group = settings.place(key.namespace, key.group)
        if not is_forged and any(
            _matches(namespace, rule.namespaces)
            and _matches(key.service, rule.services)
            and _matches(registry_namespace, rule.registry_namespaces)
            and _matches(own_group, rule.groups)
            for rule in settings.allow
        ):
            return ""
        group = f" of group {key.group!r}" if key.group else ""
        where = f" in its namespace {key.namespace!r}" if key.namespace else ""
        return (
            f"policies in namespace {namespace} may not name service {key.service!r}{group} of registry "
            f"{key.registry}{where}; the adapter's settings (registries, allow) say which they may"
        )

    def choose(self, claims: Iterable[Claim]) -> dict[str, frozenset[ServiceKey]]:
        """The services to follow, by registry: of each namespace the oldest allowed claims."""
        held: dict[tuple[str, str], dict[ServiceKey, None]] = {}
        for claim in sorted(claims, key=lambda claim: claim.since):
            if not self.refusal(claim.key, claim.namespace):
                held.setdefault((claim.key.registry, claim.namespace), {})[claim.key] = None
        chosen: dict[str, frozenset[ServiceKey]] = {}
        for (name, _), keys in held.items():
            of_namespace = list(keys)[: self._settings[name].services_per_namespace]
            chosen[name] = chosen.get(name, frozenset()).union(of_namespace)
        return chosen


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
