"""`python -m lab.harness.changelog VERSION`: the changelog's section of a version, as the text of its release."""

import argparse
import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"


def notes(text: str, version: str) -> str:
    """The section of a version without its heading. Raises LookupError where there is none, or nothing in it."""
    section = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |^\[[^\]]+\]: |\Z)", text, re.MULTILINE | re.DOTALL
    )
    if section is None:
        raise LookupError(f"has no section [{version}]; give [Unreleased] that name and the date")
    if not re.search(r"^- ", section[1], re.MULTILINE):
        raise LookupError(f"says nothing of [{version}]; name what changed")
    return section[1].strip() + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Prints the section; the exit status is 1 if there is none."""
    parser = argparse.ArgumentParser(prog="python -m lab.harness.changelog", description=__doc__)
    parser.add_argument("version", metavar="VERSION", help="as in pyproject.toml")
    version = parser.parse_args(arguments).version
    try:
        sys.stdout.write(notes(CHANGELOG.read_text(encoding="utf-8"), version))
    except LookupError as error:
        sys.stderr.write(f"CHANGELOG.md {error.args[0]}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
