"""Eureka's JSON, and failures that a real server cannot be made to show."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aiohttp import web
from blockbuster import blockbuster_ctx
from hypothesis import given
from hypothesis import strategies as st

from adapter.load.roster import Instance
from adapter.registries.eureka import read_application
from adapter.runtime.source_errors import WrongAnswer
from tests.registries.eureka_kit import FakeEureka, application, following, instance, raw

NOW = 1_767_268_800.0
KEYS = st.sampled_from(["application", "instance", "name", "port", "$", "status", "metadata"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)
)
"""Documents that resemble Eureka's now and then."""


def four(*out: int) -> list[dict[str, Any]]:
    return [instance(number, "OUT_OF_SERVICE" if number in out else "UP") for number in range(4)]


@pytest.fixture
async def fake() -> AsyncIterator[FakeEureka]:
    """A Eureka with the four pods of a followed service."""
    async with FakeEureka() as eureka:
        eureka.apps = {"WEB": four(1)}
        yield eureka


class TestQuestions:
    async def test_application_is_asked_for_by_its_name_in_capitals(self, fake: FakeEureka) -> None:
        async with following(fake.url) as followed:
            with blockbuster_ctx("adapter"):
                await followed.until_out("web-1")
                fake.apps = {"WEB": four(2)}
                await followed.until_out("web-2")
        assert set(fake.asked) == {"apps/WEB"}

    async def test_unchanged_answer_confirms_the_list(self, fake: FakeEureka) -> None:
        async with following(fake.url) as followed:
            await followed.until_out("web-1")
            listed, at = followed.listing.instances, followed.listing.at
            await followed.until_confirmed()
            assert followed.listing.instances is listed
            assert followed.listing.at > at

    async def test_name_of_a_service_is_never_another_path(self, fake: FakeEureka) -> None:
        async with following(fake.url, service="delta") as followed:
            fake.answer = lambda: raw({"applications": {"application": []}})
            await followed.until_error("not the JSON of Eureka")
        async with following(fake.url, service="..") as followed:
            await followed.until_error("cannot be the name of a service")
        assert set(fake.asked) == {"apps/DELTA"}


class TestFailures:
    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (lambda: web.Response(status=401), "HTTP 401"),
            (lambda: web.Response(status=403), "HTTP 403: it has just started and waits for its peers"),
            (lambda: web.Response(status=404), "HTTP 404: Eureka knows no such application; check its name"),
            (lambda: web.Response(status=503, text="sorry"), "HTTP 503: sorry"),
            (lambda: web.Response(status=429), "HTTP 429"),
            (lambda: web.Response(status=302, headers={"Location": "/login"}), "redirects are not followed"),
            (lambda: web.Response(text="<application/>"), "not the JSON of Eureka"),
            (lambda: web.Response(text='{"application": {"name": "WEB"'), "not the JSON of Eureka"),
            (lambda: raw({"error": "?"}), "not the JSON of Eureka"),
            (lambda: application("OTHER", []), "the answer is of 'OTHER', not of 'WEB'"),
        ],
    )
    async def test_answer_without_a_list_keeps_the_last_one_and_ends(
        self, fake: FakeEureka, answer: Callable[[], web.Response], words: str
    ) -> None:
        async with following(fake.url) as followed:
            await followed.until_out("web-1")
            with followed.pods.nothing_changes():
                fake.answer = answer
                await followed.until_error(words)
                assert followed.error.startswith(fake.url)
                assert followed.listed == 4
            fake.answer = None
            await followed.until(lambda: not followed.error)

    @pytest.mark.parametrize(
        ("status", "asks_the_next"), [(401, False), (403, True), (404, False), (429, True), (503, True)]
    )
    async def test_next_server_is_asked_if_the_first_is_in_trouble(
        self, fake: FakeEureka, status: int, asks_the_next: bool
    ) -> None:
        async with FakeEureka() as first:
            first.answer = lambda: web.Response(status=status)
            async with following(first.url, fake.url) as followed:
                await followed.until(lambda: followed.error or followed.listed == 4)
        assert bool(fake.asked) is asks_the_next


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
            ({"$": 8080, "@enabled": "true"}, {"$": 8443, "@enabled": "true"}, 8080),
            ({"$": 8080, "@enabled": "false"}, {"$": 8443, "@enabled": "false"}, None),
            ({"$": 0, "@enabled": "true"}, None, None),
            ({"$": 8080}, {"$": 8443}, 8080),
            (8080, None, 8080),
            ("8080", 8443, 8080),
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
            ({"registrationTimestamp": 0}, None),
            ({"registrationTimestamp": "?"}, None),
            ({"registrationTimestamp": "1e400"}, None),
            ({"registrationTimestamp": "NaN"}, None),
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


class TestLeftovers:
    """A process that was killed leaves its registration behind, without end if Eureka protects itself."""

    @staticmethod
    def at(name: str, status: str, registered: float | None, **more: Any) -> dict[str, Any]:
        """An instance of web-1's address that was registered at that time."""
        lease = {} if registered is None else {"registrationTimestamp": int(registered * 1000)}
        return instance(1, status, instanceId=name, leaseInfo=lease, **more)
