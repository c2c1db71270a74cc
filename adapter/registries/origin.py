"""Where a registry's answers come from, for the sentences about those that are none: its address and its settings."""

from collections.abc import Mapping
from typing import NamedTuple

from adapter.settings.registries import (
    EurekaRegistry,
    HttpRegistry,
    NacosRegistry,
    Registry,
    ZooKeeperRegistry,
)

_SILENT = {"unreachable"}
_REFUSED = {"unauthenticated", "forbidden", "filtered"}
_STRANGE = {"failing", "malformed", "partial", "rewound", "unknown"}


class Origin(NamedTuple):
    """`address`: of the servers; `keys`: the keys in the registry's section to look at, by an error's reason."""

    address: str = ""
    keys: Mapping[str, str] = {}

    def about(self, reason: str, sentence: str) -> str:
        """The sentence with the keys to look at."""
        keys = self.keys.get(reason)
        return f"{sentence} (settings: {keys})" if keys else sentence

    def of_answer(self, fault: str) -> str:
        """What is wrong with an answer, with the address."""
        return f"{self.address}: {fault}" if self.address else fault


def origin(settings: Registry) -> Origin:
    """The origin of a registry's answers."""
    if isinstance(settings, HttpRegistry):
        place, address = "`url`", settings.url
    else:
        place, address = "`servers`", ", ".join(settings.servers)
    if not address:
        return Origin()  # a platform that only tells
    credentials = _credentials(settings)
    return Origin(
        address,
        {
            **dict.fromkeys(_SILENT, f"{place}, `timeoutSeconds`, `tls`"),
            **dict.fromkeys(_REFUSED, credentials),
            **dict.fromkeys(_STRANGE, place),
        },
    )


def _credentials(settings: Registry) -> str:
    match settings:
        case NacosRegistry() if settings.access_key_file:
            return "`accessKeyFile`, `secretKeyFile`"
        case HttpRegistry() if not settings.username:
            return "`bearerTokenFile`"
        case NacosRegistry() | EurekaRegistry() | ZooKeeperRegistry() | HttpRegistry():
            return "`username`, `passwordFile`"
        case _:
            return "`tokenFile`"
