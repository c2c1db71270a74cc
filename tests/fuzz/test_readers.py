"""No document that a server, a tenant or a user can write raises anything but its reader's own error.

Each reader is given its good document with random faults: other types, strange texts, missing and doubled parts, and
bytes that no encoder writes.
"""

import contextlib
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter import settings as settings_file
from adapter.apiserver.request_info import parse_target
from adapter.apiserver.status import StatusError
from adapter.evaluation.object_index import decode_policy
from adapter.kube import leader_election, pods, selectors
from adapter.kube.pods import PodDecoder
from adapter.kube.scale import BUILT_IN, decode_scale, target_decoder
from adapter.kube.selectors import SelectorError
from adapter.load import quantity
from adapter.load.quantity import QuantityError
from adapter.policy import status_memory
from adapter.policy.documents import PolicyError
from adapter.policy.hpa import decode_hpa
from adapter.policy.watermark_policy import parse_policy
from adapter.registries import kubernetes
from adapter.registries.consul import read_entries
from adapter.registries.eureka import read_application
from adapter.registries.http import read_document
from adapter.registries.nacos import ADMIN_CALLS, listed_in
from adapter.registries.polaris import read_answer
from adapter.registries.zookeeper.dubbo import parse_document, parse_provider, parse_rules
from adapter.runtime.decoding import Decoder
from adapter.runtime.document_text import read_document as read_text
from adapter.runtime.faults import FaultyDocument
from adapter.runtime.http import Reply
from adapter.runtime.source_errors import SourceError
from adapter.settings import SettingsError
from adapter.usage import prometheus_api, promql, query_results, resource_metrics
from adapter.usage.polling import AheadDates
from adapter.usage.promql import INPUT_LABEL, PromqlError, parse_inputs
from adapter.usage.query_catalog import InstantQuery
from tests.fuzz.spoil import STRANGE, TEXTS, mangle, spoilt
from tests.policy.wrong import EVERYTHING

QUERY = 'sum by (namespace, pod) (rate(http_requests_total{namespace="$namespace"}[5m] offset 1m)) or vector(1)'


class Reader(NamedTuple):
    """What reads bytes, the errors that it may raise, and a document that it reads."""

    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    good: Any


GOOD = read_text((Path(__file__).parent / "good.yaml").read_text().replace("INPUT_LABEL", INPUT_LABEL))
GOOD["policy"]["spec"] = EVERYTHING
SETTINGS: dict[str, Any] = GOOD["settings"]


def vector(body: bytes) -> object:
    question = InstantQuery(server="main", text=QUERY, by_pod=True, inputs=parse_inputs(QUERY))
    samples = prometheus_api.decode_result(body, "vector", prometheus_api.VECTOR)
    dates = AheadDates()
    dates.begin(1.7e9)
    return query_results.build_result(query_results.Answer(question, samples, 1.7e9), dates).of("shop")


def query(body: bytes) -> object:
    text = body.decode(errors="replace")
    promql.substitute(text, "shop", "web")
    return promql.question(text, parse_inputs(text), ["namespace", "pod"])


def of_text(read: Callable[[str], object]) -> Callable[[bytes], object]:
    return lambda body: read(body.decode(errors="replace"))


def watched(decoder: Callable[[msgspec.Raw], object]) -> Callable[[bytes], object]:
    return lambda body: decoder(msgspec.Raw(body))


