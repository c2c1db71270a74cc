"""Runs the adapter's command line as in a pod, and shows where its processor time goes.

The folder in START_ACCOUNT takes the place of the mounted service account. If START_PROFILE names a file, a timer of
processor time interrupts every millisecond. The innermost frame of a known file names the part of each interrupt. When
the main thread only waits, the time belongs to the other thread that runs. SIGUSR1 ends the profile and writes the
report.
"""

import contextlib
import importlib
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

INTERVAL = 0.001
"""Seconds of processor time between two interrupts."""
DEEPEST = 60

IMPORTS, SETTINGS, CREDENTIALS = "imports", "settings", "credentials"
NETWORK, JSON, OBJECTS, INDEX = "lists: network", "lists: JSON", "lists: our objects", "lists: index"
SAMPLES, ASSESSMENTS, SERVING, REST = "samples", "first assessments", "serving", "rest"
PARTS = (IMPORTS, SETTINGS, CREDENTIALS, NETWORK, JSON, OBJECTS, INDEX, SAMPLES, ASSESSMENTS, SERVING, REST)

_INNERMOST = (
    ("<frozen importlib", IMPORTS),
    ("/adapter/runtime/decoding.py", JSON),
    ("/adapter/settings/", SETTINGS),
    ("/yaml/", SETTINGS),
    ("/adapter/kube/credentials.py", CREDENTIALS),
    ("/adapter/usage/", SAMPLES),
    ("/adapter/runtime/decoding.py", SAMPLES),
    ("/adapter/kube/pods.py", OBJECTS),
    ("/adapter/kube/targets.py", OBJECTS),
    ("/adapter/kube/objects.py", OBJECTS),
    ("/adapter/evaluation/object_index.py", OBJECTS),
    ("/adapter/policy/", OBJECTS),
    ("/adapter/registries/kubernetes.py", OBJECTS),
    ("/adapter/evaluation/object_index.py", INDEX),
    ("/adapter/kube/reflector.py", INDEX),
    ("/adapter/evaluation/", ASSESSMENTS),
    ("/adapter/load/", ASSESSMENTS),
    ("/adapter/apiserver/", SERVING),
    ("/adapter/runtime/inbound/", SERVING),
    ("/aiohttp/", NETWORK),
    ("/asyncio/sslproto.py", NETWORK),
    ("/adapter/kube/session.py", NETWORK),
    ("/adapter/runtime/answer_budget.py", NETWORK),
    ("/ssl.py", NETWORK),
)
"""Parts by file, the innermost frame first."""
_OUTER = (
    ("/adapter/usage/", SAMPLES),
    ("/adapter/evaluation/worker.py", ASSESSMENTS),
    ("/adapter/apiserver/", SERVING),
)
"""Parts of everything that is called from these files."""
_WAITING = ("/selectors.py", "/threading.py", "/queue.py", "/concurrent/futures/thread.py")

_NOT_IN_THE_IMAGE = ("kubernetes_validate", "colorama")
"""Development packages that others import wherever they are installed."""

_counts: Counter[str] = Counter()
_lines: Counter[str] = Counter()
_parts_of_files: dict[str, tuple[str, str]] = {}


def main() -> None:
    startup = time.process_time()
    sys.path[0] = str(Path.cwd())  # this file may belong to another version than the adapter
    absent: dict[str, Any] = dict.fromkeys(_NOT_IN_THE_IMAGE)
    sys.modules.update(absent)
    if "START_PROFILE" in os.environ:
        signal.signal(signal.SIGPROF, _interrupted)
        signal.signal(signal.SIGUSR1, lambda _number, _frame: _report(startup))
        signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    _use_account(Path(os.environ["START_ACCOUNT"]))
    from adapter import cli

    sys.exit(cli.main())


def _use_account(folder: Path) -> None:
    """Reads the service account from this folder; as first import it must be as lean as the adapter's own."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError):
            from adapter.runtime.garbage import lean_imports

            stack.enter_context(lean_imports())
        credentials: Any = importlib.import_module("adapter.kube.credentials")
    credentials._TOKEN_FILE = folder / "token"  # noqa: SLF001
    if hasattr(credentials, "_CA_FILE"):
        credentials._CA_FILE = folder / "ca.crt"  # noqa: SLF001
    else:  # an older version, in which the kubernetes package reads the files
        package: Any = importlib.import_module("kubernetes.aio.config.incluster_config")
        package.SERVICE_TOKEN_FILENAME = str(folder / "token")
        package.SERVICE_CERT_FILENAME = str(folder / "ca.crt")


def _interrupted(_number: int, frame: FrameType | None) -> None:
    if frame is not None and frame.f_code.co_filename.endswith(_WAITING):
        others = [one for one in sys._current_frames().values() if not _waits(one)]  # noqa: SLF001
        frame = others[0] if others else frame
    _counts[_part(frame)] += 1
    while frame is not None and "/adapter/" not in frame.f_code.co_filename and frame.f_back is not None:
        frame = frame.f_back
    if frame is not None:
        _lines[f"{frame.f_code.co_filename}:{frame.f_code.co_name}:{frame.f_lineno}"] += 1


def _waits(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith((*_WAITING, "start_profile.py"))


def _part(frame: FrameType | None) -> str:
    innermost, depth = "", 0
    while frame is not None and depth < DEEPEST:
        part, outer = _parts(frame.f_code.co_filename)
        if outer or part == IMPORTS:
            return outer or part
        innermost = innermost or part
        frame, depth = frame.f_back, depth + 1
    return innermost or REST


def _parts(file: str) -> tuple[str, str]:
    known = _parts_of_files.get(file)
    if known is None:
        known = _parts_of_files[file] = _first(_INNERMOST, file), _first(_OUTER, file)
    return known


def _first(table: tuple[tuple[str, str], ...], file: str) -> str:
    return next((part for text, part in table if text in file), "")


def _report(startup: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    total, interrupts = time.process_time(), max(1, sum(_counts.values()))
    each = (total - startup) / interrupts
    parts: dict[str, Any] = {part: round(_counts[part] * each, 3) for part in PARTS}
    parts[REST] = round(parts[REST] + startup, 3)
    import json

    lines = {line: round(count * each, 3) for line, count in _lines.most_common(150)}
    file = Path(os.environ["START_PROFILE"])
    file.with_suffix(".part").write_text(json.dumps({"total": round(total, 3), "parts": parts, "lines": lines}))
    file.with_suffix(".part").rename(file)


if __name__ == "__main__":
    main()
