"""`python -m tests.replay.scenarios`: writes the table of docs/scenarios.md as decisions are now; see its diff."""

from tests.replay.scenarios.table import PAGE, page

PAGE.write_text(page(), encoding="utf-8")
