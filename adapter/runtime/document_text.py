"""Reads documents that people write: JSON, else YAML without foreign tags. A repeated key is a fault in both formats.

Keys are texts, as in JSON, and so are times. Some texts are written by others, in a registry: so deep nesting is a
fault, and an alias counts with all that it stands for.
"""

import json
from collections.abc import Iterator
from typing import Any

import yaml

from adapter.runtime.faults import Fault, path_of

LARGEST_BYTES = 16 * 2**20
MOST_YAML_VALUES = 500_000

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
        raise TextError(Fault("", None, "begins a second document (---); give one at a time"))
    return documents[0] if documents else None


def read_documents(text: str) -> list[Any]:
    """The data of every document of a JSON or YAML text (`---` between them), without empty ones. Raises TextError."""
    documents: list[Any] = []
    try:
        documents.extend(document for document in _parsed(text) if document is not None)
    except TextError as error:
        raise TextError(*error.faults, document=len(documents)) from error
    return documents


def too_large_fault() -> Fault:
    """The fault of a document of more than LARGEST_BYTES."""
    most = LARGEST_BYTES // 2**20
    return Fault("", None, f"the document is larger than {most} MiB; leave out what has no bearing (managedFields)")


def _parsed(text: str) -> Iterator[Any]:
    if len(text) > LARGEST_BYTES:
        raise TextError(too_large_fault())
    text = text.removeprefix("\ufeff")
    kind, documents = "YAML", None
    try:
        try:
            if text.lstrip()[:1] in {"{", "["}:
                documents = [json.loads(text, object_pairs_hook=_members)]
        except ValueError as error:
            kind = f"JSON ({error}) and no YAML"
        for document in documents or _Loader(text):
            json.dumps(document, ensure_ascii=False).encode()  # only what JSON can say; no half of a character
            if faults := list(_repeated(document)):
                raise TextError(*faults)
            yield document
    except RecursionError:
        raise TextError(Fault("", None, "is nested more than 100 levels deep; write it flatter")) from None
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise TextError(Fault("", None, f"is no {kind}: {' '.join(str(error).split())}")) from error


class _Members(dict[str, Any]):
    """A mapping that repeats this key."""

    repeated = ""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(members := dict(pairs)) == len(pairs):
        return members
    keys = [key for key, _ in pairs]
    members = _Members(members)
    members.repeated = next(key for key in keys if keys.count(key) > 1)
    return members


def _repeated(value: object, path: tuple[str | int, ...] = ()) -> Iterator[Fault]:
    if isinstance(value, _Members):
        key = value.repeated
        advice = "is a key that stands here more than once; keep one of them"
        yield Fault(path_of((*path, key)), value[key], advice)
    if isinstance(value, dict | list):
        for place, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _repeated(member, (*path, place))


class _Loader(*_BASES):  # type: ignore[misc]  # its base is one or two classes
    """PyYAML's safe loader with texts for keys and times, and a limit on values."""

    yaml_implicit_resolvers = {  # noqa: RUF012  as PyYAML declares it
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        _BASES[-1].__init__(self, text)
        yaml.composer.Composer.__init__(self)
        self._values = 0

    def __iter__(self) -> Iterator[Any]:
        while self.check_data():
            yield self.get_data()

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node. Raises ValueError for too many values, each alias counted as all that it stands for."""
        event: Any = self.peek_event()
        before, is_alias = self._values, isinstance(event, yaml.AliasEvent)
        # A node that is not complete has no size: an alias within it stands for an endless value.
        self._values += getattr(self.anchors.get(event.anchor), "size", MOST_YAML_VALUES) if is_alias else 1
        if self._values > MOST_YAML_VALUES and not (is_alias and event.anchor not in self.anchors):
            raise ValueError(f"it holds more than {MOST_YAML_VALUES} values, aliases counted as often as they are used")
        node = super().compose_node(parent, index)
        if not is_alias:
            node.size = self._values - before
        return node

    def construct_undefined(self, node: Any) -> Any:
        """Nothing: raises ValueError."""
        raise ValueError(f"line {node.start_mark.line + 1} has the tag {node.tag[:80]}, which is not read")

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        """The mapping, its keys as they are written; what `<<` brings repeats no key."""
        own = [(key, value) for key, value in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if not all(isinstance(key, yaml.ScalarNode) for key, _ in own):
            raise ValueError(f"line {node.start_mark.line + 1}: a key must be a text, not a mapping or list")
        self.flatten_mapping(node)
        merged = {key.value: self.construct_object(value, deep=deep) for key, value in node.value}
        repeats = len({key.value for key, _ in own}) < len(own)
        return _members([(key.value, merged[key.value]) for key, _ in own]) if repeats else merged


_Loader.add_constructor(None, _Loader.construct_undefined)
_Loader.add_constructor("tag:yaml.org,2002:map", lambda loader, node: loader.construct_mapping(node, deep=True))
