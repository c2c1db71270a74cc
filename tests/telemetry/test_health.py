"""Health endpoints."""

import asyncio

import pytest

from adapter.telemetry.health import LATE_SECONDS, Health, HealthAnswer, Heartbeat
from tests.kube.conftest import Clock

ILL = "the pods' watch is silent"


def health(sentence: str | None = None) -> Health:
    return Health({"ping": lambda: None}, {"caches": lambda: sentence})


FAILED = f"[+]ping ok\n[-]caches failed: {ILL}\nreadyz check failed\n"


@pytest.mark.parametrize(
    ("sentence", "path", "answer"),
    [
        *((None, path, (200, "ok")) for path in ("/livez", "/readyz", "/healthz")),
        (None, "/readyz?verbose", (200, "[+]ping ok\n[+]caches ok\nreadyz check passed\n")),
        (ILL, "/readyz", (500, FAILED)),
        pytest.param(ILL, "/readyz?verbose=&report=", (200, FAILED), id="a failure that is only reported"),
        *((ILL, path, (200, "ok")) for path in ("/livez", "/healthz", "/readyz/ping")),
        (ILL, "/readyz/caches", (500, f"[-]caches failed: {ILL}\nreadyz check failed\n")),
        pytest.param(None, "/livez/caches", None, id="a check that is none of the endpoint's"),
    ],
)
def test_an_endpoint_says_ok_or_each_of_its_checks(
    sentence: str | None, path: str, answer: tuple[int, str] | None
) -> None:
    assert health(sentence).answer(path) == answer


async def test_a_stalled_event_loop_fails_the_heartbeat() -> None:
    clock = Clock()
    heart = Heartbeat(lambda: clock.monotonic)
    clock.pass_(LATE_SECONDS)
    assert heart.check() is None
    clock.pass_(1)
    assert "16 s" in (heart.check() or "")
    beating = asyncio.create_task(heart.run())
    await asyncio.sleep(0)
    assert heart.check() is None
    beating.cancel()


def test_a_warning_is_shown_by_readyz_and_fails_nothing() -> None:
    warning = "the watch of pods in namespace shop has shown no life"
    health = Health({"ping": lambda: None}, {"watches": lambda: None}, {"watches": lambda: warning})
    text = f"[+]ping ok\n[+]watches ok\n[!]watches: {warning}\nreadyz check passed\n"
    assert health.answer("/readyz") == HealthAnswer(200, text)
    assert health.answer("/livez") == HealthAnswer(200, "ok")


def test_a_failed_check_is_logged_once_a_minute_and_when_it_fails_again(capsys: pytest.CaptureFixture[str]) -> None:
    clock, failing = Clock(), [ILL]
    checked = Health({}, {"caches": lambda: failing[0] if failing else None}, clock=lambda: clock.monotonic)

    def logged() -> int:
        checked.answer("/readyz")
        return capsys.readouterr().out.count("health_check_failed")

    assert [logged(), logged()] == [1, 0]
    clock.pass_(60)
    assert logged() == 1
    failing.clear()
    assert logged() == 0
    failing.append(ILL)
    assert logged() == 1
