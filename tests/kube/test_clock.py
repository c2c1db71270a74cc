"""The API server's clock, read off its `Date` headers."""

import email.utils
import math
import random
import time

import pytest

from adapter.kube.session import ServerClock


class Hands:
    """A clock to turn by hand, and the server's clock that is read by it."""

    def __init__(self) -> None:
        self.monotonic, self.wall = 100.0, 1_000_000.0
        self.clock = ServerClock(lambda: self.monotonic, lambda: self.wall)

    def pass_(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds

    def hear(self, seconds: float) -> None:
        """A header of this moment, which is cut to whole seconds."""
        self.clock.observe(email.utils.formatdate(math.floor(seconds), usegmt=True))


@pytest.fixture
def hands() -> Hands:
    return Hands()


def test_until_the_server_was_heard_this_machine_s_clock_counts(hands: Hands) -> None:
    hands.pass_(7)
    assert hands.clock.now() == 1_000_007
    assert hands.clock.skew == 0.0


def test_it_follows_the_server_s_clock_and_runs_on_between_answers(hands: Hands) -> None:
    hands.hear(2_000_000)
    hands.pass_(10)
    assert hands.clock.now() == 2_000_010.5  # a header is half a second behind on average


def test_the_skew_says_how_far_this_machine_is_ahead(hands: Hands) -> None:
    hands.hear(1_000_000 - 60)
    assert hands.clock.skew == 59.5


def test_this_machine_s_clock_may_be_set_without_effect(hands: Hands) -> None:
    hands.hear(2_000_000)
    hands.wall += 86_400
    assert hands.clock.now() == 2_000_000.5


def test_one_wrong_header_among_many_does_not_move_it(hands: Hands) -> None:
    for second in range(9):
        hands.hear(2_000_000 + second if second != 4 else 5_000_000)
        hands.pass_(1)
    assert abs(hands.clock.now() - 2_000_009.5) < 0.001


def test_a_server_whose_clock_was_set_is_followed_once_all_of_the_last_answers_agree(hands: Hands) -> None:
    for _ in range(15):
        hands.hear(2_000_000)
    for _ in range(14):
        hands.hear(3_000_000)
    assert hands.clock.now() == 2_000_000.5
    hands.hear(3_000_000)
    assert hands.clock.now() == 3_000_000.5


@pytest.mark.parametrize("apart", [0.4, 0.8, 2.0, 30.0])
@pytest.mark.parametrize("share", [0.5, 0.3])
def test_two_servers_whose_clocks_differ_do_not_move_it_to_and_fro(hands: Hands, apart: float, share: float) -> None:
    """Behind one address each answers a share. It may begin with either one's clock, and change to the other's."""
    chance, ahead = random.Random(7), 1_000_000.37
    moves, before = 0, 0.0
    for number in range(2000):
        hands.pass_(chance.expovariate(2))
        other = apart if chance.random() < share else 0.0
        hands.hear(hands.monotonic + ahead + other)
        offset = hands.clock.now() - hands.monotonic
        moves += number > 0 and abs(offset - before) > 0.5
        before = offset
    assert moves <= 1


@pytest.mark.parametrize("slew", [5e-4, -5e-4])
@pytest.mark.parametrize("answers_a_second", [0.2, 2, 20])
def test_it_follows_a_clock_that_ntp_slews(hands: Hands, answers_a_second: float, slew: float) -> None:
    chance, errors = random.Random(7), []
    while hands.monotonic < 3700:
        hands.pass_(chance.expovariate(answers_a_second))
        ahead = 1_000_000.37 + slew * hands.monotonic
        hands.hear(hands.monotonic + ahead)
        if hands.monotonic > 400:
            errors.append(abs(hands.clock.now() - hands.monotonic - ahead))
    assert max(errors) < 0.3


@pytest.mark.parametrize("answers_a_second", [0.2, 2, 20, 200])
def test_it_is_right_to_a_part_of_the_second_that_headers_are_cut_to(hands: Hands, answers_a_second: float) -> None:
    """At 200 a second all of the last headers may be of the same second: alone they say nothing of its parts."""
    chance, ahead, errors = random.Random(7), 1_000_000.37, []
    for number in range(2000):
        hands.pass_(chance.expovariate(answers_a_second))
        hands.hear(hands.monotonic + ahead - chance.expovariate(500))
        if number > 60 and hands.monotonic > 103:
            errors.append(abs(hands.clock.now() - hands.monotonic - ahead))
    assert max(errors) < 0.1


def test_it_does_not_jump_back_and_forth_with_each_second(hands: Hands) -> None:
    before = 0.0
    for number in range(200):
        hands.pass_(0.05)
        hands.hear(hands.monotonic + 0.01)
        if number > 40:
            assert hands.clock.now() == pytest.approx(before + 0.05, abs=0.005)
        before = hands.clock.now()


def test_a_header_without_a_zone_is_in_utc_wherever_this_machine_is(
    hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        hands.clock.observe("Mon, 23 Nov 2026 05:00:07 -0000")
        assert hands.clock.now() == 1_795_410_007.5
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "header",
    [
        "",
        "yesterday",
        "Sat, 99 Nov 2026 00:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",  # a second later is no time that can be written
        "Mon, 23 Nov 2026 05:00:00 +" + "9" * 4000,
    ],
)
def test_an_unreadable_header_is_passed_over(hands: Hands, header: str) -> None:
    hands.clock.observe(header)
    assert hands.clock.now() == 1_000_000
