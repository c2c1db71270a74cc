"""What a command waits for is shown on a terminal only."""

import io

import pytest

from adapter.commands.terminal.waiting import Progress, waiting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_wait_without_a_terminal_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("asking the server"):
        pass
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("stream", "bars", "end"),
    [(Terminal(), 4, "parts 4 of 4\x1b[K\n"), (io.StringIO(), 0, "parts 3 of 4, 4 s to go\n")],
)
def test_the_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(stream: io.StringIO, bars: int, end: str) -> None:
    progress = Progress("parts", 4, stream=stream, clock=iter([0.0, 1.0, 2.0, 12.0, 13.0, 14.0]).__next__)
    for _ in range(4):
        progress.advance()
    progress.close()
    assert stream.getvalue().count("\r[") >= bars
    assert stream.getvalue().endswith(end)
    assert bars or stream.getvalue() == end
