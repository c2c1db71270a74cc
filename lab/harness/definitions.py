"""The resource definitions of other projects, from their Go modules: what objects of their kinds must fit."""

import functools
import shutil
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

    @functools.cache  # noqa: B019 - there are two
    def load(self) -> tuple[dict[str, Any], ...]:
        """The definitions; the module is downloaded once (a few seconds)."""
        making = f"downloading the definitions of {self.name} {self.version} once"
        target = binaries.kept(f"definitions-{self.name}-{self.version}", making, self._bring)
        return tuple(yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(target.glob("*.yaml")))

    def _bring(self, scratch: Path) -> Path:
        (scratch / "go.mod").write_text("module effective-load.io/build\n\ngo 1.26.0\n")
        source = binaries.downloaded(self.module, f"v{self.version}", scratch)["Dir"]
        made = scratch / "made"
        made.mkdir()
        for file in self.files:
            shutil.copyfile(source / file, made / Path(file).name)
        return made


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
