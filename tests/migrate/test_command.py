"""The command `migrate`: files in, a pair with its notes out."""

import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from adapter.cli import INVALID, OK, main
from adapter.commands.migrate.migration import migrate, pair_yaml
from adapter.commands.migrate.original import MigrationError
from adapter.commands.terminal.command import FAILED
from tests.migrate.kit import EVERYTHING, EXAMPLES, SCALED, WPA, changed, migrated, text_of

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def original(tmp_path: Path) -> Path:
    file = tmp_path / "original.yaml"
    orders = changed(changed(WPA, "metadata", "name", to="orders"), "spec", "scaleTargetRef", "name", to="orders")
    file.write_text("---\n" + text_of(*EVERYTHING["keda"], orders))
    return file


@pytest.mark.parametrize("name", ["watermarkpodautoscaler", "prometheus-adapter", "scaledobject"])
def test_the_examples_are_what_the_command_writes(name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    assert main(["migrate", f"{name}.yaml"]) == OK
    assert capsys.readouterr().out == (EXAMPLES / f"{name}.migrated.yaml").read_text()


def test_yaml_has_the_notes_as_comments_and_standard_error_has_them_too(original: Path, capsys: Capture) -> None:
    assert main(["migrate", str(original)]) == OK
    printed = capsys.readouterr()
    assert [item["kind"] for item in yaml.safe_load_all(printed.out) if item] == [
        "WatermarkPolicy", "HorizontalPodAutoscaler", "WatermarkPolicy", "HorizontalPodAutoscaler",
    ]  # fmt: skip
    assert "# Lost: spec.cooldownPeriod: 200: it only delays the way to the idle count or 0" in printed.out
    assert "web: Lost: spec.cooldownPeriod: 200: it only delays" in printed.err


def test_json_has_field_value_and_sentence(original: Path, capsys: Capture) -> None:
    assert main(["migrate", str(original), "-o", "json"]) == OK
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert not printed.err
    assert set(answer) == {"pairs", "settings", "notes", "refused"}
    assert {"kind": "Lost", "field": "spec.cooldownPeriod", "value": 200} in [
        {key: note[key] for key in ("kind", "field", "value")} for note in answer["pairs"][0]["notes"]
    ]


def test_standard_input_and_watermarks(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(SCALED).encode())))
    assert main(["migrate", "-", "--watermarks", "70"]) == OK
    policy = next(item for item in yaml.safe_load_all(capsys.readouterr().out) if item)
    assert policy["spec"]["metrics"][0]["lowWatermark"] == "70"


@pytest.mark.parametrize("percent", ["0", "100", "-1", "a", "1.5", "٣", "9" * 400])
def test_a_percentage_is_from_1_to_99(percent: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["migrate", "-", "--watermarks", percent])
    assert "is no whole number from 1 to 99" in capsys.readouterr().err


def test_a_missing_file_and_a_faulty_object_are_told_with_their_place(tmp_path: Path, capsys: Capture) -> None:
    assert main(["migrate", str(tmp_path / "nowhere.yaml")]) == INVALID
    assert "nowhere.yaml: cannot be read" in capsys.readouterr().err
    file = tmp_path / "a.yaml"
    file.write_text(text_of(WPA, changed(WPA, "spec", "maxReplicas", to="many")).replace("{", "---\n{", 1))
    assert main(["migrate", str(file)]) == FAILED
    assert "web is not migrated: spec.maxReplicas: 'many': write an integer" in capsys.readouterr().err


def test_lists_of_kubectl_are_taken_apart() -> None:
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [WPA, changed(SCALED, "spec", "scaleTargetRef", "name", to="b")],
    }
    named = changed(listed, "items", 1, "metadata", "name", to="b")
    assert [pair.name for pair in migrated(named).pairs] == ["web", "b"]
    with pytest.raises(MigrationError, match=r"items\[1\]: 5: is no object"):
        migrated(changed(listed, "items", 1, to=5))


