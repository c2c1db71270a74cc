"""Runs fuzz tests: a few fixed cases in CI, or new ones for a given time; and limits the time of a step.

EFFECTIVE_LOAD_FUZZ=3600 runs each test for an hour; EFFECTIVE_LOAD_FUZZ_SEED=7 starts at another seed.
"""

import asyncio
import atexit
import contextlib
import functools
import gc
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy

from tests.processor import slowness

SECONDS = float(os.environ.get("EFFECTIVE_LOAD_FUZZ", "0"))
"""Seconds for each test; 0: its own number of cases, once."""
SEED = int(os.environ.get("EFFECTIVE_LOAD_FUZZ_SEED", "10"))
STEP_SECONDS = 0.010
"""The maximum processor time (seconds) of one step of the event loop."""
TRIES = 5
"""The minimum of this many attempts counts, because a shared processor may be slow once."""

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
    """Checks this many cases for each seed, drawn from these strategies; shrinks a failing one."""
    settings = hypothesis.settings(
        max_examples=cases,
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


def uncached(function: Callable[..., T]) -> Callable[..., T]:
    """The function without its cache, so that a repeated call takes as long as the first."""
    return getattr(function, "__wrapped__", function)


def in_a_step(work: Callable[[], T], most: float = STEP_SECONDS) -> T:
    """The result or the exception of the work, which must take at most `most` seconds; it may be repeated."""

    def once() -> tuple[Callable[[], T], float]:
        began = time.thread_time()
        outcome = _outcome(work)
        return outcome, time.thread_time() - began

    return _short(once, most)


def in_steps(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Like `in_a_step` for coroutines: each step of the event loop is measured separately."""

    def once() -> tuple[Callable[[], T], float]:
        with steps() as longest:
            outcome = _outcome(lambda: _runner().run(work()))
        return outcome, longest.seconds

    return _short(once, STEP_SECONDS)


@functools.cache
def _runner() -> asyncio.Runner:
    """A shared event loop: its creation takes longer than most cases."""
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


@dataclass
class Longest:
    """The longest step so far, in seconds of processor time."""

    seconds: float = 0.0


@contextlib.contextmanager
def steps() -> Iterator[Longest]:
    """Measures the steps of this thread's event loop."""
    longest, run, thread = Longest(), asyncio.Handle._run, threading.get_ident()

    def measured(handle: asyncio.Handle) -> None:
        if threading.get_ident() != thread:
            return run(handle)
        began = time.thread_time()
        try:
            return run(handle)
        finally:
            longest.seconds = max(longest.seconds, time.thread_time() - began)

    with _without_collections(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", measured)
        yield longest


def _short(once: Callable[[], tuple[Callable[[], T], float]], most: float) -> T:
    outcome, seconds = once()
    for _ in range(TRIES - 1):
        if seconds > most:
            outcome, again = once()
            seconds = min(seconds, again / slowness())
    assert seconds <= most, f"{seconds * 1000:.1f} ms of processor time at a stretch"
    return outcome()


def _outcome(work: Callable[[], T]) -> Callable[[], T]:
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 - raised again
        return functools.partial(_raise, error)
    return lambda: found


def _raise(error: Exception) -> NoReturn:
    raise error


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Disables garbage collection, as the adapter has no automatic full collections."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
