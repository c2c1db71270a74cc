"""What can go wrong between this process and a service registry.

RegistryError               any failure of a registry; its text is a sentence for people
├── RegistryUnreachable     no answer, or not all of it: connection, TLS, deadline, files with credentials
├── RegistryFailing         the registry says that it is in trouble itself: no leader, 5xx, 429
├── NotAuthenticated        the registry does not believe who asks: wrong or expired password, token, signature
├── NotAllowed              the registry knows who asks, and that one has no right to this answer
├── WrongRegistryAnswer     an answer that is not what the protocol promises: another shape, too large, a redirect
├── UnknownService          the registry answers, and knows no service of that name
└── MissingExtra            the package that speaks its protocol is not installed
"""

# ruff: noqa: N818 - an error is called what happened


class RegistryError(Exception):
    """Base of all failures of a registry. `reason` is the word that metrics count them by."""

    reason = "error"


class RegistryUnreachable(RegistryError):
    """The registry gave no answer, or not all of it."""

    reason = "unreachable"


class RegistryFailing(RegistryError):
    """The registry is in trouble itself."""

    reason = "failing"


class NotAuthenticated(RegistryError):
    """The registry does not believe who asks."""

    reason = "unauthenticated"


class NotAllowed(RegistryError):
    """Whoever asks has no right to this answer."""

    reason = "forbidden"


class WrongRegistryAnswer(RegistryError):
    """The answer is not what the protocol promises."""

    reason = "malformed"


class UnknownService(RegistryError):
    """The registry knows no service of that name."""

    reason = "unknown"


class MissingExtra(RegistryError):
    """The registry needs an extra of this package that is not installed."""

    def __init__(self, extra: str, error: ImportError) -> None:
        """`extra` as pyproject.toml names it; `error` names the module."""
        super().__init__(
            f"needs the extra {extra}, which is not installed ({error}): name it in EXTRAS when the image is built, or "
            f"install effective-load[{extra}]"
        )
