"""Health endpoints."""

from adapter.apiserver.health import LATE_SECONDS, Health, Heart
from tests.apiserver.conftest import Clock

ILL = "the pods' watch is silent"


def health(sentence: str | None = None) -> Health:
    return Health({"ping": lambda: None}, {"caches": lambda: sentence})


def text(found: Health, *segments: str, verbose: bool = False) -> tuple[bool, str]:
    report = found.report(segments, verbose=verbose)
    assert report is not None
    return report.healthy, report.text


def test_all_well_is_a_plain_ok() -> None:
    for endpoint in ("livez", "readyz", "healthz"):
        assert text(health(), endpoint) == (True, "ok")


def test_what_is_not_ready_says_why_and_lives_on() -> None:
    healthy, said = text(health(ILL), "readyz")
    assert not healthy
    assert said == f"[+]ping ok\n[-]caches failed: {ILL}\nreadyz check failed\n"
    assert text(health(ILL), "livez") == (True, "ok")
    assert text(health(ILL), "healthz") == (True, "ok")


def test_verbose_lists_every_check() -> None:
    assert text(health(), "readyz", verbose=True) == (True, "[+]ping ok\n[+]caches ok\nreadyz check passed\n")


def test_a_single_check_can_be_asked_for() -> None:
    assert text(health(ILL), "readyz", "ping") == (True, "ok")
    assert text(health(ILL), "readyz", "caches")[0] is False
    assert health().report(("livez", "caches"), verbose=False) is None


def test_a_remark_is_shown_and_leaves_the_server_ready() -> None:
    lacking: list[str | None] = ["a right is missing"]
    found = Health({"ping": lambda: None}, {"caches": lambda: None}, {"authorization": lambda: lacking[0]})
    said = "[+]ping ok\n[+]caches ok\n[!]authorization: a right is missing\nreadyz check passed\n"
    assert text(found, "readyz") == (True, said)
    assert text(found, "readyz", "authorization") == (True, said.replace("[+]ping ok\n[+]caches ok\n", ""))
    assert text(found, "livez") == (True, "ok")
    lacking[0] = None
    assert text(found, "readyz") == (True, "ok")


def test_a_heart_that_stands_still_is_noticed() -> None:
    clock = Clock(100.0)
    heart = Heart(clock)
    clock.now += LATE_SECONDS
    assert heart.check() is None
    clock.now += 1
    assert "16 s" in (heart.check() or "")
    heart.beat()
    assert heart.check() is None
