"""Health endpoints."""

import asyncio

import pytest

from adapter.telemetry.health import LATE_SECONDS, Health, HealthReport, Heartbeat, Probe
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
    assert health().probe("/readyz?verbose=&report=") == Probe(("readyz",), verbose=True, reported=True)


async def test_a_stalled_event_loop_fails_the_heartbeat() -> None:
    clock = Clock(100.0)
    heart = Heartbeat(clock)
    clock.now += LATE_SECONDS
    assert heart.check() is None
    clock.now += 1
    assert "16 s" in (heart.check() or "")
    beating = asyncio.create_task(heart.run())
    await asyncio.sleep(0)
    assert heart.check() is None
    beating.cancel()


def test_a_warning_is_shown_by_readyz_and_fails_nothing() -> None:
    warning = "the watch of pods in namespace shop has shown no life"
    health = Health({"ping": _well}, {"watches": _well}, {"watches": lambda: warning})
    report = health.report(("readyz",), verbose=False)
    assert report == HealthReport(
        healthy=True,
        text=f"[+]ping ok\n[+]watches ok\n[!]watches: {warning}\nreadyz check passed\n",
    )
    assert health.report(("livez",), verbose=False) == HealthReport(healthy=True, text="ok")


def test_a_failed_check_is_not_listed_as_a_warning_too() -> None:
    health = Health({}, {"watches": lambda: "no life"}, {"watches": lambda: "no life"})
    report = health.report(("readyz",), verbose=False)
    assert (report.healthy, report.text) == (False, "[-]watches failed: no life\nreadyz check failed\n")


def _well() -> None:
    return None


def test_a_failed_check_is_logged_once_a_minute_and_when_it_fails_again(capsys: pytest.CaptureFixture[str]) -> None:
    clock, failing = Clock(0.0), [ILL]
    checked = Health({}, {"caches": lambda: failing[0] if failing else None}, clock=clock)

    def logged() -> int:
        checked.report(("readyz",), verbose=False)
        return capsys.readouterr().out.count("health_check_failed")

    assert [logged(), logged()] == [1, 0]
    clock.now += 60
    assert logged() == 1
    failing.clear()
    assert logged() == 0
    failing.append(ILL)
    assert logged() == 1
