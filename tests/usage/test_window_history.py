"""Rates while targets are not scraped and after that, as Prometheus computes them."""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.spec import Query
from adapter.runtime.slices import Slices
from adapter.usage.query_catalog import InstantQuery, QueryCatalog, WorkloadQuery
from adapter.usage.series import SeriesTable
from adapter.usage.window_history import LONGEST_GAP_SECONDS, WindowHistory

INTERVAL, WINDOW = 15.0, 120.0
QUERY = InstantQuery(server="main", text="rate(x[2m])", by_pod=True, interval=INTERVAL, window=WINDOW, span=WINDOW)
TEXT = b'{"namespace":"shop","pod":"web-1"}'


def extrapolated_rate(samples: Iterable[float], now: float) -> tuple[float, float] | None:
    """Prometheus' `rate` of a counter that grows by 1 a second, and the time of the newest sample."""
    within = [at for at in samples if now - WINDOW < at <= now]
    if len(within) < 2:
        return None
    covered = within[-1] - within[0]
    mean = covered / (len(within) - 1)
    ends = (within[0] - (now - WINDOW), now - within[-1])
    return (covered + sum(end if end < 1.1 * mean else mean / 2 for end in ends)) / WINDOW, within[-1]


class Polls:
    """One series through its history, with a new table wherever `tables` says so."""

    def __init__(self, span: float = WINDOW) -> None:
        self.query = replace(QUERY, window=span, span=span)
        self.table = SeriesTable("namespace", "pod")
        self.history: WindowHistory | None = None

    async def see(
        self,
        answer: Mapping[bytes, tuple[float, float]],
        *,
        now: float | None = None,
        may_rise: bool = False,
        has_lost: bool = False,
    ) -> list[float]:
        sets = self.table.label_sets(answer)
        values: list[str | None] = [None if math.isnan(value) else f"{value:.9f}" for value, _ in answer.values()]
        self.history = WindowHistory(self.table, self.history)
        dates = [at for _, at in answer.values()]
        now = max(dates, default=0.0) if now is None else now
        await self.history.keep(
            self.query,
            sets,
            values,
            dates,
            Slices(),
            evaluated_at=now,
            may_rise=may_rise,
            has_lost=has_lost,
        )
        return [float(value or "nan") for value in values]


async def rates(
    scrapes: list[float],
    until: float,
    polls: Polls | None = None,
    begin: float = 200.0,
    lost: bool = False,
    others: Mapping[bytes, float] = MappingProxyType({}),
) -> list[float]:
    """What is seen of a series at each poll, and of others that are scraped so much later.

    `lost`: at the first of these polls the server lacks what it had before.
    """
    polls, seen, now = polls or Polls(), [], begin
    while now < until:
        read = {
            text: rate
            for text, later in {TEXT: 0.0, **others}.items()
            if (rate := extrapolated_rate([at + later for at in scrapes], now)) is not None
        }
        seen += await polls.see(read, now=now, has_lost=lost)
        now, lost = now + INTERVAL, False
    return seen


def scraped(*, every: float, gap: tuple[float, float], until: float = 2000.0) -> list[float]:
    times = [every * number + 1.3 for number in range(int(until / every))]
    return [at for at in times if not gap[0] < at <= gap[1]]


def test_a_rate_is_a_fraction_of_itself_after_a_gap_or_these_tests_would_show_nothing() -> None:
    scrapes = scraped(every=15, gap=(600, 720))
    after = [read[0] for now in range(735, 840, 15) if (read := extrapolated_rate(scrapes, now)) is not None]
    assert min(after) < 0.4


@given(
    every=st.sampled_from([5.0, 10.0, 15.0, 30.0]),
    began=st.floats(500, 620),
    length=st.floats(0, 700),
)
async def test_an_unchanged_load_never_reads_lower_through_a_gap(every: float, began: float, length: float) -> None:
    seen = await rates(scraped(every=every, gap=(began, began + length)), 1900)
    # A gap of up to 2.2 polling intervals is no gap: it might be a missed poll.
    assert min(seen) > (0.75 if length < 2.2 * INTERVAL else 0.9)


