"""Decoding responses of /api/v1/query: vectors of any size, scalars, errors and malformed bodies."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.runtime.answer_budget import Body
from adapter.runtime.concurrency import Slices
from adapter.runtime.source_errors import QueryRejected, SourceError, SourceFailing, WrongAnswer
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


def refusal(kind: str, error: str = "no") -> bytes:
    return json.dumps({"status": "error", "errorType": kind, "error": error}).encode()


async def read(raw: bytes) -> list[PlainSample]:
    found: list[Sample] = []
    await read_samples(Body(raw), found.extend, Slices())
    return plain(found)


INDENTED = json.dumps(json.loads(body([series({"pod": "a"})] * 2)), indent=4).encode()


class TestVectors:
    @pytest.mark.parametrize(
        ("answer", "samples"),
        [
            pytest.param(body([series({"pod": "a"}, "NaN")]), [PlainSample({"pod": "a"}, AT, "NaN")], id="a vector"),
            pytest.param(body([]), [], id="an empty vector"),
            pytest.param(INDENTED, [PlainSample({"pod": "a"}, AT, "1")] * 2, id="whitespace"),
            pytest.param(body([AT, "5"], "scalar"), [PlainSample({}, AT, "5")], id="a scalar"),
            pytest.param(body([series({})], infos=["it might be no counter"]), [PlainSample({}, AT, "1")], id="infos"),
        ],
    )
    async def test_an_answer_is_labels_times_and_values_as_text(
        self, answer: bytes, samples: list[PlainSample]
    ) -> None:
        assert await read(answer) == samples

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


class TestRefusals:
    @pytest.mark.parametrize("count", [1, 3000])
    async def test_a_warning_is_an_error(self, count: int) -> None:
        """A store behind a querier that did not answer is only a warning, and its pods are simply not there."""
        many = [series({"pod": f"web-{n}"}) for n in range(count)]
        with pytest.raises(SourceFailing, match="warning: fetch series from store x: deadline"):
            await read(body(many, warnings=["fetch series from store x: deadline"]))

    @pytest.mark.parametrize(
        ("raw", "kind", "message"),
        [
            (
                refusal("bad_data", "parse error: unexpected end"),
                QueryRejected,
                "bad_data: parse error: unexpected end",
            ),
            *((refusal(kind), SourceFailing, kind) for kind in ("timeout", "internal", "unavailable", "canceled")),
            *((body([], kind), QueryRejected, f"answers a {kind}") for kind in ("matrix", "string", "streams")),
            (
                body([{"metric": {}, "histogram": [AT, {"count": "1", "sum": "2"}]}]),
                QueryRejected,
                "histogram_quantile",
            ),
            pytest.param(
                b"<html>\n  <body>Sign in" + b"x" * 5000, WrongAnswer, "<html> <body>Sign in", id="a page, on one line"
            ),
        ],
    )
    async def test_what_is_no_vector_is_a_fault_of_the_query_or_of_the_server(
        self, raw: bytes, kind: type[SourceError], message: str
    ) -> None:
        with pytest.raises(SourceError, match=message) as caught:
            await read(raw)
        assert type(caught.value) is kind

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"[]",
            b'{"status":"success"}',
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":["1","1"]}]}}',
            b'{"status":"success","data":{"resultType":"scalar","result":[]}}',
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},',
            body([series({"pod": f"web-{n}"}) for n in range(3000)])[:-20],
        ],
    )
    async def test_a_malformed_body_is_an_error(self, raw: bytes) -> None:
        with pytest.raises((WrongAnswer, QueryRejected)):
            await read(raw)


@pytest.mark.parametrize(
    ("statuses", "kind"), [((429, 500, 502, 503, 504), SourceFailing), ((400, 401, 403, 404, 405), QueryRejected)]
)
def test_a_status_is_a_fault_of_the_server_or_of_the_query(statuses: tuple[int, ...], kind: type[SourceError]) -> None:
    for status in statuses:
        error = error_from_response(status, b"upstream down")
        assert type(error) is kind
        assert f"HTTP {status}" in str(error)
        assert "upstream down" in str(error)


@pytest.mark.parametrize("labels", ['{"a":1}', "[]", '"pod"', "null"])
async def test_labels_that_are_none_are_an_error_where_they_are_read(labels: str) -> None:
    whole = Body(
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":%b,"value":[1,"1"]}]}}'
        % labels.encode()
    )
    vector = Vector(SeriesTable("namespace", "pod"))
    with pytest.raises(WrongAnswer, match="not what Prometheus answers"):
        await read_samples(whole, vector.add, Slices())
