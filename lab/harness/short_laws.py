"""Runs the command line with short laws of time, so that a test sees within seconds what takes minutes in a cluster.

`python -m lab.harness.short_laws serve ...`. What is shortened is how long a silent watch is believed, how soon
discovery is read again, the longest wait before what was refused is tried again, how often the adapter looks at its
certificate, how long a trouble lasts before it is notified, how often the companion looks at what has not changed, and
how far apart its raises and its writes of a status are; the arithmetic's own times stay.
"""

import importlib
import sys

from adapter.companion.features import notifications

SILENCE_SECONDS = 12.0
"""A watch lasts two thirds of it; a busy machine needs the room."""
RAISES_APART_SECONDS = 4.0
"""For an HPA that syncs as often."""
STATUSES_APART_SECONDS = 3.0
LAWS: dict[str, dict[str, object]] = {
    "adapter.kube.reflector": {"SILENCE_SECONDS": SILENCE_SECONDS},
    "adapter.runtime.backoff": {"LONGEST_SECONDS": 5.0},
    "adapter.apiserver.certificates": {"SECRET_SECONDS": 5.0},
    "adapter.kube.rest_mapper": {"MISS_SECONDS": 5.0, "LISTING_SECONDS": 2.0},
    "adapter.evaluation.targets": {"STABLE_SECONDS": 8.0, "REDISCOVERY_SECONDS": 5.0},
    "adapter.companion.companion": {"RESYNC_SECONDS": 3.0},
    "adapter.companion.features.fast_scale_up": {"APART_SECONDS": RAISES_APART_SECONDS},
    "adapter.companion.features.status": {"SHORTEST_SECONDS": STATUSES_APART_SECONDS},
    "adapter.companion.features.notifications": {
        "TROUBLES": tuple(one._replace(rise=one.rise / 6, fall=one.fall / 6) for one in notifications.TROUBLES)
    },
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
