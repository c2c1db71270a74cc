"""Pages that people write: both READMEs say the same, and every symptom has a command and a cause."""

import re
from pathlib import Path

import pytest

from adapter.policy.watermark_policy import parse_policy
from tools import policy_reference

ROOT = Path(__file__).parents[2]
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_HAN = re.compile(r"[\u4e00-\u9fff]")


def without_blocks(text: str) -> str:
    return _BLOCK.sub("", text)


def outline(text: str) -> list[tuple[str, str]]:
    """What a section holds, in order: headings by level, code blocks, list entries, table rows, pictures."""
    kinds = re.finditer(r"^(#+) |^(```)[^\n]*\n(.*?)^```$|^(- )|^(\|)|^(!\[)", text, re.MULTILINE | re.DOTALL)
    return [(next(one for one in match.group(1, 2, 4, 5, 6) if one), match[3] or "") for match in kinds]


def test_both_have_the_same_sections_with_the_same_code_lists_tables_and_pictures() -> None:
    assert outline(CHINESE) == outline(ENGLISH)
    assert len([kind for kind, _ in outline(ENGLISH) if kind == "##"]) > 5


@pytest.mark.parametrize("pattern", [r"`([^`]+)`", r"\]\(([^)\s]+)\)"], ids=["code", "links"])
def test_both_name_the_same_commands_fields_and_links_in_each_section(pattern: str) -> None:
    for english, chinese in zip(
        re.split(r"^## ", without_blocks(ENGLISH), flags=re.MULTILINE)[1:],
        re.split(r"^## ", without_blocks(CHINESE), flags=re.MULTILINE)[1:],
        strict=True,
    ):
        named = [{" ".join(one.split()) for one in re.findall(pattern, text)} for text in (english, chinese)]
        assert named[0] == named[1], english.splitlines()[0]


def test_every_section_is_translated() -> None:
    for section in re.split(r"^## ", without_blocks(CHINESE), flags=re.MULTILINE):
        assert len(_HAN.findall(section)) > 20, section


def test_every_field_of_a_policy_has_an_example_and_the_examples_are_policies() -> None:
    without = [path for path in policy_reference.spec_fields() if policy_reference.example_of(path) is None]
    assert not without
    for policy in policy_reference.examples():
        parse_policy(policy)


def test_every_symptom_has_a_command_and_a_cause() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in page.splitlines() if line.startswith("|")]
    assert len(rows) > 40
    assert all(len(row) == 3 and all(cell.strip() for cell in row) for row in rows)
    heads = [row for row in rows if row[0].strip() == "symptom"]
    assert {tuple(cell.strip() for cell in row) for row in heads} == {("symptom", "command", "cause and remedy")}
    assert len(heads) == len(re.findall(r"^\|---", page, re.MULTILINE))


def test_both_readmes_are_short_and_begin_with_what_it_is_and_its_status() -> None:
    for text, status, other in ((ENGLISH, "**Status**", "README.zh.md"), (CHINESE, "**状态**", "README.md")):
        assert len(text.splitlines()) <= 150
        assert f"]({other})" in text.split("\n## ")[0]
        assert status in "\n".join(text.splitlines()[:9])
