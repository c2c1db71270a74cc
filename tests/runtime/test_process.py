"""How many files a process may have, and signals that end it."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from adapter.runtime.process import cancel_at_signal


def test_a_server_that_starts_with_few_open_files_may_have_a_file_for_each_connection() -> None:
    """Containers start with 1,024: beyond it, nothing is accepted for a second."""
    script = """
import resource
from adapter.runtime.process import raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
raise_file_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "(4096, 4096)\n"


@pytest.mark.parametrize("again", [signal.SIGTERM, signal.SIGINT])
async def test_second_signal_does_not_cut_the_grace_short(again: signal.Signals) -> None:
    loop, started, ended = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), again)
            await asyncio.sleep(0.05)
            ended.set()

    serving = asyncio.create_task(serve())
    cancel_at_signal(serving)
    try:
        await started.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait([serving])
    finally:
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)
    assert ended.is_set()
