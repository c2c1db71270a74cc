"""How long to wait before the next attempt."""

import random
from collections.abc import Callable

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 30.0


class Backoff:
    """Exponential with full jitter: anything from nothing to a bound that doubles from 0.5 s to 30 s."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self.failures = 0

    def next(self, asked: float | None = None) -> float:
        """Seconds to wait after one more failure; what the server asked for is honoured up to 30 s."""
        bound = min(FIRST_SECONDS * 2 ** min(self.failures, 10), LONGEST_SECONDS)
        self.failures += 1
        return max(self._uniform(0.0, bound), min(asked or 0.0, LONGEST_SECONDS))

    def reset(self) -> None:
        """It went well: begin again with short waits."""
        self.failures = 0
