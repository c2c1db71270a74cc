"""Reads the Kubernetes objects of a folder, each with its place: file, line, field."""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapter.check.report import Place, ReportSection, SubjectKind
from adapter.runtime import document_text
from adapter.runtime.document_lines import DocumentLines
from adapter.runtime.faults import Fault, FaultyDocument

MOST_FILES = 20_000
_SUFFIXES = {".yaml", ".yml", ".json"}
_OBJECT = re.compile(r"""(?:^|[{,])[ \t]*["']?apiVersion["']?\s*:""", re.MULTILINE)
_TEMPLATE = "{{"
_NAMED = 3
_PATCH_KEYS = ("patches", "patchesStrategicMerge", "patchesJson6902")


class ManifestsError(FaultyDocument):
    """The folder cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """An object and where it is. `prefix` is its place in a List (`items[2]`); `patch`: a kustomization patches with
    it, so it may be a part of an object only.
    """

    data: Mapping[str, Any]
    file: str
    document: int
    lines: DocumentLines = field(repr=False, compare=False)
    prefix: str = ""
    patch: bool = False

    @property
    def kind(self) -> str:
        """Its kind; empty without one."""
        kind = self.data.get("kind")
        return kind if isinstance(kind, str) else ""

    @property
    def group(self) -> str:
        """Its API group; empty for the core one, and without any."""
        version = self.data.get("apiVersion")
        return version.rpartition("/")[0] if isinstance(version, str) else ""

    @property
    def name(self) -> str:
        """Its name; empty without one."""
        metadata = self.data.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        return name if isinstance(name, str) else ""

    def place(self, path: str = "") -> Place:
        """The place of one of its fields."""
        whole = ".".join(filter(None, (self.prefix, path)))
        return Place(file=self.file, line=self.lines.line(self.document, whole), field=path)


def read_folder(folder: str) -> tuple[list[Located], list[ReportSection]]:
    """The objects of a folder (or of one file), and a section for each file that cannot be read.

    Raises ManifestsError.
    """
    root = Path(folder)
    if not root.exists():
        raise ManifestsError([Fault("--manifests", folder, "does not exist; name a folder or a file")])
    if not root.is_dir():  # a file, or a pipe such as <(helm template …)
        return _read_all([(folder, _text(root))])
    files = sorted(_files(root))
    if len(files) > MOST_FILES:
        advice = f"has {len(files)} YAML and JSON files; at most {MOST_FILES} are read, so name a folder inside"
        raise ManifestsError([Fault("--manifests", folder, advice)])
    return _read_all((str(file), _regular_text(file)) for file in files)


def read_stream(text: str) -> tuple[list[Located], list[ReportSection]]:
    """As `read_folder`, of one text from standard input."""
    return _read_all([("-", text.removeprefix("\ufeff"))])


def _read_all(texts: Iterable[tuple[str, str | Fault]]) -> tuple[list[Located], list[ReportSection]]:
    found: list[Located] = []
    sections: list[ReportSection] = []
    templates: list[str] = []
    for file, text in texts:
        section = ReportSection(f"file {file}", SubjectKind.FILE)
        if isinstance(text, Fault):
            section.skipped(str(text), place=Place(file=file))
        elif _OBJECT.search(text):
            found += _objects(file, text, section, templates)
        if section.findings:
            sections.append(section)
    if templates:
        sections.append(_of_templates(templates))
    patches = {path for one in found for path in _patches(one)}
    return [one if Path(one.file).resolve() not in patches else _as_patch(one) for one in found], sections


def _of_templates(files: Sequence[str]) -> ReportSection:
    section = ReportSection("templates")
    names = ", ".join(files[:_NAMED])
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    which = f"{names}{more} {'are templates' if len(files) > 1 else 'is a template'}"
    section.skipped(f"{which}; check what `helm template` prints")
    return section


def _files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if not name.startswith(".")]
        yield from (Path(folder, name) for name in files if Path(name).suffix.lower() in _SUFFIXES)


def _regular_text(file: Path) -> str | Fault:
    """As `_text`; but a pipe among the files of a folder would be waited for."""
    if file.exists() and not file.is_file():
        return Fault("", None, "it is no regular file")
    return _text(file)


def _text(file: Path) -> str | Fault:
    """The text of a file, or why it cannot be read."""
    try:
        with file.open("rb") as opened:
            data = opened.read(document_text.LARGEST_BYTES + 1)
        return data.decode("utf-8-sig") if len(data) <= document_text.LARGEST_BYTES else document_text.too_large_fault()
    except (OSError, UnicodeDecodeError) as error:
        return Fault("", None, f"it cannot be read: {error}")


def _objects(file: str, text: str, section: ReportSection, templates: list[str]) -> Iterator[Located]:
    """The objects of one text; what hides them is a finding of the section, or the file is one of the templates."""
    try:
        documents = document_text.read_documents(text)
    except document_text.TextError as error:
        if _TEMPLATE in text:
            templates.append(file)
        else:
            _wrong_text(file, text, error, section)
        return
    lines = DocumentLines(text)
    for number, data in enumerate(documents):
        if isinstance(data, Mapping):
            yield from _flattened(Located(data=data, file=file, document=number, lines=lines))


def _wrong_text(file: str, text: str, error: document_text.TextError, section: ReportSection) -> None:
    """Add the faults of a text, those of a document that was read with their lines."""
    for fault in error.faults:
        if error.document is None:
            section.wrong(str(fault), place=Place(file=file))
            continue
        path = fault.path.removeprefix(f"[{error.document}]").removeprefix(".")
        line = DocumentLines(text).line(error.document, path)
        section.wrong(str(Fault("", fault.value, fault.advice)), place=Place(file=file, line=line, field=path))


def _flattened(one: Located) -> Iterator[Located]:
    """The object, or those of a List."""
    items = one.data.get("items")
    if not one.kind.endswith("List") or not isinstance(items, list):
        yield one
        return
    for index, item in enumerate(items):
        if isinstance(item, Mapping):
            prefix = f"items[{index}]"
            yield Located(data=item, file=one.file, document=one.document, lines=one.lines, prefix=prefix)


def _patches(one: Located) -> Iterator[Path]:
    """The files that a kustomization patches with."""
    if one.kind not in {"Kustomization", "Component"}:
        return
    for key in _PATCH_KEYS:
        entries = one.data.get(key)
        for entry in entries if isinstance(entries, list) else ():
            path = entry.get("path") if isinstance(entry, Mapping) else entry
            if isinstance(path, str) and "\n" not in path:
                with contextlib.suppress(ValueError, OSError):  # no path of a file
                    yield (Path(one.file).parent / path).resolve()


def _as_patch(one: Located) -> Located:
    return Located(data=one.data, file=one.file, document=one.document, lines=one.lines, prefix=one.prefix, patch=True)
