"""Faulty settings files in YAML and JSON: loaded, or every fault is named; none ends the process."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from adapter import settings
from adapter.settings import SettingsError
from tests.fuzz.kit import fuzz
from tests.fuzz.spoil import mangle, spoilt

SETTINGS: dict[str, Any] = {
    "server": {"port": 6443, "tls": {"mode": "Files", "certFile": "/c", "keyFile": "/k"}},
    "telemetry": {"port": 8080},
    "logging": {"level": "info"},
    "upstreams": {"custom": {"url": "https://adapter.monitoring.svc", "caFile": "/ca", "maxAnswerMiB": 4}},
    "kubernetes": {"namespaces": ["shop"], "hpaTolerance": 0.1},
    "resourceMetrics": {"intervalSeconds": 10, "maxAgeSeconds": 90.5},
    "prometheus": {
        "inlineQueries": False,
        "servers": [{"name": "main", "url": "http://p:9090", "headers": {"X-Scope-OrgID": "t"}}],
        "queries": [{"name": "rps", "server": "main", "query": 'sum(x{namespace="$namespace"})', "maxAgeSeconds": 90}],
    },
    "companion": {
        "features": {"status": True},
        "production": {"label": "env=prod"},
        "notifications": {"routes": [{"name": "team", "namespaces": ["shop"], "urlFile": "/u", "title": "$policy"}]},
    },
    "registries": [
        {"name": "n", "type": "Nacos", "servers": ["http://nacos:8848/nacos"], "username": "u", "passwordFile": "/p"},
        {"name": "z", "type": "ZooKeeper", "servers": ["zk:2181"], "layout": "DubboInterface"},
        {"name": "h", "type": "HTTP", "url": "http://h", "tls": {"caFile": "/ca"}},
    ],
}


def read(text: str) -> bool:
    """Whether the settings are valid; otherwise the faults have remedies."""
    try:
        settings.parse_settings(text)
    except SettingsError as error:
        faults, sentence = error.faults, str(error)
    else:
        return True
    assert sentence
    assert [fault for fault in faults if fault.advice] == [*faults] != []
    return False


def test_good_settings_are_read() -> None:
    assert read(json.dumps(SETTINGS))
    assert read(yaml.safe_dump(SETTINGS))


@fuzz(150, body=spoilt(SETTINGS))
def test_settings_with_several_faults_are_read_or_they_are_named(body: bytes) -> None:
    read(body.decode(errors="replace"))


@fuzz(150, chance=st.randoms(use_true_random=False), times=st.integers(1, 3))
def test_settings_whose_yaml_is_broken_are_read_or_the_faults_are_named(chance: Any, times: int) -> None:
    text = yaml.safe_dump(SETTINGS)
    for _ in range(times):
        text = mangle(text, chance)
    read(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "server: " + "[" * 100_000,
        "? [a]\n: 1",
        "&a [*a]",
        "a0: &a0 [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30)),
        "a: !!python/object/apply:os.system [x]",
        "server: {port: " + "9" * 5000 + "}",
        "server: {port: .nan}",
        "prometheus: {servers: [{name: 1, url: 'http://['}]}",
        '{"server": {"address": "\\ud800"}}',
        "--- a\n--- b",
    ],
    ids=lambda text: repr(text[:24]),
)
def test_settings_made_to_break_their_reader_are_refused(text: str) -> None:
    assert not read(text)
