"""What a command waits for is shown on a terminal only."""

import sys

import pytest

from adapter.commands.terminal.waiting import waiting


@pytest.mark.parametrize("terminal", [False, True])
def test_a_wait_is_shown_on_a_terminal_only(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with waiting("asking the server"):
        pass
    out, err = capsys.readouterr()
    assert out == ""
    assert ("asking the server" in err) is terminal
