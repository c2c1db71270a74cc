"""Reads Kubernetes objects from files: YAML, JSON, Lists, folders and standard input. Each object knows its place."""

import contextlib
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from adapter.kube.pods import PodDecoder
from adapter.load.pods import Pod
from adapter.policy.documents import mapping_at
from adapter.runtime import document_text
from adapter.runtime.faults import Fault, FaultyDocument

_SUFFIXES = {".yaml", ".yml", ".json"}
_INDEX = re.compile(r"\[([0-9]+)\]")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a file something is: `line` from 1 (None: unknown), `field` as faults write it."""

    file: str
    line: int | None = None
    field: str = ""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.field}" if self.field else where


class FileFault(NamedTuple):
    """Why a file, or an object in it, cannot be used."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(slots=True, kw_only=True)
class ManifestObject:
    """An object as it was written: any of its values may be of a wrong type; a text that is none is empty.

    `document` is its number in the file, `prefix` its place in a List (`items[2]`). `group` is empty for the core
    group, `namespace` is `default` where the file leaves it to kubectl.
    """

    data: Mapping[str, Any]
    file: str
    document: int = 0
    prefix: str = ""
    text: str = field(default="", repr=False, compare=False)
    api_version: str = field(init=False)
    group: str = field(init=False)
    kind: str = field(init=False)
    metadata: Mapping[str, Any] = field(init=False)
    name: str = field(init=False)
    namespace: str = field(init=False)

    def __post_init__(self) -> None:
        self.metadata = mapping_at(self.data, "metadata")
        self.api_version, self.kind = (_text(self.data.get(key)) for key in ("apiVersion", "kind"))
        self.group = self.api_version.rpartition("/")[0]
        self.name, namespace = (_text(self.metadata.get(key)) for key in ("name", "namespace"))
        self.namespace = namespace or "default"

    def place(self, path: str = "") -> Place:
        """The place of one of its fields (`spec.metrics[0].name`), or of the nearest parent that exists."""
        whole = ".".join(filter(None, (self.prefix, path)))
        return Place(file=self.file, line=_line(self.text, self.document, whole), field=path)


def read_text(file: str) -> str:
    """The text of a file, or of standard input (`-`). Raises FaultyDocument."""
    try:
        return (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise FaultyDocument([Fault("", file, f"cannot be read: {why}")]) from error


def read_files(paths: Iterable[str]) -> tuple[list[ManifestObject], list[FileFault]]:
    """The objects of files and of folders (every `.yaml`, `.yml` and `.json` below them); `-` is standard input.

    A file that cannot be read is a fault. Raises FaultyDocument for a path that does not exist.
    """
    objects: list[ManifestObject] = []
    faults: list[FileFault] = []
    for file in _files(paths):
        try:
            text = read_text(file)
        except FaultyDocument as error:
            faults.append(FileFault(Place(file=file), error.faults[0].advice))
            continue
        found, wrong = objects_of(text, file)
        if file == "-" and not found and not wrong:
            # The status of a pipe is that of its last command: a failed `helm template | …` must not pass.
            why = "there is no object in it: the command that should print the manifests failed or printed none"
            wrong = [FileFault(Place(file=file), why)]
        objects += found
        faults += wrong
    return objects, faults


def objects_of(text: str, file: str) -> tuple[list[ManifestObject], list[FileFault]]:
    """The objects of a text; a document without apiVersion, kind and metadata is of another tool and passed over."""
    try:
        documents = document_text.read_documents(text)
    except document_text.TextError as error:
        template = "; it looks like a template: check what `helm template` prints" if "{{" in text else ""
        return [], [FileFault(Place(file=file), f"{error}{template}")]
    objects, faults = list[ManifestObject](), list[FileFault]()
    for number, document in enumerate(documents):
        for prefix, data in _listed(document):
            if not isinstance(data, Mapping):
                continue
            one = ManifestObject(data=data, file=file, document=number, prefix=prefix, text=text)
            lack = next((key for key in ("apiVersion", "kind") if key not in data), "")
            if not lack:
                objects.append(one)
            elif isinstance(data.get("metadata"), Mapping):
                faults.append(FileFault(one.place(), f"{lack} is missing: the API server refuses the object"))
    return objects, faults


def template_pod(one: ManifestObject) -> Pod | None:
    """A pod as a workload's template makes it; None for an object without one."""
    template = mapping_at(one.data, "spec", "template")
    if not mapping_at(template, "spec").get("containers"):
        return None
    metadata = {"name": one.name, "namespace": one.namespace, "labels": mapping_at(template, "metadata", "labels")}
    with contextlib.suppress(msgspec.MsgspecError, TypeError, ValueError):
        return PodDecoder()(msgspec.json.encode({"metadata": metadata, "spec": template["spec"]}))
    return None


def _files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if path == "-" or Path(path).is_file():
            yield path
        elif Path(path).is_dir():
            for folder, names, files in os.walk(path):
                names[:] = sorted(name for name in names if not name.startswith("."))
                yield from sorted(str(Path(folder, one)) for one in files if Path(one).suffix.lower() in _SUFFIXES)
        else:
            raise FaultyDocument([Fault("", path, "does not exist; name a file or a folder")])


def _listed(document: object) -> Iterator[tuple[str, object]]:
    """The objects of a document, with their place in it."""
    items = document.get("items") if isinstance(document, Mapping) else None
    if isinstance(document, Mapping) and isinstance(items, list) and _text(document.get("kind")).endswith("List"):
        yield from ((f"items[{index}]", item) for index, item in enumerate(items))
    else:
        yield "", document


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


@functools.lru_cache(maxsize=4)
def _roots(text: str) -> list[yaml.Node]:
    """The syntax tree of each document that is not empty; none for JSON that is no YAML."""
    try:
        found = list(yaml.compose_all(text, Loader=_LOADER))
    except (yaml.YAMLError, RecursionError):
        return []
    return [root for root in found if root is not None and not root.tag.endswith(":null")]


def _line(text: str, document: int, path: str) -> int | None:
    """The line of a field, from 1, or of its nearest parent that exists; None where the text has no lines."""
    roots = _roots(text)
    if document >= len(roots):
        return None
    node, line = roots[document], roots[document].start_mark.line
    while path:
        entries: list[tuple[str, yaml.Node, yaml.Node]] = []
        if isinstance(node, yaml.SequenceNode) and (index := _INDEX.match(path)):
            entries = [(index[0], item, item) for item in node.value[int(index[1]) :][:1]]
        elif isinstance(node, yaml.MappingNode):
            entries = [(str(key.value), key, value) for key, value in node.value if key.value]
        # Keys may hold dots: the longest that fits.
        fitting = [one for one in entries if re.match(rf"{re.escape(one[0])}(\.|\[|$)", path)]
        if not fitting:
            break
        taken, key, node = max(fitting, key=lambda entry: len(entry[0]))
        line, path = key.start_mark.line, path[len(taken) :].removeprefix(".")
    return int(line) + 1
