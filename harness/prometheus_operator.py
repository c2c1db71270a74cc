"""The resource definitions of the Prometheus operator, from its Go module: what rules and monitors must fit."""

import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from harness import binaries

VERSION = "0.85.0"
KINDS = ("podmonitors", "prometheusrules", "servicemonitors")
_MODULE = "github.com/prometheus-operator/prometheus-operator"
_FOLDER = Path("example/prometheus-operator-crd")


@functools.cache
def definitions(announce: Callable[[str], None] = binaries.print_to_stderr) -> tuple[dict[str, Any], ...]:
    """The CustomResourceDefinitions of KINDS; the module is downloaded once (a few seconds)."""
    target = binaries.cache_root() / "bin" / f"prometheus-operator-{VERSION}"
    lock = binaries.cache_root() / "locks" / f"{target.name}.lock"
    with binaries._lock(lock, lambda: announce("waiting: another run downloads prometheus-operator")):
        if not target.exists():
            announce(f"downloading the definitions of prometheus-operator {VERSION} once; kept in {target}")
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".prometheus-operator-", dir=target.parent) as scratch:
                _bring(Path(scratch)).rename(target)
    return tuple(yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(target.glob("*.yaml")))


def _bring(scratch: Path) -> Path:
    module, kept = scratch / "module", scratch / "kept"
    module.mkdir()
    kept.mkdir()
    (module / "go.mod").write_text("module effective-load.io/build\n\ngo 1.26.0\n")
    command = [binaries.go_binary(), "mod", "download", "-json", f"{_MODULE}@v{VERSION}"]
    source = Path(json.loads(binaries._run(command, module, attempts=3))["Dir"]) / _FOLDER
    for kind in KINDS:
        shutil.copyfile(source / f"monitoring.coreos.com_{kind}.yaml", kept / f"{kind}.yaml")
    return kept
