"""What the C library does with memory that is freed."""

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, sys
from adapter.runtime.garbage import return_large_blocks

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4 // 1024

if not hasattr(ctypes.CDLL(None), "malloc_trim"):
    sys.exit(77)
if sys.argv[1] == "set":
    return_large_blocks()
bytearray(1 << 20)  # freed at once: blocks of this size come from the heap from now on
held = [bytearray(1 << 18) for _ in range(200)]
before = resident()
held[::2] = [None] * 100
print(before - resident())
"""


def freed(how: str) -> int:
    """MiB that the system got back when 25 of 50 MiB were freed."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("this C library has no such threshold")
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_freed_buffers_of_connections_go_back_to_the_system() -> None:
    assert freed("set") >= 20
    assert freed("as it is") < 5