async def test_a_load_that_fell_is_seen_as_the_gap_leaves_the_window() -> None:
    polls = Polls()
    for at in (0.0, 15.0, 30.0):
        await polls.see({TEXT: (1.0, at)})
    seen = [(await polls.see({TEXT: (0.4, at)}))[0] for at in (180.0, 195.0, 210.0, 225.0, 240.0, 255.0, 270.0, 300.0)]
    assert seen[:4] == [1.0] * 4, "half of the window says too little"
    assert seen[4:] == [pytest.approx(0.4 / share) for share in (1 / 2, 5 / 8, 3 / 4, 1)]


def scraped_again(since: float) -> list[float]:
    """The samples of a server that lost its data and scrapes since then."""
    return [since + 15.0 * number for number in range(40)]


@pytest.mark.parametrize("away", [1.0, 20.0, 40.0, 59.0, 100.0])
async def test_an_unchanged_load_never_reads_lower_where_a_server_lost_its_data(away: float) -> None:
    polls = Polls()
    await rates(scraped(every=15, gap=(600, 2000)), 605, polls)
    seen = await rates(scraped_again(604 + away), 900, polls, 605 + away, lost=True)
    assert min(seen) > 0.9


@pytest.mark.parametrize("silence", [1, 2, 3])
async def test_an_unchanged_load_never_reads_lower_where_a_silent_server_lost_its_data(silence: int) -> None:
    polls, scrapes = Polls(), [590.0 + 5.0 * number for number in range(100)]
    await rates(scraped(every=5, gap=(580, 2000)), 585, polls)
    for now in [585.0 + INTERVAL * number for number in range(silence, 20)]:
        read = extrapolated_rate(scrapes, now)
        assert read is not None, "its answers never lack the series"
        [seen] = await polls.see({TEXT: read}, now=now, has_lost=now == 585 + INTERVAL * silence)
        assert seen > 0.9


async def test_a_fall_of_a_load_whose_server_lost_its_data_is_seen_as_the_window_fills() -> None:
    polls = Polls()
    for at in (0.0, 15.0, 30.0):
        await polls.see({TEXT: (1.0, at)})
    await polls.see({}, now=60.0, has_lost=True)
    seen = [(await polls.see({TEXT: (0.1, at)}))[0] for at in [75.0 + 15 * number for number in range(9)]]
    assert seen == [1.0] * 4 + [pytest.approx(0.1 / share) for share in (1 / 2, 5 / 8, 3 / 4, 7 / 8, 1)]


async def test_a_series_of_a_server_that_loses_its_data_again_and_again_has_no_value_in_the_end() -> None:
    """Its window never is full, and what it was before says nothing any more."""
    polls, seen = Polls(), []
    for number in range(10):
        await polls.see({TEXT: (1.0, 15.0 * number)})
    for at in range(165, 3000, 30):
        await polls.see({}, now=at - 15, has_lost=True)
        seen += await polls.see({TEXT: (0.1, at)})
    while math.isnan(seen[-1]):
        at += 15
        assert at <= 3000 + WINDOW
        seen += await polls.see({TEXT: (0.1, at)})
    held = seen.count(1.0)
    assert 30 * held == pytest.approx(2 * LONGEST_GAP_SECONDS, abs=60)
    assert seen[:held] == [1.0] * held
    assert all(map(math.isnan, seen[held:-1]))
    assert seen[-1] == 0.1


async def test_a_series_that_comes_and_goes_is_followed_at_once() -> None:
    """As one below a threshold of its query, or not among the largest: its server has what it had."""
    polls = Polls()
    for number in range(10):
        await polls.see({TEXT: (1.0, 15.0 * number)})
    for number in range(10, 40, 2):
        await polls.see({})
        assert await polls.see({TEXT: (1 / number, 15.0 * number)}) == [pytest.approx(1 / number)]


async def test_a_new_series_of_a_server_that_lost_its_data_has_no_value_until_its_window_is_full() -> None:
    """As after a configuration that adds a label: what was known has other labels."""
    polls, renamed = Polls(), b'{"cluster":"a","namespace":"shop","pod":"web-1"}'
    for number in range(10):
        await polls.see({TEXT: (1.0, 15.0 * number)})
    await polls.see({}, now=150.0, has_lost=True)
    seen = [(await polls.see({renamed: (0.1 * number, 180.0 + 15 * number)}))[0] for number in range(1, 11)]
    assert [math.isnan(value) for value in seen] == [True] * 8 + [False] * 2


