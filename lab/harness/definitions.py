"""The resource definitions of other projects, from their Go modules: what objects of their kinds must fit."""

import functools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.harness import binaries


@dataclass(frozen=True)
class Definitions:
    """Files with CustomResourceDefinitions in a Go module."""

    name: str
    module: str
    version: str
    files: tuple[str, ...]

    def load(self, announce: Callable[[str], None] = binaries.print_to_stderr) -> tuple[dict[str, Any], ...]:
        """The definitions; the module is downloaded once (a few seconds)."""
        return _load(self, announce)


CERT_MANAGER = Definitions(
    name="cert-manager",
    module="github.com/cert-manager/cert-manager",
    version="1.20.0",
    files=("deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml"),
)
PROMETHEUS_OPERATOR = Definitions(
    name="prometheus-operator",
    module="github.com/prometheus-operator/prometheus-operator",
    version="0.85.0",
    files=tuple(
        f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
        for kind in ("podmonitors", "prometheusrules", "servicemonitors")
    ),
)


@functools.cache
def _load(wanted: Definitions, announce: Callable[[str], None]) -> tuple[dict[str, Any], ...]:
    making = f"downloading the definitions of {wanted.name} {wanted.version} once"
    name = f"definitions-{wanted.name}-{wanted.version}"
    target = binaries.kept(name, making, lambda scratch: _bring(wanted, scratch), announce)
    return tuple(yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(target.glob("*.yaml")))


def _bring(wanted: Definitions, scratch: Path) -> Path:
    module, kept = scratch / "module", scratch / "kept"
    module.mkdir()
    kept.mkdir()
    (module / "go.mod").write_text("module effective-load.io/build\n\ngo 1.26.0\n")
    command = [binaries.go_binary(), "mod", "download", "-json", f"{wanted.module}@v{wanted.version}"]
    source = Path(json.loads(binaries.run_go(command, module, attempts=3))["Dir"])
    for file in wanted.files:
        shutil.copyfile(source / file, kept / Path(file).name)
    return kept
