"""Whether an account may read what decisions need."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from adapter.check.report import report_lines
from adapter.check.rights import rights_section
from adapter.kube.session import Session
from tests.kube.fake import FakeApi, status

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Rights:
    """Answers reviews: everything is allowed but what is `denied`."""

    def __init__(self) -> None:
        self.denied: set[tuple[str, str, str]] = set()
        self.asked: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        asked = (await request.json())["spec"]["resourceAttributes"]
        self.asked.append(asked)
        what = (asked["verb"], asked["resource"], asked["namespace"])
        return web.json_response({"status": {"allowed": what not in self.denied}})


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest.fixture
async def session(rights: Rights) -> AsyncIterator[Session]:
    async with FakeApi() as api, Session(api.load) as session:
        api.answers[REVIEWS] = rights.answer
        yield session


async def test_all_rights_are_told_in_one_line(session: Session, rights: Rights) -> None:
    assert list(report_lines([await rights_section(session, ())], verbose=True))[:-1] == [
        "rights",
        "  ok     this account may list and watch pods, horizontalpodautoscalers, endpointslices, watermarkpolicies",
    ]
    assert {(one["group"], one["resource"]) for one in rights.asked} == {
        ("", "pods"),
        ("autoscaling", "horizontalpodautoscalers"),
        ("discovery.k8s.io", "endpointslices"),
        ("effective-load.io", "watermarkpolicies"),
    }


async def test_each_right_that_is_missing_is_named_with_its_namespace(session: Session, rights: Rights) -> None:
    rights.denied = {("watch", "pods", "shop"), ("list", "endpointslices", "cart")}
    remedy = "bind ClusterRole effective-load-server to it"
    assert list(report_lines([await rights_section(session, ("shop", "cart"))]))[1:-1] == [
        f"  wrong  this account may not watch pods in namespace shop: {remedy}",
        f"  wrong  this account may not list endpointslices in namespace cart: {remedy}",
    ]


async def test_what_cannot_be_found_out_is_noted() -> None:
    async with FakeApi() as api, Session(api.load) as session:
        api.answers[REVIEWS] = status(403, "Forbidden", "no reviews")
        (line,) = list(report_lines([await rights_section(session, ())]))[1:-1]
    assert line.startswith("  note   what this account may do cannot be found out")
    assert "no reviews" in line
