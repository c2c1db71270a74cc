"""Identity headers, as the front proxy writes them.

The same few users come back with every request, so what their headers mean is kept.
"""

from urllib.parse import unquote

from adapter.apiserver.authentication.identity import Identity, identify
from adapter.apiserver.authentication.requestheader import AuthenticationConfig

RawHeaders = tuple[tuple[bytes, bytes], ...]
"""Names and values as they stand in the request."""

_MOST_NAMES = 1024
_MOST_IDENTITIES = 4096
_LONGEST_NAME = 128
_LONGEST_IDENTITY = 4096
"""Characters of a header's name, and of an identity's headers together, that are kept with what they mean."""


class IdentityHeaders:
    """Reads identity headers under one trust."""

    def __init__(self, trust: AuthenticationConfig) -> None:
        self.trust = trust
        self._tells: dict[bytes, bool] = {}
        self._identities: dict[RawHeaders, Identity | None] = {}

    def said(self, raw: RawHeaders) -> RawHeaders:
        """The headers that tell an identity."""
        tells = self._tells
        try:
            return tuple([pair for pair in raw if tells[pair[0]]])
        except KeyError:  # a name that has not been seen
            return tuple([pair for pair in raw if self._is_told(pair[0])])

    def identity(self, said: RawHeaders) -> Identity | None:
        """Who these headers name, None where they name no user."""
        try:
            return self._identities[said]
        except KeyError:
            pass
        identity = _read(said, self.trust)
        if sum(len(name) + len(value) for name, value in said) > _LONGEST_IDENTITY:
            return identity
        if len(self._identities) >= _MOST_IDENTITIES:
            self._identities.clear()
        self._identities[said] = identity
        return identity

    def _is_told(self, name: bytes) -> bool:
        known = self._tells.get(name)
        if known is None:
            known = self.trust.is_identity_header(name.decode("latin-1").lower())
            if len(self._tells) < _MOST_NAMES and len(name) <= _LONGEST_NAME:  # a client may send any number of names
                self._tells[name] = known
        return known


def _read(said: RawHeaders, trust: AuthenticationConfig) -> Identity | None:
    values: dict[str, list[str]] = {}
    for name, value in said:
        values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("utf-8", "surrogateescape"))
    user = _first(values, trust.user_headers)
    if not user:
        return None
    groups = tuple(group for name in trust.group_headers for group in values.get(name, ()))
    extra = [(key, tuple(found)) for name, found in values.items() if (key := _extra_key(name, trust)) is not None]
    return identify(user, _first(values, trust.uid_headers), groups, tuple(sorted(extra)))


def _first(values: dict[str, list[str]], names: tuple[str, ...]) -> str:
    """The first value of the first header that has one."""
    return next((values[name][0] for name in names if values.get(name, [""])[0]), "")


def _extra_key(name: str, trust: AuthenticationConfig) -> str | None:
    prefix = next((prefix for prefix in trust.extra_prefixes if name.startswith(prefix)), None)
    return None if prefix is None else unquote(name.removeprefix(prefix))
