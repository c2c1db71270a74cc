"""What can go wrong between this process and a service registry.

RegistryError               any failure of a registry; its text is for operators, `public` for all
├── RegistryUnreachable     no answer, or not all of it: connection, TLS, deadline, files with credentials
├── RegistryFailing         the registry says that it is in trouble itself: no leader, 5xx, 429
├── NotAuthenticated        the registry does not believe who asks: wrong or expired password, token, signature
├── NotAllowed              the registry knows who asks, and that one has no right to this answer
├── WrongRegistryAnswer     an answer that is not what the protocol promises: another shape, too large, a redirect
├── UnknownService          the registry answers, and knows no service of that name
└── MissingExtra            the package that speaks its protocol is not installed
"""

# ruff: noqa: N818 - an error is called what happened

from adapter.runtime.source_errors import SourceError


class RegistryError(SourceError):
    """Base of all failures of a registry. `reason` is the word that metrics count them by."""

    reason = "error"


class RegistryUnreachable(RegistryError):
    """The registry gave no answer, or not all of it."""

    reason = "unreachable"
    summary = "cannot be reached"


class RegistryFailing(RegistryError):
    """The registry is in trouble itself."""

    reason = "failing"
    summary = "is in trouble itself"


class NotAuthenticated(RegistryError):
    """The registry does not believe who asks."""

    reason = "unauthenticated"
    summary = "does not accept the adapter's credentials"


class NotAllowed(RegistryError):
    """Whoever asks has no right to this answer."""

    reason = "forbidden"
    summary = "does not let the adapter read this service"


class WrongRegistryAnswer(RegistryError):
    """The answer is not what the protocol promises."""

    reason = "malformed"
    summary = "the answer is not what is expected of this registry"


class UnknownService(RegistryError):
    """The registry knows no service of that name."""

    reason = "unknown"
    summary = "knows no such service; check its name, namespace and group"


class MissingExtra(RegistryError):
    """The registry needs an extra of this package that is not installed."""

    def __init__(self, extra: str, error: ImportError) -> None:
        """`extra` as pyproject.toml names it; `error` names the module."""
        said = (
            f"needs the extra {extra}, which is not installed ({error}): name it in EXTRAS when the image is built, or "
            f"install effective-load[{extra}]"
        )
        super().__init__(said, public=said)
