"""What a release says of itself comes from the changelog."""

import pytest

from lab.harness import changelog

TEXT = """# Changelog

## [Unreleased]

## [1.1.0] - 2026-12-01

### Added

- A thing.

## [1.0.0] - 2026-11-01

- The first.

[1.0.0]: https://example.com
"""


@pytest.mark.parametrize(("version", "expected"), [("1.1.0", "### Added\n\n- A thing.\n"), ("1.0.0", "- The first.\n")])
def test_a_versions_section_is_taken_without_its_heading(version: str, expected: str) -> None:
    assert changelog.notes(TEXT, version) == expected


@pytest.mark.parametrize(("version", "says"), [("1.0", "has no section"), ("Unreleased", "says nothing")])
def test_a_version_without_a_section_or_without_an_entry_is_an_error(version: str, says: str) -> None:
    with pytest.raises(LookupError, match=says):
        changelog.notes(TEXT, version)


def test_the_command_reads_this_projects_changelog(capsys: pytest.CaptureFixture[str]) -> None:
    assert changelog.main(["Unreleased"]) == 0
    assert "\n- " in capsys.readouterr().out
    assert changelog.main(["99.0.0"]) == 1
    assert capsys.readouterr().err == (
        "CHANGELOG.md has no section [99.0.0]; give [Unreleased] that name and the date\n"
    )