async def test_a_loss_is_not_forgotten_by_an_answer_without_newer_samples() -> None:
    polls = Polls()
    for number in range(10):
        await polls.see({TEXT: (1.0, 15.0 * number)})
    for at, lost in ((130.0, True), (150.0, False), (165.0, False)):
        assert await polls.see({TEXT: (0.2, at)}, has_lost=lost) == [1.0]


async def test_a_short_gap_hides_no_large_fall() -> None:
    polls = Polls()
    for number in range(10):
        await polls.see({TEXT: (1.0, 15.0 * number)})
    seen = [(await polls.see({TEXT: (value, at)}))[0] for value, at in ((0.8, 180.0), (0.4, 195.0), (0.2, 210.0))]
    assert seen == [1.0, pytest.approx(0.4 * 120 / 75), pytest.approx(0.2 * 120 / 75)]


@pytest.mark.parametrize("gap", [50.0, 70.0, 100.0, 150.0])
async def test_an_unchanged_load_never_reads_lower_through_gaps_that_follow_each_other(gap: float) -> None:
    scrapes, at = [15.0 * number + 1.3 for number in range(40)], 601.3
    for _ in range(5):
        scrapes += [at + gap + 15.0 * number for number in range(5)]
        at = scrapes[-1]
    seen = await rates(scrapes + [at + 15.0 * number for number in range(1, 20)], at + 200)
    assert min(seen) > 0.7


@pytest.mark.parametrize("longer", [45.0, 60.0, 60.002])
async def test_an_interval_that_has_changed_is_no_gap(longer: float) -> None:
    polls = Polls()
    for number in range(20):
        await polls.see({TEXT: (1.0, 15.0 * number)})
    for number in range(1, 12):
        [seen] = await polls.see({TEXT: (0.3, 285.0 + longer * number)})
        if longer * number > 2 * longer + WINDOW:
            assert seen == 0.3


async def test_no_load_is_held_for_ever_however_its_samples_come() -> None:
    polls, at, seen = Polls(), 0.0, 1.0
    for number in range(10):
        await polls.see({TEXT: (1.0, at := 15.0 * number)})
    began, distances = at, itertools.cycle([100.0, 15.0, 210.0, 15.0])
    while seen > 0.3:
        at += next(distances)
        [seen] = await polls.see({TEXT: (0.3, at)})
        assert at - began < 2 * LONGEST_GAP_SECONDS + 3 * WINDOW


async def test_a_load_that_rose_is_seen_at_once() -> None:
    polls = Polls()
    for at in (0.0, 15.0):
        await polls.see({TEXT: (1.0, at)})
    assert await polls.see({TEXT: (1.5, 180.0)}) == [1.5]
    assert await polls.see({TEXT: (1.2, 195.0)}) == [1.5]


async def test_a_gap_after_the_very_first_sample_is_seen() -> None:
    polls = Polls()
    assert await polls.see({TEXT: (1.0, 1000.0)}) == [1.0]
    assert await polls.see({TEXT: (0.3, 1150.0)}) == [1.0]


async def test_an_earlier_time_is_no_news_unless_the_load_rose() -> None:
    """Another replica of the server has other samples, and of a series that has ended an earlier one is found."""
    polls = Polls()
    seen = [
        await polls.see({TEXT: (value, at)})
        for value, at in ((1.0, 1015.0), (0.9, 1012.0), (1.1, 1013.0), (0.8, 1015.0), (0.7, 1030.0))
    ]
    assert seen == [[1.0], [1.0], [1.1], [1.1], [0.7]]


@pytest.mark.parametrize("earlier", [20.0, 50.0, 89.0])
async def test_an_earlier_time_that_the_age_of_samples_explains_is_no_clock_that_went_back(earlier: float) -> None:
    """The last sample of an ended series is found to within a sixth of that age, which may exceed the window."""
    polls = Polls(span=15.0)
    for at in (1000.0, 1005.0, 1010.0):
        await polls.see({TEXT: (1.0, at)})
    assert await polls.see({TEXT: (0.3, 1010.0 - earlier)}) == [1.0]


