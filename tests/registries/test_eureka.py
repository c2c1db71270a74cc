"""Eureka: its JSON, and Spring Cloud's server."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from blockbuster import blockbuster_ctx
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.pods import PodState
from adapter.load.roster import Instance
from adapter.registries.eureka import read_application
from adapter.runtime.source_errors import WrongAnswer
from lab.harness.registries.eureka import EurekaServer
from tests.registries.kit import follow

following = partial(follow, "Eureka")
NOW = 1_767_268_800.0
KEYS = st.sampled_from(["application", "instance", "name", "port", "$", "status", "metadata"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)
)
"""Documents that resemble Eureka's now and then."""


def instance(number: int, status: str = "UP", **more: Any) -> dict[str, Any]:
    """An instance of pod `web-<number>`, as Eureka writes it."""
    return {
        "instanceId": f"web-{number}",
        "hostName": f"web-{number}",
        "app": "WEB",
        "ipAddr": f"10.0.0.{10 + number}",
        "status": status,
        "overriddenStatus": "UNKNOWN",
        "port": {"$": 8080, "@enabled": "true"},
        "securePort": {"$": 8443, "@enabled": "false"},
        "leaseInfo": {"renewalIntervalInSecs": 30, "durationInSecs": 90},
        "metadata": {},
        **more,
    }


async def test_application_is_asked_for_by_its_name_in_capitals_and_an_unchanged_answer_confirms_it() -> None:
    asked, listed = set(), [instance(number, "OUT_OF_SERVICE" if number == 1 else "UP") for number in range(4)]

    async def answer(request: web.Request) -> web.Response:
        asked.add(request.path)
        return web.json_response({"application": {"name": "WEB", "instance": listed}})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server, following(str(server.make_url("/eureka")), "web") as followed:
        with blockbuster_ctx("adapter"):
            await followed.until_out("web-1")
            found = followed.listing.instances
            await followed.until_confirmed()
            assert followed.listing.instances is found
            listed[1], listed[2] = instance(1), instance(2, "DOWN")
            await followed.until_out("web-2")
    assert asked == {"/eureka/apps/WEB"}


def read(instances: object, pod_name_key: str = "") -> tuple[Instance, ...]:
    body = json.dumps({"application": {"name": "WEB", "instance": instances}}).encode()
    return read_application(body, "web", pod_name_key).instances


def one(**more: Any) -> Instance:
    """The instance that Eureka writes with these fields."""
    [read_one] = read([{**instance(1), **more}])
    return read_one


class TestJson:
    def test_list_of_one_may_be_that_one(self) -> None:
        assert [each.metadata["instanceId"] for each in read(instance(1))] == ["web-1"]
        assert read(None) == ()

    @pytest.mark.parametrize(
        ("port", "secure", "expected"),
        [
            ({"$": 8080, "@enabled": "true"}, {"$": 8443, "@enabled": "false"}, 8080),
            ({"$": "8080", "@enabled": True}, None, 8080),
            ({"$": 8080, "@enabled": "false"}, {"$": "8443", "@enabled": "true"}, 8443),
            ({"$": 8080, "@enabled": "false"}, {"$": 8443, "@enabled": "false"}, None),
            (8080, None, 8080),
            (None, None, None),
            ({"$": "http", "@enabled": "true"}, None, None),
        ],
    )
    def test_port_is_the_enabled_one(self, port: object, secure: object, expected: int | None) -> None:
        assert one(port=port, securePort=secure).port == expected

    @pytest.mark.parametrize(
        ("lease", "at"),
        [
            ({"registrationTimestamp": 1_767_268_800_000}, NOW),
            ({"registrationTimestamp": "1767268800000"}, NOW),
            ({"registrationTimestamp": "?"}, None),
            ({"registrationTimestamp": "1e400"}, None),
            ({}, None),
            (None, None),
        ],
    )
    def test_registration_time_is_milliseconds_or_unknown(self, lease: object, at: float | None) -> None:
        assert one(leaseInfo=lease).registered_at == at

    @pytest.mark.parametrize(
        ("status", "override", "expected"),
        [
            ("UP", "UNKNOWN", "UP"),
            ("OUT_OF_SERVICE", "UNKNOWN", "OUT_OF_SERVICE"),
            ("out_of_service", None, "OUT_OF_SERVICE"),
            ("STARTING", "OUT_OF_SERVICE", "OUT_OF_SERVICE"),
            ("UP", "OUT_OF_SERVICE", "UP"),
            ("DOWN", "UP", "DOWN"),
            (None, None, "UNKNOWN"),
        ],
    )
    def test_override_counts_once_it_takes_effect(
        self, status: str | None, override: str | None, expected: str
    ) -> None:
        for key in ("overriddenStatus", "overriddenstatus"):
            fields = {"overriddenStatus": None, "status": status, key: override}
            assert one(**fields).status == expected

    def test_metadata_has_host_name_and_id_and_may_name_the_pod(self) -> None:
        fields = {"metadata": {"@class": "x", "podName": "web-7", "n": 1}, "hostName": "h", "instanceId": None}
        [named] = read([{**instance(1), **fields}], "podName")
        assert named.pod_name == "web-7"
        assert named.metadata == {"hostName": "h", "instanceId": "h", "podName": "web-7", "n": "1"}

    @given(document=ANYTHING)
    def test_any_document_is_read_or_refused(self, document: object) -> None:
        for body in (document, {"application": {"name": "WEB", "instance": document}}):
            with contextlib.suppress(WrongAnswer):
                read_application(json.dumps(body).encode(), "web", "")


@pytest.fixture(scope="module")
def eureka() -> Iterator[EurekaServer]:
    """A Eureka that shows changes at once; each test has a service of its own in it."""
    with EurekaServer(cache_ms=0) as server:
        yield server


@pytest.fixture
def service() -> str:
    return f"web-{secrets.token_hex(4)}"


@pytest.mark.integration
@pytest.mark.timeout(600)  # the first run builds the server
class TestSpringsServer:
    def register(self, server: EurekaServer, service: str, count: int = 4, **more: Any) -> None:
        for number in range(count):
            server.register(service, f"{service}-{number}", f"10.0.0.{10 + number}", **more)

    async def test_override_outlives_heartbeats_and_new_registrations(self, eureka: EurekaServer, service: str) -> None:
        self.register(eureka, service)
        async with following(eureka.url, service=service) as followed:
            await followed.until_listed(4)
            await asyncio.to_thread(eureka.set_status, service, f"{service}-1", "OUT_OF_SERVICE")
            await followed.until_out("web-1")
            await asyncio.to_thread(eureka.renew, service, f"{service}-1")
            for status in ("UP", "STARTING"):  # where it starts, the override waits for the end of that
                await asyncio.to_thread(
                    eureka.register, service, f"{service}-1", "10.0.0.11", status=status, again=status
                )
                await followed.until(
                    lambda status=status: status in {one.metadata.get("again") for one in followed.listing.instances}
                )
                assert followed.pods.out() == ["web-1"]

    async def test_instances_that_self_preservation_keeps_count_by_their_status(self, service: str) -> None:
        with EurekaServer(cache_ms=0, self_preservation=True) as cautious:
            self.register(cautious, service, 3, lease=60)
            cautious.register(service, f"{service}-3", "10.0.0.13", lease=1)
            async with following(cautious.url, service=service) as followed:
                await followed.until_listed(4)
                await asyncio.to_thread(cautious.set_status, service, f"{service}-0", "OUT_OF_SERVICE")
                await followed.until_out("web-0")
                assert [*followed.pods.states().values()].count(PodState.SERVING) == 3
