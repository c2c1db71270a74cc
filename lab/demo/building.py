"""Builds the control plane's programs in a process of its own; meanwhile the story is told, the first ones start."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from lab.harness import binaries
from lab.harness.binaries import BuildError

Announce = Callable[[str], None]


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
