"""One Prometheus server over HTTP: what is sent, what an answer holds, and every way to answer badly."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from adapter.runtime.source_errors import QueryRejected, SourceError, SourceFailing, WrongAnswer
from adapter.settings import PrometheusServer
from adapter.usage.prometheus_api import VECTOR, PrometheusClient, decode_result
from tests.usage.fakes import FakePrometheus, Handler, PlainSample, always, plain, raw

AT = 1_767_268_800.25


@pytest.fixture
async def fake() -> AsyncIterator[FakePrometheus]:
    async with FakePrometheus() as prometheus:
        yield prometheus


async def query(settings: PrometheusServer, text: str = "x", **more: Any) -> list[PlainSample]:
    server = PrometheusClient(settings)
    try:
        return plain(await server.query(text, **{"max_age": 90, **more}))
    finally:
        await server.close()


async def failure(fake: FakePrometheus, handler: Handler, **more: Any) -> SourceError:
    fake.handler = handler
    with pytest.raises(SourceError) as caught:
        await query(fake.settings(**more))
    return caught.value


def series(labels: dict[str, str], value: str = "1", at: float = AT) -> dict[str, Any]:
    return {"metric": labels, "value": [at, value]}


def body(result: Any, kind: str = "vector", **more: Any) -> bytes:
    whole = {"status": "success", "data": {"resultType": kind, "result": result}, **more}
    return json.dumps(whole, separators=(",", ":")).encode()


def refusal(kind: str, error: str = "no") -> bytes:
    return json.dumps({"status": "error", "errorType": kind, "error": error}).encode()


def read(raw: bytes) -> list[PlainSample]:
    return plain(decode_result(raw, "vector", VECTOR))


class TestAsking:
    async def test_a_query_is_a_form_posted_to_the_instant_query_path(self, fake: FakePrometheus) -> None:
        settings = fake.settings(timeout_seconds=4, headers={"X-Scope-OrgID": "tenant-a"})
        await query(settings, 'sum(x{a="ü&b"})', at=1_767_268_800.1239)
        [request] = fake.requests
        assert (request.method, request.path) == ("POST", "/api/v1/query")
        assert request.headers["X-Scope-OrgID"] == "tenant-a"
        assert "Authorization" not in request.headers
        assert fake.asked == [
            {"query": 'sum(x{a="ü&b"})', "lookback_delta": "90.000", "timeout": "4.000", "time": "1767268800.124"}
        ]

    @pytest.mark.parametrize("prefix", ["", "/", "/prometheus/"])
    async def test_a_path_prefix_is_kept(self, fake: FakePrometheus, prefix: str) -> None:
        await query(PrometheusServer(name="main", url=fake.url + prefix))
        assert fake.requests[0].path == prefix.rstrip("/") + "/api/v1/query"


class TestAnswers:
    @pytest.mark.parametrize(
        ("answer", "samples"),
        [
            pytest.param(body([series({"pod": "a"}, "NaN")]), [PlainSample({"pod": "a"}, AT, "NaN")], id="a vector"),
            pytest.param(body([]), [], id="an empty vector"),
            pytest.param(
                json.dumps(json.loads(body([series({"pod": "a"})] * 2)), indent=4).encode(),
                [PlainSample({"pod": "a"}, AT, "1")] * 2,
                id="whitespace",
            ),
            pytest.param(body([series({})], infos=["it might be no counter"]), [PlainSample({}, AT, "1")], id="infos"),
            pytest.param(body([series({})], isPartial=False), [PlainSample({}, AT, "1")], id="VictoriaMetrics"),
        ],
    )
    def test_an_answer_is_labels_times_and_values_as_text(self, answer: bytes, samples: list[PlainSample]) -> None:
        assert read(answer) == samples

    @pytest.mark.parametrize(
        ("more", "message", "public"),
        [
            ({"warnings": ["fetch series from store x: deadline"]}, "warning: fetch series from store x", "a warning"),
            pytest.param({"isPartial": True}, "isPartial", "isPartial", id="VictoriaMetrics"),
        ],
    )
    def test_a_partial_answer_is_an_error(self, more: dict[str, Any], message: str, public: str) -> None:
        """A store behind a querier that did not answer is only a note, and its pods are simply not there."""
        with pytest.raises(SourceFailing, match=message) as caught:
            read(body([series({"pod": "web-0"})], **more))
        assert caught.value.public == f"answers with {public}, so a part of the answer may be missing"

    @pytest.mark.parametrize(
        ("raw", "kind", "message"),
        [
            (refusal("bad_data", "parse error"), QueryRejected, "bad_data: parse error"),
            *((refusal(kind), SourceFailing, kind) for kind in ("timeout", "internal", "unavailable", "canceled")),
            *((body([], kind), QueryRejected, "not answer a vector") for kind in ("matrix", "string", "scalar")),
            (b"<html>\n  <body>Sign in" + b"x" * 5000, WrongAnswer, "<html> <body>Sign in"),
            (b"", WrongAnswer, "not that of Prometheus"),
            (b"[]", WrongAnswer, "not that of Prometheus"),
            (b'{"status":"success"}', QueryRejected, "no message"),
            (body([{"metric": {}, "value": ["1", "1"]}]), WrongAnswer, "not that of Prometheus"),
            (body([series({"pod": f"web-{n}"}) for n in range(3000)])[:-20], WrongAnswer, "not that of Prometheus"),
        ],
    )
    def test_what_is_no_vector_is_a_fault_of_the_query_or_of_the_server(
        self, raw: bytes, kind: type[SourceError], message: str
    ) -> None:
        with pytest.raises(SourceError, match=message) as caught:
            read(raw)
        assert type(caught.value) is kind


class TestFaults:
    async def test_a_body_that_is_not_packed_as_it_says_is_an_error(self, fake: FakePrometheus) -> None:
        headers = {"Content-Encoding": "gzip"}
        await failure(fake, always(lambda: web.Response(body=b"not gzip at all", headers=headers)))

    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            *((status, SourceFailing) for status in (429, 500, 502, 503, 504)),
            *((status, QueryRejected) for status in (400, 401, 403, 404, 405, 422)),
        ],
    )
    async def test_a_status_is_a_fault_of_the_server_or_of_the_query(
        self, fake: FakePrometheus, status: int, kind: type[SourceError]
    ) -> None:
        answers = {
            "execution: too many samples": always(
                lambda: raw(json.loads(refusal("execution", "too many samples")), status)
            ),
            "upstream down": always(lambda: web.Response(status=status, text="upstream down")),
        }
        for message, answer in answers.items():
            error = await failure(fake, answer)
            assert type(error) is kind
            assert str(error) == f"{fake.url}/api/v1/query: HTTP {status}: {message}"
