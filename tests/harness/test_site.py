"""The documentation site's hook: links lead somewhere, folders unfold, and nothing is loaded from elsewhere."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.harness import site


def page(src_uri: str) -> SimpleNamespace:
    return SimpleNamespace(file=SimpleNamespace(src_uri=src_uri))


@pytest.mark.parametrize(
    ("here", "link", "led"),
    [
        ("install.md", "../manifests/examples/step.yaml", "files/manifests/examples/step.yaml.md"),
        ("install.md", "../README.md#install", "index.md#install"),
        ("concepts/band.md", "../strategies.md", "../strategies.md"),
        ("concepts/band.md", "../../tests/vectors", "../files/tests/vectors.md"),
        ("install.md", "../charts/effective-load/README.md#values", "files/charts/effective-load/README.md#values"),
        ("files/charts/effective-load/README.md", "../../docs/install.md", "../../../install.md"),
        ("index.md", "docs/pictures/demo.svg", "pictures/demo.svg"),
        ("index.md", "docs/install.md#rights", "install.md#rights"),
        ("index.zh.md", "README.md", "index.md"),
        ("contributing.md", "docs/architecture.md", "architecture.md"),
        ("install.md", "https://example.com/a", "https://example.com/a"),
        ("install.md", "#rights", "#rights"),
    ],
)
def test_a_link_of_the_repository_becomes_a_link_of_the_site(here: str, link: str, led: str) -> None:
    assert site.on_page_markdown(f"see [it]({link}).", page(here), None, None) == f"see [it]({led})."  # type: ignore[arg-type]


def test_a_bar_in_the_code_of_a_table_needs_no_escape_on_the_site() -> None:
    row = "| `logs \\| grep x` | a \\| b |\n\n`c \\| d`"
    made = site.on_page_markdown(row, page("a.md"), None, None)  # type: ignore[arg-type]
    assert made == "| `logs | grep x` | a \\| b |\n\n`c \\| d`"


def test_an_entry_that_names_a_folder_stands_for_its_pages(tmp_path: Path) -> None:
    (tmp_path / "runbooks").mkdir()
    for name in ("B.md", "A.md", "index.md"):
        (tmp_path / "runbooks" / name).touch()
    config = SimpleNamespace(nav=[{"Operate": ["a.md", {"Runbooks": "runbooks/"}]}], docs_dir=str(tmp_path))
    unfolded = site.on_config(config).nav  # type: ignore[arg-type]
    assert unfolded == [{"Operate": ["a.md", {"Runbooks": ["runbooks/index.md", "runbooks/A.md", "runbooks/B.md"]}]}]


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
        site.on_post_page(output, page("a.md"), None)  # type: ignore[arg-type]
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
