"""Decodes the front proxy's identity headers; the same few users return with every request, so results are cached."""

from urllib.parse import unquote

from adapter.apiserver.authentication.identity import Identity, identify
from adapter.apiserver.authentication.requestheader import AuthenticationConfig

RawHeaders = tuple[tuple[bytes, bytes], ...]
"""Undecoded names and values of the request's headers."""

_MAX_NAMES = 1024
_MAX_IDENTITIES = 4096
_MAX_NAME = 128
_MAX_IDENTITY_SIZE = 4096
"""Largest header name, and largest sum of an identity's headers, that is cached; in bytes."""


class IdentityHeaders:
    """Decodes identity headers under one configuration."""

    def __init__(self, config: AuthenticationConfig) -> None:
        self.config = config
        self._known_names: dict[bytes, bool] = {}
        self._identities: dict[RawHeaders, Identity | None] = {}

    def select(self, raw: RawHeaders) -> RawHeaders:
        """The headers that carry an identity."""
        known_names = self._known_names
        try:
            return tuple([pair for pair in raw if known_names[pair[0]]])
        except KeyError:  # a header name not seen before
            return tuple([pair for pair in raw if self._is_identity_header(pair[0])])

    def identity(self, headers: RawHeaders) -> Identity | None:
        """The identity that these headers name, None if they name no user."""
        try:
            return self._identities[headers]
        except KeyError:
            pass
        identity = _read(headers, self.config)
        if sum(len(name) + len(value) for name, value in headers) > _MAX_IDENTITY_SIZE:
            return identity
        if len(self._identities) >= _MAX_IDENTITIES:
            self._identities.clear()
        self._identities[headers] = identity
        return identity

    def _is_identity_header(self, name: bytes) -> bool:
        known = self._known_names.get(name)
        if known is None:
            known = self.config.is_identity_header(name.decode("latin-1").lower())
            if len(self._known_names) < _MAX_NAMES and len(name) <= _MAX_NAME:  # a client may send any number of names
                self._known_names[name] = known
        return known


def _read(headers: RawHeaders, config: AuthenticationConfig) -> Identity | None:
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("utf-8", "surrogateescape"))
    user = _first(values, config.user_headers)
    if not user:
        return None
    groups = tuple(group for name in config.group_headers for group in values.get(name, ()))
    extra = [(key, tuple(texts)) for name, texts in values.items() if (key := _extra_key(name, config)) is not None]
    return identify(user, _first(values, config.uid_headers), groups, tuple(sorted(extra)))


def _first(values: dict[str, list[str]], names: tuple[str, ...]) -> str:
    """The first value of the first header that is present and not empty."""
    return next((values[name][0] for name in names if values.get(name, [""])[0]), "")


def _extra_key(name: str, config: AuthenticationConfig) -> str | None:
    prefix = next((prefix for prefix in config.extra_prefixes if name.startswith(prefix)), None)
    return None if prefix is None else unquote(name.removeprefix(prefix))
