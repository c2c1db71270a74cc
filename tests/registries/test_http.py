"""A platform of one's own that is asked, as a stand-in whose answers a test sets."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # no stubs in the lock
import pytest

from adapter.registries.http import read_document
from adapter.runtime.source_errors import WrongAnswer
from tests.registries.http_kit import Platform, following, out, said
from tests.registries.kit import FollowedService, served

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "registry-http.schema.json").read_text())


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    """A platform that says of web-0 that it is out."""
    platform = Platform()
    platform.answer = said(out(0))
    async with served(platform.handle) as platform.url:
        yield platform


@pytest.fixture
async def world(platform: Platform) -> AsyncIterator[FollowedService]:
    """The service `shop`, of which the platform was heard."""
    async with following(platform.url) as followed:
        await followed.until_out("web-0")
        yield followed


class TestStates:
    @pytest.mark.parametrize("one", [{"pod": "web-2"}, {"uid": "uid-web-2"}, {"ip": "10.0.0.12", "port": 8080}])
    async def test_pod_is_named_by_name_uid_or_address(
        self, platform: Platform, world: FollowedService, one: dict[str, object]
    ) -> None:
        platform.answer = said({**one, "state": "out", "reason": "canary failed"})
        await world.until_out("web-2")
        assert world.listing.instances[0].metadata == {"reason": "canary failed"}

    async def test_unknown_state_is_not_evidence(self, platform: Platform, world: FollowedService) -> None:
        platform.answer = said({"pod": "web-0", "state": "unknown"}, out(1))
        await world.until_out("web-1")

    async def test_pods_that_are_not_listed_serve_without_limit(self, platform: Platform) -> None:
        platform.answer = said(*({"pod": f"web-{n}", "state": "in"} for n in range(4)))
        async with following(platform.url) as world:
            await world.until_listed(4)
            with world.pods.nothing_changes():
                platform.answer = said({"pod": "web-0", "state": "in"})
                await world.until_listed(1)
                for _ in range(10):
                    world.clock.jump(60)
                    await platform.questions(1)
                    assert set(world.pods.states().values()) == {"serving"}


class TestQuestions:
    @pytest.mark.parametrize("place", [{"namespace": "prod/α", "group": "g&h"}, {}])
    async def test_service_namespace_and_group_are_parameters(self, platform: Platform, place: dict[str, str]) -> None:
        async with following(platform.url, place=place):
            [request] = await platform.questions(1)
        assert dict(request.query) == {"service": "shop", **place}
        assert request.method == "GET"


class TestTags:
    async def test_tag_of_an_invalid_document_is_not_sent(self, platform: Platform, world: FollowedService) -> None:
        with world.pods.nothing_changes():
            platform.answer, platform.etag = said(complete=False), '"bad"'
            await world.until_error("incomplete")
            asked = await platform.questions(3)
            assert all("If-None-Match" not in request.headers for request in asked[1:])
        platform.answer = said()
        await world.until_out()

    async def test_304_confirms_the_tag_that_was_sent_and_no_other(self, platform: Platform) -> None:
        """A proxy that compresses adds the mark of weakness to some answers and not to others."""
        platform.etag = 'W/"a"'
        async with following(platform.url) as world:
            await world.until_out("web-0")
            listed, platform.confirms = world.listing.instances, '"a"'
            await world.until_confirmed()
            assert platform.asked[-1].headers["If-None-Match"] == 'W/"a"'
            assert world.listing.instances is listed
            assert not world.error
            platform.confirms = '"b"'
            await world.until_error('HTTP 304 confirms ETag "b", not W/"a"')
            assert world.pods.out() == ["web-0"]


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
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
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
