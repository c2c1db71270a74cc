"""The page that Prometheus scrapes in benchmarks: its numbers have to be what the scene says they are."""

import re

import pytest

from lab.benchmarks import scene
from lab.benchmarks.prometheus_page import IN_FLIGHT_SECONDS, UNEVEN, WAVE, Page, requests_per_second

SERVICE = scene.services(3, 60, 1)[2]
BEGAN = 1_000_000.0


def values(at: float, name: str) -> list[float]:
    text = Page([SERVICE], BEGAN).text(at).decode()
    return [float(found) for found in re.findall(rf"^{name}\{{.*\}} (\S+)$", text, re.MULTILINE)]


@pytest.mark.parametrize("later", [60, 450, 1234])
def test_the_counters_rise_by_the_load_of_the_service(later: float) -> None:
    before, after = (sum(values(BEGAN + at, "http_requests_total")) for at in (later, later + 60))
    wanted = len(SERVICE.pod_names) * requests_per_second(SERVICE)
    assert (after - before) / 60 == pytest.approx(wanted, rel=WAVE + UNEVEN / 10)


def test_the_gauge_is_the_slope_of_the_counter() -> None:
    slope = (sum(values(BEGAN + 301, "http_requests_total")) - sum(values(BEGAN + 299, "http_requests_total"))) / 2
    assert sum(values(BEGAN + 300, "http_requests_in_flight")) == pytest.approx(slope * IN_FLIGHT_SECONDS, rel=0.01)


def test_the_page_says_when_it_was_written() -> None:
    assert values(BEGAN + 12.5, "sample_time_seconds") == [BEGAN + 12.5]
