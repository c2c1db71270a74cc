"""The identity of a request's sender."""

from typing import Any, NamedTuple

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
MASTERS = "system:masters"
_ACCOUNTS = "system:serviceaccount:"


class Identity(NamedTuple):
    """An authenticated user. `extra` is sorted by key; keys are lower case."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def is_master(self) -> bool:
        """Whether the user may do everything without a SubjectAccessReview."""
        return MASTERS in self.groups

    @property
    def flow(self) -> str:
        """The key by which requests share limits: the user, or the namespace of a service account.

        A namespace's service accounts share one flow, because their number is unbounded: a tenant may create more.
        """
        return self.user.rpartition(":")[0] if self.user.startswith(_ACCOUNTS) else self.user

    @property
    def size(self) -> int:
        """Characters of all fields together."""
        extra = sum(len(key) + sum(map(len, values)) for key, values in self.extra)
        return len(self.user) + len(self.uid) + sum(map(len, self.groups)) + extra

    def review(self) -> dict[str, Any]:
        """The user's fields of a SubjectAccessReview's spec."""
        extra = {key: list(values) for key, values in self.extra}
        return {"user": self.user, "uid": self.uid, "groups": list(self.groups), "extra": extra}


def identify(user: str, uid: str, groups: tuple[str, ...], extra: tuple[tuple[str, tuple[str, ...]], ...]) -> Identity:
    """Build an identity; adds group system:authenticated unless the user is anonymous or system:unauthenticated."""
    if user != ANONYMOUS and AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return Identity(user, uid, groups, extra)
