"""Long work in short steps: a generator that yields between them, so that its caller may do something else there."""

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

S = TypeVar("S")
T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that yields after each step (at most about a millisecond) and returns its result."""
AT_ONCE = 512
"""Items that are worked on in one step."""
SORTED_AT_ONCE = 2048
"""Items that are sorted in one step."""
SELECTED_AT_ONCE = 1024
"""Items that are looked at in one step, where most are not worked on."""


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


def collected(items: Iterable[T], at_once: int = AT_ONCE) -> Steps[list[T]]:
    """All items of an iterable that computes them, `at_once` in a step."""
    results: list[T] = []
    remaining = iter(items)
    while some := list(islice(remaining, at_once)):
        results += some
        yield
    return results


def selected(condition: Callable[[T], bool], items: Iterable[T]) -> Steps[list[T]]:
    """The items for which a condition is true; SELECTED_AT_ONCE are looked at in a step."""
    results: list[T] = []
    remaining = iter(items)
    while some := list(islice(remaining, SELECTED_AT_ONCE)):
        results += filter(condition, some)
        yield
    return results


def sorted_in_steps(
    items: Sequence[T],
    key: Callable[[T], Any] | None = None,
    *,
    reverse: bool = False,
    at_once: int = SORTED_AT_ONCE,
) -> Steps[list[T]]:
    """`sorted`, in steps: it merges lists that are sorted already in little time."""
    lists = []
    for first in range(0, len(items), at_once):
        lists.append(sorted(items[first : first + at_once], key=key, reverse=reverse))  # type: ignore[type-var, arg-type]
        yield
    while len(lists) > 1:
        merged = []
        for first in range(0, len(lists), 2):
            both = chain.from_iterable(lists[first : first + 2])
            merged.append(sorted(both, key=key, reverse=reverse))  # type: ignore[type-var, arg-type]
            yield
        lists = merged
    return lists[0] if lists else []
