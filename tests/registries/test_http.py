"""A platform of one's own that is asked, as a stand-in whose answers a test sets."""

import asyncio
import gc
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # no stubs in the lock
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.registries.http import read_document
from adapter.registries.source import ServiceKey
from adapter.runtime.answer_budget import Body
from adapter.runtime.source_errors import WrongRegistryAnswer
from tests.effort import steps
from tests.registries.http_kit import ByteServer, Followed, Platform, out, reply, said
from tests.registries.kit import running
from tests.waiting import eventually

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "registry-http.schema.json").read_text())


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    """A platform that says of web-0 that it is out."""
    platform, app = Platform(), web.Application()
    platform.answer = said(out(0))
    app.router.add_route("*", "/roster", platform.handle)
    async with TestServer(app) as server:
        platform.url = str(server.make_url("/roster"))
        yield platform


@pytest.fixture
async def world(platform: Platform) -> AsyncIterator[Followed]:
    """The service `shop`, of which the platform was heard."""
    async with running(Followed(platform.url)) as followed:
        await followed.until_out("web-0")
        yield followed


def weighed(weight: str) -> str:
    """A document with one pod of this weight."""
    one = f'{{"pod": "web-1", "state": "in", "weight": {weight}}}'
    return f'{{"service": "shop", "complete": true, "instances": [{one}]}}'


class TestStates:
    @pytest.mark.parametrize("one", [{"pod": "web-2"}, {"uid": "uid-web-2"}, {"ip": "10.0.0.12", "port": 8080}])
    async def test_a_pod_is_named_by_name_uid_or_address(
        self, platform: Platform, world: Followed, one: dict[str, object]
    ) -> None:
        platform.answer = said({**one, "state": "out", "reason": "canary failed"})
        await world.until_out("web-2")
        assert world.roster.instances[0].metadata == {"reason": "canary failed"}

    @pytest.mark.parametrize("weight", ["0", "0.0", "-0", "0e5", "0E-400"])
    async def test_a_weight_of_0_is_out(self, platform: Platform, world: Followed, weight: str) -> None:
        platform.answer = weighed(weight)
        await world.until_out("web-1")

    @pytest.mark.parametrize("weight", ["1e-400", "0.5E-9999", "0." + "0" * 400 + "1"])
    async def test_a_weight_that_is_too_small_for_a_float_is_not_0(
        self, platform: Platform, world: Followed, weight: str
    ) -> None:
        platform.answer = weighed(weight)
        await world.until_out()

    async def test_an_unknown_state_is_no_evidence(self, platform: Platform, world: Followed) -> None:
        platform.answer = said({"pod": "web-0", "state": "unknown"}, out(1))
        await world.until_out("web-1")

    async def test_pods_that_are_missing_serve_for_as_long_as_they_like(self, platform: Platform) -> None:
        platform.answer = said(*({"pod": f"web-{n}", "state": "in"} for n in range(4)))
        async with running(Followed(platform.url)) as world:
            await world.until_listed(4)
            with world.pods.nothing_changes():
                platform.answer = said({"pod": "web-0", "state": "in"})
                await world.until_listed(1)
                for _ in range(60):
                    world.clock.jump(10)
                    await platform.questions(1)
                    assert set(world.pods.states().values()) == {"serving"}

    @pytest.mark.parametrize("ip", ["10.0.0.11", " 10.0.0.11 ", "::ffff:10.0.0.11", "[::ffff:10.0.0.11]"])
    async def test_an_address_counts_however_it_is_spelled(self, platform: Platform, world: Followed, ip: str) -> None:
        platform.answer = said({"ip": ip, "state": "out"})
        await world.until_out("web-1")

    @pytest.mark.parametrize("ip", ["10.0.0.11:8080", "[fd00::1]:8080", "web-1.shop", "10.0.0.0/24", "shop/web-1"])
    async def test_what_is_no_address_matches_nobody_and_the_error_says_so(
        self, platform: Platform, world: Followed, ip: str
    ) -> None:
        with world.pods.nothing_changes():
            platform.answer = said({"ip": ip, "state": "out"})
            await world.until_error(f"instances[0].ip {ip!r} is no IP address")


