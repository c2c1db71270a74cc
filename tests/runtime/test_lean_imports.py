"""What a serving process imports."""

import gc
import json
import subprocess
import sys

from adapter.runtime.garbage import lean_imports

_SERVES = """
import json, sys
from adapter import cli
from adapter.runtime.garbage import lean_imports
with lean_imports():
    import adapter.server_process
rich = "rich" in sys.modules
import rich as usable
print(json.dumps([rich, "kubernetes" in sys.modules]))
"""


def test_a_process_that_serves_imports_nothing_for_terminals_and_no_client_library() -> None:
    """Each costs a tenth of a second or more and 10 MiB; what is imported later is not affected."""
    done = subprocess.run([sys.executable, "-c", _SERVES], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [False, False]


def test_what_was_imported_before_stays() -> None:
    import rich

    try:
        with lean_imports():
            assert sys.modules["rich"] is rich
            assert not gc.isenabled()
    finally:
        gc.enable()
    assert sys.modules["rich"] is rich
