"""`python -m tools.shape`: a table of packages with their modules, their lines, and their budgets.

Lines are those of `wc -l` over all Python files. A package may be larger than its budget if its users gain by it.
"""

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
ADAPTER: dict[str, tuple[int, tuple[str, ...]]] = {
    "load": (2_800, ("load",)),
    "policy": (1_200, ("policy",)),
    "evaluation, engine, snapshot, processes, cli": (1_900, ("evaluation", "*.py")),
    "kube": (1_850, ("kube",)),
    "usage": (1_200, ("usage",)),
    "registries": (2_200, ("registries",)),
    "apiserver": (1_850, ("apiserver",)),
    "companion": (1_500, ("companion",)),
    "hpa": (500, ("hpa",)),
    "runtime, telemetry, settings": (2_100, ("runtime", "telemetry", "settings")),
    "commands": (5_400, ("commands",)),
}
"""The budget of each row in `adapter/`, and its folders or files."""
WHOLE: dict[str, tuple[int, tuple[str, ...]]] = {
    "adapter": (22_500, ("adapter",)),
    "tests": (32_000, ("tests",)),
    "lab, tools, monitoring": (7_000, ("lab", "tools", "monitoring")),
}
"""The budgets of the top folders."""


def modules(base: Path, places: Iterable[str]) -> set[Path]:
    """The Python files in these folders, or of these names."""
    return {path for place in places for path in base.glob(place if place.endswith(".py") else f"{place}/**/*.py")}


def row(name: str, files: Iterable[Path], budget: int) -> str:
    """A line of the table."""
    sizes = [path.read_bytes().count(b"\n") for path in files]
    return f"{name:46}{len(sizes):>8}{sum(sizes):>8,}{budget:>8,}"


def main() -> None:
    """Prints the table. Raises ValueError if a module of the adapter belongs to no row."""
    packages = {name: modules(ROOT / "adapter", places) for name, (_, places) in ADAPTER.items()}
    if missing := modules(ROOT, ["adapter"]) - set().union(*packages.values()):
        raise ValueError(f"no row for {', '.join(sorted(str(path.relative_to(ROOT)) for path in missing))}")
    print(f"{'package':46}{'modules':>8}{'lines':>8}{'budget':>8}")
    for name, files in packages.items():
        print(row(name, files, ADAPTER[name][0]))
    print()
    for name, (budget, places) in WHOLE.items():
        print(row(name, modules(ROOT, places), budget))


if __name__ == "__main__":
    main()
