"""Who asks."""

from typing import Any, NamedTuple

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
MASTERS = "system:masters"
_ACCOUNTS = "system:serviceaccount:"


class Identity(NamedTuple):
    """A user as authentication found it. `extra` is sorted by key; keys are lower case."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def is_master(self) -> bool:
        """Whether the user may do everything, without being looked up."""
        return MASTERS in self.groups

    @property
    def share(self) -> str:
        """Whose requests its requests compete with first: those of the user, and of a namespace's service accounts.

        Whoever may create service accounts or tokens in a namespace has any number of identities there.
        """
        return self.user.rpartition(":")[0] if self.user.startswith(_ACCOUNTS) else self.user

    @property
    def size(self) -> int:
        """How many characters it has."""
        extra = sum(len(key) + sum(map(len, values)) for key, values in self.extra)
        return len(self.user) + len(self.uid) + sum(map(len, self.groups)) + extra

    def review(self) -> dict[str, Any]:
        """The user's part of a SubjectAccessReview's spec."""
        extra = {key: list(values) for key, values in self.extra}
        return {"user": self.user, "uid": self.uid, "groups": list(self.groups), "extra": extra}


def identify(user: str, uid: str, groups: tuple[str, ...], extra: tuple[tuple[str, tuple[str, ...]], ...]) -> Identity:
    """The identity, in the group of the authenticated unless it says itself that it is not."""
    if user != ANONYMOUS and AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return Identity(user, uid, groups, extra)
