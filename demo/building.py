"""Builds the control plane's programs in a process of its own, so that the story can be told meanwhile."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from harness.binaries import BuildError

Announce = Callable[[str], None]


class Build:
    """A build under way. Its lines stay in the pipe until `finish` reads them."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def finish(self, announce: Announce) -> None:
        """Forwards the builder's lines until it is done. Raises BuildError with its last words."""
        lines = []
        for line in self._process.stderr or ():
            lines.append(line.rstrip())
            announce(lines[-1])
        if self._process.wait():
            raise BuildError("\n".join(lines[-40:]) or "the build failed without a message")

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
    command = [sys.executable, "-m", "harness.build", *names]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    build = Build(process)
    try:
        yield build
    finally:
        build.stop()