def test_an_export_of_a_namespace_is_migrated_without_kedas_own_hpas_and_names_what_cannot_be(
    tmp_path: Path, capsys: Capture
) -> None:
    """As `kubectl get hpa,scaledobjects -o yaml` gives it."""
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "u", "controller": True}
    of_keda = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "keda-hpa-web", "namespace": "shop", "ownerReferences": [owner]},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 5},
    }
    queue = changed(SCALED, "metadata", "name", to="queue")
    queue = changed(queue, "spec", "triggers", to=[{"type": "kafka", "metadata": {}}])
    listed = {"apiVersion": "v1", "kind": "List", "items": [of_keda, SCALED, queue]}
    file = tmp_path / "shop.yaml"
    file.write_text(text_of(listed))
    assert main(["migrate", str(file), "-o", "json"]) == FAILED
    said = capsys.readouterr()
    data = json.loads(said.out)
    assert [pair["policy"]["metadata"]["name"] for pair in data["pairs"]] == [SCALED["metadata"]["name"]]
    assert "shop/keda-hpa-web is the HPA of ScaledObject web and is left out" in str(data["notes"])
    (refused,) = data["refused"]
    assert (refused["kind"], refused["name"].endswith("queue")) == ("ScaledObject", True)
    assert "queue is not migrated: spec.triggers: no trigger becomes a metric" in said.err
    assert main(["migrate", str(file)]) == FAILED
    assert "is not migrated" in capsys.readouterr().out


def test_a_refused_object_leaves_nothing_in_the_settings() -> None:
    """The settings refuse the address that made it fail, and the server would not start with it."""
    odd = changed(SCALED, "spec", "triggers", 0, "metadata", "serverAddress", to="prometheus:9090")
    unread = changed(SCALED, "spec", "triggers", 0, "metadata", "serverAddress", to="http://other:9090")
    unread = changed(unread, "spec", "advanced", to={"scalingModifiers": {"formula": "a + b"}})
    objects = [changed(one, "metadata", "name", to=name) for one, name in ((odd, "odd"), (unread, "unread"))]
    migration = migrated(*objects, SCALED)
    assert [one.name.rpartition("/")[2] for one in migration.refused] == ["odd", "unread"]
    assert migration.settings == migrated(SCALED).settings


def test_what_is_migrated_already_is_left_out_and_its_policy_is_not_overwritten() -> None:
    """As an export of a namespace that is migrated step by step has it."""
    (pair,) = migrated(SCALED).pairs
    hpa = changed(dict(pair.hpa), "spec", "metrics", to=[*pair.hpa["spec"]["metrics"], CPU_METRIC])
    migration = migrated(hpa, pair.policy, WPA)
    assert [one.source for one in migration.pairs] == ["WatermarkPodAutoscaler"]
    assert not migration.refused
    assert [note.sentence for note in migration.notes] == [
        "shop/web asks for the count of a policy already, and is left out",
        "shop/web is a policy already, and is left out",
    ]


def test_kedas_own_hpa_alone_asks_for_the_object_that_makes_it() -> None:
    owned = changed(SCALED, "kind", to="HorizontalPodAutoscaler")
    owned = changed(owned, "metadata", "ownerReferences", to=[{"kind": "ScaledObject", "name": "web"}])
    with pytest.raises(MigrationError, match=r"is the HPA of ScaledObject web.*that object"):
        migrated(owned)
    (note,) = migrated(owned, WPA).notes
    assert note.sentence.endswith("is the HPA of ScaledObject web and is left out: what to migrate is that object")


CPU_METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}


@pytest.mark.parametrize("text", ["", "# a\n---\n# b\n", "a: [", "---\na: &x 1\n---\nb: *x\n"])
def test_a_text_without_objects_is_a_fault(text: str) -> None:
    with pytest.raises(MigrationError):
        migrate([("it", text)])


def test_nothing_in_a_comment_can_leave_it() -> None:
    evil = changed(WPA, "metadata", "annotations", to={"a\nkind: Secret\r\n\u2028b": "x\n---\nkind: Secret\n"})
    [pair] = migrated(evil).pairs
    items = [item for item in yaml.safe_load_all(pair_yaml(pair)) if item]
    assert [item["kind"] for item in items] == ["WatermarkPolicy", "HorizontalPodAutoscaler"]
    assert all(line.startswith("#") for line in pair_yaml(pair).split("apiVersion")[0].splitlines())
