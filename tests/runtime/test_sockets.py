"""Listening sockets, and how many files a process may have."""

import subprocess
import sys


def test_a_server_that_starts_with_few_open_files_may_have_a_file_for_each_connection() -> None:
    """Containers start with 1,024: beyond it, nothing is accepted for a second."""
    script = """
import resource
from adapter.runtime.sockets import raise_file_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
raise_file_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "(4096, 4096)\n"
