"""Runs the adapter's command line as in a pod: the folder in START_ACCOUNT takes the place of its service account."""

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

_NOT_IN_THE_IMAGE = ("kubernetes_validate", "colorama")
"""Development packages that others import wherever they are installed."""


def main() -> None:
    sys.path[0] = str(Path.cwd())  # this file may belong to another version than the adapter
    absent: dict[str, Any] = dict.fromkeys(_NOT_IN_THE_IMAGE)
    sys.modules.update(absent)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):  # as first import it must be as lean as the adapter's own
            from adapter.runtime.garbage import lean_imports

            stack.enter_context(lean_imports())
        credentials: Any = importlib.import_module("adapter.kube.credentials")
    folder = Path(os.environ["START_ACCOUNT"])
    credentials._TOKEN_FILE, credentials._CA_FILE = folder / "token", folder / "ca.crt"  # noqa: SLF001
    from adapter import cli

    sys.exit(cli.main())


if __name__ == "__main__":
    main()
