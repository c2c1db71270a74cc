"""Decoding responses of /api/v1/query: vectors, partial answers, errors and malformed bodies."""

import json
from typing import Any

import pytest

from adapter.runtime.source_errors import QueryRejected, SourceError, SourceFailing, WrongAnswer
from adapter.usage.prometheus_api import decode_vector, error_from_response
from tests.usage.fakes import PlainSample, plain

AT = 1_767_268_800.25


def series(labels: dict[str, str], value: str = "1", at: float = AT) -> dict[str, Any]:
    return {"metric": labels, "value": [at, value]}


def body(result: Any, kind: str = "vector", **more: Any) -> bytes:
    whole = {"status": "success", "data": {"resultType": kind, "result": result}, **more}
    return json.dumps(whole, separators=(",", ":")).encode()


def refusal(kind: str, error: str = "no") -> bytes:
    return json.dumps({"status": "error", "errorType": kind, "error": error}).encode()


def read(raw: bytes) -> list[PlainSample]:
    return plain(decode_vector(raw))


INDENTED = json.dumps(json.loads(body([series({"pod": "a"})] * 2)), indent=4).encode()


class TestVectors:
    @pytest.mark.parametrize(
        ("answer", "samples"),
        [
            pytest.param(body([series({"pod": "a"}, "NaN")]), [PlainSample({"pod": "a"}, AT, "NaN")], id="a vector"),
            pytest.param(body([]), [], id="an empty vector"),
            pytest.param(INDENTED, [PlainSample({"pod": "a"}, AT, "1")] * 2, id="whitespace"),
            pytest.param(body([series({})], infos=["it might be no counter"]), [PlainSample({}, AT, "1")], id="infos"),
        ],
    )
    def test_an_answer_is_labels_times_and_values_as_text(self, answer: bytes, samples: list[PlainSample]) -> None:
        assert read(answer) == samples


class TestRefusals:
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

    def test_a_whole_answer_of_victoriametrics_is_read(self) -> None:
        assert len(read(body([series({})], isPartial=False))) == 1

    @pytest.mark.parametrize(
        ("raw", "kind", "message"),
        [
            (
                refusal("bad_data", "parse error: unexpected end"),
                QueryRejected,
                "bad_data: parse error: unexpected end",
            ),
            *((refusal(kind), SourceFailing, kind) for kind in ("timeout", "internal", "unavailable", "canceled")),
            *(
                (body([], kind), QueryRejected, f"answers a {kind}")
                for kind in ("matrix", "string", "streams", "scalar")
            ),
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
    def test_what_is_no_vector_is_a_fault_of_the_query_or_of_the_server(
        self, raw: bytes, kind: type[SourceError], message: str
    ) -> None:
        with pytest.raises(SourceError, match=message) as caught:
            read(raw)
        assert type(caught.value) is kind

    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"[]",
            b'{"status":"success"}',
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":["1","1"]}]}}',
            b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},',
            body([series({"pod": f"web-{n}"}) for n in range(3000)])[:-20],
        ],
    )
    def test_a_malformed_body_is_an_error(self, raw: bytes) -> None:
        with pytest.raises((WrongAnswer, QueryRejected)):
            read(raw)


@pytest.mark.parametrize(
    ("statuses", "kind"), [((429, 500, 502, 503, 504), SourceFailing), ((400, 401, 403, 404, 405), QueryRejected)]
)
def test_a_status_is_a_fault_of_the_server_or_of_the_query(statuses: tuple[int, ...], kind: type[SourceError]) -> None:
    for status in statuses:
        error = error_from_response(status, b"upstream down")
        assert type(error) is kind
        assert f"HTTP {status}" in str(error)
        assert "upstream down" in str(error)
