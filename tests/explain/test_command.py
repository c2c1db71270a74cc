"""`effective-load explain` against an API server that the test plays: the page, the HPA on it, errors with advice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import FAILED, INVALID, NO_DECISION, OK, main
from adapter.commands.explain.hpa import did_last, will_do
from adapter.telemetry import logs
from tests.explain.kit import answer, answered, document, explained, hpa_object, items
from tests.kube.fake import FakeApi, status

POLICY = "/apis/effective-load.io/v1alpha1/namespaces/shop/watermarkpolicies"
DECISION = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/watermarkpolicies.effective-load.io/web/decision"
HPA = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
REASONS = {403: "Forbidden", 404: "NotFound", 409: "Conflict", 422: "Invalid", 503: "ServiceUnavailable"}


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    ready = {"type": "Ready", "status": "True", "reason": "Decided", "message": "a count is decided"}
    policy = {**document()["policy"], "status": {"conditions": [ready]}}
    async with FakeApi() as api:
        api.answers |= {
            POLICY: items(policy),
            DECISION: answer(answered()),
            HPA: items(hpa_object()),
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
        names = (("here", "shop"), ("elsewhere", "other"))
        contexts = [{"name": one, "context": {"cluster": "c", "user": "", "namespace": space}} for one, space in names]
        clusters = [{"name": "c", "cluster": {"server": api.url}}]
        config = {"apiVersion": "v1", "kind": "Config", "current-context": "here", "contexts": contexts, "users": []}
        self.kubeconfig.write_text(yaml.safe_dump({**config, "clusters": clusters}))

    async def __call__(self, *arguments: str) -> int:
        def main_status() -> int:
            try:
                return main(["explain", *arguments, "--kubeconfig", str(self.kubeconfig)])
            except SystemExit as ended:  # of arguments that do not parse
                return int(ended.code or 0)

        status = await asyncio.to_thread(main_status)
        self.out, self.err = self._capsys.readouterr()
        return status


@pytest.fixture
def run(api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(api, tmp_path, capsys)


async def test_the_page_shows_the_servers_decision(run: Run) -> None:
    assert await run("web") == OK
    for line in (
        "asks for 12 (now 10), served as 12",
        "the load allows at least 12",
        "● effective 1440m   ○ over all running pods 1008m   ┃ 0 … 1200m",
        "pulled out by hand (annotation effective-load.io/pulled-out)",
        "it sets 12 (now 10)",
        "it has never scaled",
    ):
        assert line in run.out
    (source,) = [line for line in run.out.splitlines() if line.strip().startswith("metrics.k8s.io ")]
    assert "the oldest sample counts" in source
    lines = run.out.splitlines()
    assert [line.strip()[0] for line in lines if "pulledOut" in line and "✗" in line] == ["✗"] * 3
    assert "\x1b" not in run.out, "without a terminal it is plain"


async def test_the_namespace_is_that_of_the_context(run: Run) -> None:
    assert await run("web", "--context", "elsewhere") == FAILED
    assert "/namespaces/other/" in run.api.asked[-1][0]


@pytest.mark.parametrize("name", ["shop/web", "wmp/web", "watermarkpolicy.effective-load.io/web"])
async def test_a_policy_may_be_named_as_kubectl_prints_it(run: Run, name: str) -> None:
    assert await run(name) == OK


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["eyes/web", "-n", "other"], "POLICY names namespace eyes, and -n names other"),
        (["../../x"], "'../../x' is not NAME or NAMESPACE/NAME"),
        (["a b"], "'a b' is not NAME or NAMESPACE/NAME"),
        (["web", "-n", "a/b"], "'a/b' is not the name of a namespace"),
    ],
    ids=["contradiction", "path", "space", "namespace"],
)
async def test_a_name_that_cannot_be_one_is_the_only_error(run: Run, arguments: list[str], said: str) -> None:
    assert await run(*arguments) == INVALID
    assert said in run.err
    assert "kubeconfig" not in run.err.splitlines()[-1]
    assert not run.api.asked


@pytest.mark.parametrize(
    ("path", "given"),
    [
        (DECISION, {"decision": {"current": "two"}, "document": {}}),
        (DECISION, {"decision": {}}),
        (DECISION, []),
        (DECISION, {**answered(), "document": {"now": 5}}),
        (POLICY, {"items": [{"metadata": {"namespace": "shop", "name": "web"}, "spec": {}}]}),
        (HPA, {"items": [{**hpa_object(), "status": {"conditions": None, "lastScaleTime": None}}]}),
    ],
    ids=["values", "keys", "list", "document", "policy", "HPA"],
)
async def test_no_python_error_reaches_a_person(run: Run, path: str, given: Any) -> None:
    run.api.answers[path] = answer(given)
    assert await run("web") in {OK, FAILED}
    assert "WatermarkPolicy shop/web" in run.out
    for word in ("Error", "Expected", "object is not", "Object", "None", "Traceback"):
        assert word not in run.out + run.err


@pytest.mark.parametrize(
    ("code", "message", "exits", "says"),
    [
        (403, "no", FAILED, "--clusterrole=effective-load-metrics-reader"),
        (404, "there is no WatermarkPolicy web", FAILED, "no decision can be read: there is no WatermarkPolicy web"),
        (422, "hold-until: no time", NO_DECISION, "HPAs get this error: 422 Invalid: hold-until: no time"),
        (
            503,
            "the watch of pods has shown no life",
            NO_DECISION,
            "HPAs get this error: 503 ServiceUnavailable: the wat",
        ),
        (503, "service unavailable", FAILED, "`effective-load check` finds the cause"),
    ],
)
async def test_why_there_is_no_decision_is_said(run: Run, code: int, message: str, exits: int, says: str) -> None:
    run.api.answers[DECISION] = status(code, REASONS[code], message)
    assert await run("web") == exits
    assert says in run.out
    assert "Ready True (Decided): a count is decided" in run.out, "what the companion wrote"


async def test_a_usage_in_nano_units_is_shown_rounded(run: Run) -> None:
    given: dict[str, Any] = answered()
    given["decision"]["pods"][0]["usage"] = {"cpu": "1090909091n"}
    run.api.answers[DECISION] = answer(given)
    assert await run("web") == OK
    assert "1091m" in run.out
    assert "1090909091n" not in run.out


async def test_a_decision_that_is_an_error_exits_with_3(run: Run) -> None:
    given = document()
    del given["usage"]
    run.api.answers[DECISION] = answer(answered(given))
    assert await run("web") == NO_DECISION
    assert "HPAs get an error: " in run.out


async def test_what_check_finds_on_the_policy_is_shown(run: Run) -> None:
    run.api.answers[HPA] = items(hpa_object(minReplicas=0, metrics=[]))
    assert await run("web") == OK
    assert "HPA web does not ask for desired_replicas of policy web" in run.out
    run.api.answers[HPA] = items()
    assert await run("web") == OK
    assert "there is no HPA web in namespace shop; write it with `effective-load migrate`" in run.out


async def test_the_hpa_that_the_policy_names_is_shown(run: Run) -> None:
    policy = document()["policy"]
    run.api.answers[POLICY] = items({**policy, "spec": {**policy["spec"], "hpa": "front"}})
    run.api.answers[HPA] = items(hpa_object(), {**hpa_object(), "metadata": {"name": "front", "namespace": "shop"}})
    assert await run("web") == OK
    assert "HPA front will" in run.out


async def test_an_hpa_that_may_not_be_read_does_not_hide_the_rest(run: Run) -> None:
    run.api.answers[HPA] = status(403, "Forbidden", "no")
    assert await run("web") == OK
    assert "not read: horizontalpodautoscalers, for no" in run.out
    assert "there is no HPA" not in run.out
    assert "asks for 12" in run.out


@pytest.mark.parametrize("content", ["", "a: [", "apiVersion: v1\nkind: Config\n", "clusters: 5\n"])
async def test_a_kubeconfig_that_cannot_be_used_is_one_sentence(run: Run, content: str) -> None:
    run.kubeconfig.write_text(content)
    assert await run("web") == FAILED
    first, remedy = run.err.splitlines()
    assert first.startswith("effective-load explain: no cluster can be asked: kubeconfig ")
    assert "object" not in first
    assert "--kubeconfig" in remedy


async def test_control_characters_of_others_do_not_reach_the_terminal(run: Run) -> None:
    given: dict[str, Any] = answered()
    given["decision"]["explanation"][0] = "\x1b[2J[bold]x"
    run.api.answers[DECISION] = answer(given)
    assert await run("web") == OK
    assert "\N{REPLACEMENT CHARACTER}[2J[bold]x" in run.out


EXACT = {"tolerance": "0", "stabilizationWindowSeconds": 0}
STOCK = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]


def said(up: dict[str, Any]) -> list[str]:
    return list(will_do(explained(hpa=hpa_object(behavior={"scaleUp": {**EXACT, **up}, "scaleDown": EXACT}))))


ONE_A_MINUTE = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}


@pytest.mark.parametrize(
    ("up", "sentence"),
    [
        ({}, "it sets 12 (now 10) at its next sync, at most 15 s from now by default"),
        (ONE_A_MINUTE, "it wants 12 and sets 11 (now 10): its behavior.scaleUp allows no more at once"),
        ({"stabilizationWindowSeconds": 120}, "it sets 12 (now 10) once nothing fewer was recommended for 120 s (stab"),
    ],
)
def test_the_next_sync_names_what_limits_it(up: dict[str, Any], sentence: str) -> None:
    first, tolerance = said(up)
    assert first.startswith(sentence)
    assert tolerance == "tolerance: 0, so it sets every count exactly"


def test_an_hpa_without_a_window_waits_five_minutes_before_it_goes_down_and_not_at_all_upward() -> None:
    exact = {way: {"tolerance": "0"} for way in ("scaleUp", "scaleDown")}
    down, *_ = will_do(explained(document("02-below"), hpa_object(behavior=exact)))
    assert down.startswith("it sets 5 (now 7) once nothing more was recommended for 300 s")
    up, *_ = will_do(explained(hpa=hpa_object(behavior=exact)))
    assert up.startswith("it sets 12 (now 10) at its next sync")


def test_the_tolerance_of_the_hpa_has_the_remedy() -> None:
    behavior = {"scaleUp": {"tolerance": "0.1"}, "scaleDown": {"tolerance": "0.05"}}
    lines = list(will_do(explained(hpa=hpa_object(behavior=behavior))))
    assert "tolerance: it ignores changes of up to 10 % up and 5 % down; set tolerance 0 in both directions" in lines


def test_a_stock_hpa_without_tolerance_has_the_controllers_10_percent() -> None:
    hpa = hpa_object(metrics=STOCK)
    del hpa["spec"]["behavior"]
    lines = list(will_do(explained(hpa=hpa)))
    assert lines[0] == "it does not ask for this policy's count: other metrics set its count"
    ten = "tolerance: it ignores changes of up to 10 % up and 10 % down (it sets none, so the controller's counts)"
    assert ten in lines


def test_an_hpa_of_ours_without_tolerance_has_that_of_the_servers_settings() -> None:
    given = document()
    given["hpa"]["spec"]["behavior"] = {way: {"tolerance": "0.2"} for way in ("scaleUp", "scaleDown")}
    given["hpa"]["spec"]["metrics"] = hpa_object()["spec"]["metrics"]
    hpa = hpa_object()
    del hpa["spec"]["behavior"]
    assert [line for line in will_do(explained(given, hpa)) if "up to 20 % up and 20 % down (it sets none" in line]


def test_a_target_scaled_to_0_by_hand_says_who_wakes_it() -> None:
    given = document()
    given["scale"]["spec"]["replicas"] = 0
    first, *_ = will_do(explained(given))
    assert first.startswith("it rests at 0 until somebody scales the target to 1")
    assert explained(given).answer.decision.explanation[-1].startswith("the target was scaled to 0 by hand")  # type: ignore[union-attr]


def test_an_hpa_that_gets_an_error_keeps_its_count_and_without_an_answer_nothing_is_said() -> None:
    refused = explained(answer=None, refusal="409 Conflict: two policies")
    assert list(will_do(refused)) == ["it keeps its count: it gets an error instead of a value"]
    assert list(will_do(explained(answer=None))) == []


def test_the_status_of_the_hpa_is_shown() -> None:
    assert list(did_last(explained())) == [
        "current 10, desired 10",
        "it last scaled 5 min ago",
        "ScalingActive True (ValidMetricFound): it found a metric",
    ]
