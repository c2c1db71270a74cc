"""Stored results: each file in `lab/benchmarks/results` says its command, commit, machine and time.

`make performance` runs their commands again, so a benchmark has an `argument_parser` and ends with `write`.
"""

import argparse
import datetime as dt
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "lab" / "benchmarks" / "results"
_CODE = ("adapter", "lab")
_OUTPUTS = ("-o", "--out", "--output")


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """The parser of a benchmark: `-o FILE` is `output`; each benchmark adds what is its own."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(f"python -m {_module()}", description=description, formatter_class=formatter)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="store the figures in this file (JSON)")
    return parser


def write(path: Path | None, figures: Mapping[str, Any], command: str | None = None) -> None:
    """Stores figures (JSON values) with command (by default this process's), commit, date and machine.

    Without a path it prints them.
    """
    if path is None:
        print(json.dumps(figures, indent=1, ensure_ascii=False))
        return
    date = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    origin = {"command": command or this_command(), "commit": commit(), "date": date, "machine": machine()}
    written = {**origin, **figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"stored in {path}", file=sys.stderr)


def this_command() -> str:
    """The command line of this process, as `python -m …`, without the output and without paths of this machine."""
    return shlex.join(["python", "-m", _module(), *_portable(sys.argv[1:])])


def _module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name.removesuffix(".__main__") if spec else Path(sys.argv[0]).stem


def _portable(arguments: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for one in arguments:
        if not skip and not (one in _OUTPUTS or one.startswith(tuple(f"{name}=" for name in _OUTPUTS))):
            kept.append(Path(one).name if one.startswith("/") else one)
        skip = one in _OUTPUTS
    return kept


def commit() -> str:
    """The commit that is checked out; `+` where the code has changes beyond it, `unknown` outside a repository."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        there = [name for name in _CODE if (ROOT / name).exists()]
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *there, ":!lab/benchmarks/results")
        return git("rev-parse", "--short=7", "HEAD") + "+" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Any]:
    """Processors, memory (GiB), processor model, kernel and Python version; no names."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processors": os.cpu_count(),
        "processor": _processor(),
        "architecture": platform.machine(),
        "memory_gib": round(pages / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")
