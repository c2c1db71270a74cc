"""Long work in short steps: a generator that yields between them, so that its caller may do something else there."""

from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that yields after each step (at most about a millisecond) and returns its result."""
AT_ONCE = 512
"""Items that are worked on in one step."""


def finish(steps: Steps[T]) -> T:
    """Take all steps at once and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def mapped(function: Callable[[S], T], items: Iterable[S], at_once: int = AT_ONCE) -> Steps[list[T]]:
    """The results of a function for all items, `at_once` in a step."""
    results: list[T] = []
    remaining = iter(items)
    while some := list(islice(remaining, at_once)):
        results += map(function, some)
        yield
    return results


def collected(items: Iterable[T]) -> Steps[list[T]]:
    """All items of an iterable that computes them, AT_ONCE in a step."""
    results: list[T] = []
    remaining = iter(items)
    while some := list(islice(remaining, AT_ONCE)):
        results += some
        yield
    return results
