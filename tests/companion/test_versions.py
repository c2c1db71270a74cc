"""Serving pods run one version, but while a rollout moves on."""

from dataclasses import replace
from typing import Any

import pytest

from adapter.companion import findings
from adapter.companion.state import Condition
from adapter.load.pods import Pod
from adapter.load.spec import Target
from adapter.settings import CompanionSettings
from tests.companion.kit import NOTIFYING, context
from tests.load.kit import NOW, TARGET, pod

OLD, NEW = "6c5d4f", "7b9c8d"


LABEL = "app.kubernetes.io/version"


def of(revision: str, count: int, *, age: float = 3600.0, **changes: Any) -> list[Pod]:
    return [pod(f"web-{revision}-{n}", age=age, template_hash=revision, **changes) for n in range(count)]


def found(
    pods: list[Pod], *, target: Target = TARGET, settings: CompanionSettings = NOTIFYING, **changes: Any
) -> Condition:
    case = context(pods=pods, target=target, settings=settings, **changes)
    condition = findings.versions(case)
    assert condition is not None
    return condition


def test_two_templates_that_serve_side_by_side_for_long_are_named_with_their_counts() -> None:
    finding = found(of(OLD, 3, labels={LABEL: "1.4.1"}) + of(NEW, 7, age=1200.0, labels={"version": "1.4.2"}))
    assert (finding.is_true, finding.reason) == (False, "VersionMismatch")
    assert finding.message == (
        "the serving pods run 2 versions: 1.4.2 (7b9c8d, 7 pods), 1.4.1 (6c5d4f, 3 pods); "
        "no rollout has progressed for 600 s"
    )


STALLED, PAST_DEADLINE = (
    replace(TARGET, progressing=reason) for reason in ("DeploymentPaused", "ProgressDeadlineExceeded")
)


@pytest.mark.parametrize(
    ("newer", "target", "reason"),
    [
        pytest.param(of(NEW, 2, age=1200.0) + of(NEW, 1, age=590.0), TARGET, "RollingOut", id="the last pod turned"),
        pytest.param(of(NEW, 2, age=1200.0) + of(NEW, 1, age=620.0), TARGET, "VersionMismatch", id="ready long ago"),
        pytest.param(
            [*of(NEW, 2, age=1200.0), replace(of(OLD, 1, age=60.0)[0], uid="young")], TARGET, "VersionMismatch",
            id="a young pod of the old template is no progress",
        ),
        *(
            pytest.param(of(NEW, 2, age=age), replace(target, progressing_since=NOW - ago), reason, id=says)
            for target, ago, age, reason, says in (
                (STALLED, 599, 60.0, "RollingOut", "paused lately"),
                (STALLED, 601, 3600.0, "RollingOut", "paused for long"),
                (PAST_DEADLINE, 599, 60.0, "RollingOut", "past its deadline lately"),
                (PAST_DEADLINE, 601, 60.0, "VersionMismatch", "past its deadline for long"),
                (PAST_DEADLINE, 10, 590.0, "RollingOut", "past its deadline, its last pod ready lately"),
                (PAST_DEADLINE, 10, 620.0, "VersionMismatch", "past its deadline, its last pod ready long ago"),
            )
        ),
    ],
)  # fmt: skip
def test_a_rollout_that_has_not_progressed_for_ten_minutes_is_a_mismatch(
    newer: list[Pod], target: Target, reason: str
) -> None:
    assert found(of(OLD, 3) + newer, target=target).reason == reason


def test_pods_that_do_not_serve_do_not_count() -> None:
    gone = [replace(one, deleting=True) for one in of(OLD, 3)]
    out = [replace(one, uid=f"{one.uid}-out", pulled_out_annotation=True) for one in of(OLD, 3)]
    assert found(gone + out + of(NEW, 3)).reason == "OneVersion"


def test_a_stateful_sets_pods_are_told_apart_by_their_controller_revision() -> None:
    def one(name: str, revision: str) -> Pod:
        return pod(name, template_hash="", owner=None, labels={"controller-revision-hash": revision})

    target = replace(TARGET, kind="StatefulSet")
    finding = found([one("web-0", "web-1"), one("web-1", "web-2")], target=target)
    assert finding.message.startswith("the serving pods run 2 versions: web-1 (1 pod), web-2 (1 pod)")
