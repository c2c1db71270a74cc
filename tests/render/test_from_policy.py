"""The HPA of a policy follows it: one metric, tolerance 0, bounds from the policy or the arguments."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import cli
from adapter.commands.render.command import RenderError
from adapter.policy.conformance import Wiring, flaws
from adapter.policy.hpa import parse_hpa
from adapter.policy.watermark_policy import parse_policy
from tests.render.kit import hpa_of, policy


def spec_of(written: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    found: Any = hpa_of(written, **wanted).objects[0]
    return dict(found["spec"])


RATIO = {"strategy": "Ratio", "metrics": [{"name": "cpu", "resource": {"name": "cpu"}, "target": "1"}]}
STEP = {
    "strategy": "Step",
    "step": {"minPods": 3},
    "metrics": [{"name": "cpu", "resource": {"name": "cpu", "relativeTo": "Limit"}, "target": "60%"}],
}


@pytest.mark.parametrize(
    "written",
    [
        policy(),
        policy(**RATIO),
        policy(**STEP),
        policy(velocity={"scaleUpPercent": 50, "scaleDownPercent": 20}),
        policy(fallback={"afterSeconds": 600, "replicas": 9}),
    ],
    ids=["Watermark", "Ratio", "Step", "velocity", "fallback"],
)
def test_nothing_is_unwise_about_a_policy_and_its_rendered_hpa(written: dict[str, Any]) -> None:
    rendered = hpa_of(written)
    wiring = Wiring(policy=parse_policy(written), hpa=parse_hpa(rendered.objects[0]), has_tolerance=True)
    assert flaws(wiring) == ()
    assert rendered.remarks == ()


def test_the_way_down_has_the_pace_that_the_docs_recommend_or_the_policys_own_velocity() -> None:
    calm = spec_of(policy())["behavior"]["scaleDown"]
    assert (calm["stabilizationWindowSeconds"], calm["policies"]) == (
        120,
        [{"type": "Percent", "value": 10, "periodSeconds": 60}],
    )
    own = spec_of(policy(velocity={"scaleDownPercent": 20}))["behavior"]["scaleDown"]
    assert own["stabilizationWindowSeconds"] == 120
    assert {"type": "Percent", "value": 20, "periodSeconds": 1} in own["policies"]
    assert spec_of(policy(hpaConfiguration="Manage"))["behavior"]["scaleDown"] == calm
    step = spec_of(policy(**STEP))["behavior"]["scaleDown"]
    assert (step["stabilizationWindowSeconds"], step["policies"][0]["value"]) == (0, 100)


def test_a_wait_that_adds_to_the_hpas_is_said() -> None:
    (remark,) = hpa_of(policy(cooldown={"scaleDownSeconds": 60})).remarks
    assert "waits for the policy's cooldown (60 s) and then for the HPA's" in remark


def test_bounds_come_from_the_policy_where_no_argument_names_them() -> None:
    close = {"name": "cpu", "resource": {"name": "cpu"}, "highWatermark": "100m", "lowWatermark": "80m"}
    day = {"name": "day", "cron": "0 8 * * *", "durationSeconds": 3600, "maxReplicas": 40}
    read = spec_of(policy(metrics=[close], schedules=[day]), most=None)
    assert (read["minReplicas"], read["maxReplicas"]) == (4, 40)
    assert spec_of(policy(**STEP))["minReplicas"] == 3
    read = spec_of(policy(), least=7, most=8)
    assert (read["minReplicas"], read["maxReplicas"]) == (7, 8)


@pytest.mark.parametrize(
    ("target", "reference"),
    [
        (None, ("apps/v1", "Deployment", "web")),
        ("StatefulSet/db", ("apps/v1", "StatefulSet", "db")),
        ("argoproj.io/v1alpha1/Rollout/web", ("argoproj.io/v1alpha1", "Rollout", "web")),
        ("v1/ReplicationController/web", ("v1", "ReplicationController", "web")),
    ],
)
def test_a_target_is_named_by_kind_and_name(target: str | None, reference: tuple[str, str, str]) -> None:
    read = spec_of(policy(), target=target)["scaleTargetRef"]
    assert (read["apiVersion"], read["kind"], read["name"]) == reference


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"most": None}, "--max-replicas: is required: the policy itself names no maximum"),
        ({"least": 9, "most": 8}, "--max-replicas: 8: must be at least minReplicas (9)"),
        ({"target": "Widget/web"}, "--target: 'Widget/web': write VERSION/KIND/NAME"),
        ({"target": "apps/v1/Deployment/We b"}, "is not an object's name"),
        ({"written": policy(metrics=[])}, "policy.yaml: spec.metrics"),
        ({"written": {"kind": "ConfigMap", "metadata": {"name": "x"}}}, "policy.yaml: has no WatermarkPolicy"),
    ],
)
def test_what_does_not_fit_is_refused(wanted: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RenderError) as refused:
        hpa_of(**({"written": policy()} | wanted))
    assert sentence in str(refused.value)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with a policy."""
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(policy(hpa="front")))
    return str(file)


@pytest.mark.parametrize(("version", "writes"), [("1.34", False), ("v1.34.4", False), ("1.35", True), ("2.0", True)])
def test_the_command_prints_documents_that_kubectl_reads_with_a_tolerance_where_the_version_has_it(
    file: str, capsys: pytest.CaptureFixture[str], version: str, writes: bool
) -> None:
    assert cli.main(["render", file, "--max-replicas", "9", "--kubernetes", version]) == cli.OK
    (hpa,) = yaml.safe_load_all(capsys.readouterr().out)
    assert (hpa["kind"], hpa["metadata"]["name"]) == ("HorizontalPodAutoscaler", "front")
    assert ("tolerance" in hpa["spec"]["behavior"]["scaleUp"]) is writes


def test_the_command_says_what_is_missing(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["render", file]) == cli.INVALID
    assert "--max-replicas: is required" in capsys.readouterr().err
    for text in ("1", "x", "1.34567", ""):
        with pytest.raises(SystemExit):
            cli.main(["render", file, "--kubernetes", text])
        assert f"argument --kubernetes: {text!r} is no version such as 1.34" in capsys.readouterr().err


def test_where_hpas_have_no_tolerance_none_is_written_and_a_policy_below_the_controllers_is_told() -> None:
    spec = spec_of(policy(), tolerance=False)
    assert all("tolerance" not in rules for rules in spec["behavior"].values())
    (remark,) = hpa_of(policy(), tolerance=False).remarks
    assert "HPAs have no field tolerance here: a policy with tolerance 10% asks for no such steps" in remark
    assert hpa_of(policy(tolerance="10%"), tolerance=False).remarks == ()
