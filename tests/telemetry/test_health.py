"""Health endpoints."""

import asyncio

import pytest

from adapter.telemetry.health import LATE_SECONDS, Health, HealthAnswer, Heartbeat
from tests.apiserver.conftest import Clock

ILL = "the pods' watch is silent"


def health(sentence: str | None = None) -> Health:
    return Health({"ping": lambda: None}, {"caches": lambda: sentence})


def test_healthy_is_a_plain_ok() -> None:
    for endpoint in ("livez", "readyz", "healthz"):
        assert health().answer(f"/{endpoint}") == (200, "ok")


def test_a_failed_readiness_check_shows_its_reason_and_livez_passes() -> None:
    text = f"[+]ping ok\n[-]caches failed: {ILL}\nreadyz check failed\n"
    assert health(ILL).answer("/readyz") == (500, text)
    assert health(ILL).answer("/livez") == (200, "ok")
    assert health(ILL).answer("/healthz") == (200, "ok")


def test_a_failure_that_is_to_be_reported_has_status_200() -> None:
    text = f"[+]ping ok\n[-]caches failed: {ILL}\nreadyz check failed\n"
    assert health(ILL).answer("/readyz?verbose=&report=") == (200, text)


def test_verbose_lists_every_check() -> None:
    assert health().answer("/readyz?verbose") == (200, "[+]ping ok\n[+]caches ok\nreadyz check passed\n")


def test_a_single_check_can_be_asked_for() -> None:
    assert health(ILL).answer("/readyz/ping") == (200, "ok")
    assert health(ILL).answer("/readyz/caches") == (500, f"[-]caches failed: {ILL}\nreadyz check failed\n")
    assert health().answer("/livez/caches") is None


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
    text = f"[+]ping ok\n[+]watches ok\n[!]watches: {warning}\nreadyz check passed\n"
    assert health.answer("/readyz") == HealthAnswer(200, text)
    assert health.answer("/livez") == HealthAnswer(200, "ok")


def test_a_failed_check_is_not_listed_as_a_warning_too() -> None:
    health = Health({}, {"watches": lambda: "no life"}, {"watches": lambda: "no life"})
    assert health.answer("/readyz") == (500, "[-]watches failed: no life\nreadyz check failed\n")


def _well() -> None:
    return None


def test_a_failed_check_is_logged_once_a_minute_and_when_it_fails_again(capsys: pytest.CaptureFixture[str]) -> None:
    clock, failing = Clock(0.0), [ILL]
    checked = Health({}, {"caches": lambda: failing[0] if failing else None}, clock=clock)

    def logged() -> int:
        checked.answer("/readyz")
        return capsys.readouterr().out.count("health_check_failed")

    assert [logged(), logged()] == [1, 0]
    clock.now += 60
    assert logged() == 1
    failing.clear()
    assert logged() == 0
    failing.append(ILL)
    assert logged() == 1
