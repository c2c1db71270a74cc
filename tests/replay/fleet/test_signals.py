"""A signal ends a run of many services at once, with all its processes and without a traceback."""

import signal
import subprocess
import sys
import threading

import pytest

from tests.replay.history.kit import FakePrometheus

_MAIN = """
import os, signal, sys
from adapter.cli import main
from adapter.commands.replay.fleet import command
from adapter.commands.replay.fleet.services import FleetService
from tests.load.kit import cpu, policy

async def services_of_cluster(*_):
    policies = [policy(cpu("500m"), name=name, hpa=name) for name in ("one", "two")]
    return [FleetService(namespace="shop", name=policy.name, policy=policy) for policy in policies]

command.services_of_cluster = services_of_cluster
os.sched_getaffinity = lambda _: {0, 1}
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore Ctrl-C
sys.exit(main())
"""
SERVICES = {"one", "two"}
PATIENCE = 100
"""Seconds in which nothing hangs, on a busy machine either."""


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]
)
def test_a_signal_ends_all_processes(number: signal.Signals, status: int) -> None:
    asked, ended, seen = threading.Event(), threading.Event(), set[str]()

    def answer(query: str, *_: object) -> None:
        seen.update(name for name in SERVICES if name in query)
        if seen == SERVICES:  # each process is at its service
            asked.set()
        ended.wait(2 * PATIENCE)

    with FakePrometheus(answer) as prometheus:
        options = [f"--prometheus={prometheus.url}", "--from=1h"]
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
