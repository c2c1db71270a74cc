"""The page of the documentation."""

from tests.replay.scenarios.recorded import PAGE, page


def test_the_documentation_shows_the_table_as_it_is() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.replay.scenarios --write renews it"
