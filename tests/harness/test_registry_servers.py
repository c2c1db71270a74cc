"""A property of the harness's Eureka that tests rely on."""

import threading
from contextlib import ExitStack

import pytest

from lab.harness.registries.eureka import EurekaServer
from lab.harness.workloads import until

pytestmark = pytest.mark.integration


def test_eureka_soon_shows_every_change_even_during_other_requests() -> None:
    with EurekaServer(cache_ms=0) as eureka, ExitStack() as stack:
        ended = threading.Event()

        def changes() -> str:
            return eureka.request("GET", "/apps/delta")[1].decode()

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
