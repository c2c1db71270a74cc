"""Which services the policies of a Kubernetes namespace may follow; decided before any registry is asked."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from adapter.registries.source import Claim, ServiceKey
from adapter.settings.registries import Registry


class ServiceChoice(NamedTuple):
    """The services to follow, by registry; `left_out` are allowed services beyond a namespace's limit."""

    followed: Mapping[str, frozenset[ServiceKey]]
    left_out: frozenset[ServiceKey]


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

    def over_limit_message(self, key: ServiceKey, namespace: str) -> str:
        """Why a service is left out."""
        most = self._settings[key.registry].services_per_namespace
        return (
            f"service {key.service!r} of registry {key.registry} is not followed: policies in namespace {namespace} "
            f"name more than {most} of its services, and older policies come first; name fewer, or raise "
            "servicesPerNamespace in the adapter's settings (registries)"
        )

    def choose(self, claims: Iterable[Claim]) -> ServiceChoice:
        """The services to follow: of each namespace the oldest allowed claims."""
        allowed: dict[str, list[Claim]] = {}
        for claim in claims:
            if not self.refusal(claim.key, claim.namespace):
                allowed.setdefault(claim.key.registry, []).append(claim)
        followed: dict[str, frozenset[ServiceKey]] = {}
        left_out: set[ServiceKey] = set()
        for name, of_one in allowed.items():
            held: dict[str, dict[ServiceKey, None]] = {}
            for claim in sorted(of_one, key=lambda claim: claim.since):
                held.setdefault(claim.namespace, {})[claim.key] = None
            most = self._settings[name].services_per_namespace
            followed[name] = frozenset(key for keys in held.values() for key in list(keys)[:most])
            left_out |= {claim.key for claim in of_one} - followed[name]
        return ServiceChoice(followed, frozenset(left_out))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
