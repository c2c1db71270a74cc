"""No document that a server, a tenant or a user can write raises anything but its reader's own error.

Each reader is given its good document with random faults: other types, strange texts, missing and doubled parts, and
bytes that no encoder writes. What a run once found is an `@example` or a row of FOUND.
"""

import contextlib
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter import settings as settings_file
from adapter.apiserver.request_info import parse_target
from adapter.apiserver.status import StatusError
from adapter.evaluation.object_index import decode_hpa, decode_policy
from adapter.kube import leader_election, pods, selectors
from adapter.kube.pods import PodDecoder
from adapter.kube.scale import BUILT_IN, decode_scale, target_decoder
from adapter.kube.selectors import SelectorError
from adapter.load import quantity
from adapter.load.quantity import QuantityError
from adapter.policy import status_memory
from adapter.policy.documents import PolicyError
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from adapter.registries import kubernetes
from adapter.registries.consul import read_entries
from adapter.registries.eureka import read_application
from adapter.registries.http import read_document
from adapter.registries.nacos import ADMIN_CALLS, listed_in
from adapter.registries.polaris import read_answer
from adapter.registries.zookeeper.dubbo import parse_document, parse_provider, parse_rules
from adapter.runtime.decoding import decode
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

TIME = "2026-01-01T12:00:00Z"
QUERY = 'sum by (namespace, pod) (rate(http_requests_total{namespace="$namespace"}[5m] offset 1m)) or vector(1)'


class Reader(NamedTuple):
    """What reads bytes, the errors that it may raise, and a document that it reads."""

    read: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    good: Any


