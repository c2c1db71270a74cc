"""What a check makes of the words of a running adapter: the policies' statuses, and its servers' own."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiohttp import web

from adapter.check import health
from adapter.check.report import ReportSection
from adapter.kube.cluster import ListedPolicy, ReportedStatus
from adapter.kube.objects import Condition
from adapter.runtime.times import format_time
from harness.processes import free_ports
from tests.load.kit import NOW, cpu, policy

SILENCE = "the watch of rollouts has shown no life since 12:00:00, so nothing is decided on what it last said"


def named(name: str, *conditions: tuple[str, str, str, str], age: float | None = 30.0) -> ListedPolicy:
    told = tuple(
        Condition(type=kind, status=status, reason=reason, message=message, last_transition_time="2026-01-01T00:00:00Z")
        for kind, status, reason, message in conditions
    )
    at = "" if age is None else format_time(NOW - age)
    return ListedPolicy("shop", name, policy(cpu(), name=name), status=ReportedStatus(assessed_at=at, conditions=told))


def silent(name: str, **more: Any) -> ListedPolicy:
    return named(name, ("Ready", "False", "WatchSilent", SILENCE), **more)


def ready(name: str, **more: Any) -> ListedPolicy:
    return named(name, ("Ready", "True", "Decided", "a count is decided"), **more)


def told(*policies: ListedPolicy, written: bool = True) -> dict[str, list[str]]:
    return texts(health.status_sections(policies, NOW, written=written))


def texts(sections: list[ReportSection]) -> dict[str, list[str]]:
    return {section.about: [f"{one.verdict}: {one.text}" for one in section.findings] for section in sections}


def test_healthy_statuses_have_no_findings() -> None:
    assert told(ready("a"), ready("b", age=125)) == {}


def test_a_silent_watch_is_listed_once_with_the_policies_that_it_concerns() -> None:
    assert told(silent("a"), ready("b"), silent("c")) == {
        "watches": [f"wrong: {SILENCE} (reported by the status of shop/a, shop/c)"]
    }
    (many,) = told(*(silent(f"p{n}") for n in range(7)))["watches"]
    assert many.endswith("(reported by the status of shop/p0, shop/p1, shop/p2, shop/p3, shop/p4 and 2 more)")


def test_stale_statuses_are_reported_with_their_age_and_their_conditions_ignored() -> None:
    assert told(ready("a", age=400), silent("b", age=500), ready("c")) == {
        "companion": [
            (
                "wrong: it writes every status within two minutes, and these are older, up to 500 s: shop/a, "
                "shop/b; check that it runs, and its log"
            )
        ]
    }
    section = ReportSection("policy shop/b")
    health.add_policy_error(section, named("b", ("Ready", "False", "NoDecision", "no pod serves"), age=500), NOW)
    assert section.findings == []


def test_a_policy_without_a_status_is_noted_unless_none_is_to_be_written() -> None:
    assert told(named("a", age=None)) == {
        "companion": ["note: no status is written yet, so the adapter's view of it is unknown: shop/a"]
    }
    assert told(named("a", age=None), ready("b", age=9000), written=False) == {}


def test_the_error_that_an_hpa_gets_is_a_finding_of_its_policy() -> None:
    section = ReportSection("policy shop/a")
    health.add_policy_error(section, named("a", ("Ready", "False", "NoDecision", "no pod serves")), NOW)
    assert texts([section])["policy shop/a"] == [
        "wrong: its HPA gets an error since 2026-01-01T00:00:00Z (NoDecision): no pod serves"
    ]


@pytest.mark.parametrize(
    "status", [ready("a"), silent("a"), named("a", ("InputsFresh", "False", "InputsMissing", "metric cpu: …"))]
)
def test_a_status_without_an_error_or_with_one_reported_elsewhere_adds_nothing(status: ListedPolicy) -> None:
    section = ReportSection("policy shop/a")
    health.add_policy_error(section, status, NOW)
    assert section.findings == []


def test_a_policy_with_another_wrong_finding_gets_no_second_one() -> None:
    section = ReportSection("policy shop/a")
    section.wrong("there is no HorizontalPodAutoscaler a, which the policy names")
    health.add_policy_error(section, named("a", ("Ready", "False", "NotFound", "HorizontalPodAutoscaler a …")), NOW)
    assert len(section.findings) == 1


@pytest.fixture
async def says(tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    """A server whose word on `/readyz?verbose` is `text`, and its `address`."""
    said: dict[str, Any] = {"text": ""}

    async def readyz(request: web.Request) -> web.Response:
        assert (request.path, "verbose" in request.query) == ("/readyz", True)
        said["authorization"] = request.headers.get("Authorization")
        return web.Response(text=said["text"])

    app = web.Application()
    app.router.add_get("/readyz", readyz)
    runner = web.AppRunner(app)
    await runner.setup()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority = trustme.CA()
    authority.issue_cert("server").configure_cert(context)
    said["authority"] = authority.cert_pem.bytes().decode()
    [port] = free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    said["address"] = f"127.0.0.1:{port}"
    yield said
    await runner.cleanup()


async def test_a_server_says_which_of_its_watches_are_silent(says: dict[str, Any]) -> None:
    about = f"server {says['address']}"
    says["text"] = "[+]ping ok\n[+]caches ok\nreadyz check passed\n"
    assert texts(await health.server_sections([says["address"]])) == {about: ["ok: it is ready"]}
    says["text"] = f"[+]ping ok\n[-]watches failed: {SILENCE}\nreadyz check failed\n"
    assert texts(await health.server_sections([says["address"]])) == {
        about: [f"wrong: it is not ready (watches): {SILENCE}"]
    }
    says["text"] = f"[+]watches ok\n[!]watches: {SILENCE}\nreadyz check passed\n"
    assert texts(await health.server_sections([says["address"]])) == {about: [f"wrong: {SILENCE}"]}


async def test_a_server_that_proves_itself_is_asked_by_the_pods_account(says: dict[str, Any], tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cr3t\n")
    says["text"] = "[+]ping ok\n"
    await health.server_sections([says["address"]], health.ServerAccess(str(token), says["authority"], "server"))
    assert says["authorization"] == "Bearer s3cr3t"


@pytest.mark.parametrize("proof", ["another authority", "another name", "no account"])
async def test_no_credential_is_shown_to_a_server_that_does_not_prove_itself(
    says: dict[str, Any], tmp_path: Path, proof: str
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cr3t\n")
    says["text"] = "[-]caches failed: reason withheld\n[!]watches: reason withheld\nreadyz check failed\n"
    authority = trustme.CA().cert_pem.bytes().decode() if proof == "another authority" else says["authority"]
    name = "other" if proof == "another name" else "server"
    account = None if proof == "no account" else health.ServerAccess(str(token), authority, name)
    found = texts(await health.server_sections([says["address"]], account))[f"server {says['address']}"]
    assert says["authorization"] is None
    assert found[0].startswith("wrong: it is not ready (caches): reason withheld; its log has the reason, and accounts")
    assert found[1].startswith("wrong: watches: reason withheld; its log has the reason")


async def test_servers_that_cannot_be_asked_are_noted_together(says: dict[str, Any]) -> None:
    says["text"] = "[+]ping ok\n"
    one, other = (f"127.0.0.1:{port}" for port in free_ports(2))
    found = texts(await health.server_sections([one, says["address"], other]))
    assert found.keys() == {f"server {says['address']}", "servers"}
    assert found["servers"] == [
        (
            f"note: {one}, {other} cannot be asked from here whether all watches are alive; run the check in a "
            "pod of the server"
        )
    ]
