"""Finds the line of a field in a text that `document_text.read_documents` has read."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = "tag:yaml.org,2002:null"
_INDEX = re.compile(r"\[([^\]]*)\]\.?")
_BLOCK = ("|", ">")


class DocumentLines:
    """The lines of one text, by the number of the document and the field's path (`spec.metrics[0].name`)."""

    def __init__(self, text: str) -> None:
        self._text = text

    def line(self, document: int, path: str) -> int | None:
        """The line (from 1) of a field, or of its nearest parent that is there; None where the text has no lines."""
        nodes = list(self._nodes(document, path))
        return nodes[-1].start_mark.line + 1 if nodes else None

    def block_start(self, document: int, path: str) -> int | None:
        """The line before the first one of a block of text (`|`); None where the field is no such block."""
        nodes = list(self._nodes(document, path))
        if not nodes or not isinstance(nodes[-1], yaml.ScalarNode) or nodes[-1].style not in _BLOCK:
            return None
        return int(nodes[-1].start_mark.line) + 1

    @cached_property
    def _roots(self) -> list[yaml.Node]:
        try:
            found = list(yaml.compose_all(self._text.removeprefix("\ufeff"), Loader=_Loader))
        except (yaml.YAMLError, RecursionError):  # JSON that is no YAML
            return []
        return [one for one in found if one is not None and one.tag != _NULL]

    def _nodes(self, document: int, path: str) -> Iterator[yaml.Node]:
        """The nodes on the way to a field, as far as they exist: of a mapping its keys, then the value."""
        if document >= len(self._roots):
            return
        node = self._roots[document]
        yield node
        while path:
            key, path = _step(node, path)
            found = _inner(node, key)
            if found is None:
                return
            label, node = found
            yield label
        if isinstance(node, yaml.ScalarNode) and node.style in _BLOCK:
            yield node


def _step(node: yaml.Node, path: str) -> tuple[str, str]:
    """The first key or index of a path, and the rest; a key of the node may have dots."""
    if bracket := _INDEX.match(path):
        return bracket[1], path[bracket.end() :]
    keys = [one.value for one, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    whole = [key for key in keys if path == key or path.startswith((f"{key}.", f"{key}["))]
    key = max(whole, key=len) if whole else re.split(r"[.\[]", path, maxsplit=1)[0]
    return key, path[len(key) :].removeprefix(".")


def _inner(node: yaml.Node, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    """The node that stands for an entry (a mapping's key, or the item itself), and the entry's value."""
    if isinstance(node, yaml.MappingNode):
        return next(((label, value) for label, value in node.value if label.value == key), None)
    if isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
        item = node.value[int(key)]
        return item, item
    return None
