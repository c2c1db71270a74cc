"""Commands as people run them, in this process: a process of their own costs a second for each."""

import contextlib
import io
from pathlib import Path
from unittest import mock

from adapter import cli
from adapter.telemetry import logs


def command(*arguments: str | Path) -> tuple[int, str]:
    """Runs `effective-load` with these arguments: its exit status and output. It prints no error."""
    printed, errors = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(logs, "configure"),  # the test run keeps its own
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(errors),
    ):
        status = cli.main([str(argument) for argument in arguments])
    assert not errors.getvalue()
    return status, printed.getvalue()
