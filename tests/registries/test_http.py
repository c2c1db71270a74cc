"""A platform of one's own that is asked, as a stand-in whose answers a test sets."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # no stubs in the lock
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.registries.http import read_document
from adapter.registries.source import ServiceKey
from adapter.runtime.source_errors import WrongAnswer
from tests.registries.http_kit import ByteServer, Followed, Platform, out, reply, said

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "registry-http.schema.json").read_text())


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    """A platform that says of web-0 that it is out."""
    platform, app = Platform(), web.Application()
    platform.answer = said(out(0))
    app.router.add_route("*", "/instances", platform.handle)
    async with TestServer(app) as server:
        platform.url = str(server.make_url("/instances"))
        yield platform


@pytest.fixture
async def world(platform: Platform) -> AsyncIterator[Followed]:
    """The service `shop`, of which the platform was heard."""
    async with Followed(platform.url) as followed:
        await followed.until_out("web-0")
        yield followed


def weighed(weight: str) -> str:
    """A document with one pod of this weight."""
    one = f'{{"pod": "web-1", "state": "in", "weight": {weight}}}'
    return f'{{"service": "shop", "complete": true, "instances": [{one}]}}'


class TestStates:
    @pytest.mark.parametrize("one", [{"pod": "web-2"}, {"uid": "uid-web-2"}, {"ip": "10.0.0.12", "port": 8080}])
    async def test_pod_is_named_by_name_uid_or_address(
        self, platform: Platform, world: Followed, one: dict[str, object]
    ) -> None:
        platform.answer = said({**one, "state": "out", "reason": "canary failed"})
        await world.until_out("web-2")
        assert world.listing.instances[0].metadata == {"reason": "canary failed"}

    @pytest.mark.parametrize("weight", ["0", "0.0", "-0", "0e5", "0E-400"])
    async def test_weight_0_is_out(self, platform: Platform, world: Followed, weight: str) -> None:
        platform.answer = weighed(weight)
        await world.until_out("web-1")

    async def test_unknown_state_is_not_evidence(self, platform: Platform, world: Followed) -> None:
        platform.answer = said({"pod": "web-0", "state": "unknown"}, out(1))
        await world.until_out("web-1")

    async def test_pods_that_are_not_listed_serve_without_limit(self, platform: Platform) -> None:
        platform.answer = said(*({"pod": f"web-{n}", "state": "in"} for n in range(4)))
        async with Followed(platform.url) as world:
            await world.until_listed(4)
            with world.pods.nothing_changes():
                platform.answer = said({"pod": "web-0", "state": "in"})
                await world.until_listed(1)
                for _ in range(60):
                    world.clock.jump(10)
                    await platform.questions(1)
                    assert set(world.pods.states().values()) == {"serving"}

    @pytest.mark.parametrize("ip", ["10.0.0.11", " 10.0.0.11 ", "::ffff:10.0.0.11", "[::ffff:10.0.0.11]"])
    async def test_address_counts_in_each_spelling(self, platform: Platform, world: Followed, ip: str) -> None:
        platform.answer = said({"ip": ip, "state": "out"})
        await world.until_out("web-1")

    @pytest.mark.parametrize("ip", ["10.0.0.11:8080", "[fd00::1]:8080", "web-1.shop", "10.0.0.0/24", "shop/web-1"])
    async def test_text_that_is_not_an_address_is_an_error(self, platform: Platform, world: Followed, ip: str) -> None:
        with world.pods.nothing_changes():
            platform.answer = said({"ip": ip, "state": "out"})
            await world.until_error(f"instances[0].ip {ip!r} is not an IP address")


class TestQuestions:
    @pytest.mark.parametrize("place", [{"namespace": "prod/α", "group": "g&h"}, {}])
    async def test_service_namespace_and_group_are_parameters(self, platform: Platform, place: dict[str, str]) -> None:
        async with Followed(platform.url, place=place):
            [request] = await platform.questions(1)
        assert dict(request.query) == {"service": "shop", **place}
        assert request.method == "GET"

    async def test_url_without_a_path_is_asked_at_its_root(self, platform: Platform) -> None:
        app = web.Application()
        app.router.add_get("/", platform.handle)
        async with TestServer(app) as server, Followed(f"http://127.0.0.1:{server.port}") as world:
            await world.until_out("web-0")

    async def test_unchanged_document_is_confirmed_by_its_tag(self, platform: Platform) -> None:
        platform.etag = '"A-Tag"'
        async with Followed(platform.url) as world:
            await world.until_out("web-0")
            listed, at = world.listing.instances, world.listing.at
            world.clock.jump(1)
            asked = await platform.questions(2)
            assert asked[-1].headers["If-None-Match"] == '"A-Tag"'
            assert world.listing.instances is listed
            assert world.listing.at > at
            platform.answer, platform.etag = said(), '"B"'
            await world.until_out()


class TestTrouble:
    """None of it turns a pod out or puts one back."""

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            ("<html>", "does not follow docs/registries-http.md"),
            ({"instances": []}, "missing required field `complete`"),
            ({"complete": True, "instances": [{"state": "out"}]}, "instances[0] names no pod"),
            ({"complete": True, "instances": [{"pod": "a", "state": "in", "weight": "1"}]}, "instances[0].weight"),
            ({"complete": False, "instances": []}, "incomplete"),
        ],
    )
    async def test_invalid_document_leaves_the_last_one(self, platform: Platform, answer: object, words: str) -> None:
        platform.answer, platform.etag = said(out(0)), '"good"'
        async with Followed(platform.url) as world:
            await world.until_out("web-0")
            platform.answer, platform.etag = answer, '"bad"'
            await world.until_error(words)
            assert world.pods.out() == ["web-0"]

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (said(out(1), service="cart"), "of service 'cart'"),
            (json.dumps(said(out(1))), 'write "service": "shop" into it'),
        ],
        ids=["another", "none"],
    )
    async def test_document_of_another_service_is_an_error(
        self, platform: Platform, world: Followed, answer: object, words: str
    ) -> None:
        with world.pods.nothing_changes():
            platform.answer = answer
            await world.until_error(words)

    async def test_tag_of_an_invalid_document_is_not_sent(self, platform: Platform, world: Followed) -> None:
        platform.answer, platform.etag = said(complete=False), '"bad"'
        await world.until(lambda: world.error)
        asked = await platform.questions(3)
        assert all("If-None-Match" not in request.headers for request in asked[1:])
        assert world.error

    @pytest.mark.parametrize(
        ("status", "words"),
        [
            (401, "HTTP 401: not now"),
            (403, "HTTP 403"),
            (404, "knows no such service"),
            (302, "302"),
            (503, "HTTP 503"),
        ],
    )
    async def test_refusal_is_quoted_and_ends(
        self, platform: Platform, world: Followed, status: int, words: str
    ) -> None:
        with world.pods.nothing_changes():
            platform.status = status
            await world.until_error(words)
        platform.status = 200
        await world.until(lambda: not world.error)


class TestAnswersOfOtherQuestions:
    async def test_surplus_answer_gives_no_service_another_document(self) -> None:
        extra = http(said(out(0), out(1), service="other"), 'ETag: "shared"')
        answers = {
            "other": http(said(service="other"), 'ETag: "shared"') + extra,
            "shop": http(said(service="shop"), 'ETag: "shared"'),
        }
        async with (
            ByteServer(lambda _, path: answers[path.partition("service=")[2]]) as server,
            Followed(server.url) as world,
        ):
            world.follow([OTHER, world.key])
            await world.until_listed(0)
            with world.pods.nothing_changes():
                await server.requests(20)

    async def test_304_of_another_tag_than_was_sent_is_an_error(self) -> None:
        answers = {0: http(said(out(0), service="shop"), 'ETag: "a"')}
        async with (
            ByteServer(lambda n, _: answers.get(n, not_modified('"b"'))) as server,
            Followed(server.url) as world,
        ):
            await world.until_error('HTTP 304 confirms ETag "b", not "a"')

    async def test_304_of_a_proxy_that_marks_some_tags_as_weak_confirms(self) -> None:
        answers = {0: http(said(out(0), service="shop"), 'ETag: W/"a"')}
        async with (
            ByteServer(lambda n, _: answers.get(n, not_modified('"a"'))) as server,
            Followed(server.url) as world,
        ):
            await world.until_out("web-0")
            await world.until_confirmed()
            assert not world.error


def http(document: dict[str, Any], *headers: str) -> bytes:
    return reply(json.dumps(document), *headers)


def not_modified(tag: str) -> bytes:
    return f"HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\n\r\n".encode()


OTHER = ServiceKey("own", "other")


GOOD: list[Any] = [
    said(),
    said(service="shop"),
    said(out(0, port=8080, weight=0.5, reason="by hand")),
    said({"pod": "a", "state": "in"}, {"uid": "b", "state": "unknown"}),
    said({"ip": "fd00::1", "state": "in", "port": None, "weight": None}, more="is passed over"),
]
BAD: list[Any] = [
    {},
    said(service=7),
    [],
    {"complete": True},
    {"instances": []},
    said(complete="yes"),
    said({"state": "out"}),
    said({"ip": "", "state": "out"}),
    said({"ip": "10.0.0.1"}),
    said({"ip": "10.0.0.1", "state": "OUT"}),
    said({"ip": "10.0.0.1", "state": "in", "port": 0}),
    said({"ip": "10.0.0.1", "state": "in", "weight": -1}),
    said({"ip": 7, "state": "in"}),
]


class TestSchema:
    def test_it_is_a_schema(self) -> None:
        jsonschema.Draft202012Validator.check_schema(SCHEMA)

    @pytest.mark.parametrize("good", GOOD)
    async def test_document_that_it_allows_is_read(self, good: object) -> None:
        jsonschema.validate(good, SCHEMA)
        named = json.dumps({**good, "service": "shop"}).encode()
        assert len(read_document(named, "shop").instances) == len(good["instances"])  # type: ignore[index]

    @pytest.mark.parametrize("bad", BAD)
    async def test_document_that_it_forbids_is_refused(self, bad: object) -> None:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, SCHEMA)
        with pytest.raises(WrongAnswer):
            read_document(json.dumps(bad).encode(), "shop")

    async def test_documents_of_the_docs_follow_it(self) -> None:
        found = re.findall(r"```json\n(.*?)```", (DOCS / "registries-http.md").read_text(), re.DOTALL)
        assert found
        for text in found:
            jsonschema.validate(json.loads(text), SCHEMA)
            assert read_document(text.encode(), json.loads(text)["service"]).instances

    async def test_list_in_another_order_is_equal(self) -> None:
        one, other = out(1), out(2)
        bodies = [json.dumps(said(*listed, service="shop")).encode() for listed in ((one, other), (other, one))]
        found = [read_document(body, "shop").instances for body in bodies]
        assert found[0] == found[1]
