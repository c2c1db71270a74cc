"""A signal ends a run of many services at once, with all its processes and without a traceback."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.replay.fleet.test_runner import write
from tests.replay.history.kit import FakePrometheus

_MAIN = "import sys; from adapter.cli import main; sys.exit(main())"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_signal_ends_all_processes(tmp_path: Path, number: signal.Signals, status: int) -> None:
    write(tmp_path, "a.yaml", "a", "b")
    asked, ended = threading.Event(), threading.Event()

    def answer(*_: object) -> None:
        asked.set()
        ended.wait(30)

    with FakePrometheus(answer) as prometheus:
        command = ["-c", _MAIN, "replay", "--all", "--policies", str(tmp_path), "--prometheus", prometheus.url]
        process = subprocess.Popen(
            [sys.executable, *command, "--from", "1h"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            assert asked.wait(30)
            process.send_signal(number)
            out, err = process.communicate(timeout=30)  # until every process that has the pipes is gone
        finally:
            ended.set()
            process.kill()
    assert process.returncode == status
    assert out == ""
    assert "Traceback" not in err
    assert number == signal.SIGKILL or err == "effective-load replay: interrupted\n"
