"""Builds the control plane's programs in a process of its own; meanwhile the story is told, the first ones start."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from lab.harness import binaries
from lab.harness.binaries import BuildError

Announce = Callable[[str], None]
_EVERY = 30.0
"""Seconds between lines of a build that is quiet."""


class Build:
    """A build under way. Its lines stay in the pipe until `wait` reads them."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: list[str] = []

    def wait(self, *names: str, announce: Announce) -> None:
        """Forwards the builder's lines until these programs are built; without names until its end.

        Raises BuildError with its last words.
        """
        while not names or binaries.missing(names):
            line = self._process.stderr.readline() if self._process.stderr else ""
            if line:
                self._lines.append(line.rstrip())
                announce(self._lines[-1])
            elif self._process.wait() or binaries.missing(names):
                raise BuildError("\n".join(self._lines[-40:]) or "the build failed without a message")
            else:
                return

    def stop(self) -> None:
        """Ends the builder and the compilers that it has started."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait()
        if self._process.stderr:
            self._process.stderr.close()


@contextlib.contextmanager
def building(names: Sequence[str]) -> Iterator[Build]:
    """Builds these programs while the body runs; a build that the body leaves unfinished is stopped."""
    command = [sys.executable, "-m", "lab.harness.build", *names]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    build = Build(process)
    try:
        yield build
    finally:
        build.stop()


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
