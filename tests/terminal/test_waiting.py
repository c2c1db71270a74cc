"""What a command waits for is shown on a terminal only, and only once it takes long."""

import io
import threading

from adapter.commands.terminal.waiting import waiting


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


def test_a_short_wait_writes_nothing() -> None:
    terminal = Terminal()
    with waiting("asking the server", terminal):
        pass
    assert terminal.getvalue() == ""


def test_without_a_terminal_nothing_is_written() -> None:
    stream = io.StringIO()
    with waiting("asking the server", stream, quiet=0.0):
        pass
    assert stream.getvalue() == ""
