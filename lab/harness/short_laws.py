"""Runs the command line with short waits that are no settings, so that a test sees within seconds what takes a minute.

`python -m lab.harness.short_laws serve ...`. What is shortened is how soon discovery is read again, the longest wait
before what was refused is tried again, how often the adapter looks at its certificate, and how long a registry fails
until a condition says so. Waits that are settings are
in `SETTINGS`.
"""

import importlib
import sys
from typing import Any

SETTINGS: dict[str, Any] = {
    "kubernetes": {"watchSilenceSeconds": 12},
    "companion": {"statusIntervalSeconds": 3, "hpaSyncSeconds": 4, "notifications": {"afterSeconds": 10}},
}
"""A watch is believed for 12 s, since a busy machine needs the room; the HPAs of these tests sync each 4 s."""
LAWS: dict[str, dict[str, object]] = {
    "adapter.runtime.backoff": {"LONGEST_SECONDS": 5.0},
    "adapter.apiserver.certificates": {"SECRET_SECONDS": 5.0},
    "adapter.kube.rest_mapper": {"LISTING_SECONDS": 2.0},
    "adapter.evaluation.targets": {"REDISCOVERY_SECONDS": 5.0},
    "adapter.load.explanation": {"SILENCE_SECONDS": 3.0},
}
"""The constants that are replaced, by module."""


def shorten(*modules: str) -> None:
    """Replaces the constants, by default of all modules; one that is no longer there is an error."""
    for name, laws in LAWS.items():
        if modules and name not in modules:
            continue
        module = importlib.import_module(name)
        for law, seconds in laws.items():
            if not hasattr(module, law):
                raise SystemExit(f"{name} has no {law} any more: correct LAWS in lab/harness/short_laws.py")
            setattr(module, law, seconds)


if __name__ == "__main__":
    shorten()
    from adapter import cli

    sys.exit(cli.main(sys.argv[1:]))
