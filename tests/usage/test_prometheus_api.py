"""Decoding responses of /api/v1/query: vectors of any size, scalars, errors and malformed bodies."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.runtime.answer_budget import Body
from adapter.runtime.concurrency import Slices
from adapter.runtime.source_errors import QueryRejected, SourceFailing, WrongAnswer
from adapter.usage.prometheus_api import Sample, error_from_response, read_samples
from adapter.usage.query_results import Vector
from adapter.usage.series import SeriesTable
from tests.usage.fakes import PlainSample, plain

AT = 1_767_268_800.25
LABELS = st.dictionaries(
    st.sampled_from(["namespace", "pod", "a"]), st.text(max_size=8) | st.just(']}],"x":[{"metric":')
)


def series(labels: dict[str, str], value: str = "1", at: float = AT) -> dict[str, Any]:
    return {"metric": labels, "value": [at, value]}


def body(result: Any, kind: str = "vector", **more: Any) -> bytes:
    whole = {"status": "success", "data": {"resultType": kind, "result": result}, **more}
    return json.dumps(whole, separators=(",", ":")).encode()


async def read(raw: bytes) -> list[PlainSample]:
    found: list[Sample] = []
    await read_samples(Body(raw), found.extend, Slices())
    return plain(found)


class TestVectors:
    async def test_a_vector_is_labels_time_and_the_value_as_text(self) -> None:
        assert await read(body([series({"pod": "a"}, "NaN")])) == [PlainSample({"pod": "a"}, AT, "NaN")]

    async def test_an_empty_vector_is_no_sample(self) -> None:
        assert await read(body([])) == []

    async def test_a_scalar_is_one_sample_without_labels(self) -> None:
        assert await read(body([AT, "5"], "scalar")) == [PlainSample({}, AT, "5")]

    async def test_whitespace_in_the_json_is_ignored(self) -> None:
        raw = json.dumps(json.loads(body([series({"pod": "a"})] * 2)), indent=4).encode()
        assert len(await read(raw)) == 2

    @pytest.mark.parametrize("note", ["PromQL info", "]}]", 'a "]}]} b', ']}],"warnings":["x"]'])
    async def test_a_large_answer_is_read_to_the_last_series_whatever_follows(self, note: str) -> None:
        many = [series({"namespace": "shop", "pod": f"web-{number}"}, str(number)) for number in range(3000)]
        found = await read(body(many, infos=[note]))
        assert [sample.value for sample in found] == [str(number) for number in range(3000)]

    @settings(max_examples=30)
    @given(st.lists(LABELS, min_size=1, max_size=6))
    async def test_large_and_small_answers_read_the_same(self, some: list[dict[str, str]]) -> None:
        many = [series(labels, str(index)) for index, labels in enumerate(some * 400)]
        assert [sample.labels for sample in await read(body(many))] == some * 400

    async def test_infos_are_no_error(self) -> None:
        assert len(await read(body([series({})], infos=["PromQL info: metric might not be a counter"]))) == 1


class TestRefusals:
    async def test_a_warning_is_an_error(self) -> None:
        """A store behind a querier that did not answer is only a warning, and its pods are simply not there."""
        with pytest.raises(SourceFailing, match="warning: fetch series from store x: deadline"):
            await read(body([series({})], warnings=["fetch series from store x: deadline"]))

    async def test_a_warning_after_a_large_vector_is_an_error(self) -> None:
        with pytest.raises(SourceFailing, match="partial"):
            await read(body([series({"pod": f"web-{n}"}) for n in range(3000)], warnings=["partial"]))

    async def test_a_rejected_query_says_why(self) -> None:
        raw = json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error: unexpected end"}).encode()
        with pytest.raises(QueryRejected, match="bad_data: parse error: unexpected end"):
            await read(raw)

    @pytest.mark.parametrize("kind", ["timeout", "internal", "unavailable", "canceled"])
    async def test_errors_of_the_server_are_not_faults_of_the_query(self, kind: str) -> None:
        with pytest.raises(SourceFailing):
            await read(json.dumps({"status": "error", "errorType": kind, "error": "no"}).encode())

    @pytest.mark.parametrize("kind", ["matrix", "string", "streams"])
    async def test_other_result_types_are_rejected(self, kind: str) -> None:
        with pytest.raises(QueryRejected, match=f"answers a {kind}"):
            await read(body([], kind))

    async def test_a_native_histogram_is_rejected(self) -> None:
        with pytest.raises(QueryRejected, match="histogram_quantile"):
            await read(body([{"metric": {}, "histogram": [AT, {"count": "1", "sum": "2"}]}]))

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"<html><body>Sign in</body></html>",
            b"[]",
            b'{"status":"success"}',
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":["1","1"]}]}}',
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,1]}]}}',
            b'{"status":"success","data":{"resultType":"vector","result":{}}}',
            b'{"status":"success","data":{"resultType":"scalar","result":[]}}',
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},',
            body([series({"pod": f"web-{n}"}) for n in range(3000)])[:-20],
        ],
    )
    async def test_a_malformed_body_is_an_error(self, raw: bytes) -> None:
        with pytest.raises((WrongAnswer, QueryRejected)):
            await read(raw)

    async def test_an_html_page_is_quoted_on_one_line(self) -> None:
        with pytest.raises(WrongAnswer, match="<html> <body>Sign in"):
            await read(b"<html>\n  <body>Sign in" + b"x" * 5000)


class TestStatus:
    def test_the_message_of_prometheus_is_kept(self) -> None:
        error = error_from_response(
            422, b'{"status":"error","errorType":"execution","error":"many-to-many matching not allowed"}'
        )
        assert isinstance(error, QueryRejected)
        assert str(error) == "HTTP 422: execution: many-to-many matching not allowed"

    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    def test_statuses_that_are_faults_of_the_server(self, status: int) -> None:
        assert isinstance(error_from_response(status, b"upstream down"), SourceFailing)
        assert "upstream down" in str(error_from_response(status, b"upstream down"))

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 405])
    def test_statuses_that_are_faults_of_the_query(self, status: int) -> None:
        assert isinstance(error_from_response(status, b""), QueryRejected)
        assert f"HTTP {status}" in str(error_from_response(status, b""))

    def test_a_redirect_is_not_followed_but_named(self) -> None:
        assert "redirect" in str(error_from_response(302, b"<a href='/login'>"))


@pytest.mark.parametrize("labels", ['{"a":1}', "[]", '"pod"', "null"])
async def test_labels_that_are_none_are_an_error_where_they_are_read(labels: str) -> None:
    whole = Body(
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":%b,"value":[1,"1"]}]}}'
        % labels.encode()
    )
    vector = Vector(SeriesTable("namespace", "pod"))
    with pytest.raises(WrongAnswer, match="not what Prometheus answers"):
        await read_samples(whole, vector.add, Slices())
