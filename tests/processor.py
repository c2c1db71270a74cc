"""How slow the processor is at the moment, for tests that limit the processor time of a step.

A processor that is shared takes several times as long for the same work, also by the time that counts only this thread.
"""

import time

REFERENCE_SECONDS = 0.0015
"""Processor time of `_reference` on the machine for which limits in tests are written, when it does nothing else."""
_TRIES = 3


def slowness() -> float:
    """How many times as long as on that machine a fixed piece of work takes now; at least 1."""
    return max(1.0, min(_reference() for _ in range(_TRIES)) / REFERENCE_SECONDS)


def _reference() -> float:
    began = time.thread_time()
    words = [str(number) for number in range(10_000)]
    assert len({word: word.encode() for word in words}) == len(words)
    return time.thread_time() - began
