"""Whether the adapter's accounts have the rights that the settings need, and no more is needed than manifests grant."""

import json
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from adapter.commands.check.report import report_lines
from adapter.commands.check.rights import Account, Right, needed_rights, own_name, rights_section
from adapter.kube.session import Session
from adapter.settings import Settings, parse_settings
from tests.kube.fake import FakeApi, status
from tests.manifests.rendering import MANIFESTS, documents

SELF = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OTHERS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
IDENTITY = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SERVER = "system:serviceaccount:effective-load:effective-load"
FEATURES = {"status": "status", "events": "events", "fastScaleUp": "fast-scale-up", "deletionCost": "deletion-cost",
            "hpaConfiguration": "hpa-configuration"}  # fmt: skip


class Rights:
    """Answers reviews: everything is allowed but what is `denied` (verb, resource, namespace)."""

    def __init__(self) -> None:
        self.denied: set[tuple[str, str, str]] = set()
        self.asked: list[dict[str, Any]] = []
        self.impersonated: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        spec = (await request.json())["spec"]
        self.asked.append(spec)
        self.impersonated |= {request.headers.get("Impersonate-User", "")} - {""}
        asked = spec.get("resourceAttributes") or {**spec["nonResourceAttributes"], "resource": "", "namespace": ""}
        what = (asked["verb"], asked["resource"], asked["namespace"])
        return web.json_response({"status": {"allowed": what not in self.denied}})


@pytest.fixture
def rights() -> Rights:
    return Rights()


@pytest.fixture
async def api(rights: Rights) -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        api.answers |= {SELF: rights.answer, OTHERS: rights.answer}
        yield api


async def review(session: Session, settings: str = "", own: str = "", account: Account = Account.SERVER) -> list[str]:
    """The findings as lines, without the section's name and the summary."""
    name = "effective-load" if account is Account.SERVER else "effective-load-companion"
    section = await rights_section(session, parse_settings(settings), account, "effective-load", name, own)
    return list(report_lines([section], verbose=True))[1:-1]


async def test_another_account_is_reviewed_with_its_groups(session: Session, rights: Rights) -> None:
    await review(session, own="kubernetes-admin")
    assert {one["user"] for one in rights.asked} == {SERVER}
    assert "system:serviceaccounts:effective-load" in rights.asked[0]["groups"]


async def test_the_own_account_needs_no_right_to_review(api: FakeApi, session: Session, rights: Rights) -> None:
    api.answers[OTHERS] = status(403, "Forbidden")
    (line,) = await review(session, own=SERVER)
    assert line.startswith("  ok")
    assert not any("user" in one for one in rights.asked)


async def test_who_may_not_review_others_impersonates_them(api: FakeApi, session: Session, rights: Rights) -> None:
    api.answers[OTHERS] = status(403, "Forbidden")
    (line,) = await review(session, own="bob")
    assert line.startswith("  ok")
    assert rights.impersonated == {SERVER}


async def test_what_cannot_be_reviewed_is_one_finding_and_not_wrong(api: FakeApi, session: Session) -> None:
    api.answers |= {OTHERS: status(403, "Forbidden", "no reviews"), SELF: status(403, "Forbidden", "no impersonation")}
    (line,) = await review(session, own="bob")
    assert line.startswith("  skip   not checked: its rights, for ")
    assert "no reviews" in line


TWO_NAMESPACES = "kubernetes: {namespaces: [shop, cart]}"
WATCH_PODS, GET_DEFINITIONS = ("watch", "pods", ""), ("get", "customresourcedefinitions", "")


@pytest.mark.parametrize(
    ("denied", "settings", "begins", "ends"),
    [
        pytest.param((), "", "  ok     it has all ", "", id="all rights fit on one line"),
        pytest.param(
            (("list", "pods", ""), WATCH_PODS, ("watch", "endpointslices", "")), "",
            "  wrong  it may not list, watch pods; watch endpointslices.discovery.k8s.io; list pods.metrics.k8s.io: ",
            ": apply effective-load-server and its binding (manifests/base/rbac.yaml)",
            id="what lacks of one role is one finding",
        ),
        pytest.param((WATCH_PODS,), TWO_NAMESPACES, "  ok", "", id="a right in each watched namespace is enough"),
        pytest.param(
            (WATCH_PODS, ("watch", "pods", "cart")), TWO_NAMESPACES,
            "  wrong  it may not watch pods in cart: apply effective-load-server", "", id="one in some of them is not",
        ),
        pytest.param(
            (GET_DEFINITIONS,), "kubernetes: {namespaces: [shop]}",
            "  note   it may not get customresourcedefinitions.apiextensions.k8s.io (effective-load-server",
            "which is for scale targets that are custom resources", id="a right for some uses only is a note",
        ),
        pytest.param(
            (WATCH_PODS, GET_DEFINITIONS), "", "  wrong  it may not watch pods: apply effective-load-server", "",
            id="beside a missing role its lesser uses are not listed",
        ),
    ],
)  # fmt: skip
async def test_what_an_account_lacks_is_one_finding_with_its_remedy(
    session: Session, rights: Rights, denied: tuple[tuple[str, str, str], ...], settings: str, begins: str, ends: str
) -> None:
    rights.denied = set(denied)
    (line,) = await review(session, settings)
    assert line.startswith(begins)
    assert line.endswith(ends)


