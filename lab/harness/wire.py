"""The HPA's own client library in a small Go program (`lab/harness/wire-client`), with the HPA's own requests."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.harness import binaries


@dataclass(frozen=True)
class Answer:
    """The Go library's result for a response: values, or its error with the status code."""

    items: list[dict[str, Any]]
    """Each: kind, apiVersion, namespace, name (custom) or labels (external); metric, selector, value, milli, timestamp,
    windowSeconds."""
    error: str = ""
    code: int = 0
    reason: str = ""

    @property
    def milli(self) -> int:
        """The only value, in thousandths: the number that the HPA computes with."""
        assert len(self.items) == 1, self
        return int(self.items[0]["milli"])


@dataclass(frozen=True)
class Wire:
    """Queries as the user of a kubeconfig. `version`: v1beta2, v1beta1, or preferred (by discovery, as the HPA)."""

    kubeconfig: Path
    version: str = "preferred"
    json: bool = False
    """Whether to request JSON; otherwise protobuf is preferred, as by the HPA."""

    def pods(self, namespace: str, selector: str, metric: str, metric_selector: str = "") -> Answer:
        return self._ask("pods", namespace, selector, metric, metric_selector)

    def object(self, namespace: str, kind: str, name: str, metric: str, metric_selector: str = "") -> Answer:
        """`kind` with its group: "WatermarkPolicy.effective-load.io", "Deployment.apps", "Namespace"."""
        return self._ask("object", namespace, kind, name, metric, metric_selector)

    def objects(self, namespace: str, kind: str, selector: str, metric: str, metric_selector: str = "") -> Answer:
        return self._ask("objects", namespace, kind, selector, metric, metric_selector)

    def external(self, namespace: str, metric: str, selector: str = "") -> Answer:
        return self._ask("external", namespace, metric, selector)

    def _ask(self, *arguments: str) -> Answer:
        flags = [f"-kubeconfig={self.kubeconfig}", f"-version={self.version}", f"-json={str(self.json).lower()}"]
        command = [str(binaries.path_of("wire")), *flags, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
        return Answer(**json.loads(done.stdout))
