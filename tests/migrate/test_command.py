"""The command `migrate`: files in, a pair with its notes out; and input that breaks a careless reader."""

import contextlib
import io
import json
import sys
from pathlib import Path

import pytest
import yaml

from adapter.cli import INVALID, OK, main
from adapter.commands.migrate.migration import SETTINGS_FILE, as_json, migrate, pair_yaml
from adapter.commands.migrate.original import MigrationError
from adapter.commands.terminal.command import FAILED
from tests.effort import effort
from tests.migrate.kit import EVERYTHING, EXAMPLES, PODS, RULES, SCALED, WPA, changed, hpa, migrated, text_of

Capture = pytest.CaptureFixture[str]
CALLS = 15_000_000


@pytest.fixture
def original(tmp_path: Path) -> Path:
    file = tmp_path / "original.yaml"
    orders = changed(changed(WPA, "metadata", "name", to="orders"), "spec", "scaleTargetRef", "name", to="orders")
    file.write_text("---\n" + text_of(*EVERYTHING["keda"], orders))
    return file


@pytest.mark.parametrize(
    "name", ["watermarkpodautoscaler", "kube-metrics-adapter", "prometheus-adapter", "scaledobject"]
)
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


def test_a_folder_gets_a_file_for_each_pair_and_the_settings_and_loses_none(original: Path, capsys: Capture) -> None:
    folder = original.parent / "out"
    assert main(["migrate", str(original), "--out", str(folder)]) == OK
    assert sorted(file.name for file in folder.iterdir()) == ["settings-part.txt", "shop_orders.yaml", "shop_web.yaml"]
    assert yaml.safe_load((folder / SETTINGS_FILE).read_text())["prometheus"]["inlineQueries"] is True
    assert not capsys.readouterr().out
    assert main(["migrate", str(original), "--out", str(folder)]) == INVALID
    assert "no file is overwritten" in capsys.readouterr().err


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
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(8)
)
HOSTILE = {  # in one document: tests/document/test_hostile.py
    "alias bombs in documents": f"---\n{BOMB}" * 3,
    "many documents": "---\na: 1\n" * 5_000,
    "nothing": "",
    "only comments": "# a\n---\n# b\n",
    "half a character": '{"kind": "\\ud800"}',
    "anchors of another document": "---\na: &x 1\n---\nb: *x\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_end_soon_in_faults(name: str) -> None:
    with pytest.raises(MigrationError) as raised, effort() as done:
        migrate([("it", HOSTILE[name])])
    assert raised.value.faults
    assert len(str(raised.value)) < 100_000
    assert done.calls < CALLS


def many_rules() -> str:
    """Rules and metrics whose products would take minutes."""
    rule = RULES["rules"][0]
    slow = {**rule, "seriesFilters": [{"is": "a*b*c$"}] * 40}
    metrics = [changed(PODS, "pods", "metric", "name", to=f"{'a' * 100}{number}_per_second") for number in range(90)]
    hpas = [changed(hpa(*metrics), "metadata", "name", to=f"h{number}") for number in range(6)]
    return "---\n" + text_of({"rules": [slow] * 400}, *hpas)


LARGE = {
    "unknown keys": lambda: json.dumps({**WPA, "spec": {**WPA["spec"], **{f"k{one}": one for one in range(20_000)}}}),
    "annotations": lambda: json.dumps(changed(WPA, "metadata", "annotations", to={"k" * 200_000: "v" * 200_000})),
    "rules": many_rules,
    "labels in a query": lambda: "---\n" + text_of(
        {"rules": [{**RULES["rules"][0], "metricsQuery": "<<.LabelMatchers>>" * 400}]},
        hpa(changed(PODS, "pods", "metric", "selector", "matchLabels", "verb", to="x" * 200_000), CPU_METRIC),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_large_input_ends_soon(name: str) -> None:
    text = LARGE[name]()
    with contextlib.suppress(MigrationError), effort() as done:
        json.dumps(as_json(migrate([("it", text)])))
    assert done.calls < CALLS


def test_nothing_in_a_comment_can_leave_it() -> None:
    evil = changed(WPA, "metadata", "annotations", to={"a\nkind: Secret\r\n\u2028b": "x\n---\nkind: Secret\n"})
    [pair] = migrated(evil).pairs
    items = [item for item in yaml.safe_load_all(pair_yaml(pair)) if item]
    assert [item["kind"] for item in items] == ["WatermarkPolicy", "HorizontalPodAutoscaler"]
    assert all(line.startswith("#") for line in pair_yaml(pair).split("apiVersion")[0].splitlines())
