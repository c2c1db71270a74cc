"""Who asks."""

from typing import Any, NamedTuple

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
MASTERS = "system:masters"


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

    def review(self) -> dict[str, Any]:
        """The user's part of a SubjectAccessReview's spec."""
        extra = {key: list(values) for key, values in self.extra}
        return {"user": self.user, "uid": self.uid, "groups": list(self.groups), "extra": extra}


def identify(user: str, uid: str, groups: tuple[str, ...], extra: tuple[tuple[str, tuple[str, ...]], ...]) -> Identity:
    """The identity, in the group of the authenticated unless it says itself that it is not."""
    if user != ANONYMOUS and AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return Identity(user, uid, groups, extra)
