"""A sign of life while a program is being built, which can take minutes without a word."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Announce = Callable[[str], None]
_EVERY = 30.0


@dataclass
class Progress:
    """Passes lines on and notes what is being built since when."""

    announce: Announce
    clock: Callable[[], float] = time.monotonic
    _building: str = ""
    _since: float = field(default=0.0)

    def line(self, text: str) -> None:
        """A line of the builder: "building NAME …" begins something, "built NAME …" ends it."""
        words = text.split()
        self._building = words[1] if words[:1] == ["building"] else ""
        self._since = self.clock()
        self.announce(text)

    def beat(self) -> None:
        """Says that it still builds, where it does."""
        if self._building:
            self.announce(f"  … still building {self._building}, {self.clock() - self._since:.0f} s so far")


@contextlib.contextmanager
def beating(progress: Progress, every: float = _EVERY) -> Iterator[Progress]:
    """Beats from a thread of its own while the body runs."""
    done = threading.Event()

    def beat() -> None:
        while not done.wait(every):
            progress.beat()

    thread = threading.Thread(target=beat, name="demo-progress", daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        done.set()
        thread.join()