@pytest.mark.parametrize("ahead", [300.0, 3600.0])
async def test_an_unchanged_load_never_reads_lower_after_a_clock_that_was_ahead(ahead: float) -> None:
    """The window lacks what was sampled meanwhile: it lies in the future."""
    polls, now, seen = Polls(), 300.0, []
    scrapes = scraped(every=15, gap=(600, 660))
    while now < 900.0:
        if 600 < now <= 660:
            await polls.see({TEXT: (1.0, now + ahead)})
        elif (read := extrapolated_rate(scrapes, now)) is not None:
            seen += await polls.see({TEXT: read})
        now += INTERVAL
    assert all(math.isnan(value) or value > 0.9 for value in seen)
    assert [math.isnan(value) for value in seen[-7:]] == [False] * 7


async def test_a_gap_is_known_of_series_that_had_left_the_answers_and_their_table() -> None:
    polls = Polls()
    for at in (0.0, 15.0):
        await polls.see({TEXT: (1.0, at)})
    await polls.see({})
    for _ in range(3):
        polls.table = SeriesTable("namespace", "pod")
        await polls.see({})
    assert await polls.see({b'{"namespace":"shop","pod":"web-0"}': (0.1, 200.0), TEXT: (0.3, 200.0)}) == [0.1, 1.0]


async def test_after_a_long_absence_there_is_no_value_until_the_window_is_full() -> None:
    """What was before it says nothing of the load now, and what is read is a fraction."""
    polls, back = Polls(), 16.0 + LONGEST_GAP_SECONDS
    for at in (0.0, 15.0):
        await polls.see({TEXT: (1.0, at)})
    seen = [(await polls.see({TEXT: (0.3, back + more)}))[0] for more in range(0, 150, 15)]
    assert [math.isnan(value) for value in seen] == [True] * 8 + [False] * 2


async def test_while_its_window_fills_a_value_of_several_selectors_is_none_either() -> None:
    """A larger value with the same time may hold newer samples of another selector, but it is a fraction still."""
    polls, back = Polls(), 16.0 + LONGEST_GAP_SECONDS
    for at in (0.0, 15.0):
        await polls.see({TEXT: (1.0, at)}, may_rise=True)
    for value, at in ((0.3, back), (0.4, back), (0.5, back + 15), (0.5, back - 5)):
        assert math.isnan((await polls.see({TEXT: (value, at)}, may_rise=True))[0])


async def test_an_outage_that_begins_after_the_first_sample_is_a_long_absence() -> None:
    polls = Polls()
    await polls.see({TEXT: (1.0, 0.0)})
    seen = await rates([20.0 + LONGEST_GAP_SECONDS + 15 * number for number in range(20)], 1200, polls, 930)
    assert all(math.isnan(value) or value > 0.9 for value in seen)
    assert seen[-1] == pytest.approx(1.0)


async def test_series_that_were_forgotten_during_a_long_outage_have_no_value_until_their_window_is_full() -> None:
    """Where most of many series are lost their table ends; the others go on, so that nobody sees an outage of all."""
    polls, other, back = Polls(), b'{"namespace":"shop","pod":"web-0"}', 100 + LONGEST_GAP_SECONDS
    for number in range(3):
        await polls.see({other: (1.0, 15.0 * number), TEXT: (1.0, 15.0 * number)})
    polls.table = SeriesTable("namespace", "pod")
    for at in range(45, int(back), 15):
        await polls.see({other: (1.0, at)})
    seen = [await polls.see({other: (1.0, back + more), TEXT: (0.3, back + more)}) for more in range(0, 150, 15)]
    assert [(each[0], math.isnan(each[1])) for each in seen] == [(1.0, True)] * 8 + [(1.0, False)] * 2