class TestQuestions:
    @pytest.mark.parametrize("place", [{"namespace": "prod/α", "group": "g&h"}, {}])
    async def test_service_namespace_and_group_are_asked_for_where_there_are_any(
        self, platform: Platform, place: dict[str, str]
    ) -> None:
        async with running(Followed(platform.url, place=place)):
            [request] = await platform.questions(1)
        assert dict(request.query) == {"service": "shop", **place}
        assert request.method == "GET"

    async def test_an_address_without_a_path_is_asked_at_its_root(self, platform: Platform) -> None:
        app = web.Application()
        app.router.add_get("/", platform.handle)
        async with TestServer(app) as server, running(Followed(f"http://127.0.0.1:{server.port}")) as world:
            await world.until_out("web-0")

    async def test_an_unchanged_answer_is_confirmed_by_its_tag(self, platform: Platform) -> None:
        platform.etag = '"A-Tag"'
        async with running(Followed(platform.url)) as world:
            await world.until_out("web-0")
            listed, at = world.roster.instances, world.roster.at
            world.clock.jump(1)
            asked = await platform.questions(2)
            assert asked[-1].headers["If-None-Match"] == '"A-Tag"'
            assert world.roster.instances is listed
            assert world.roster.at > at
            platform.answer, platform.etag = said(), '"B"'
            await world.until_out()

    async def test_every_two_minutes_a_service_is_asked_about_without_its_tag(self, platform: Platform) -> None:
        platform.etag = '"same"'
        async with running(Followed(platform.url)) as world:
            await world.until_out("web-0")
            asked = await platform.questions(3)
            assert all("If-None-Match" in request.headers for request in asked[1:])
            platform.answer = said(out(1))  # a platform whose tags say nothing
            world.clock.jump(121)
            await world.until_out("web-1")
            asked = await platform.questions(3)
            assert all("If-None-Match" in request.headers for request in asked[1:])


class TestTrouble:
    """None of it turns a pod out or puts one back."""

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            ("<html>", "not what docs/registries.md asks for"),
            ({"instances": []}, "missing required field `complete`"),
            ({"complete": True, "instances": [{"state": "out"}]}, "instances[0] names no pod"),
            ({"complete": True, "instances": [{"pod": "a", "state": "in", "weight": "1"}]}, "instances[0].weight"),
            ({"complete": False, "instances": []}, "incomplete"),
        ],
    )
    async def test_a_document_that_is_not_believed_leaves_the_last_one(
        self, platform: Platform, answer: object, words: str
    ) -> None:
        platform.answer, platform.etag = said(out(0)), '"good"'
        async with running(Followed(platform.url)) as world:
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
    async def test_a_document_of_another_service_is_not_taken(
        self, platform: Platform, world: Followed, answer: object, words: str
    ) -> None:
        with world.pods.nothing_changes():
            platform.answer = answer
            await world.until_error(words)

    async def test_a_tag_of_a_document_that_was_not_believed_confirms_nothing(
        self, platform: Platform, world: Followed
    ) -> None:
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
    async def test_a_refusal_is_quoted_and_mends(
        self, platform: Platform, world: Followed, status: int, words: str
    ) -> None:
        with world.pods.nothing_changes():
            platform.status = status
            await world.until_error(words)
        platform.status = 200
        await world.until(lambda: not world.error)


class Answers(ByteServer):
    """Answers each service with bytes of its own."""

    def __init__(self) -> None:
        super().__init__(lambda _, path: self.of[path.partition("service=")[2]])
        self.of = {"shop": http(said(out(0), service="shop"), 'ETag: "a"')}


@pytest.fixture
async def answers() -> AsyncIterator[Answers]:
    async with Answers() as server:
        yield server


def http(document: dict[str, Any], *headers: str) -> bytes:
    return reply(json.dumps(document), *headers)


OTHER = ServiceKey("own", "other")


