"""Whether the Prometheus servers of the settings answer, and what to do where they do not."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.commands.check.sources import check_prometheus
from adapter.settings import PrometheusServer
from tests.usage import fakes


class FakePrometheus:
    """Answers every query with one number; `ahead` of its clock in seconds, or a `refusal`."""

    def __init__(self) -> None:
        self.ahead, self.refusal = 0.0, (200, "")
        self.asked = 0

    async def answer(self, _request: web.Request) -> web.StreamResponse:
        self.asked += 1
        code, text = self.refusal
        return web.Response(status=code, text=text) if text else fakes.vector(({}, "1"), at=time.time() + self.ahead)


@pytest.fixture
async def prometheus() -> AsyncIterator[tuple[FakePrometheus, PrometheusServer]]:
    fake, app = FakePrometheus(), web.Application()
    app.router.add_route("*", "/api/v1/query", fake.answer)
    server = TestServer(app)
    await server.start_server()
    yield fake, PrometheusServer(name="main", url=str(server.make_url("")).rstrip("/"), timeout_seconds=1)
    await server.close()


Prometheus = tuple[FakePrometheus, PrometheusServer]


async def asked(server: PrometheusServer, *, may_contact: bool = True) -> str:
    (found,) = await check_prometheus([server], time.time(), may_contact=may_contact)
    return f"{found.level.value}: {found}"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, " answers"),
        ({"refusal": (401, "no")}, "hold their counts; give the server username and passwordFile, or bearerTokenFile"),
        ({"refusal": (404, "no")}, "hold their counts; url needs the path under which its API is"),
        ({"refusal": (200, "<html>")}, "hold their counts; url leads to something else"),
        ({"ahead": 60.0}, "error: its clock is 60 s ahead of the one here, so samples seem old or new; set both"),
    ],
)
async def test_a_prometheus_server_says_whether_it_can_be_asked(
    prometheus: Prometheus, change: dict[str, Any], says: str
) -> None:
    for name, value in change.items():
        setattr(prometheus[0], name, value)
    found = await asked(prometheus[1])
    assert says in found
    assert found.startswith("error" if change else "ok")


async def test_a_server_that_is_away_is_an_error_with_its_remedy() -> None:
    found = await asked(PrometheusServer(name="main", url="http://127.0.0.1:1"))
    assert found.startswith("error: http://127.0.0.1:1 cannot be asked: ")
    assert "nothing listens there" in found


async def test_servers_of_the_clusters_settings_are_not_asked_from_here(prometheus: Prometheus) -> None:
    assert (await asked(prometheus[1], may_contact=False)).startswith("skipped: http://")
    assert not prometheus[0].asked
