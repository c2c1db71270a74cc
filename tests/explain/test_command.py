"""`effective-load explain` against an API server that the test plays: errors with advice, saving, watching."""

import argparse
import asyncio
import itertools
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from rich.live import Live

from adapter.cli import FAILED, INVALID, NO_DECISION, OK
from adapter.commands.decide.decision import decision_json
from adapter.commands.decide.reader import read_document
from adapter.commands.explain import COMMAND, command
from adapter.telemetry import logs
from adapter.telemetry.metrics import package_version
from tests.explain.kit import document, explained, hpa_object
from tests.kube.fake import Answer, FakeApi, status, text

POLICY = "/apis/effective-load.io/v1alpha1/namespaces/shop/watermarkpolicies/web"
DECISION = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/watermarkpolicies.effective-load.io/web/decision"
HPA = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web"


REASONS = {
    403: "Forbidden", 404: "NotFound", 409: "Conflict", 413: "RequestEntityTooLarge", 422: "Invalid",
    429: "TooManyRequests", 503: "ServiceUnavailable", 504: "Timeout",
}  # fmt: skip


def refusal(code: int, message: str) -> Answer:
    return status(code, REASONS[code], message)


def handed_out(**changes: Any) -> str:
    """What a server hands out of its decision."""
    served = {"current": 10, "desiredReplicas": 12, "served": "12", "error": None, "heldBy": None}
    return json.dumps({"decision": served, "document": document(), "server": {"version": "0.1.0"}} | changes)


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as api:
        conditions = [{"type": "Ready", "status": "True", "reason": "Decided"}]
        api.otherwise = refusal(404, "the server could not find the requested resource")
        api.answers |= {
            POLICY: text(json.dumps({"spec": {}, "status": {"conditions": conditions}})),
            DECISION: text(handed_out()),
            HPA: text(json.dumps(hpa_object())),
        }
        yield api


@pytest.fixture(autouse=True)
def _own_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logs, "configure", lambda *_: None)  # the test run keeps its own
    return


class Run:
    """Runs the command in a thread, beside the API server."""

    def __init__(self, api: FakeApi, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self.kubeconfig, self._capsys = api, folder / "kubeconfig", capsys
        self.out = self.err = ""

    async def __call__(self, *arguments: str, server: str = "") -> int:
        contexts = [
            {"name": name, "context": {"cluster": "c", "user": "", "namespace": namespace}}
            for name, namespace in (("here", "shop"), ("elsewhere", "other"))
        ]
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here", "contexts": contexts, "users": [],
            "clusters": [{"name": "c", "cluster": {"server": server or self.api.url}}],
        }  # fmt: skip
        self.kubeconfig.write_text(yaml.safe_dump(config))
        parser = argparse.ArgumentParser()
        COMMAND.add(parser)
        parsed = parser.parse_args([*arguments, "--kubeconfig", str(self.kubeconfig)])
        status = await asyncio.to_thread(command.run, parsed)
        self.out, self.err = self._capsys.readouterr()
        return status