async def test_an_account_without_any_right_is_one_finding(api: FakeApi, session: Session) -> None:
    async def deny(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"status": {"allowed": False}})

    api.answers[OTHERS] = deny
    (line,) = await review(session)
    assert line.startswith("  wrong  it has none of its rights: apply the manifests again")


async def test_the_own_name_is_empty_where_nobody_tells(api: FakeApi, session: Session) -> None:
    assert await own_name(session) == ""
    api.answers[IDENTITY] = identity
    assert await own_name(session) == SERVER


async def identity(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"status": {"userInfo": {"username": SERVER}}})


# --- the table and the manifests ---


class Granted(NamedTuple):
    """One verb on one object, or on all."""

    verb: str
    group: str
    resource: str
    name: str
    namespace: str


KUBERNETES_OWN: dict[str, list[dict[str, Any]]] = {
    "system:auth-delegator": [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ],
    "extension-apiserver-authentication-reader": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"],
         "resourceNames": ["extension-apiserver-authentication"]},
    ],
}  # fmt: skip
"""Roles that Kubernetes brings; the second also grants list and watch, which nobody here needs."""


def granted(account: str, folders: Iterable[str]) -> set[Granted]:
    """What the manifests of some folders grant an account."""
    found = [item for folder in folders for file in sorted((MANIFESTS / folder).glob("*rbac.yaml"))
             for item in documents(Path(file))]  # fmt: skip
    rules = {item["metadata"]["name"]: item["rules"] for item in found if item["kind"] in {"ClusterRole", "Role"}}
    rights = set()
    for item in found:
        if item["kind"].endswith("Binding") and account in {one["name"] for one in item["subjects"]}:
            where = item["metadata"].get("namespace", "") if item["kind"] == "RoleBinding" else ""
            for rule in (rules | KUBERNETES_OWN)[item["roleRef"]["name"]]:
                rights |= set(_granted(rule, where))
    return rights


def _granted(rule: dict[str, Any], namespace: str) -> Iterable[Granted]:
    for verb in rule["verbs"]:
        for path in rule.get("nonResourceURLs", ()):
            yield Granted(verb, "", path, "", "")
        for group in rule.get("apiGroups", ()):
            for resource in rule.get("resources", ()):
                for name in rule.get("resourceNames", [""]):
                    yield Granted(verb, group, resource, name, namespace)


def needed(account: Account, settings: Settings) -> set[Granted]:
    return {
        Granted(verb, one.group, one.path or one.resource, one.name, one.namespace)
        for one in needed_rights(account, settings)
        for verb in one.verbs
    }


OFF = dict.fromkeys(FEATURES, False)


@pytest.mark.parametrize(
    ("account", "settings", "components"),
    [
        (Account.SERVER, {}, []),
        (Account.SERVER, {"server": {"externalMetrics": True}}, ["external-metrics"]),
        (Account.COMPANION, {"companion": {"features": OFF}}, ["companion"]),
        *(
            (Account.COMPANION, {"companion": {"features": OFF | {name: True}}}, ["companion", f"companion-{folder}"])
            for name, folder in FEATURES.items()
        ),
    ],
)
def test_the_manifests_grant_exactly_what_the_settings_need(
    account: Account, settings: dict[str, Any], components: list[str]
) -> None:
    name = "effective-load" if account is Account.SERVER else "effective-load-companion"
    folders = ["base", *(f"components/{component}" for component in components)]
    assert granted(name, folders) == needed(account, parse_settings(json.dumps(settings)))


@pytest.mark.parametrize("account", Account)
def test_every_right_names_the_role_that_grants_it(account: Account) -> None:
    everything = parse_settings(
        json.dumps({
            "server": {"externalMetrics": True},
            "companion": {"features": dict.fromkeys(FEATURES, True)},
        })
    )  # fmt: skip
    for right in needed_rights(account, everything):
        assert _grants(right), right


def _grants(right: Right) -> bool:
    roles = {
        item["metadata"]["name"]: item["rules"] for item in documents(MANIFESTS.parent / right.file) if "rules" in item
    }
    rules = (roles | KUBERNETES_OWN)[right.role]
    given = {one[:3] for rule in rules for one in _granted(rule, "")}
    return all((verb, right.group, right.path or right.resource) in given for verb in right.verbs)


def test_certificates_from_files_need_no_secret() -> None:
    files = "server: {tls: {mode: Files, certFile: a, keyFile: b, injectCABundle: false}}"
    resources = {one.resource for one in needed_rights(Account.SERVER, parse_settings(files))}
    assert not resources & {"secrets", "apiservices"}
