"""What can go wrong between this process and a load source.

UsageError                  anything a source of this room may fail with; its text is for operators, `public` for all
├── SourceUnreachable       no answer, or not all of it: connection, TLS, deadline, files with its credentials
├── SourceFailing           the source says that it is in trouble itself (5xx, 429), or that its answer is partial
├── QueryRejected           the source understood, and says no: status error, 4xx, a redirect
└── WrongAnswer             an answer that is not what the API promises: no JSON, another shape, too large

PromqlError                 an expression this room will not send (a ValueError: it is raised before anything is asked)
"""

# ruff: noqa: N818 - an error is called what happened

from adapter.runtime.source_errors import SourceError


class UsageError(SourceError):
    """Base of all failures of a load source. `reason` is the word that metrics count them by."""

    reason = "error"


class SourceUnreachable(UsageError):
    """The source gave no answer, or not all of it."""

    reason = "unreachable"
    summary = "cannot be reached"


class SourceFailing(UsageError):
    """The source is in trouble itself, or says that its answer is partial."""

    reason = "failing"
    summary = "is in trouble itself"


class QueryRejected(UsageError):
    """The source refuses this very question."""

    reason = "rejected"
    summary = "the query is rejected"


class WrongAnswer(UsageError):
    """The answer is not what the API promises."""

    reason = "malformed"
    summary = "the answer is not what is expected of this source"


class PromqlError(ValueError):
    """An expression that cannot be sent; the text says what to change."""
