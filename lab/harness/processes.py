"""Child processes that never outlive their parent, with their output in files."""

import abc
import contextlib
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

# The child asks the kernel for SIGKILL on its parent's death, then becomes the program. This is a shim instead of
# preexec_fn, which forks a process with threads and causes a warning. The kernel watches the parent's thread: start
# from the main thread, or from one that lives as long as the child should.
_SHIM = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""


class ComponentError(RuntimeError):
    """A process of the harness did not start or died; the message holds the end of its log."""


_PORTS = range(12_000, 31_000)
"""Below those that systems give to outgoing connections: one of these would take a port before its server binds it."""
_PROCESSES = 8
"""Parallel test processes that never choose the same port: each has those with its own remainder."""
_given: deque[int] = deque(maxlen=500)
"""Not given again soon: their servers may not listen yet."""


def free_ports(count: int, *, offset: int = 0) -> list[int]:
    """Free loopback ports; all are bound at the same time, so that they differ. `offset`: port + offset is free too."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _PROCESSES
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            port = secrets.choice(_PORTS[worker::_PROCESSES])
            if port in _given:
                continue
            with contextlib.suppress(OSError):
                for each in {port, port + offset}:
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", each))
                    _given.append(each)
                found.append(port)
        return found


class Scenery(abc.ABC):
    """What runs during a `with` block. `_start` begins it on a stack, which ends it, also where the start fails."""

    _stack: contextlib.ExitStack

    @abc.abstractmethod
    def _start(self, stack: contextlib.ExitStack) -> None: ...

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()


class Server(abc.ABC):
    """Something with a start and an end, as a context manager: it ends on exit, and where its start fails."""

    @abc.abstractmethod
    def start(self) -> None:
        """Starts it, and returns when it is ready."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Ends it; harmless where it does not run."""

    def close(self) -> None:
        """What exit does: ends it and removes what it leaves."""
        self.stop()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            with contextlib.suppress(AttributeError):  # where its program was not even built
                self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Component:
    """One program: its command, its log, and its readiness probe."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        ready: Callable[[], bool] | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name, self.log = name, log
        self.command = [str(part) for part in command]
        self.ready, self.env, self.cwd = ready, env, cwd
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def start(self) -> None:
        """Starts the program; its output is appended to the log, so a restart keeps the history."""
        if self.running:
            return
        shim = [sys.executable, "-I", "-S", "-c", _SHIM, str(os.getpid()), *self.command]
        with self.log.open("ab") as log:
            log.write(f"\n$ {shlex.join(self.command)}\n".encode())
            log.flush()
            self.process = subprocess.Popen(
                shim,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.env,
                cwd=self.cwd or self.log.parent,
                start_new_session=True,
            )

    def wait_ready(self, timeout: float = 60) -> None:
        """Polls until the program is ready; raises with the end of its log when it dies or takes too long."""
        deadline = time.monotonic() + timeout
        while True:
            if not self.running:
                raise ComponentError(
                    f"{self.name} ended with {self.process and self.process.poll()} before it was ready{self.tail()}"
                )
            if self.ready is None or self._asks():
                return
            if time.monotonic() > deadline:
                raise ComponentError(f"{self.name} was not ready within {timeout:.0f} s{self.tail()}")
            time.sleep(0.05)

    def _asks(self) -> bool:
        try:
            return self.ready is None or self.ready()
        except OSError:
            return False

    def signal(self, number: int) -> None:
        """Signals the program and its child processes."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def stop(self, grace: float = 5) -> None:
        """Sends SIGTERM, and SIGKILL after `grace` seconds."""
        if self.process is None:
            return
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            self.process.wait(10)

    def kill(self) -> None:
        """Kills the program at once, as a crash would."""
        if self.process is not None:
            self.signal(signal.SIGKILL)
            self.process.wait(10)

    def tail(self, lines: int = 25) -> str:
        """The end of the log, formatted to follow a message."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 400 * lines))
            text = log.read().decode(errors="replace")
        end = [line[:600] for line in text.splitlines()[-lines:]]
        return f"\n--- end of {self.log.name}\n" + "\n".join(end)


class LocalServer(Server):
    """A server that is one program with a folder of its own; ports and data stay through `kill` and `resume`."""

    name: str
    folder: Path
    component: Component
    cwd: Path | None = None
    """Where it runs, by default in its folder."""
    ready_seconds = 60.0
    """How long it may take until it answers."""

    @abc.abstractmethod
    def command(self) -> Sequence[str | Path]:
        """Writes the configuration into the folder; returns the command."""

    @abc.abstractmethod
    def is_ready(self) -> bool:
        """Whether it answers; an OSError says no, too."""

    def start(self) -> None:
        """Makes the folder, starts the program, and waits until it answers."""
        self.folder = Path(tempfile.mkdtemp(prefix=f"effective-load-{self.name}-"))
        command, log = self.command(), self.folder / f"{self.name}.log"
        self.component = Component(self.name, command, log, ready=self.is_ready, cwd=self.cwd)
        self.resume()

    def resume(self) -> None:
        """Starts the program, also after `kill`: ports and data stay."""
        self.component.start()
        self.component.wait_ready(self.ready_seconds)

    def restart(self, *, wipe: bool = False) -> None:
        """Kills the server and starts it again, with `wipe` without its data."""
        self.kill()
        if wipe:
            self.wipe()
        self.resume()

    def wipe(self) -> None:
        """Removes all data; the process must have ended."""
        shutil.rmtree(self.folder / "data")

    def kill(self) -> None:
        """Kills the program at once, as a crash would."""
        self.component.kill()

    def stop(self) -> None:
        """Ends the program and removes its folder. It gets no time: nothing of it is needed any more."""
        with contextlib.suppress(AttributeError):  # where its program was not even built
            self.component.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
