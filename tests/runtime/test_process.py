"""How many files a process may have, and garbage that is collected at set times."""

import asyncio
import gc
import subprocess
import sys
import weakref

from adapter.runtime.process import collect_at_set_times


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


async def test_cycles_are_collected_while_python_does_not() -> None:
    class Node:
        own: "Node"

    collecting = asyncio.create_task(collect_at_set_times())
    await asyncio.sleep(0)
    try:
        assert not gc.isenabled()
        node = Node()
        node.own, gone = node, weakref.ref(node)
        del node
        async with asyncio.timeout(10):
            while gone() is not None:  # noqa: ASYNC110  it has no event
                await asyncio.sleep(0.01)
    finally:
        collecting.cancel()
        gc.enable()
        gc.unfreeze()
