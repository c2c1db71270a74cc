"""Stops asking a server that does not answer, so that its callers fail at once instead of waiting for it."""

import contextlib
import math
from collections.abc import Callable, Hashable, Iterator

from adapter.runtime.backoff import exponential
from adapter.runtime.source_errors import SourceUnreachable

FAILURES = 3
"""Requests without an answer, in a row, that open the circuit."""
FIRST_SECONDS = 2.0
LONGEST_SECONDS = 15.0


class CircuitOpen(SourceUnreachable):
    """The server did not answer lately, and it is not time for the next trial."""


class CircuitBreaker:
    """Passes all requests while the server answers; after 3 without an answer in a row, one trial at a time.

    Requests may name their source: then those of one source count once, so that one alone cannot stop the others.
    Trials are 2 s apart at first, then twice as long each time, up to 15 s; one that is answered closes the circuit.
    Any answer counts, an error too. `clock` is monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: set[Hashable] = set()
        self._trials = 0
        self._next_trial = 0.0
        self._is_trying = False
        self._cause = ""

    @property
    def is_open(self) -> bool:
        """Whether requests are refused, trials apart."""
        return len(self._failures) >= FAILURES

    @contextlib.contextmanager
    def request(self, source: Hashable = None, *, after: float = 0.0) -> Iterator[None]:
        """Surrounds one request. SourceUnreachable is no answer, any other error is one, and a cancellation is neither.

        `after`: seconds that it leaves a trial to other requests. Raises CircuitOpen instead of a request.
        """
        is_trial = self.is_open
        if is_trial:
            self.check(after)
            self._is_trying = True
        try:
            yield
        except CircuitOpen:  # of another circuit within: nobody was asked
            raise
        except SourceUnreachable as error:
            # Requests that began while the circuit was closed count until it opens, later only trials.
            if not self.is_open:
                self._failures.add(object() if source is None else source)
            elif not is_trial:
                raise
            self._cause = error.public
            if self.is_open:
                self._next_trial = self._clock() + exponential(self._trials, FIRST_SECONDS, LONGEST_SECONDS)
                self._trials += 1
            raise
        except Exception:
            self.reset()
            raise
        else:
            self.reset()
        finally:
            if is_trial:
                self._is_trying = False

    def check(self, after: float = 0.0) -> None:
        """Raises CircuitOpen if a request would be refused now."""
        if self.is_open and (self._is_trying or self._clock() < self._next_trial + after):
            raise CircuitOpen(f"it did not answer the last requests: {self._cause}", public=self._cause)

    def allow_trial(self) -> None:
        """There is a sign of life: the next request is a trial."""
        self._next_trial = -math.inf
        self._trials = 0

    def reset(self) -> None:
        """The server answered: all requests pass."""
        self._failures.clear()
        self._trials = 0