@pytest.mark.parametrize(("before", "after"), [(60, 15), (60, 30), (45, 15)])
async def test_an_unchanged_load_never_reads_lower_where_the_interval_becomes_shorter(before: int, after: int) -> None:
    scrapes = [*range(0, 900, before), *range(900, 2000, after)]
    seen = await rates([at + 1.3 for at in scrapes], 1900)
    assert min(seen) > 0.9
    assert max(seen) < 1.1


async def test_a_load_that_falls_where_the_interval_becomes_shorter_is_seen_within_a_window() -> None:
    polls = Polls()
    for number in range(10):
        await polls.see({TEXT: (1.0, 60.0 * number)})
    for at in range(555, 700, 15):
        [seen] = await polls.see({TEXT: (0.3, at)})
        assert seen == 0.3 or at < 540 + WINDOW


@pytest.mark.parametrize(("up", "down"), [(15, 40), (30, 85), (30, 100), (45, 90), (45, 120)])
async def test_an_unchanged_load_never_reads_lower_while_scrapes_fail_most_of_the_time(up: int, down: int) -> None:
    """Outages that look alike are no interval: one that is longer than half of the window would give no rate."""
    scrapes = [15.0 * number + 1.3 for number in range(140)]
    scrapes = [at for at in scrapes if not 600 < at < 1500 or (at - 600) % (up + down) > down]
    assert min(await rates(scrapes, 2000)) > 0.8


@pytest.mark.parametrize("failed", [40, 60, 80])
async def test_an_unchanged_load_never_reads_lower_where_polls_fail_as_well_as_scrapes(failed: int) -> None:
    """The first poll after that sees a sample that is a poll newer than the last one, and a window without an end."""
    scrapes, polls = scraped(every=15, gap=(620, 900)), Polls()
    await rates(scrapes, 605, polls)
    assert min(await rates(scrapes, 1100, polls, 616 + failed)) > 0.9


@pytest.mark.parametrize("late", [20.0, 50.0, 80.0])
async def test_samples_that_always_come_late_are_news(late: float) -> None:
    """As those with timestamps of their own."""
    polls = Polls()
    for number in range(20):
        at = 1000.0 + 15.0 * number
        seen = await polls.see({TEXT: (1.0 - 0.01 * number, at)}, now=at + late)
        assert seen == [pytest.approx(1.0 - 0.01 * number)]


async def test_a_gap_makes_no_second_one_usual() -> None:
    polls = Polls()
    for number in range(10):
        await polls.see({TEXT: (1.0, 15.0 * number)})
    seen = [await polls.see({TEXT: (value, at)}) for value, at in ((0.6, 205.0), (0.6, 220.0), (0.2, 267.0))]
    assert seen == [[1.0]] * 3


async def test_gaps_in_one_window_hide_what_they_hide_together() -> None:
    polls = Polls()
    for number in range(10):
        await polls.see({TEXT: (1.0, 15.0 * number)})
    seen = [await polls.see({TEXT: (value, at)}) for value, at in ((0.6, 185.0), (0.6, 200.0), (0.2, 250.0))]
    assert seen == [[1.0]] * 3


@given(length=st.floats(700, 4000), several=st.integers(0, 3), lost=st.booleans())
async def test_an_unchanged_load_never_reads_lower_after_a_long_outage(length: float, several: int, lost: bool) -> None:
    """Series come back one poll after the other, after the table of all was replaced several times."""
    polls, scrapes = Polls(), scraped(every=15, gap=(600, 600 + length), until=6000)
    others = {f'{{"namespace":"shop","pod":"web-{number}"}}'.encode(): 15 * number for number in range(2, several + 2)}
    await rates(scrapes, 590, polls, others=others)
    if lost:
        for _ in range(10):
            polls.table = SeriesTable("namespace", "pod")
            await polls.see({})
    seen = await rates(scrapes, 5000, polls, begin=590, others=others)
    assert all(math.isnan(value) or value > 0.75 for value in seen)
    assert seen[-1] == pytest.approx(1.0)


async def test_a_server_whose_clock_was_ahead_for_a_while_costs_a_window_and_no_more() -> None:
    polls, times = Polls(), [*range(0, 90, 15), *range(3700, 3760, 15), *range(150, 360, 15)]
    seen = [(await polls.see({TEXT: (1.0, 1e9 + at)}))[0] for at in times]
    assert seen[:6] == [1.0] * 6
    assert [math.isnan(value) for value in seen[10:18]] == [True] * 8
    assert seen[18:] == [1.0] * 6


