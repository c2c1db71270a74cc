"""The Dockerfile installs only pinned packages, and the locks contain all of them."""

import re
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def needed(name: str) -> set[str]:
    """A distribution and its transitive requirements, as installed here from the development lock."""
    wanted = [Requirement(one) for one in requires(name) or ()]
    of_here = [one.name.lower() for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return {name, *(deeper for one in of_here for deeper in needed(one))}


def test_what_builds_the_package_is_taken_from_the_lock_with_all_that_it_needs() -> None:
    (names,) = re.findall(r"awk '/\^\(([a-z|-]+)\)==/", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert set(names.split("|")) == needed("hatchling")
    locked = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements" / "dev.lock").read_text("utf-8"), re.MULTILINE)
    assert needed("hatchling") <= set(locked)