OBJECT = (msgspec.MsgspecError, FaultyDocument)
READERS = {
    "pod": Reader(watched(PodDecoder()), OBJECT, GOOD["pod"]),
    "deployment": Reader(watched(target_decoder("apps/v1", "Deployment", BUILT_IN)), OBJECT, GOOD["deployment"]),
    "watched hpa": Reader(watched(decode_hpa), OBJECT, GOOD["hpa"]),
    "watched policy": Reader(watched(decode_policy), OBJECT, GOOD["policy"]),
    "endpoint slice": Reader(watched(kubernetes.decode_listing), OBJECT, GOOD["slice"]),
    "scale": Reader(watched(decode_scale), OBJECT, GOOD["scale"]),
    "lease": Reader(leader_election.DECODER.decode, OBJECT, GOOD["lease"]),
    "policy": Reader(lambda body: parse_policy(Decoder(dict[str, Any]).decode(body)), OBJECT, GOOD["policy"]),
    "memory": Reader(
        lambda body: status_memory.from_status(Decoder(dict[str, Any]).decode(body)),
        (msgspec.MsgspecError, PolicyError),
        GOOD["memory"],
    ),
    "prometheus": Reader(vector, (SourceError,), GOOD["prometheus"]),
    "metrics.k8s.io": Reader(resource_metrics.decode_usages, (SourceError,), GOOD["pods"]),
    "eureka": Reader(lambda body: read_application(body, "shop", "pod"), (SourceError,), GOOD["eureka"]),
    "consul": Reader(lambda body: read_entries(body, "", warning_is_out=True), (SourceError,), GOOD["consul"]),
    "nacos": Reader(lambda body: listed_in(ADMIN_CALLS[0], body), (SourceError,), GOOD["nacos"]),
    "polaris": Reader(
        lambda body: read_answer(Reply(200, {}, body), "shop", "default", "pod"), (SourceError,), GOOD["polaris"]
    ),
    "platform": Reader(lambda body: read_document(body, "shop"), (SourceError,), GOOD["platform"]),
    "curator": Reader(lambda body: parse_document(body, 1.7e9, "pod"), (ValueError,), GOOD["curator"]),
    "dubbo rule": Reader(lambda body: parse_rules("shop.configurators", body), (), GOOD["dubbo"]),
    "settings": Reader(of_text(settings_file.parse_settings), (SettingsError,), SETTINGS),
}
TEXT_READERS = {
    "provider url": (of_text(lambda text: parse_provider(text, "pod")), (ValueError,)),
    "selector": (of_text(selectors.parse_selector), (SelectorError,)),
    "request target": (of_text(parse_target), (StatusError,)),
    "query": (query, (PromqlError,)),
}
TEMPLATES = (
    "dubbo://10.0.0.7:20880/com.shop.Order?application=shop&timestamp=1700000000123&weight=5",
    "app=web,tier in (a,b),!old",
    "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/load?labelSelector=app%3Dweb",
    QUERY,
)


def refused(read: Callable[[bytes], object], errors: tuple[type[Exception], ...], body: bytes) -> bool:
    """Whether the reader refuses it, with a message that can be written."""
    try:
        read(body)
    except errors as error:
        str(error).encode()
        return True
    return False


@pytest.mark.parametrize("name", READERS)
def test_good_document_is_read(name: str) -> None:
    reader = READERS[name]
    assert not refused(reader.read, reader.errors, json.dumps(reader.good).encode())


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=60)
@given(data=st.data())
def test_spoilt_document_is_read_or_refused_by_its_own_error(name: str, data: st.DataObject) -> None:
    reader = READERS[name]
    body = data.draw(st.one_of(spoilt(reader.good), st.binary(max_size=200)))
    refused(reader.read, reader.errors, body)


@pytest.mark.parametrize("name", TEXT_READERS)
@settings(max_examples=60)
@given(
    template=st.sampled_from(TEMPLATES), start=st.integers(0, 120), cut=st.integers(0, 20), piece=st.sampled_from(TEXTS)
)
def test_changed_text_is_read_or_refused_by_its_own_error(
    name: str, template: str, start: int, cut: int, piece: str
) -> None:
    text = (template[:start] + piece + template[start + cut :])[:8192]
    refused(*TEXT_READERS[name], text.encode(errors="replace"))


@given(chance=st.randoms(use_true_random=False), times=st.integers(1, 3))
def test_settings_of_broken_yaml_are_read_or_their_faults_have_remedies(chance: Any, times: int) -> None:
    text = yaml.safe_dump(SETTINGS)
    for _ in range(times):
        text = mangle(text, chance)
    with contextlib.suppress(SettingsError):
        settings_file.parse_settings(text)


AMOUNTS: dict[str, Callable[[str], Fraction | int | None]] = {
    "parse_nano": quantity.parse_nano,
    "parse_number": quantity.parse_number,
    "of a pod": lambda text: pods.resource_amounts({"cpu": text}).get("cpu"),
}
PIECES = [*"0123456789+-.eEnumkMGTPKi%_ \t\n", "Ki", "Ei", "e999", "e-999", "NaN", "inf", "²", "٣", "\x00", "9" * 70]


@settings(max_examples=300)
@given(
    text=st.one_of(
        st.sampled_from([*TEXTS, *(one for one in STRANGE if isinstance(one, str))]),
        st.lists(st.sampled_from(PIECES), max_size=12).map("".join),
    )
)
def test_all_readers_of_quantities_agree(text: str) -> None:
    found: dict[str, Fraction | int | None] = {}
    for name, read in AMOUNTS.items():
        with contextlib.suppress(QuantityError):
            found[name] = read(text)
    try:
        exact = quantity.parse_quantity(text)
    except QuantityError:
        assert not [name for name, value in found.items() if value is not None and name != "of Prometheus"]
        return
    if exact >= 0:
        assert set(found.values()) == {-(-exact * quantity.NANO // 1)}
