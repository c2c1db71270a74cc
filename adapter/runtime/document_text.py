"""Reads documents that people write: JSON, else YAML without aliases and foreign tags.

Keys are texts, as in JSON, and so are times. A repeated key is a fault in both formats. Some texts are written by
others, in a registry: so deep nesting is a fault, and aliases, which can stand for endless values, are not read.
"""

import json
from collections.abc import Iterator
from typing import Any

import yaml

from adapter.runtime.faults import Fault

LARGEST_BYTES = 16 * 2**20

_BASES: Any = (yaml.composer.Composer, yaml.CSafeLoader) if hasattr(yaml, "CSafeLoader") else (yaml.SafeLoader,)
"""libyaml's parser where PyYAML has it, with PyYAML's composer: libyaml's own crashes on deep nesting."""


class TextError(Exception):
    """A text is not a usable document; `faults` say why. `document`: the number of the faulty one of several."""

    def __init__(self, *faults: Fault, document: int | None = None) -> None:
        self.faults, self.document = faults, document
        super().__init__("; ".join(map(str, faults)))


def read_document(text: str) -> Any:
    """The data of a JSON or YAML text. Raises TextError."""
    documents = list(_parsed(text))
    if len(documents) > 1:
        raise TextError(Fault("", None, "holds a second document (---); give one at a time"))
    return documents[0] if documents else None


def read_documents(text: str) -> list[Any]:
    """The data of every document of a JSON or YAML text (`---` between them), without empty ones. Raises TextError."""
    documents: list[Any] = []
    try:
        documents.extend(_parsed(text))
    except TextError as error:
        raise TextError(*error.faults, document=len(documents)) from error
    return [document for document in documents if document is not None]


def too_large_fault() -> Fault:
    """The fault of a document of more than LARGEST_BYTES."""
    most = LARGEST_BYTES // 2**20
    return Fault("", None, f"the document is larger than {most} MiB; leave out what has no bearing (managedFields)")


def _parsed(text: str) -> Iterator[Any]:
    if len(text) > LARGEST_BYTES:
        raise TextError(too_large_fault())
    text = text.removeprefix("\ufeff")
    kind = "YAML"
    try:
        if text.lstrip()[:1] in {"{", "["}:
            try:
                documents = iter([json.loads(text, object_pairs_hook=_members)])
            except ValueError as error:
                kind = f"JSON ({error}) and no YAML"
                documents = iter(_Loader(text))
        else:
            documents = iter(_Loader(text))
        for document in documents:
            json.dumps(document, ensure_ascii=False).encode()  # only what JSON can say; no half of a character
            yield document
    except RecursionError:
        raise TextError(Fault("", None, "is nested too deep; no object of Kubernetes is")) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise TextError(Fault("", None, f"is no {kind}: {' '.join(str(error).split())}")) from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise TextError(Fault(key, value, "is a key that stands here more than once; keep one of them"))
        members[key] = value
    return members


class _Loader(*_BASES):  # type: ignore[misc]  # its base is one or two classes
    """PyYAML's safe loader with texts for keys and times, without aliases and repeated keys."""

    yaml_implicit_resolvers = {  # noqa: RUF012  as PyYAML declares it
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        _BASES[-1].__init__(self, text)
        yaml.composer.Composer.__init__(self)

    def __iter__(self) -> Iterator[Any]:
        while self.check_data():
            yield self.get_data()

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node. Raises TextError for an alias."""
        if isinstance(self.peek_event(), yaml.AliasEvent):
            line = self.peek_event().start_mark.line + 1
            raise TextError(
                Fault("", None, f"holds an alias (*name, line {line}), which is not read; repeat the value")
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        """The mapping, its keys as they are written."""
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                raise TextError(Fault("", None, f"a key must be a text, not a mapping or list (line {line})"))
        return _members([(key.value, self.construct_object(value, deep=deep)) for key, value in node.value])
