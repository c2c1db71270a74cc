"""What the authorizer remembers: rulings, bounded in number, in size and in age."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from adapter.apiserver.authentication.identity import Identity
from adapter.apiserver.request_info import Attributes

ALLOW_SECONDS = 300.0
DENY_SECONDS = 10.0
MAX_REVIEWS = 16384
"""Rulings of all users together; an HPA asks about one question for each of its metrics."""
MAX_KEY_SIZE = 8192
"""Characters of a question; a larger one is asked anew every time."""

ReviewKey = tuple[Identity, Attributes]


class ReviewResult(NamedTuple):
    """The API server's answer to one question, and when it was given (monotonic)."""

    allowed: bool
    reason: str
    at: float


class ReviewCache:
    """Rulings by the whole question. `now` is monotonic.

    Where there are too many, the share that has the most loses its oldest, so that whoever asks about ever new things
    pushes out nothing but their own.
    """

    def __init__(self, now: Callable[[], float], most: int = MAX_REVIEWS) -> None:
        self._now = now
        self._most = most
        self._known: dict[ReviewKey, ReviewResult] = {}
        self._shares: dict[str, OrderedDict[ReviewKey, None]] = {}

    def get(self, question: ReviewKey) -> ReviewResult | None:
        """The ruling, None where there is none or it is too old."""
        ruling = self._known.get(question)
        if ruling is None or self._now() - ruling.at > (ALLOW_SECONDS if ruling.allowed else DENY_SECONDS):
            return None
        return ruling

    def put(self, question: ReviewKey, ruling: ReviewResult) -> None:
        """Remember a ruling, unless its question is too large."""
        identity, attributes = question
        if identity.size + sum(map(len, attributes)) > MAX_KEY_SIZE:
            return
        self._known[question] = ruling
        share = self._shares.setdefault(identity.share, OrderedDict())
        share[question] = None
        share.move_to_end(question)
        if len(self._known) > self._most:
            self._forget_one()

    def _forget_one(self) -> None:
        name = max(self._shares, key=lambda one: len(self._shares[one]))
        question, _ = self._shares[name].popitem(last=False)
        del self._known[question]
        if not self._shares[name]:
            del self._shares[name]
