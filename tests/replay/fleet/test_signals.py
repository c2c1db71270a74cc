"""A signal ends a run of many services at once, with all its processes and without a traceback."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.replay.fleet.test_runner import write
from tests.replay.history.kit import FakePrometheus

# A shell's background jobs ignore Ctrl-C, and their children do.
_MAIN = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from adapter.cli import main; sys.exit(main())"
)
SERVICES = {"one", "two"}
PATIENCE = 100
"""Seconds in which nothing hangs, on a busy machine either."""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_signal_ends_all_processes(tmp_path: Path, number: signal.Signals, status: int) -> None:
    write(tmp_path, "a.yaml", *SERVICES)
    asked, ended, seen = threading.Event(), threading.Event(), set[str]()

    def answer(query: str, *_: object) -> None:
        seen.update(name for name in SERVICES if name in query)
        if seen == SERVICES:  # each process is at its service
            asked.set()
        ended.wait(2 * PATIENCE)

    with FakePrometheus(answer) as prometheus:
        options = f"--workers=2 --policies={tmp_path} --prometheus={prometheus.url} --from=1h".split()
        process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, "replay", "--all", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert asked.wait(PATIENCE)
            process.send_signal(number)
            out, err = process.communicate(timeout=PATIENCE)  # until every process that has the pipes is gone
        finally:
            ended.set()
            process.kill()
    assert process.returncode == status
    assert out == ""
    assert "Traceback" not in err
    assert number == signal.SIGKILL or err == "effective-load replay: interrupted\n"
