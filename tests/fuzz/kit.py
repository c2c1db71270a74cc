"""Runs fuzz tests: a few fixed cases in CI, or new ones for a given time; and limits the calls of a step.

EFFECTIVE_LOAD_FUZZ=3600 runs each test for an hour; EFFECTIVE_LOAD_FUZZ_SEED=7 starts at another seed.
"""

import asyncio
import atexit
import functools
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn, TypeVar

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy

from tests.effort import effort, seconds
from tests.fuzz.spoil import EVERY

SECONDS = float(os.environ.get("EFFECTIVE_LOAD_FUZZ", "0"))
"""Seconds for each test; 0: its own number of cases, once."""
SEED = int(os.environ.get("EFFECTIVE_LOAD_FUZZ_SEED", "10"))
STEP_CALLS = 150_000
"""The most calls of functions in one step of the event loop: twice as many as any makes, some 20 ms."""
HANG_SECONDS = 2.0
"""Processor time that no step takes, however slow the processor: its inputs are short."""
TRIES = 5

FUZZ_SECONDS = pytest.mark.timeout(300 + SECONDS)

T = TypeVar("T")


def seeds() -> Iterator[int]:
    """The seeds of this run: one, or several until the time is over."""
    until, seed = time.monotonic() + SECONDS, SEED
    yield seed
    while time.monotonic() < until:
        seed += 1
        yield seed


def fuzzed(check: Callable[..., None], cases: int, **drawn: SearchStrategy[Any]) -> None:
    """Checks an EVERYth of so many cases for each seed, drawn from these strategies; shrinks a failing one."""
    settings = hypothesis.settings(
        max_examples=cases // EVERY,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    for seed in seeds():
        hypothesis.seed(seed)(settings(hypothesis.given(**drawn)(check)))()


def fuzz(cases: int, **drawn: SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Decorator: makes a test of a check, run by `fuzzed`."""

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        @functools.wraps(check)
        def test() -> None:
            fuzzed(check, cases, **drawn)

        del test.__wrapped__  # type: ignore[attr-defined]  # otherwise pytest would take the check's arguments as fixtures
        return FUZZ_SECONDS(test)

    return decorate


def in_a_step(work: Callable[[], T], most: int = STEP_CALLS) -> T:
    """The result or the exception of the work, which makes at most `most` calls and hangs in none of them."""
    outcomes: list[Callable[[], T]] = []
    with effort() as done:
        spent = seconds(lambda: outcomes.append(_outcome(work)))
    assert done.calls <= most, f"{done.calls} calls in one step of the event loop"
    for _ in range(TRIES - 1):
        if spent > HANG_SECONDS:
            spent = min(spent, seconds(lambda: _outcome(work)))
    assert spent <= HANG_SECONDS, f"{spent:.1f} s of processor time"
    return outcomes[0]()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, in a shared event loop: a new one takes longer than most cases."""
    return _runner().run(coroutine)


@functools.cache
def _runner() -> asyncio.Runner:
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


def _outcome(work: Callable[[], T]) -> Callable[[], T]:
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 - raised again
        return functools.partial(_raise, error)
    return lambda: found


def _raise(error: Exception) -> NoReturn:
    raise error
