"""Texts and addresses of sources are for operators: policies and clients see only the kind of fault."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from aiohttp import web

from adapter.kube.errors import ApiStatusError, KubeError, error_from_answer
from adapter.kube.scale import ScaleReader
from adapter.load.spec import Query
from adapter.registries.follow import RegistryManager, probe
from adapter.registries.source import Claim, ServiceKey
from adapter.runtime.source_errors import SourceError, without_user
from adapter.settings import ResourceMetricsSettings as Options
from adapter.telemetry.metrics import Metrics
from adapter.usage.prometheus import Prometheus
from adapter.usage.query_catalog import WorkloadQuery
from adapter.usage.resource_metrics import ResourceMetrics
from tests.kube.fake import Answer, session_to
from tests.registries.kit import HTTP_TYPES, SETTINGS, TYPES, served
from tests.usage.fakes import FakePrometheus, named

INSIDE = "customer=4711 at db-7.internal.example"
KEY = ServiceKey("main", "shop")


def answering(status: int, body: str) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=status, text=body)

    return answer


@asynccontextmanager
async def running(work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Runs this beside the block, which has 20 seconds."""
    task = asyncio.create_task(work)
    try:
        async with asyncio.timeout(20):
            yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def is_public(sentence: str, url: str = "127.0.0.1") -> bool:
    return bool(sentence) and all(one not in sentence for one in (url, "127.0.0.1", "4711", "internal.example", "/api"))


class TestPrometheus:
    @pytest.mark.parametrize(
        ("status", "body", "kind"),
        [
            (503, INSIDE, "HTTP 503"),
            (422, json.dumps({"status": "error", "errorType": "execution", "error": INSIDE}), "HTTP 422: the query"),
            (200, f"<html>{INSIDE}", "the answer is not what is expected"),
            (
                200,
                json.dumps({"status": "success", "data": {"resultType": INSIDE, "result": []}}),
                "not answer a vector",
            ),
            (302, INSIDE, "HTTP 302"),
        ],
    )
    async def test_a_sources_text_and_address_are_in_the_log_and_not_in_the_policy(
        self, status: int, body: str, kind: str
    ) -> None:
        async with FakePrometheus() as fake:

            async def handler(_request: web.Request, _form: dict[str, str]) -> web.StreamResponse:
                return web.Response(status=status, text=body)

            fake.handler = handler
            sentence, logged = await self.ask(fake)
            assert fake.url in str(logged)
        assert is_public(sentence)
        assert sentence.startswith("Prometheus main: ")
        assert kind in sentence
        if status in {503, 422}:
            assert INSIDE in str(logged)

    async def ask(self, fake: FakePrometheus) -> tuple[str, list[Any]]:
        changed = asyncio.Event()
        source = Prometheus(
            [fake.settings()],
            [named("load", "x")],
            inline_allowed=False,
            on_change=lambda _: changed.set(),
            clock=time.time,
            metrics=Metrics(),
        )
        query = Query(name="load")
        source.set_queries([WorkloadQuery(query, "shop", "web")])
        with structlog.testing.capture_logs() as logged:
            async with running(source.run()):
                await changed.wait()
                sentence = source.samples(query, "shop", "web").error or ""
                (series,) = source.named_results()
        assert is_public(series.error or ""), "as the metrics API answers it"
        return sentence, [dict(one) for one in logged]


class TestRegistries:
    @pytest.mark.parametrize("kind", HTTP_TYPES)
    @pytest.mark.parametrize(("status", "body"), [(503, INSIDE), (200, f"<html>{INSIDE}"), (401, INSIDE), (302, "")])
    async def test_a_policy_shows_the_kind_of_fault_and_check_shows_the_address(
        self, kind: str, status: int, body: str
    ) -> None:
        async with served(answering(status, body)) as url:
            await self.told(kind, url)

    @pytest.mark.parametrize("kind", sorted(TYPES))
    async def test_a_missing_server_is_named_by_check_with_the_settings_and_not_by_the_policy(self, kind: str) -> None:
        setting = "url" if kind == "HTTP" else "servers"
        assert f"(settings: `{setting}`" in await self.told(kind, "http://127.0.0.1:1")

    async def told(self, kind: str, url: str) -> str:
        """What `check` says of the registry; of it the policy's instance list must carry only what is public."""
        address = url.removeprefix("http://") if kind == "ZooKeeper" else url
        place = {"url": url} if kind == "HTTP" else {"servers": [address]}
        place |= {"layout": "Curator"} if kind == "ZooKeeper" else {}
        settings = SETTINGS.validate_python({"name": "main", "type": kind, "timeout_seconds": 1, **place})
        [found] = await probe(settings, [KEY])
        trouble, changed = found.troubles[KEY], asyncio.Event()
        assert address in trouble.sentence
        registries = RegistryManager([settings], lambda _: changed.set(), time.time, Metrics())
        registries.watch([Claim("shop", ("2026",), KEY)])
        async with running(registries.run()):
            await changed.wait()
            listed = registries.instances(KEY)
        assert listed is not None
        for public in (trouble.public, listed.error or ""):
            assert is_public(public, address), public
        return trouble.sentence


class TestApiServer:
    async def test_the_text_of_an_aggregated_server_is_not_in_errors_of_samples(self) -> None:
        status = {"kind": "Status", "code": 503, "reason": "ServiceUnavailable", "message": f"dial tcp {INSIDE}"}
        changed = asyncio.Event()
        async with served(answering(503, json.dumps(status))) as url, session_to(url) as session:
            usage = ResourceMetrics(session, lambda: ["shop"], Options(), lambda _: changed.set(), Metrics())
            with structlog.testing.capture_logs() as logged:
                async with running(usage.run()):
                    await changed.wait()
            with pytest.raises(KubeError) as caught:
                await ScaleReader(session).read("/apis/apps/v1/x/scale", None, None)
        assert usage.samples("shop").error == "503 ServiceUnavailable (no answer so far)"
        assert INSIDE in str(logged)
        assert "503 ServiceUnavailable" in caught.value.public
        assert is_public(caught.value.public)

    @pytest.mark.parametrize("reason", [INSIDE, "", "a" * 100])
    def test_a_reason_that_is_not_one_word_is_not_repeated(self, reason: str) -> None:
        error = error_from_answer(502, json.dumps({"kind": "Status", "reason": reason, "message": INSIDE}).encode())
        assert isinstance(error, ApiStatusError)
        assert error.public in {"HTTP 502", "502 ServerError"}


class TestUsersInAddresses:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("cannot reach http://me:hush@host:80/a", "cannot reach http://host:80/a"),
            ("https://me:hu@sh@host, http://hush@b", "https://host, http://b"),
            ("mail me@host", "mail me@host"),
            ("http://host/a@b", "http://host/a@b"),
        ],
    )
    def test_no_error_shows_credentials_of_an_address(self, text: str, shown: str) -> None:
        assert without_user(text) == shown
        assert str(SourceError(text)) == shown
