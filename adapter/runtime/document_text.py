"""Parses the text of a document (JSON, else YAML) within bounds, so that hostile texts fail fast.

An alias counts with its whole expanded value. A repeated key is a fault, in JSON too, where both formats would let the
last one win. Keys are texts, as in JSON.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import yaml

from adapter.runtime.faults import Fault, path_of

LARGEST_BYTES = 16 * 2**20
MOST_VALUES = 500_000
MOST_YAML_VALUES = 200_000
"""YAML takes several times as long as JSON. Keys count too."""
DEEPEST = 64
LONGEST_TEXT = 2**18
"""As long as all annotations of an object together may be."""
LONGEST_NUMBER = 64
"""Digits and signs; the largest quantity has 19."""

Path = tuple[str | int, ...]

_TOO_DEEP = Fault("", None, f"is nested more than {DEEPEST} levels deep; no object of Kubernetes is")
_STRING, _INT, _FLOAT, _BOOL, _NULL, _MERGE, _MAP, _LIST = (
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "merge", "map", "seq")
)
# Times stay the text that the API writes.
_RESOLVERS = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag in {_INT, _FLOAT, _BOOL, _NULL, _MERGE}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_BASES: Any = (yaml.composer.Composer, yaml.CSafeLoader) if hasattr(yaml, "CSafeLoader") else (yaml.SafeLoader,)


class TextError(Exception):
    """A text is not a usable document; `faults` say why.

    Paths of faults in one of many documents begin with its number (`[0].spec`), with which `document` is set.
    """

    def __init__(self, *faults: Fault, document: int | None = None) -> None:
        self.faults, self.document = faults, document
        super().__init__("; ".join(map(str, faults)))


def read_document(text: str) -> Any:
    """The data of a JSON or YAML text. Raises TextError with every fault, or with the one that ended parsing."""
    data = next(iter(_parsed(text, many=False)), None)
    if faults := list(_faults(data)):
        raise TextError(*faults)
    return data


def read_documents(text: str) -> list[Any]:
    """The data of every document of a JSON or YAML text (`---` between them), without empty ones. Raises TextError."""
    documents = [document for document in _parsed(text, many=True) if document is not None]
    for number, document in enumerate(documents):
        if faults := list(_faults(document, (number,))):
            raise TextError(*faults, document=number)
    return documents


def _parsed(text: str, *, many: bool) -> list[Any]:
    if len(text) > LARGEST_BYTES:
        raise TextError(too_large_fault())
    text = text.removeprefix("\ufeff")
    not_json = ""
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return [
                json.loads(
                    text,
                    object_pairs_hook=_members,
                    parse_int=lambda digits: int(digits) if len(digits) <= LONGEST_NUMBER else _Number(digits),
                )
            ]
        except RecursionError:
            raise TextError(_TOO_DEEP) from None
        except ValueError as error:
            not_json = f"is no JSON ({error}) and no YAML: "
    try:
        loader = _Loader(text)
        documents = [loader.get_data()] if loader.check_data() else []
        while loader.check_data():
            if not many:
                raise loader.refusal(loader.peek_event(), "begins a second document (---); give one at a time")
            documents.append(loader.get_data())
    except (yaml.YAMLError, ValueError) as error:
        raise TextError(Fault("", None, f"{not_json or 'is no YAML: '}{' '.join(str(error).split())}")) from error
    return documents


def too_large_fault() -> Fault:
    """The fault of a document of more than LARGEST_BYTES."""
    most = LARGEST_BYTES // 2**20
    return Fault("", None, f"the document is larger than {most} MiB; leave out what has no bearing (managedFields)")


class _Number(NamedTuple):
    """A number with too many digits."""

    text: str


class _Members(dict[str, Any]):
    """A mapping with its repeated keys."""

    repeated: tuple[str, ...] = ()


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else _with_repeated(members, [key for key, _ in pairs])


def _with_repeated(mapping: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    members = _Members(mapping)
    once: set[str] = set()
    members.repeated = tuple(dict.fromkeys(key for key in keys if key in once or once.add(key)))  # type: ignore[func-returns-value]
    return members


def _too_many(most: int) -> Fault:
    advice = "give the document as JSON (kubectl get -o json), or leave out what has no bearing"
    if most == MOST_VALUES:
        advice = "leave out what has no bearing (managedFields)"
    return Fault("", None, f"holds more than {most} values, aliases counted as often as they are used; {advice}")


def _faults(data: Any, at: Path = ()) -> Iterator[Fault]:
    """The faults of all values. Raises TextError for too many values or too deep nesting."""
    left: list[tuple[Path, Any]] = [(at, data)]
    values = 1
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            yield from _key_faults(path, value)
            left += [((*path, key), member) for key, member in value.items() if _may_be_wrong(member)]
            values += len(value)
        elif isinstance(value, list):
            left += [((*path, index), item) for index, item in enumerate(value) if _may_be_wrong(item)]
            values += len(value)
        elif isinstance(value, _Number):
            yield Fault(
                path_of(path), f"{value.text[:20]}…", f"is a number of {len(value.text)} digits; no number here has"
            )
        elif isinstance(value, str):
            if len(value) > LONGEST_TEXT:
                advice = f"has {len(value)} characters; at most {LONGEST_TEXT} are read"
                yield Fault(path_of(path), f"{value[:20]}…", advice)
            elif not _is_text(value):
                yield Fault(path_of(path), value, "holds half a character (a lone surrogate); write the text as UTF-8")
        if values > MOST_VALUES:
            raise TextError(_too_many(MOST_VALUES))
        if len(path) > DEEPEST:
            raise TextError(_TOO_DEEP)


def _may_be_wrong(value: object) -> bool:
    if isinstance(value, str):
        return len(value) > LONGEST_TEXT or not value.isascii()
    return isinstance(value, dict | list | _Number)


def _key_faults(path: Path, members: dict[str, Any]) -> Iterator[Fault]:
    for key in members.repeated if isinstance(members, _Members) else ():
        yield Fault(path_of((*path, key)), members[key], "is a key that stands here more than once; keep one of them")
    for key in members:
        if not _is_text(key):
            yield Fault(path_of(path), key, "holds half a character (a lone surrogate); write the key as UTF-8")


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def values_at(value: Any, place: Sequence[str], at: Path) -> Iterator[tuple[Path, object]]:
    """The values at a place, with their paths; lists are searched item by item."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from values_at(item, place, (*at, index))
    elif not place:
        yield at, value
    elif isinstance(value, Mapping) and place[0] in value:
        yield from values_at(value[place[0]], place[1:], (*at, place[0]))