class TestAnswersOfOtherQuestions:
    async def test_one_answer_too_many_gives_no_service_anothers_document(self, answers: Answers) -> None:
        extra = http(said(out(0), out(1), service="other"), 'ETag: "shared"')
        answers.of = {
            "other": http(said(service="other"), 'ETag: "shared"') + extra,
            "shop": http(said(service="shop"), 'ETag: "shared"'),
        }
        world = Followed(answers.url)
        world.follow([OTHER, world.key])
        async with running(world):
            await world.until_listed(0)
            for _ in range(5):
                asked = len(answers.heads)
                await eventually(lambda asked=asked: len(answers.heads) >= asked + 2)  # type: ignore[misc]  # a default
                assert world.pods.out() == []
            assert "more answers than requests" in world.error_of(OTHER)

    async def test_a_round_with_one_answer_too_many_is_asked_again_without_tags(self, answers: Answers) -> None:
        async with running(Followed(answers.url, interval_seconds=100)) as world:
            await world.until_out("web-0")
            answers.of["other"] = http(said(service="other")) + answers.of["shop"]
            asked = len(answers.heads)
            world.follow([world.key, OTHER])
            await world.until(lambda: world.error_of(OTHER))
            again = [one for one in answers.heads[asked:] if "service=other" in one]
            assert len(again) == 2
            assert all("If-None-Match" not in one for one in again)

    async def test_after_one_answer_too_many_every_service_is_asked_without_its_tag(self, answers: Answers) -> None:
        async with running(Followed(answers.url)) as world:
            await world.until(lambda: "If-None-Match" in answers.heads[-1] if answers.heads else False)
            asked = len(answers.heads)
            answers.of["other"] = http(said(service="other")) + answers.of["shop"]
            world.follow([world.key, OTHER])
            await world.until(lambda: world.error_of(OTHER))

            def again() -> list[str]:
                return [one for one in answers.heads[asked:] if "service=shop" in one and "If-None-Match" not in one]

            await eventually(again)

    async def test_a_304_that_confirms_another_tag_than_was_sent_is_not_taken(self, answers: Answers) -> None:
        async with running(Followed(answers.url)) as world:
            await world.until_out("web-0")
            answers.of["shop"] = b'HTTP/1.1 304 Not Modified\r\nETag: "b"\r\n\r\n'
            await world.until_error('HTTP 304 confirms ETag "b", not "a"')

    async def test_a_304_of_a_proxy_that_marks_some_tags_as_weak_confirms(self, answers: Answers) -> None:
        answers.of["shop"] = http(said(out(0), service="shop"), 'ETag: W/"a"')
        async with running(Followed(answers.url)) as world:
            await world.until_out("web-0")
            answers.of["shop"] = b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n'
            await world.until_confirmed()
            assert not world.error


@pytest.fixture
def collector_off() -> Iterator[None]:
    """No full collections, as in the adapter: one of all that tests have left costs more than what is measured."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collector_off")
async def test_a_long_document_holds_the_loop_for_a_moment_only(platform: Platform) -> None:
    listed = [{"ip": f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", "state": "in"} for n in range(20_000)]
    platform.answer = json.dumps(said(*listed, out(1), service="shop"))
    world = Followed(platform.url, timeout_seconds=30)
    asking = asyncio.create_task(world.source.run())
    await platform.questions(1)
    with steps() as longest:
        async with asyncio.timeout(60):
            while world.listed < 0:  # noqa: ASYNC110
                await asyncio.sleep(0)
    asking.cancel()
    assert longest.calls < 5 * len(listed), "a step reads a part of the document"


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
    async def test_what_it_allows_can_be_read(self, good: object) -> None:
        jsonschema.validate(good, SCHEMA)
        assert len((await read_document(Body(json.dumps(good).encode()))).instances) == len(good["instances"])  # type: ignore[index]

    @pytest.mark.parametrize("bad", BAD)
    async def test_what_it_does_not_allow_is_refused(self, bad: object) -> None:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, SCHEMA)
        with pytest.raises(WrongRegistryAnswer):
            await read_document(Body(json.dumps(bad).encode()))

    @pytest.mark.parametrize("page", ["registries.md", "registries-http.md"])
    async def test_the_documents_in_the_docs_keep_to_it(self, page: str) -> None:
        found = re.findall(r"```json\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
        assert found
        for text in found:
            jsonschema.validate(json.loads(text), SCHEMA)
            assert (await read_document(Body(text.encode()))).instances

    async def test_a_list_in_another_order_is_no_change(self) -> None:
        one, other = out(1), out(2)
        bodies = [json.dumps(said(*listed)).encode() for listed in ((one, other), (other, one))]
        found = [(await read_document(Body(body))).instances for body in bodies]
        assert found[0] == found[1]
