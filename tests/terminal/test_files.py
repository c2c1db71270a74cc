"""The one reader of files that hold Kubernetes objects."""

import io
import sys
from pathlib import Path

import pytest

from adapter.commands.files import objects_of, read_files
from adapter.runtime.faults import FaultyDocument

TWO = """\
# a comment
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: shop}
  spec:
    replicas: 3
    template:
      metadata:
        labels: {app.kubernetes.io/name: web}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
"""


def test_objects_of_lists_and_documents_have_their_lines() -> None:
    (web, settings), faults = objects_of(TWO, "all.yaml")
    assert not faults
    assert (web.group, web.kind, web.namespace, web.name) == ("apps", "Deployment", "shop", "web")
    assert str(web.place("spec.replicas")) == "all.yaml:9: spec.replicas"
    assert web.place("spec.template.metadata.labels.app.kubernetes.io/name").line == 12
    assert web.place("spec.absent.deeper").line == 8, "the nearest parent"
    assert (settings.namespace, settings.place().line) == ("default", 14)


def test_json_is_read_and_other_mappings_are_skipped() -> None:
    (one,), faults = objects_of('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}', "pod.json")
    assert (one.name, one.place("metadata.name").line, faults) == ("a", 1, [])
    assert objects_of("replicaCount: 3", "values.yaml") == ([], [])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kind: Pod\nmetadata: {name: a}", "all.yaml:1: apiVersion is missing"),
        ("apiVersion: v1\nmetadata: {name: a}", "all.yaml:1: kind is missing"),
        ("a: {{ .Values.a }}", "check what `helm template` prints"),
        ("apiVersion: v1\nkind: Pod\nspec:\n  a: 1\n  a: 2", "all.yaml: line 5: the key 'a' stands"),
    ],
)
def test_what_cannot_be_used_is_a_fault_with_its_place(text: str, sentence: str) -> None:
    objects, (fault,) = objects_of(text, "all.yaml")
    assert sentence in str(fault)
    assert not objects


def test_folders_are_read_in_order_without_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.json", "notes.txt", ".git/c.yaml", "sub/d.yml"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{file.stem}"}}}}')
    assert [one.name for one in read_files([str(tmp_path)])[0]] == ["a", "b", "d"]
    with pytest.raises(FaultyDocument, match="does not exist"):
        read_files([str(tmp_path / "absent")])


def test_empty_standard_input_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    objects, (fault,) = read_files(["-"])
    assert "there is no object in it" in str(fault)
    assert not objects
