"""Reads documents that people write: JSON, else YAML without foreign tags. A repeated key is a fault in both formats.

Keys are texts, as in JSON, and so are times. Some texts are written by others, in a registry: so deep nesting is a
fault, and an alias counts with all that it stands for.
"""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from adapter.runtime.faults import Fault

MOST_VALUES, DEEPEST = 500_000, 100

_BASES: Any = (yaml.composer.Composer, yaml.CSafeLoader) if hasattr(yaml, "CSafeLoader") else (yaml.SafeLoader,)
"""libyaml's parser where PyYAML has it, with PyYAML's composer: libyaml's own crashes on deep nesting."""


class TextError(Exception):
    """A text is not a usable document; `faults` say why. `document`: the number of the faulty one of several."""

    def __init__(self, fault: str, document: int = 0) -> None:
        self.faults, self.document = (Fault("", None, fault),), document
        super().__init__(fault)


def read_document(text: str) -> Any:
    """The data of a JSON or YAML text; None where it is empty. Raises TextError."""
    documents = read_documents(text)
    if len(documents) > 1:
        raise TextError("begins a second document (---); give one at a time")
    return documents[0] if documents else None


def read_documents(text: str) -> list[Any]:
    """The data of every document of a JSON or YAML text (`---` between them), without empty ones. Raises TextError."""
    text = text.removeprefix("\ufeff")
    kind, found, documents = "YAML", None, list[Any]()
    try:
        if text.lstrip()[:1] in {"{", "["}:
            try:
                found = [json.loads(text, object_pairs_hook=_mapping)]
            except json.JSONDecodeError as error:
                kind = f"JSON ({error}) and not YAML"
        for document in found or _Loader(text):
            _check(document)
            documents += [document] if document is not None else []
    except RecursionError:
        raise TextError(f"is nested more than {DEEPEST} levels deep; write it flatter", len(documents)) from None
    except TextError as error:
        raise TextError(str(error), len(documents)) from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise TextError(f"is not {kind}: {' '.join(str(error).split())}", len(documents)) from error
    return documents


def _mapping(pairs: list[tuple[str, Any]], lines: Sequence[int] = ()) -> dict[str, Any]:
    """A mapping. Raises TextError for a repeated key. `lines`: those of the keys, where they are known."""
    if len(mapping := dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        last = next(index for index, key in enumerate(keys) if key in keys[:index])
        where = f"line {lines[last]}: " if lines else ""
        raise TextError(f"{where}the key {keys[last][:80]!r} stands in one mapping more than once; keep one of them")
    return mapping


def _check(document: Any) -> None:
    """Raises ValueError and TypeError for too many values, and for what JSON cannot hold, as half of a character."""
    count, depth, level = 0, 0, [document]
    while level:
        count, depth = count + len(level), depth + 1
        if count > MOST_VALUES:
            raise ValueError(f"it holds more than {MOST_VALUES} values, aliases counted as often as they are used")
        if depth > DEEPEST:
            raise RecursionError
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = list(itertools.islice(itertools.chain.from_iterable(inner), MOST_VALUES))  # as many are too many
    json.dumps(document, ensure_ascii=False).encode()


class _Loader(*_BASES):  # type: ignore[misc]  # its base is one or two classes
    """PyYAML's safe loader with texts for keys and times."""

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

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        """The mapping, its keys as they are written; what `<<` brings repeats no key."""
        own = [key for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if not all(isinstance(key, yaml.ScalarNode) for key in own):  # as in `{{ a template's text }}`
            raise ValueError(f"line {node.start_mark.line + 1}: a key must be a text, not a mapping or list")
        _mapping([(key.value, None) for key in own], [key.start_mark.line + 1 for key in own])
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}


_Loader.add_constructor("tag:yaml.org,2002:map", lambda loader, node: loader.construct_mapping(node, deep=True))
