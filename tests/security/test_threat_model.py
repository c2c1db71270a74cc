"""The threat model names a test in each line, and has a line for each module of attacks."""

from pathlib import Path

import pytest

from tools import checks


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The path of another threat model, beside one module with one attack."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests" / "security").mkdir(parents=True)
    (tmp_path / "tests" / "security" / "test_heads.py").write_text("def test_a_head(): ...", encoding="utf-8")
    (tmp_path / "docs" / "registries.md").write_text("", encoding="utf-8")
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    monkeypatch.setattr(checks, "REGISTRIES", tmp_path / "docs" / "registries.md")
    monkeypatch.setattr(checks, "SECURITY", tmp_path / "docs" / "security.md")
    return tmp_path / "docs" / "security.md"


def found(page: Path, *rows: str) -> list[str]:
    page.write_text("\n".join(("| what | test |", "|---|---|", *rows)), encoding="utf-8")
    return [*checks.named_tests(), *checks.threat_model()]


def test_a_line_with_a_test_that_exists_is_right(page: Path) -> None:
    assert found(page, "| heads | `security/test_heads.py::test_a_head` |") == []


def test_a_line_whose_test_does_not_exist_is_found(page: Path) -> None:
    (said,) = found(page, "| heads | `security/test_heads.py::test_no_head` |")
    assert said == "docs/security.md names security/test_heads.py::test_no_head, which does not exist"


def test_a_line_without_a_test_is_found(page: Path) -> None:
    (said,) = found(page, "| heads | `security/test_heads.py::test_a_head` |", "| tails | soon |")
    assert said == "docs/security.md: no test in: | tails | soon |"


def test_a_module_without_a_line_is_found(page: Path) -> None:
    assert found(page) == ["docs/security.md has no line for tests/security/test_heads.py"]
