"""The documentation site: nothing is loaded from elsewhere, and people find what they search for."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.harness import site


@pytest.mark.parametrize(
    ("output", "warned"),
    [
        ('<script src="https://unpkg.com/x"></script>', True),
        ('<link rel="stylesheet" href="//fonts.example/css">', True),
        ('<img alt="" src="http://example.com/a.png">', True),
        ('<link rel="canonical" href="https://effective-load.io/a/">', False),
        ('<a href="https://example.com/">there</a><img src="../a.png">', False),
    ],
)
def test_a_page_that_loads_from_elsewhere_is_a_warning(
    output: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "mkdocs.hooks.site"):
        site.on_post_page(output, SimpleNamespace(file=SimpleNamespace(src_uri="a.md")), None)  # type: ignore[arg-type]
    assert bool(caplog.records) is warned


@pytest.mark.parametrize(
    "word",
    ["OpenShift", "EKS", "GKE", "AKS", "Argo CD", "Flux", "Argo Rollouts", "Air-gapped", "Pause"],
)
def test_what_people_search_for_is_the_title_of_a_page_or_a_section(word: str) -> None:
    docs = Path(__file__).parents[2] / "docs"
    titles = [line for path in docs.rglob("*.md") for line in path.read_text().splitlines() if line.startswith("#")]
    assert any(word in title for title in titles)


def test_a_page_of_a_platform_has_at_most_40_lines() -> None:
    pages = [*(Path(__file__).parents[2] / "docs" / "platforms").glob("*.md")]
    assert len(pages) == 9
    assert all(len(path.read_text().splitlines()) <= 40 for path in pages)
