"""Builds the control plane's programs in a process of its own; meanwhile the story is told, the first ones start."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from lab.harness import binaries
from lab.harness.binaries import BuildError

QUIET_SECONDS = 30.0
"""A build that is quiet for so long is said to go on."""


@contextlib.contextmanager
def building(names: Sequence[str], say: Callable[[str], None]) -> Iterator[Callable[..., None]]:
    """Builds missing programs while the body runs; a build that the body leaves unfinished is stopped.

    The body gets a function that says the builder's lines until the programs of some names are built, or all where none
    is named. That function raises BuildError with the builder's last words.
    """
    if not binaries.missing(names):
        yield lambda *_: None
        return
    said: list[str] = []
    announced = False
    with _builder(names) as lines:

        def wait(*wanted: str) -> None:
            nonlocal announced
            if not announced:
                announced = True
                say("The same programs as in any cluster are being built from their Go modules, once, and kept in a")
                say("cache: the next run starts in seconds. Each is started as soon as it is built.")
            since = time.monotonic()
            while not wanted or binaries.missing(wanted):
                try:
                    line = lines.get(timeout=QUIET_SECONDS)
                except queue.Empty:
                    say(f"  … still building, {time.monotonic() - since:.0f} s so far")
                    continue
                if line is None:
                    lines.put(None)  # for the next to wait
                    if binaries.missing(wanted or names):
                        raise BuildError("\n".join(said[-40:]) or "the build failed without a message")
                    return
                said.append(line)
                say(line)
                since = time.monotonic()

        yield wait


@contextlib.contextmanager
def _builder(names: Sequence[str]) -> Iterator["queue.SimpleQueue[str | None]"]:
    """Runs the builder; its lines, None at its end."""
    command = [sys.executable, "-m", "lab.harness.build", *names]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert process.stderr is not None
        with process.stderr as stream:
            for line in stream:
                lines.put(line.rstrip())
        lines.put(None)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield lines
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        reader.join()