async def test_samples_that_come_every_half_hour_are_values() -> None:
    polls = Polls()
    seen = [(await polls.see({TEXT: (1.0 - number / 10, 1800.0 * number)}))[0] for number in range(4)]
    # The second might come after an outage that began with the adapter.
    assert seen == pytest.approx([1.0, math.nan, 0.8, 0.7], nan_ok=True)


@given(every=st.sampled_from([5.0, 10.0, 15.0, 30.0]), offsets=st.lists(st.integers(0, 59), min_size=1, max_size=4))
async def test_a_load_that_falls_without_a_gap_is_seen_at_once(every: float, offsets: list[int]) -> None:
    """Samples of several targets, at other moments each: the newest of them come at uneven distances."""
    await falls(every, offsets)


@pytest.mark.parametrize("offsets", [[30], [10, 40], [30, 41], [36, 45]])
async def test_a_fall_between_uneven_samples_half_a_window_apart_is_seen_after_two_windows(offsets: list[int]) -> None:
    """A distance of over a third of the window may be an outage until it has been repeated."""
    await falls(60.0, offsets, learned=17)


@pytest.mark.parametrize("every", [5.0, 10.0, 15.0])
async def test_a_missed_poll_is_no_gap(every: float) -> None:
    await falls(every, [0], missed=20)


async def falls(every: float, offsets: list[int], missed: int | None = None, learned: int = 10) -> None:
    """Check that the values are seen as they are after so many polls, in which the intervals are learned."""
    polls, last = Polls(), 0.0
    for number in range(40):
        if number == missed:
            continue
        now = 1000.0 + INTERVAL * number
        newest = max((now - offset) // every * every + offset for offset in offsets)
        value = 1.0 if number < 15 else 1.0 - 0.01 * number
        [seen] = await polls.see({TEXT: (value, newest)})
        if newest > last and number > learned:
            assert seen == pytest.approx(value)
        last = newest


async def test_a_series_is_known_after_several_tables_without_it() -> None:
    polls = Polls()
    other = b'{"namespace":"shop","pod":"web-0"}'
    for at in (0.0, 15.0):
        await polls.see({other: (1.0, at), TEXT: (1.0, at)})
    for number in range(3):
        polls.table = SeriesTable("namespace", "pod")
        await polls.see({other: (1.0, 30.0 + 15.0 * number)})
    assert await polls.see({other: (1.0, 120.0), TEXT: (0.1, 120.0)}) == [1.0, 1.0]


async def test_tables_and_what_was_known_with_them_end() -> None:
    polls = Polls()
    for number in range(200):
        polls.table = SeriesTable("namespace", "pod")
        await polls.see({TEXT: (1.0, 1e12 - 15.0 * number)})
        assert polls.history is not None
        assert len(polls.history.earlier) < 10


async def test_times_without_a_number_are_no_gap() -> None:
    """A ratio of two rates is NaN while neither counter grows."""
    polls = Polls()
    for number in range(30):
        at = 15.0 * number
        [seen] = await polls.see({TEXT: (1.0 if number < 10 else math.nan if number < 20 else 0.4, at)})
        assert seen == pytest.approx(1.0 if number < 10 else math.nan if number < 20 else 0.4, nan_ok=True)
    assert await polls.see({TEXT: (math.nan, at)}) == [0.4]


@pytest.mark.parametrize(
    "text",
    ["rate(x[2m] offset 1w)", "rate(x[2m]) / rate(x[2m] offset 1d)", "max_over_time(rate(x[1m])[1m:15s] offset 1d)"],
)
def test_an_offset_makes_no_gap_last_longer(text: str) -> None:
    catalog = QueryCatalog(["main"], [], inline_allowed=True)
    query = catalog.resolve(WorkloadQuery(Query(server="main", prom_ql=text), "shop", "web"))
    assert isinstance(query, InstantQuery)
    assert query.span == 120.0
    assert query.window > 86_400