METADATA = {
    "name": "web",
    "namespace": "shop",
    "uid": "u-1",
    "resourceVersion": "7",
    "generation": 3,
    "creationTimestamp": TIME,
    "labels": {"app": "web", "pod-template-hash": "abc"},
    "annotations": {"effective-load.io/pulled-out": "true", "controller.kubernetes.io/pod-deletion-cost": "-5"},
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}],
}
CONDITION = {"type": "Ready", "status": "True", "reason": "x", "message": "y", "lastTransitionTime": TIME}
CONTAINER = {
    "name": "app",
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1}},
    "ports": [{"containerPort": 8080}],
}
POD = {
    "metadata": METADATA,
    "spec": {"containers": [CONTAINER], "initContainers": [CONTAINER], "hostNetwork": False},
    "status": {
        "phase": "Running",
        "startTime": TIME,
        "conditions": [CONDITION],
        "containerStatuses": [{"name": "app", "state": {"running": {"startedAt": TIME}}}],
        "podIP": "10.0.0.10",
        "podIPs": [{"ip": "10.0.0.10"}],
    },
}
DEPLOYMENT = {
    "metadata": METADATA,
    "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}},
    "status": {"replicas": 3, "conditions": [CONDITION]},
}
HPA = {
    "metadata": METADATA,
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 9,
        "behavior": {"scaleUp": {"tolerance": "0", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}},
        "metrics": [
            {
                "type": "Object",
                "object": {
                    "describedObject": {"apiVersion": "v1", "kind": "WatermarkPolicy", "name": "web"},
                    "metric": {"name": "desired_replicas", "selector": {"matchLabels": {"policy": "web"}}},
                    "target": {"type": "AverageValue", "averageValue": "1"},
                },
            }
        ],
    },
    "status": {"lastScaleTime": TIME, "conditions": [CONDITION]},
}
POLICY = {
    "apiVersion": "effective-load.io/v1alpha1",
    "kind": "WatermarkPolicy",
    "metadata": {**METADATA, "annotations": {"effective-load.io/hold-until": TIME}},
    "spec": EVERYTHING,
    "status": {"memory": {"pods": {}}},
}
SLICE = {
    "metadata": METADATA,
    "endpoints": [{"conditions": {"ready": True}, "targetRef": {"kind": "Pod", "name": "web-0", "uid": "u"}}],
}
SCALE = {"metadata": METADATA, "spec": {"replicas": 3}, "status": {"replicas": 3, "selector": "app=web,tier in (a,b)"}}
LEASE = {"metadata": METADATA, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": TIME}}
MEMORY = {"away": [f"pulledOut {TIME} u-1"], "errorSince": TIME}
PROMETHEUS = {
    "status": "success",
    "data": {
        "resultType": "vector",
        "result": [
            {"metric": {"namespace": "shop", "pod": "web-0"}, "value": [1700000000.123, "1.5"]},
            {"metric": {"namespace": "shop", "pod": "web-0", INPUT_LABEL: "time0"}, "value": [1700000000.123, "17e8"]},
            {"metric": {"namespace": "shop", "pod": "web-0", INPUT_LABEL: "count0"}, "value": [1700000000.123, "20"]},
        ],
    },
}
PODS = {
    "kind": "PodMetricsList",
    "items": [
        {
            "metadata": {"name": "web-0", "namespace": "shop"},
            "timestamp": TIME,
            "window": "15.021s",
            "containers": [{"name": "app", "usage": {"cpu": "12345678n", "memory": "120336Ki"}}],
        }
    ],
}
EUREKA = {
    "application": {
        "name": "SHOP",
        "instance": [
            {
                "instanceId": "web-0:shop:8080",
                "ipAddr": "10.0.0.10",
                "status": "UP",
                "port": {"$": 8080, "@enabled": "true"},
                "metadata": {"pod": "web-0"},
            }
        ],
    }
}
CONSUL = [
    {
        "Node": {"ID": "n", "Node": "node", "Address": "10.0.1.1"},
        "Service": {"ID": "web-0", "Address": "10.0.0.10", "Port": 8080, "Weights": {"Passing": 1}, "Meta": {"a": "b"}},
        "Checks": [{"CheckID": "serfHealth", "Status": "passing"}],
    }
]
HOST = {"ip": "10.0.0.10", "port": 8080, "weight": 1.0, "healthy": True, "enabled": True, "metadata": {"pod": "web-0"}}
NACOS = {"code": 0, "message": "success", "data": [HOST]}
POLARIS = {
    "code": 200000,
    "service": {"name": "shop", "namespace": "default", "revision": "r1"},
    "instances": [{"host": "10.0.0.10", "port": 8080, "weight": 100, "healthy": True, "isolate": False}],
}
PLATFORM = {
    "complete": True,
    "service": "shop",
    "instances": [{"ip": "10.0.0.10", "port": 8080, "pod": "web-0", "state": "out", "weight": 1.5, "reason": "drain"}],
}
CURATOR = {
    "name": "shop",
    "address": "10.0.0.10",
    "port": 8080,
    "payload": {"@class": "x", "id": "shop", "metadata": {"instance_status": "UP"}},
    "registrationTimeUTC": 1700000000000,
}
DUBBO_RULE = {
    "configVersion": "v2.7",
    "scope": "application",
    "key": "shop",
    "configs": [{"side": "provider", "addresses": ["10.0.0.7:20880"], "parameters": {"weight": "50"}}],
}
SETTINGS: dict[str, Any] = {
    "server": {"port": 6443, "tls": {"mode": "Files", "certFile": "/c", "keyFile": "/k"}},
    "kubernetes": {"namespaces": ["shop"], "hpaTolerance": 0.1},
    "prometheus": {
        "servers": [{"name": "main", "url": "http://p:9090", "headers": {"X-Scope-OrgID": "t"}}],
        "queries": [{"name": "rps", "server": "main", "query": 'sum(x{namespace="$namespace"})', "maxAgeSeconds": 90}],
    },
    "companion": {"features": {"status": True}, "production": {"namespaces": ["prod-*"]}},
    "registries": [{"name": "z", "type": "ZooKeeper", "servers": ["zk:2181"], "layout": "DubboInterface"}],
}


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
    "pod": Reader(watched(PodDecoder()), OBJECT, POD),
    "deployment": Reader(watched(target_decoder("apps/v1", "Deployment", BUILT_IN)), OBJECT, DEPLOYMENT),
    "watched hpa": Reader(watched(decode_hpa), OBJECT, HPA),
    "watched policy": Reader(watched(decode_policy), OBJECT, POLICY),
    "endpoint slice": Reader(watched(kubernetes.decode_listing), OBJECT, SLICE),
    "scale": Reader(watched(decode_scale), OBJECT, SCALE),
    "lease": Reader(leader_election.DECODER.decode, OBJECT, LEASE),
    "policy": Reader(parse_policy, (FaultyDocument,), POLICY),
    "hpa": Reader(parse_hpa, (FaultyDocument,), HPA),
    "memory": Reader(
        lambda body: status_memory.from_status(decode(body, dict[str, Any])),
        (msgspec.MsgspecError, PolicyError),
        MEMORY,
    ),
    "prometheus": Reader(vector, (SourceError,), PROMETHEUS),
    "metrics.k8s.io": Reader(resource_metrics.decode_usages, (SourceError,), PODS),
    "eureka": Reader(lambda body: read_application(body, "shop", "pod"), (SourceError,), EUREKA),
    "consul": Reader(lambda body: read_entries(body, "", warning_is_out=True), (SourceError,), CONSUL),
    "nacos": Reader(lambda body: listed_in(ADMIN_CALLS[0], body), (SourceError,), NACOS),
    "polaris": Reader(
        lambda body: read_answer(Reply(200, {}, body), "shop", "default", "pod"), (SourceError,), POLARIS
    ),
    "platform": Reader(lambda body: read_document(body, "shop"), (SourceError,), PLATFORM),
    "curator": Reader(lambda body: parse_document(body, 1.7e9, "pod"), (ValueError,), CURATOR),
    "dubbo rule": Reader(lambda body: parse_rules("shop.configurators", body), (), DUBBO_RULE),
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


FOUND = [
    "[" * 100_000,
    "server: " + "[" * 100_000,
    "? [a]\n: 1",
    "&a [*a]",
    "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)),
    "!!python/object/apply:os.system [x]",
    "a: " + "9" * 5000,
    "--- a\n--- b",
]
"""YAML that once broke a reader: recursion, aliases, tags."""


@pytest.mark.parametrize("text", FOUND, ids=lambda text: repr(text[:24]))
def test_yaml_made_to_break_its_reader_is_refused_with_a_short_sentence(text: str) -> None:
    with pytest.raises(SettingsError):
        settings_file.parse_settings(text)
    found = parse_rules("shop.configurators", text.encode())
    assert found.rules == ()
    assert all(len(fault) < 1000 for fault in found.faults)


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
