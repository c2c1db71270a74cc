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


HEADS = "| heads | `security/test_heads.py::test_a_head` |"


@pytest.mark.parametrize(
    ("rows", "faults"),
    [
        pytest.param([HEADS], [], id="a line with a test that exists is right"),
        pytest.param(
            ["| heads | `security/test_heads.py::test_no_head` |"],
            ["docs/security.md names security/test_heads.py::test_no_head, which does not exist"],
            id="a test that does not exist",
        ),
        pytest.param([HEADS, "| tails | soon |"], ["docs/security.md: no test in: | tails | soon |"], id="no test"),
        pytest.param(
            [], ["docs/security.md has no line for tests/security/test_heads.py"], id="a module without a line"
        ),
    ],
)
def test_a_line_without_a_test_and_a_module_without_a_line_are_found(
    page: Path, rows: list[str], faults: list[str]
) -> None:
    page.write_text("\n".join(("| what | test |", "|---|---|", *rows)), encoding="utf-8")
    assert [*checks.named_tests(), *checks.threat_model()] == faults