# --- YAML ---


class _Loader(*_BASES):  # type: ignore[misc]  # with libyaml's parser where PyYAML was built with it
    """PyYAML's safe loader, which refuses what is too large or too deep while it composes, and foreign tags.

    Each node has its `size`: its values and characters after expanding every alias.
    """

    yaml_implicit_resolvers = _RESOLVERS

    def __init__(self, text: str) -> None:
        _BASES[-1].__init__(self, text)
        yaml.composer.Composer.__init__(self)
        self._depth = self._values = self._characters = 0

    def refusal(self, place: Any, advice: str) -> TextError:
        """The fault of a node or event."""
        mark = place.start_mark
        return TextError(Fault("", None, f"{advice} (line {mark.line + 1}, column {mark.column + 1})"))

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The next node; of a mapping's keys, which have no index, a text."""
        event: Any = self.peek_event()
        values, characters = self._values, self._characters
        is_key = index is None and isinstance(parent, yaml.MappingNode)
        if isinstance(event, yaml.ScalarEvent):
            self._add(1, len(event.value))
            if is_key and (event.style or event.value != "<<"):
                event.tag = _STRING
            self.anchors.pop(event.anchor, None)  # an anchor may be used again
            node = self.compose_scalar_node(event.anchor)
        elif isinstance(event, yaml.AliasEvent):
            node = self.anchors.get(event.anchor)
            if not hasattr(node, "size"):
                name = str(event.anchor)[:80]
                raise self.refusal(event, f"*{name} names no value that is complete before it (&{name})")
            self._add(*node.size)
            self.get_event()
            if is_key:
                node = yaml.ScalarNode(_STRING, node.value) if isinstance(node, yaml.ScalarNode) else None
        else:
            self._add(1, 0)
            if self._depth == DEEPEST:
                raise TextError(_TOO_DEEP)
            self._depth += 1
            self.anchors.pop(event.anchor, None)
            node = None if is_key else super().compose_node(parent, index)
            self._depth -= 1
        if node is None:
            raise self.refusal(event, "a key must be a text, not a mapping or list")
        node.size = self._values - values, self._characters - characters
        return node

    def _add(self, values: int, characters: int) -> None:
        self._values += values
        self._characters += characters
        if self._values > MOST_YAML_VALUES or self._characters > LARGEST_BYTES:
            raise TextError(_too_many(MOST_YAML_VALUES))

    def construct_members(self, node: Any) -> dict[str, Any]:
        """The mapping, with the keys that it repeats itself; what `<<` brings repeats none."""
        if not isinstance(node, yaml.MappingNode):
            raise self.refusal(node, "is no mapping, as its tag has it; leave the tag away")
        keys = [key.value for key, _ in node.value if key.tag != _MERGE]
        self.flatten_mapping(node)
        members = {key.value: self.construct_object(value, deep=True) for key, value in node.value}
        return members if len(set(keys)) == len(keys) else _with_repeated(members, keys)

    def construct_simple(self, node: Any) -> Any:
        """A number or truth value."""
        if node.tag != _BOOL and len(node.value) > LONGEST_NUMBER:
            return _Number(node.value)
        try:
            return yaml.constructor.SafeConstructor.yaml_constructors[node.tag](self, node)
        except (ValueError, IndexError, KeyError):
            raise self.refusal(
                node, f"{node.value!r} is no {'truth value' if node.tag == _BOOL else 'number'}"
            ) from None

    def construct_undefined(self, node: Any) -> Any:
        """Nothing: raises TextError."""
        raise self.refusal(node, f"has the tag {node.tag[:80]}, which is not read here; leave it away")

    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        **{tag: yaml.SafeLoader.yaml_constructors[tag] for tag in (_STRING, _NULL, _LIST)},
        _MAP: construct_members,
        **dict.fromkeys((_INT, _FLOAT, _BOOL), construct_simple),
        _MERGE: yaml.SafeLoader.yaml_constructors[_STRING],
        None: construct_undefined,
    }
