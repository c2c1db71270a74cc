"""The harness's registry servers: the properties that tests rely on."""

import json
import threading
import urllib.request
from contextlib import ExitStack

import pytest

from lab.harness.registries.eureka import EurekaServer
from lab.harness.registries.polaris import Polaris
from lab.harness.workloads import until

pytestmark = pytest.mark.integration

SHOP = {"service": "shop", "namespace": "default", "host": "10.0.0.1", "port": 8080}


def _read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def test_polaris_keeps_its_data_through_a_restart_and_loses_it_when_wiped(polaris: Polaris) -> None:
    polaris.call("POST", "/naming/v1/instances", [SHOP])
    polaris.restart()
    listed = "/naming/v1/instances?namespace=default&service=shop"
    assert polaris.call("GET", listed)["instances"][0]["host"] == "10.0.0.1"
    polaris.restart(wipe=True)
    assert polaris.call("GET", listed)["instances"] == []


def test_polaris_speaks_nacos_and_eureka(polaris: Polaris) -> None:
    polaris.call("POST", "/naming/v1/instances", [SHOP])
    polaris.restart()  # it fills its caches before it answers
    nacos = json.loads(_read(f"{polaris.nacos}/v1/ns/instance/list?serviceName=shop"))
    assert [host["ip"] for host in nacos["hosts"]] == ["10.0.0.1"]
    assert "<ipAddr>10.0.0.1</ipAddr>" in _read(f"{polaris.eureka}/apps")


def test_eureka_soon_shows_every_change_even_during_other_requests() -> None:
    with EurekaServer(cache_ms=0) as eureka, ExitStack() as stack:
        ended = threading.Event()

        def changes() -> str:
            return eureka.call("GET", "/apps/delta").decode()

        def ask() -> None:
            while not ended.is_set():
                changes()

        for asking in [threading.Thread(target=ask) for _ in range(3)]:
            asking.start()
            stack.callback(asking.join)
        stack.callback(ended.set)
        for number in range(20):
            for name in (f"early-{number}", f"late-{number}"):
                eureka.register("shop", name, "10.0.0.1")
            until(lambda number=number: f'"late-{number}"' in changes(), 15, lambda: "a change is not shown")  # type: ignore[misc]
