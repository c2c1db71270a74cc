"""The printed story: a row of figures at each event, changes with their reasons, and the closing table."""

import pytest

from lab.demo.curve import Chapter
from lab.demo.objects import OURS, STOCK
from lab.demo.play import LEVELS
from lab.demo.story import (
    HEAD,
    Narrator,
    Rescale,
    Style,
    agree,
    band,
    clock,
    closing,
    comparison,
    legend,
    recovered,
    row,
    tidy,
)
from lab.demo.timeline import Mark, Recovery
from tests.demo.world import pulled_out_story, side, tick, timeline

CHAPTER = Chapter(0, "Demand rises.", 8000)
PULL_OUT = Chapter(0, "Two pods are pulled out.", 8000, pull_out=2)


def narrator() -> Narrator:
    return Narrator(LEVELS)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("5 pods use 1142857142n on average", "5 pods use 1143m on average"),
        ("1599971130n, beyond 1212m", "1600m, beyond 1212m"),
        ("2000000000n in all", "2 in all"),
        ("20480u", "20m"),
        ("pod web-5n is fine, and n2n too", "pod web-5n is fine, and n2n too"),
        ("nothing to tidy: 300Mi of 80%", "nothing to tidy: 300Mi of 80%"),
    ],
)
def test_quantities_in_sentences_are_rounded_to_milli_units(sentence: str, expected: str) -> None:
    assert tidy(sentence) == expected


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (9.9, "0:09"), (75, "1:15"), (600, "10:00")])
def test_a_moment_is_minutes_and_seconds(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("seen", "where"),
    [(None, "no data"), (1212, "inside"), (1213, "above"), (891, "inside"), (890, "below"), (1000, "inside")],
)
def test_the_band_has_the_policys_tolerance_of_one_percent(seen: int | None, where: str) -> None:
    assert band(side(5, seen=seen), LEVELS) == where


def test_a_row_holds_both_sides_under_the_head() -> None:
    ours = side(9, serving=7, out=2, seen=1143, raw=830)
    stock = side(7, serving=5, out=2, seen=1149)
    line = row(tick(80, 8000, ours, stock), LEVELS)
    assert " ".join(line.split()) == "1:20 8000m │ 9 2 1143m 830m inside │ 7 2 1149m 1600m !"
    assert [at for at, sign in enumerate(line) if sign == "│"] == [at for at, sign in enumerate(HEAD[1]) if sign == "│"]


def test_a_row_marks_no_serving_pods_and_missing_data() -> None:
    line = row(tick(0, 1600, side(5), side(3, serving=0, out=3)), LEVELS)
    assert " ".join(line.split()) == "0:00 1600m │ 5 · - - no data │ 3 3 - nobody !"


def test_the_first_tick_has_a_row_and_an_unchanged_next_tick_has_none() -> None:
    story = narrator()
    assert len(story.narrate(tick(0))) == 1
    assert story.narrate(tick(1)) == []
    assert story.narrate(tick(19)) == []
    assert len(story.narrate(tick(20))) == 1


def test_a_chapter_is_announced_before_its_row() -> None:
    story = narrator()
    story.narrate(tick(0))
    title, line = story.narrate(tick(1, 8000), [CHAPTER])
    assert title.strip() == "Demand rises."
    assert "8000m" in line


def test_a_pull_out_shows_the_share_of_the_remaining_pods() -> None:
    hit = side(7, serving=5, out=2)
    lines = narrator().narrate(tick(0, 8000, hit, hit), [PULL_OUT])
    assert lines[-1].strip() == "2 fewer pods share the demand: 1600m for each of the others"


def test_a_rescale_shows_the_hpas_message_and_the_adapters_reasons() -> None:
    story = narrator()
    story.narrate(tick(0))
    why = ("cpu: 5 pods use 1599971130n on average", "cpu needs 7 serving pods")
    lines = story.narrate(tick(1), rescales=[Rescale(OURS, 5, 7, "New size: 7; reason: x above target", why)])
    assert [line.strip() for line in lines[1:]] == [
        f"{OURS}: 5 → 7   HPA: New size: 7; reason: x above target",
        "cpu: 5 pods use 1600m on average",
        "cpu needs 7 serving pods",
    ]


def test_a_long_reason_is_broken_to_the_terminals_width() -> None:
    lines = narrator().narrate(tick(0), rescales=[Rescale(OURS, 5, 7, "", ("pods " * 60,))])
    assert len(lines) > 3
    assert max(len(line) for line in lines) <= 110


def test_a_rescale_without_an_event_has_no_message() -> None:
    assert narrator().narrate(tick(0), rescales=[Rescale(STOCK, 5, 7)])[-1].strip() == f"{STOCK}: 5 → 7"


