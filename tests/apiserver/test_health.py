"""Health endpoints."""

from adapter.apiserver.health import LATE_SECONDS, Health, Heartbeat, Probe, Report
from tests.apiserver.conftest import Clock

ILL = "the pods' watch is silent"


def health(sentence: str | None = None) -> Health:
    return Health({"ping": lambda: None}, {"caches": lambda: sentence})


def text(found: Health, *segments: str, verbose: bool = False) -> tuple[bool, str]:
    report = found.report(segments, verbose=verbose)
    return report.healthy, report.text


def test_healthy_is_a_plain_ok() -> None:
    for endpoint in ("livez", "readyz", "healthz"):
        assert text(health(), endpoint) == (True, "ok")


def test_a_failed_readiness_check_shows_its_reason_and_livez_passes() -> None:
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
    assert health().probe("/readyz/caches") == Probe(("readyz", "caches"), verbose=False)
    assert health().probe("/livez/caches") is None


def test_a_stalled_event_loop_fails_the_heartbeat() -> None:
    clock = Clock(100.0)
    heart = Heartbeat(clock)
    clock.now += LATE_SECONDS
    assert heart.check() is None
    clock.now += 1
    assert "16 s" in (heart.check() or "")
    heart.beat()
    assert heart.check() is None


def test_a_warning_is_shown_by_readyz_and_fails_nothing() -> None:
    warning = "the watch of pods in namespace shop has shown no life"
    health = Health({"ping": _well}, {"watches": _well}, {"watches": lambda: warning})
    report = health.report(("readyz",), verbose=False)
    assert report == Report(
        healthy=True,
        text=f"[+]ping ok\n[+]watches ok\n[!]watches: {warning}\nreadyz check passed\n",
        public="[+]ping ok\n[+]watches ok\n[!]watches: reason withheld\nreadyz check passed\n",
    )
    assert health.report(("livez",), verbose=False) == Report(healthy=True, text="ok", public="ok")


def test_a_failed_check_is_not_listed_as_a_warning_too() -> None:
    health = Health({}, {"watches": lambda: "no life"}, {"watches": lambda: "no life"})
    report = health.report(("readyz",), verbose=False)
    assert (report.healthy, report.text) == (False, "[-]watches failed: no life\nreadyz check failed\n")


def _well() -> None:
    return None
