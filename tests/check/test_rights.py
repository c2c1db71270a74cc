"""The rights of the accounts: every rule of the shipped roles that the settings need, reviewed by the API server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from adapter.commands.check.rights import check_rights, needed_rights
from adapter.kube.session import Session
from adapter.settings import Settings, parse_settings
from tests.kube.fake import FakeApi, status

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
EVERY_FEATURE = (
    "companion: {features: {status: true, events: true, fastScaleUp: true, deletionCost: true, hpaConfiguration: true}}"
    "\nserver: {externalMetrics: true}"
)


class Rights:
    """Answers reviews: everything is allowed but what is `denied` (verb, resource, namespace)."""

    def __init__(self) -> None:
        self.denied: set[tuple[str, str, str]] = set()
        self.all_denied = False
        self.asked: list[dict[str, Any]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        spec = (await request.json())["spec"]
        self.asked.append(spec)
        asked = spec["resourceAttributes"]
        what = (asked["verb"], asked["resource"], asked["namespace"])
        return web.json_response({"status": {"allowed": not self.all_denied and what not in self.denied}})


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest.fixture
async def api(rights: Rights) -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        api.answers[REVIEWS] = rights.answer
        yield api


async def review(session: Session, settings: str = "", component: str = "server") -> list[str]:
    found = await check_rights(session, parse_settings(settings), component, "metrics", "el")
    return [f"{one.level.value}: {one}" for one in found]


async def test_an_account_with_all_rights_is_ok(session: Session, rights: Rights) -> None:
    (line,) = await review(session)
    assert line.startswith("ok: it has all ")
    assert {one["user"] for one in rights.asked} == {"system:serviceaccount:metrics:el"}
    assert "system:serviceaccounts:metrics" in rights.asked[0]["groups"]


async def test_a_right_in_each_watched_namespace_suffices(session: Session, rights: Rights) -> None:
    rights.denied = {("watch", "pods", "")}
    two = "kubernetes: {namespaces: [shop, cart]}"
    assert (await review(session, two))[0].startswith("ok")
    rights.denied.add(("watch", "pods", "cart"))
    assert (await review(session, two))[0].startswith("error: it may not watch pods in cart; apply")


async def test_an_account_without_any_right_is_one_error(session: Session, rights: Rights) -> None:
    rights.all_denied = True
    (line,) = await review(session)
    assert line.startswith("error: it has none of its rights; apply the manifests again")


async def test_reviews_that_are_refused_are_skipped(api: FakeApi, session: Session) -> None:
    api.answers[REVIEWS] = status(403, "Forbidden", "no reviews")
    (line,) = await review(session)
    assert line.startswith("skipped: its rights, for ")


def of_role(role: str, settings: str, component: str = "companion") -> set[str]:
    found = needed_rights(component, parse_settings(settings), "metrics")
    return {f"{right} {right.namespace}".strip() for right in found if right.role == role}


def test_the_settings_decide_which_roles_are_needed() -> None:
    roles = {right.role for right in needed_rights("companion", parse_settings(EVERY_FEATURE), "metrics")}
    assert {f"effective-load-companion-{one}" for one in ("status", "events", "deletion-cost")} <= roles
    base = {right.role for right in needed_rights("companion", Settings(), "metrics")}
    assert "effective-load-companion-deletion-cost" not in base
    assert of_role("effective-load-external-apiservice", EVERY_FEATURE, "server")
    own = "server: {tls: {mode: Files, certFile: /a, keyFile: /b, injectCABundle: false}}"
    assert not of_role("effective-load-apiservices", own, "server") | of_role(
        "effective-load-certificates", own, "server"
    )


def test_names_and_the_namespace_are_those_of_the_settings() -> None:
    assert "update leases.coordination.k8s.io mine metrics" in of_role(
        "effective-load-companion-lease", "companion: {lease: mine}"
    )
