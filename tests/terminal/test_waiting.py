"""What a command waits for is shown on a terminal only, and only once it takes long."""

import io
import threading

import pytest

from adapter.commands.terminal.waiting import Progress, waiting


class Terminal(io.StringIO):
    """A terminal that tells when it was written to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


def test_a_long_wait_is_shown_and_wiped_off_at_its_end() -> None:
    terminal = Terminal()
    with waiting("asking the server", terminal, quiet=0.01):
        assert terminal.written.wait(10)
        assert "asking the server: 0 s" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(("stream", "quiet"), [(Terminal(), 60.0), (io.StringIO(), 0.0)], ids=["short", "no terminal"])
def test_a_short_wait_and_one_without_a_terminal_write_nothing(stream: io.StringIO, quiet: float) -> None:
    with waiting("asking the server", stream, quiet=quiet):
        pass
    assert stream.getvalue() == ""


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
