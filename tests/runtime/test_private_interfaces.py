"""The adapter leans on nothing private of asyncio and aiohttp; where a version changes what is replaced of them, a
sentence says so.
"""

import ast
import asyncio
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from types import ModuleType

import aiohttp
import pytest
from aiohttp import web

import adapter
from adapter.runtime.inbound import HttpConnection

UNDOCUMENTED = {"aiohttp.http_exceptions.LineTooLong": "tells a line beyond its limit from what cannot be parsed (431)"}
"""What is imported though no documentation names it, and for what. tests/security/test_door.py sees it work."""
PUBLIC = {"asyncio": asyncio.__all__, "aiohttp": aiohttp.__all__, "aiohttp.web": web.__all__}
DOCUMENTED = {"aiohttp.web", "aiohttp.abc.AbstractStreamWriter", "asyncio.TaskGroup"}
ELSEWHERE = {"_replace", "_asdict", "_fields", "_exit", "_value_"} | {"_name", "_type", "_labelnames", "_documentation"}
"""Documented attributes that begin with an underscore, and those of prometheus-client's metrics."""

MODULES = [importlib.import_module(each.name) for each in pkgutil.walk_packages(adapter.__path__, "adapter.")]


@pytest.fixture(scope="module")
def trees() -> dict[ModuleType, ast.AST]:
    return {module: ast.parse(inspect.getsource(module)) for module in MODULES}


def is_foreign(name: str) -> bool:
    return name.partition(".")[0] in {"asyncio", "aiohttp"}


def is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.endswith("__")


def used(tree: ast.AST) -> Iterator[str]:
    """The names of asyncio and aiohttp that a module imports or reads as an attribute of a module."""
    aliases = {"web": "aiohttp.web"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {each.asname or each.name: each.name for each in node.names if is_foreign(each.name)}
            yield from (each.name for each in node.names if "." in each.name and is_foreign(each.name))
        elif isinstance(node, ast.ImportFrom) and is_foreign(node.module or ""):
            yield from (f"{node.module}.{each.name}" for each in node.names)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield f"{aliases[node.value.id]}.{node.attr}"


def private(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """The private attributes that are read (`ast.Load`) or set (`ast.Store`)."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, context))
    return {node.attr for node in nodes if is_private(node.attr)}


def defined(tree: ast.AST) -> set[str]:
    """The private names that classes and functions define, the slots and the attributes that are set included."""
    found = private(tree, ast.Store)
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Constant(value=str(name)):
                found.add(name)
    return set(filter(is_private, found))


def test_only_public_names_of_asyncio_and_aiohttp_are_used(trees: dict[ModuleType, ast.AST]) -> None:
    names = {name for tree in trees.values() for name in used(tree)}
    assert len(names) > 30
    others = {name for name in names if name.rpartition(".")[2] not in PUBLIC.get(name.rpartition(".")[0], ())}
    assert UNDOCUMENTED.keys() <= others <= DOCUMENTED | UNDOCUMENTED.keys()


def test_every_private_attribute_that_is_used_is_the_adapters_own(trees: dict[ModuleType, ast.AST]) -> None:
    own = set[str]().union(*map(defined, trees.values()))
    assert len(own) > 1000
    foreign = {name: module.__name__ for module, tree in trees.items() for name in private(tree, ast.Load) - own}
    assert not foreign.keys() - ELSEWHERE, foreign


def derived(module: ModuleType) -> Iterator[type]:
    """The module's classes with a base of asyncio or aiohttp."""
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == module.__name__ and any(foreign_bases(kind)):
            yield kind


def foreign_bases(kind: type) -> Iterator[type]:
    return (base for base in kind.__mro__ if is_foreign(base.__module__))


CLASSES = [kind for module in MODULES for kind in derived(module)]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_shares_no_private_attribute_with_its_base(kind: type) -> None:
    ours = defined(ast.parse(textwrap.dedent(inspect.getsource(kind))))
    for base in foreign_bases(kind):
        theirs = defined(ast.parse(textwrap.dedent(inspect.getsource(base)))) | set(filter(is_private, vars(base)))
        shared = sorted(ours & theirs)
        assert not shared, f"{base.__name__} of {base.__module__} has {shared} too: give ours another name"


def test_the_classes_that_derive_from_them_are_found() -> None:
    assert HttpConnection in CLASSES


@pytest.mark.parametrize("method", ["connection_made", "connection_lost", "data_received", "handle_error"])
def test_a_connection_of_aiohttp_has_the_methods_that_ours_replaces(method: str) -> None:
    theirs, ours = (inspect.signature(getattr(kind, method)) for kind in (web.RequestHandler, HttpConnection))
    assert list(theirs.parameters) == list(ours.parameters), (
        f"aiohttp's RequestHandler.{method} takes {theirs} now, and {HttpConnection.__module__} replaces it with {ours}"
    )
