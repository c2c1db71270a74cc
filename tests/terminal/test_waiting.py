"""What a command waits for is shown on a terminal only."""

import sys

import pytest

from adapter.commands.terminal.waiting import Progress, waiting


def advance() -> None:
    with waiting("asking the server"):
        pass
    progress = Progress("parts", 4)
    for _ in range(4):
        progress.advance()
    progress.close()


def test_a_wait_without_a_terminal_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    advance()
    assert capsys.readouterr() == ("", "")


def test_the_progress_is_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    advance()
    assert "4/4" in capsys.readouterr().err