@pytest.fixture
def run(api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(api, tmp_path, capsys)


async def test_the_namespace_is_that_of_the_context_as_for_kubectl(run: Run) -> None:
    assert await run("web") == OK
    assert "asks for 12, now 10" in run.out
    assert {path for path, _ in run.api.asked} == {POLICY, DECISION, HPA}
    assert await run("web", "--context", "elsewhere") == FAILED
    assert "/namespaces/other/" in run.api.asked[-1][0]


@pytest.mark.parametrize("name", ["shop/web", "wmp/web", "watermarkpolicy.effective-load.io/web"])
async def test_a_policy_may_be_named_as_kubectl_prints_it(run: Run, name: str) -> None:
    assert await run(name) == OK


async def test_what_is_saved_decides_the_same(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "saved.json"
    assert await run("web", "--save", str(file)) == OK
    assert decision_json(read_document(file.read_text())) == decision_json(read_document(json.dumps(document())))
    assert await run("web", "--save", "-") == OK
    assert json.loads(run.out) == document()


async def test_a_missing_right_is_named_with_the_role_that_has_it_and_what_may_be_read_is_shown(run: Run) -> None:
    run.api.answers[DECISION] = refusal(403, 'User "amy" cannot get resource')
    assert await run("web") == FAILED
    for shown in (
        "missing: the right to get watermarkpolicies.effective-load.io/decision of custom.metrics.k8s.io",
        "--clusterrole=effective-load-metrics-reader",
        "status: Ready True (Decided)",
        "HPA web will: bounds: 1 to 50",
    ):
        assert shown in run.out
    run.api.answers[HPA] = refusal(403, "no")
    assert await run("web") == FAILED
    assert "the right to get horizontalpodautoscalers.autoscaling in namespace shop" in run.out


ALONE = "the server hands out no document: {code} {reason}: {message}"


@pytest.mark.parametrize(
    ("code", "message", "advice"),
    [
        (404, "the server could not find the requested resource", "effective-load is not installed here"),
        (404, "404 page not found", "effective-load is not installed here"),
        (404, "WatermarkPolicy shop/web has no metric decision; it has a", "the server is older than this command"),
        (404, "there is no WatermarkPolicy web in namespace shop", "there is no WatermarkPolicy web"),
        (404, "the server could not find the metric decision for watermarkpolicies web", "another adapter"),
        (503, "service unavailable", "kubectl get pods,endpointslices -n effective-load"),
        (503, "error trying to reach service: dial tcp 10.0.0.1:443", "kubectl get apiservice"),
        (413, "the document of the decision is larger than 16 MiB", ALONE),
        (429, "too many requests, please try again later.", ALONE),
        (503, "other decisions took all of 5 s", ALONE),
        (503, "the inputs of WatermarkPolicy shop/web are not kept", ALONE),
        (504, "request did not complete within the allotted timeout", ALONE),
    ],
)
async def test_why_the_server_hands_out_no_decision_is_said_with_what_to_do_and_is_not_said_to_be_the_hpas_error(
    run: Run, code: int, message: str, advice: str
) -> None:
    run.api.answers[DECISION] = refusal(code, message)
    assert await run("web") == FAILED
    assert advice.format(code=code, reason=REASONS[code], message=message) in run.out
    assert "HPAs get" not in run.out
    assert await run("web", "-o", "json") == FAILED
    assert json.loads(run.out)["error"] is None


@pytest.mark.parametrize(
    ("code", "message", "shown"),
    [
        (409, "Deployment web has other policies as well (old); keep one", "409 Conflict: Deployment web has"),
        (422, "spec.metrics[0].highWatermark: 'many': is no quantity", "422 Invalid: spec.metrics[0]"),
    ],
)
async def test_an_error_that_the_hpa_gets_is_shown_as_what_is_served(
    run: Run, code: int, message: str, shown: str
) -> None:
    run.api.answers[DECISION] = refusal(code, message)
    assert await run("web", "-o", "json") == NO_DECISION
    assert json.loads(run.out)["error"].startswith(shown)


@pytest.mark.parametrize(("version", "is_other"), [(package_version(), False), ("9.9.9", True)])
async def test_a_document_that_cannot_be_read_is_said_to_be_of_another_version_where_it_is(
    run: Run, version: str, is_other: bool
) -> None:
    run.api.answers[DECISION] = text(handed_out(document=document() | {"future": 1}, server={"version": version}))
    assert await run("web") == FAILED
    assert "the server's document cannot be read: " in run.out
    assert ("the server is of another version" in run.out) is is_other


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"served": "12"', b'"served": "abc"'), (b'"served": "12"', b'"served": "1e999"'), (b'"web-', b'"\xff')],
)
async def test_an_answer_that_is_no_decision_is_no_traceback(run: Run, old: bytes, new: bytes) -> None:
    body = handed_out().encode()
    assert old in body

    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body.replace(old, new, 1))

    run.api.answers[DECISION] = answer
    assert await run("web") == FAILED
    assert "the server's document cannot be read: " in run.out


async def test_an_unreachable_cluster_and_an_unknown_context_are_told_from_each_other(run: Run) -> None:
    assert await run("web", "--context", "nowhere") == FAILED
    assert "nowhere" in run.err
    assert await run("web", server="http://127.0.0.1:1") == FAILED
    assert "the API server cannot be asked: GET" in run.out


async def test_a_watch_shows_a_page_so_it_takes_no_file_and_no_json(run: Run) -> None:
    assert await run("web", "--watch", "--save", "x") == INVALID
    assert "leave --save and -o json away" in run.err


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[Any]]:
    """Looks of which the first two are alike and the others too; the fifth ends the watch."""
    monkeypatch.setattr(command, "WATCH_SECONDS", 0.01)
    looks = itertools.count(1)

    async def look() -> Any:
        number = next(looks)
        if number == 5:
            signal.raise_signal(signal.SIGTERM)
        if number < 3:
            return explained(at=explained().at + number)
        return explained(served=None, case=None, trouble=("gone",))

    return look


async def test_a_watch_without_a_terminal_prints_what_changed_and_ends_on_sigterm(
    look: Callable[[], Awaitable[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command.watch(look) == 143
    out = capsys.readouterr().out
    assert (out.count("asks for 12, now 10"), out.count("gone")) == (1, 1)


async def test_a_watch_on_a_terminal_draws_only_what_changed(
    look: Callable[[], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refreshed: list[bool] = []
    update = Live.update
    monkeypatch.setattr(Live, "update", lambda *a, **k: (refreshed.append(True), update(*a, **k)))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert await command.watch(look) == 143
    assert len(refreshed) == 2
    assert "gone" in capsys.readouterr().out
