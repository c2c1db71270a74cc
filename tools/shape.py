"""`python -m tools.shape`: how finely the code is divided, as figures to compare before and after a change.

`python -m tools.shape lab adapter/load` counts other folders; `-v` names the private functions that are called once and
the modules with one importer. A function counts as called once where one place of the counted code names it.
"""

import argparse
import ast
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SHORT = 6
"""Private functions below this many lines are worth a look where they are called once."""
SMALL = 150
"""Modules up to this many lines are worth a look where they have one importer."""


class Function(NamedTuple):
    """A function or method: where it is, and its lines with signature and docstring."""

    module: str
    name: str
    lines: int

    @property
    def is_private(self) -> bool:
        """Whether its name says so; `__init__` and its kind are not."""
        return self.name.startswith("_") and not self.name.startswith("__")


class Shape(NamedTuple):
    """What is counted of some folders. `called_once` are private."""

    lines: int
    modules: list[str]
    functions: list[Function]
    called_once: list[Function]
    one_importer: list[tuple[str, str, int]]
    two_homes: list[str]


def shape(folders: list[str]) -> Shape:
    """The shape of these folders of the repository."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    texts = {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8") for path in paths}
    trees = {module: ast.parse(text) for module, text in texts.items()}
    functions = [found for module, tree in trees.items() for found in _functions(module, tree)]
    named = {module: Counter(_names(tree)) for module, tree in trees.items()}
    importers: dict[str, set[str]] = {module: set() for module in trees}
    for module, tree in trees.items():
        for imported in set(_imports(tree)) & importers.keys():
            importers[imported].add(module)
    sizes = {module: text.count("\n") for module, text in texts.items()}
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return Shape(
        lines=sum(sizes.values()),
        modules=list(trees),
        functions=functions,
        called_once=[one for one in functions if one.is_private and named[one.module][one.name] == 1],
        one_importer=[
            (module, *by, sizes[module])
            for module, by in importers.items()
            if len(by) == 1 and sizes[module] <= SMALL and not module.endswith("__init__")
        ],
        two_homes=sorted(name for name, homes in classes.items() if homes > 1),
    )


def _functions(module: str, tree: ast.Module) -> Iterator[Function]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield Function(module, node.name, node.end_lineno - node.lineno + 1)


def _names(tree: ast.Module) -> Iterator[str]:
    """Each use of a name, as a variable or as an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(prog="python -m tools.shape", description="How finely code is divided.")
    parser.add_argument("folders", nargs="*", default=["adapter"], metavar="FOLDER")
    parser.add_argument("-v", "--verbose", action="store_true", help="name what is worth a look")
    arguments = parser.parse_args()
    found = shape(arguments.folders)
    private = [one for one in found.functions if one.is_private]
    short = [one for one in found.called_once if one.lines < SHORT]
    sizes = sorted(one.lines for one in found.functions)
    deciles = statistics.quantiles(sizes, n=10)
    print(f"lines {found.lines}")
    print(f"modules {len(found.modules)}")
    print(f"functions {len(sizes)}, lines of a function p50 {statistics.median(sizes):g} p90 {deciles[8]:g}")
    print(f"private functions {len(private)}, {100 * len(private) / len(sizes):.0f} % of all")
    print(f"private functions called once {len(found.called_once)}, {len(short)} of them below {SHORT} lines")
    print(f"modules of at most {SMALL} lines with one importer {len(found.one_importer)}")
    print(f"public classes with two homes {len(found.two_homes)}")
    if arguments.verbose:
        print(*(f"called once: {one.module}.{one.name} ({one.lines})" for one in short), sep="\n")
        print(*(f"one importer: {name} ({lines}) by {by}" for name, by, lines in found.one_importer), sep="\n")
        print(*(f"two homes: {name}" for name in found.two_homes), sep="\n")


if __name__ == "__main__":
    main()
