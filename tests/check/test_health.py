"""What a check makes of the words of a running adapter: the policies' statuses, and its servers' own."""

from typing import Any

import pytest

from adapter.commands.check.cluster_checks import add_policy_error, server_sections, status_sections
from adapter.commands.check.report import ReportSection
from adapter.commands.cluster import Cluster, ListedPolicy, ReportedStatus
from adapter.kube.errors import Forbidden
from adapter.kube.objects import Condition
from adapter.runtime.times import format_time
from adapter.settings import Settings
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


def undecided(name: str = "a", **more: Any) -> ListedPolicy:
    return named(name, ("Ready", "False", "NoDecision", "no pod serves"), **more)


def told(*policies: ListedPolicy, written: bool = True) -> dict[str, list[str]]:
    return found_texts(status_sections(policies, NOW, written=written))


def found_texts(sections: list[ReportSection]) -> dict[str, list[str]]:
    return {section.about: [f"{one.verdict}: {one.text}" for one in section.findings] for section in sections}


def test_a_silent_watch_is_listed_once_with_the_policies_that_it_concerns() -> None:
    assert told(silent("a"), ready("b", age=125), silent("c")) == {
        "watches": [f"wrong: {SILENCE} (reported by the status of shop/a, shop/c)"]
    }
    (many,) = told(*(silent(f"p{n}") for n in range(7)))["watches"]
    assert many.endswith("(reported by the status of shop/p0, shop/p1, shop/p2, shop/p3, shop/p4 and 2 more)")


def test_statuses_that_are_old_or_missing_are_reported_unless_none_is_to_be_written() -> None:
    ((about, (line,)),) = told(ready("a", age=400), silent("b", age=500), ready("c")).items()
    assert about == "companion"
    assert "these are older, up to 500 s: shop/a, shop/b;" in line
    ((_, (line,)),) = told(named("a", age=None)).items()
    assert line == "note: no status is written yet, so the adapter's view of it is unknown: shop/a"
    assert told(named("a", age=None), ready("b", age=9000), written=False) == {}


def policy_errors(listed: ListedPolicy, *before: str, every: bool = False) -> list[str]:
    section = ReportSection("policy shop/a")
    for text in before:
        section.wrong(text)
    add_policy_error(section, listed, NOW, every=every)
    return found_texts([section])["policy shop/a"][len(before) :]


def test_the_error_that_an_hpa_gets_is_a_finding_of_its_policy() -> None:
    error = "wrong: its HPA gets an error since 2026-01-01T00:00:00Z (NoDecision): no pod serves"
    assert policy_errors(undecided()) == [error]
    assert policy_errors(undecided(), "there is no HorizontalPodAutoscaler a") == []
    assert policy_errors(undecided(), "there is no HorizontalPodAutoscaler a", every=True) == [error]


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(ready("a"), id="no error"),
        pytest.param(silent("a"), id="a silent watch, which is reported elsewhere"),
        pytest.param(named("a", ("InputsFresh", "False", "InputsMissing", "metric cpu: …")), id="missing inputs"),
        pytest.param(undecided(age=500), id="an old status"),
    ],
)
def test_other_statuses_add_nothing_to_their_policy(status: ListedPolicy) -> None:
    assert policy_errors(status) == []


class Pods(Cluster):
    """A Service with these pods, each with its text for `/readyz?verbose&report`; None: it cannot be asked."""

    def __init__(self, texts: dict[str, str | None]) -> None:
        self._texts = texts
        self.session = self  # type: ignore[assignment]

    async def service_pods(self, namespace: str, service: str) -> list[str]:
        assert (namespace, service) == ("effective-load", "effective-load")
        return list(self._texts)

    async def get(self, path: str, *, params: dict[str, str], **_: object) -> bytes:
        assert params == {"verbose": "", "report": ""}
        pod = path.removeprefix("/api/v1/namespaces/effective-load/pods/").removesuffix(":8080/proxy/readyz")
        text = self._texts[pod]
        if text is None:
            raise Forbidden(403, "Forbidden", "pods/proxy is not yours")
        return text.encode()


async def sections(**texts: str | None) -> dict[str, list[str]]:
    return found_texts(await server_sections(Pods(texts), Settings()))


async def test_a_server_says_through_the_api_server_which_of_its_watches_are_silent() -> None:
    assert await sections(a="[+]ping ok\n[+]caches ok\nreadyz check passed\n") == {"server a": ["ok: it is ready"]}
    assert await sections(a=f"[+]ping ok\n[-]watches failed: {SILENCE}\nreadyz check failed\n") == {
        "server a": [f"wrong: it is not ready (watches): {SILENCE}"]
    }
    assert await sections(a=f"[+]watches ok\n[!]watches: {SILENCE}\nreadyz check passed\n") == {
        "server a": [f"wrong: {SILENCE}"]
    }


async def test_settings_that_wait_for_a_restart_are_wrong() -> None:
    text = "settings wait for a restart: server.port; kubectl rollout restart"
    assert await sections(a=f"[+]watches ok\n[!]settings: {text}\nreadyz check passed\n") == {
        "server a": [f"wrong: {text}"]
    }


async def test_servers_that_cannot_be_asked_are_noted_together() -> None:
    found = await sections(a=None, b="[+]ping ok\n", c=None)
    assert found.keys() == {"server b", "servers"}
    [note] = found["servers"]
    assert note.startswith("note: a, c cannot be asked whether all watches are alive: ")
