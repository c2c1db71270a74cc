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

ROOT = Path(__file__).parents[1]
SHORT = 6
"""Private functions below this many lines are worth a look where they are called once."""
SMALL = 150
"""Modules up to this many lines are worth a look where they have one importer."""


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
    paths = sorted(path for folder in arguments.folders for path in (ROOT / folder).rglob("*.py"))
    texts = {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text(encoding="utf-8") for path in paths}
    sizes: list[int] = []
    private, once, classes = 0, list[tuple[str, int]](), Counter[str]()
    importers: dict[str, list[str]] = {module: [] for module in texts}
    for module, text in texts.items():
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        named = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        named.update(node.attr for node in nodes if isinstance(node, ast.Attribute))
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                sizes.append((node.end_lineno or 0) - node.lineno + 1)
                if node.name.startswith("_") and not node.name.startswith("__"):
                    private += 1
                    if named[node.name] == 1:
                        once.append((f"{module}.{node.name}", sizes[-1]))
        for imported in {*_imports(tree)} & importers.keys():
            importers[imported].append(module)
        classes.update(node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")
    lines = {module: text.count("\n") for module, text in texts.items()}
    single = [
        (module, *by)
        for module, by in importers.items()
        if len(by) == 1 and lines[module] <= SMALL and not module.endswith("__init__")
    ]
    short = [(name, size) for name, size in once if size < SHORT]
    two_homes = sorted(name for name, homes in classes.items() if homes > 1)
    print(f"lines {sum(lines.values())}")
    print(f"modules {len(texts)}")
    deciles = statistics.quantiles(sizes, n=10)
    print(f"functions {len(sizes)}, lines of a function p50 {statistics.median(sizes):g} p90 {deciles[8]:g}")
    print(f"private functions {private}, {100 * private / len(sizes):.0f} % of all")
    print(f"private functions called once {len(once)}, {len(short)} of them below {SHORT} lines")
    print(f"modules of at most {SMALL} lines with one importer {len(single)}")
    print(f"public classes with two homes {len(two_homes)}")
    if arguments.verbose:
        print(*(f"called once: {name} ({size})" for name, size in short), sep="\n")
        print(*(f"one importer: {name} ({lines[name]}) by {by}" for name, by in single), sep="\n")
        print(*(f"two homes: {name}" for name in two_homes), sep="\n")


if __name__ == "__main__":
    main()
