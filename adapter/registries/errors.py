"""What can go wrong between this process and a service registry.

RegistryError               any failure of a registry; its text is a sentence for people
├── RegistryUnreachable     no answer, or not all of it: connection, TLS, deadline, files with credentials
├── RegistryFailing         the registry says that it is in trouble itself: no leader, 5xx, 429
├── NotAuthenticated        the registry does not believe who asks: wrong or expired password, token, signature
├── NotAllowed              the registry knows who asks, and that one has no right to this answer
├── WrongRegistryAnswer     an answer that is not what the protocol promises: another shape, too large, a redirect
└── UnknownService          the registry answers, and knows no service of that name
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