def stuck(seen: int | None, serving: int = 5, demand: int = 8000, out: int = 2) -> list[str]:
    """The lines that a lasting overload of the stock service adds, second by second."""
    story = narrator()
    twin = side(7, serving=serving, out=out, seen=seen)
    lines = [line for at in range(30) for line in story.narrate(tick(at, demand, side(9, serving=7), twin))]
    return [" ".join(line.split()) for line in lines if "│" not in line]


def test_a_lasting_overload_that_the_stock_hpa_does_not_see_is_explained_once() -> None:
    text = " ".join(stuck(1149))
    assert text == (
        f"{STOCK}: stays at 7 its HPA averages 1149m over 7 pods, 2 idle ones included: within 10 % of its 1200m;"
        " each of the 5 that serve carries 1600m"
    )


def test_an_overload_below_the_target_is_explained_too() -> None:
    assert "below its 1200m; the one that serves carries 1600m" in " ".join(stuck(547, serving=1, demand=1600))
    assert "none of them serves" in " ".join(stuck(20, serving=0, demand=1600))


@pytest.mark.parametrize("seen", [None, 1321, 1600])
def test_an_overload_that_the_stock_hpa_sees_is_not_explained(seen: int | None) -> None:
    assert stuck(seen) == []


def test_a_second_overload_is_explained_again() -> None:
    story = narrator()
    over, fine = side(7, serving=5, seen=1149), side(7, seen=1149)
    seconds = [*((at, over) for at in range(15)), (15, fine), *((at, over) for at in range(16, 35))]
    lines = [line for at, twin in seconds for line in story.narrate(tick(at, 8000, side(9), twin))]
    assert sum("stays at" in line for line in lines) == 2


def test_the_ending_is_a_row_unless_it_is_already_printed() -> None:
    story = narrator()
    story.narrate(tick(0))
    assert story.ending(tick(0)) == []
    assert len(story.ending(tick(9))) == 1


def test_only_terminals_get_colour() -> None:
    assert "\033" not in "".join(Narrator(LEVELS).narrate(tick(0), [CHAPTER], [Rescale(OURS, 1, 2)]))
    assert "\033[1m" in "".join(Narrator(LEVELS, Style(colour=True)).narrate(tick(0), [CHAPTER]))


def test_the_legend_names_the_watermarks_the_target_and_the_services() -> None:
    text = "\n".join(legend(LEVELS))
    for word in (OURS, STOCK, "high watermark 1200m", "low 900m", "averageValue 1200m", "effective-load.io/pulled-out"):
        assert word in text
    assert max(len(line) for line in [*legend(LEVELS), *HEAD]) <= 110


def table(lines: list[str]) -> dict[str, list[str]]:
    parts = [[part.strip() for part in line.split("   ") if part.strip()] for line in lines]
    return {part[0]: part[1:] for part in parts if len(part) == 3}


def test_the_closing_table_holds_the_totals_of_both_services() -> None:
    rows = table(closing(pulled_out_story()))
    assert rows == {
        "seconds with more than 1200m for each serving pod": ["10 s", "30 s"],
        "longest overload in a row": ["10 s", "30 s"],
        "after the pull-out, back under 1200m": ["after 10 s", "when demand fell"],
        "highest load of a serving pod": ["1600m", "1600m"],
        "demand beyond 1200m a serving pod, core-seconds": ["20", "60"],
        "pod-minutes used": ["8.3", "7.0"],
        "rescales": ["1", "0"],
        "replicas at the end": ["9", "7"],
    }


def test_the_closing_table_marks_a_time_without_serving_pods() -> None:
    story = timeline(tick(0, 1600, stock=side(3, serving=0)), end=10, marks=(Mark(0, "out"),))
    rows = table(closing(story))
    assert rows["highest load of a serving pod"] == ["320m", "no pod served"]
    assert rows["after the pull-out, back under 1200m"] == ["-", "never"]


@pytest.mark.parametrize(
    ("recovery", "words"),
    [
        (None, "-"),
        (Recovery(None), "never"),
        (Recovery(8.6, by_itself=True), "after 9 s"),
        (Recovery(44), "when demand fell"),
    ],
)
def test_recovery_as_text(recovery: Recovery | None, words: str) -> None:
    assert recovered(recovery) == words


def test_the_comparison_names_each_services_counts_in_the_model_and_on_the_control_plane() -> None:
    model = timeline(tick(0, ours=side(5)), tick(1, ours=side(7)))
    real = timeline(tick(0, ours=side(5)), tick(3, ours=side(6)), tick(4, ours=side(7)))
    text = "\n".join(comparison(model, real))
    assert "model 5 → 7, control plane 5 → 6 → 7   DIFFERENT" in text
    assert "They do not agree" in text
    assert not agree(model, real)


def test_counts_at_other_times_are_the_same_counts() -> None:
    early, late = (
        timeline(tick(0), tick(5, ours=side(7))),
        timeline(tick(0), tick(9, ours=side(7)), tick(10, ours=side(7))),
    )
    assert agree(early, late)
    assert comparison(early, late)[-1] == "The model and the real HPA controller agree, count by count."
