"""Selectors come from workloads and requests of any user: their cost is limited."""

import contextlib
import itertools
from collections.abc import Callable

import pytest
import trustme

from adapter.kube import selectors
from adapter.kube.selectors import (
    LONGEST_SELECTOR,
    MOST_REQUIREMENTS,
    MOST_SELECTOR_VALUES,
    Operator,
    Requirement,
    SelectorError,
    parse_selector,
)
from tests.apiserver.conftest import Service, as_user
from tests.apiserver.metric_requests import CUSTOM
from tests.effort import QUADRATIC, growth


def requirements(number: int) -> str:
    return ",".join(f"label-{index}!=value" for index in range(number))


def values(number: int) -> str:
    return f"k in ({','.join(f'v{index}' for index in range(number))})"


def spread(number: int) -> str:
    return ",".join(f"k{index} in (a{index},b,c,d)" for index in range(number))


@pytest.mark.parametrize(
    "text", [requirements(MOST_REQUIREMENTS), values(MOST_SELECTOR_VALUES), spread(256), "k" + " " * 16_000]
)
def test_a_selector_within_the_limits_is_parsed(text: str) -> None:
    assert parse_selector(text).requirements


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (requirements(MOST_REQUIREMENTS + 1), "more than 256 requirements"),
        (values(MOST_SELECTOR_VALUES + 1), "more than 1024 values"),
        (spread(256) + ",k in (a,b,c)", "more than 256 requirements"),
        (",".join(f"k{index}" for index in range(2000)), "commas"),
        ("," * LONGEST_SELECTOR, "commas"),
        ("k" + " " * LONGEST_SELECTOR, "at most 16384"),
        ("k=" + "v" * LONGEST_SELECTOR, "at most 16384"),
    ],
)
def test_a_selector_beyond_the_limits_is_rejected_with_a_message(text: str, says: str) -> None:
    with pytest.raises(SelectorError, match=says) as error:
        parse_selector(text)
    assert len(str(error.value)) < 400


WORST: dict[str, Callable[[int], str]] = {
    "requirements": lambda size: requirements(size * MOST_REQUIREMENTS // LONGEST_SELECTOR),
    "values": lambda size: values(size * MOST_SELECTOR_VALUES // LONGEST_SELECTOR),
    "both": lambda size: spread(size * MOST_REQUIREMENTS // LONGEST_SELECTOR),
}


@pytest.mark.parametrize("text", WORST.values(), ids=WORST.keys())
def test_the_worst_selectors_take_time_by_their_length_alone(text: Callable[[int], str]) -> None:
    """Trailing white space took 3 s, by quadratic matching."""
    number = itertools.count()

    def parse(size: int) -> None:
        with contextlib.suppress(SelectorError):
            parse_selector(f"{next(number)}{text(size)}"[:LONGEST_SELECTOR])  # one that was never read

    assert growth(parse, LONGEST_SELECTOR // 4) < QUADRATIC


def test_only_small_selectors_are_cached() -> None:
    before = selectors.parse_cached.cache_info().misses
    for text in (requirements(200), values(200), f"k={'v' * 60},{'k' * 60}" + ",a" * 20, "k" + " " * 600):
        parse_selector(text)
    assert selectors.parse_cached.cache_info().misses == before
    assert parse_selector("app=web,tier in (front, back)") is parse_selector("app=web,tier in (front, back)")


class Looked(str):
    """A text that counts what it is compared with."""

    __slots__ = ("looks",)
    __hash__ = str.__hash__
    looks: int

    def __eq__(self, other: object) -> bool:
        self.looks += 1
        return str(self) == other

    def __gt__(self, other: str) -> bool:
        self.looks += 1
        return str(self) > other


def test_a_value_is_found_among_many_without_a_look_at_each() -> None:
    listed = tuple(sorted(f"v{index}" for index in range(MOST_SELECTOR_VALUES)))
    among = Requirement("k", Operator.IN, listed)
    assert all(among.matches({"k": value}) for value in listed)
    for other in ("", "v", "v10x", "zzz", "v1024"):
        assert not among.matches({"k": other})
        assert Requirement("k", Operator.NOT_IN, listed).matches({"k": other})
    assert not among.matches({})
    for value in ("v512", "zzz"):
        looked = Looked(value)
        looked.looks = 0
        among.matches({"k": looked})
        assert 0 < looked.looks < 20


@pytest.mark.parametrize("parameter", ["labelSelector", "metricLabelSelector"])
async def test_a_selector_that_is_too_large_is_a_400(service: Service, proxy: trustme.LeafCert, parameter: str) -> None:
    selector = "%2C".join(f"l{number}" for number in range(300))
    answer = await service.ask(f"{CUSTOM}/pods/%2A/effective_cpu?{parameter}={selector}", leaf=proxy, headers=as_user())
    assert (answer.status, answer.json()["reason"]) == (400, "BadRequest")
    assert f"invalid {parameter}" in answer.message
    assert "more than 256 requirements" in answer.message
