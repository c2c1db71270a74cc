"""What the source says by itself: names on Kubernetes objects, and values of labels."""

import ast
import contextlib
import enum
import functools
import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import adapter

_ON_OBJECTS = re.compile(
    r"(?!.*k8s\.io/v[0-9])([a-z0-9-]+\.)+[a-z]+/[A-Za-z][\w.-]*|effective-load[a-z.-]*(/[a-z0-9-]+)?"
)
"""Keys of annotations and labels, and all that bears our own name."""


def modules() -> Iterator[ModuleType]:
    """Every module of the adapter, imported; one that needs an extra which is not there is an error."""
    yield adapter
    for found in pkgutil.walk_packages(adapter.__path__, "adapter."):
        yield importlib.import_module(found.name)


def names_on_objects() -> set[str]:
    """Texts of the code that look like a key or a name on a Kubernetes object, wherever they stand."""
    texts = {text for module in modules() for text in _texts(vars(module).values())}
    texts |= {
        node.value
        for tree in _trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return {text for text in texts if _ON_OBJECTS.fullmatch(text)}


def _texts(values: Iterable[object]) -> Iterator[str]:
    """The texts among values, in their collections and enumerations."""
    for value in values:
        if isinstance(value, str):
            yield str(value.value) if isinstance(value, enum.Enum) else value
        elif isinstance(value, enum.EnumType):
            yield from _texts(one.value for one in value)
        elif isinstance(value, tuple | list | set | frozenset):
            yield from _texts(value)
        elif isinstance(value, Mapping):
            yield from _texts([*value.keys(), *value.values()])


def error_reasons() -> set[str]:
    """The words by which metrics count failures of registries and load sources."""
    return {
        reason
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Exception)
        if isinstance(reason := getattr(value, "reason", None), str)
    }


def label_values() -> set[str]:
    """The texts that are given to metrics as values of labels, in place or by a constant of the module."""
    return {
        text
        for module in modules()
        for call in ast.walk(_tree(module))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "labels"
        for one in (*call.args, *(keyword.value for keyword in call.keywords))
        for text in _told(one, module)
    }


def _told(value: ast.expr, module: ModuleType) -> Iterator[str]:
    """The texts that an expression may be, as far as it shows: constants, also by name, in every branch."""
    match value:
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_told(body, module), *_told(orelse, module))
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name() | ast.Attribute():
            with contextlib.suppress(AttributeError, NameError):
                yield from _texts([eval(ast.unparse(value), vars(module))])


def _trees() -> Iterator[ast.Module]:
    return map(_tree, modules())


@functools.cache
def _tree(module: ModuleType) -> ast.Module:
    assert module.__file__ is not None
    return ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
