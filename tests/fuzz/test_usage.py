"""Faulty answers of Prometheus and metrics.k8s.io: samples, or an error with a message."""

import contextlib
import json
from collections.abc import Iterable

import msgspec
from hypothesis import strategies as st

from adapter.runtime.source_errors import SourceError
from adapter.usage import prometheus_api, promql, query_results, resource_metrics
from adapter.usage.promql import INPUT_LABEL, PromqlError, parse_inputs
from adapter.usage.query_catalog import InstantQuery
from tests.fuzz.kit import fuzz
from tests.fuzz.spoil import TEXTS, spoilt

PROMETHEUS = {
    "status": "success",
    "data": {
        "resultType": "vector",
        "result": [
            {"metric": {"namespace": "shop", "pod": "web-0"}, "value": [1700000000.123, "1.5"]},
            {"metric": {"namespace": "shop", "pod": "web-1"}, "value": [1700000000.123, "1e+06"]},
            {"metric": {"namespace": "shop", "pod": "web-0", INPUT_LABEL: "time0"}, "value": [1700000000.123, "17e8"]},
            {"metric": {"namespace": "shop", "pod": "web-1", INPUT_LABEL: "time0"}, "value": [1700000000.123, "17e8"]},
            {"metric": {"namespace": "shop", "pod": "web-1", INPUT_LABEL: "count0"}, "value": [1700000000.123, "20"]},
        ],
    },
    "errorType": "",
    "error": "",
    "warnings": None,
}
SCALAR = {"status": "success", "data": {"resultType": "scalar", "result": [1700000000.123, "1.5"]}}
PODS = {
    "kind": "PodMetricsList",
    "metadata": {},
    "items": [
        {
            "metadata": {"name": "web-0", "namespace": "shop"},
            "timestamp": "2026-01-01T12:00:00Z",
            "window": "15.021s",
            "containers": [{"name": "app", "usage": {"cpu": "12345678n", "memory": "120336Ki"}}],
        }
    ],
}
QUERY = 'sum by (namespace, pod) (rate(http_requests_total{namespace="$namespace"}[5m] offset 1m)) or vector(1)'


def prometheus(body: bytes) -> int:
    """The number of series in the decoded answer; 0 if it is refused with a message."""
    question = InstantQuery(server="main", text=QUERY, by_pod=True, inputs=parse_inputs(QUERY))
    try:
        read = query_results.Answer(question, prometheus_api.decode_vector(body), 1.7e9)
        read.ended()
        found = query_results.build_result(read, 1.7e9)
        found.of("shop", 90.0)
        return sum(map(len, found.series.values()))
    except SourceError as error:
        str(error)
        return 0
    finally:
        for status in (200, 302, 400, 429, 503):
            str(prometheus_api.error_from_response(status, body))


def metrics_server(body: bytes) -> int:
    """The number of pods in the answer; 0 if it is refused with a message."""
    try:
        found = resource_metrics.decode_usages(body)
    except SourceError as error:
        str(error)
        return 0
    finally:
        with contextlib.suppress(msgspec.MsgspecError):
            resource_metrics.decode_usage(body)
    return len(found)


SOURCES = {
    "prometheus": (prometheus, PROMETHEUS),
    "scalar": (prometheus, SCALAR),
    "metrics.k8s.io": (metrics_server, PODS),
}


def test_good_answers_are_read() -> None:
    assert prometheus(json.dumps(PROMETHEUS).encode()) == 2
    assert metrics_server(json.dumps(PODS).encode()) == 1


@fuzz(100, source=st.sampled_from(sorted(SOURCES)), data=st.data())
def test_an_answer_with_several_faults_is_read_or_refused(source: str, data: st.DataObject) -> None:
    read, document = SOURCES[source]
    read(data.draw(spoilt(document)))


@fuzz(100, source=st.sampled_from(sorted(SOURCES)), body=st.binary(max_size=300))
def test_bytes_of_any_kind_are_refused(source: str, body: bytes) -> None:
    assert SOURCES[source][0](body) == 0


# --- queries ---


def understood(text: str) -> Iterable[str]:
    """The selectors of a query; empty if it is refused."""
    try:
        promql.substitute(text, "shop", "web")
        found = parse_inputs(text)
    except PromqlError as error:
        str(error)
        return ()
    assert 0 <= found.window < float("inf")
    promql.question(text, found, ["namespace", "pod"])
    return [selector.base for selector in found.selectors]


PIECES = [
    *"()[]{}:@,+-*/^%=<>!~#\"'`\\$ \n", "a", "sum", "by", "without", "offset", "or", "unless", "start()", "5m",
    "1h30m", "1ms", "9" * 400, "9" * 400 + "s", "0x1f", "1e5", "inf", "$namespace", "${workload}", "=~", "!~", '"x"',
    "'", "é", "\x00", "\ud800",
]  # fmt: skip


@fuzz(400, text=st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_a_query_of_any_tokens_is_understood_or_refused(text: str) -> None:
    understood(text)


@fuzz(200, start=st.integers(0, len(QUERY)), cut=st.integers(0, 20), piece=st.sampled_from([*PIECES, *TEXTS]))
def test_a_query_that_was_changed_is_understood_or_refused(start: int, cut: int, piece: str) -> None:
    understood((QUERY[:start] + piece + QUERY[start + cut :])[:4096])
