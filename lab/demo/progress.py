"""Progress lines while a program is being built, which can take minutes without output."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Announce = Callable[[str], None]
_EVERY = 30.0


@dataclass
class Progress:
    """Forwards the builder's lines, and remembers the current build and its start time."""

    announce: Announce
    clock: Callable[[], float] = time.monotonic
    _building: str = ""
    _since: float = field(default=0.0)

    def line(self, text: str) -> None:
        """Forwards a line of the builder: "building NAME …" starts a build, "built NAME …" ends it."""
        words = text.split()
        self._building = words[1] if words[:1] == ["building"] else ""
        self._since = self.clock()
        self.announce(text)

    def beat(self) -> None:
        """Prints the elapsed time if a build is under way."""
        if self._building:
            self.announce(f"  … still building {self._building}, {self.clock() - self._since:.0f} s so far")


@contextlib.contextmanager
def beating(progress: Progress, every: float = _EVERY) -> Iterator[Progress]:
    """Calls `beat` regularly from a thread while the body runs."""
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
