"""What the documentation's terminals show: the commands, as a reader would type them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lab.harness.pictures.terminal import WIDTH

Lines = Sequence[tuple[float, str]]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A picture of a terminal.

    The picture shows the lines from the first one that matches `since` to the next one that matches `to`. `before` is a
    command that is not shown. `expects` must be in what was printed. A moving picture plays the lines.
    """

    name: str
    command: str
    expects: str
    before: str = ""
    since: str = ""
    to: str = "(?!)"
    seconds: float = 60.0
    moving: bool = False
    width: int = WIDTH

    def cut(self, lines: Lines) -> Lines:
        """The lines to show; the first one begins at 0 s."""
        first = next((at for at, (_, line) in enumerate(lines) if re.search(self.since, line)), 0)
        last = next((at for at in range(first + 1, len(lines)) if re.search(self.to, lines[at][1])), len(lines) - 1)
        kept = list(lines[first : last + 1])
        while kept and not kept[-1][1].strip():
            kept.pop()
        return [(at - kept[0][0], line) for at, line in kept]


OFFLINE = (
    Scene(
        name="terminal-decide.svg",
        command="effective-load decide tests/vectors/08-overloaded-and-out.yaml -o text",
        expects="asks for 12",
    ),
    Scene(
        name="terminal-migrate.svg",
        command="effective-load migrate manifests/examples/migrate/scaledobject.yaml",
        expects="WatermarkPolicy",
        since="^# The adapter",
        to="target:",
    ),
)
DEMO = Scene(
    name="terminal-demo.svg",
    command="make demo DEMO_ARGS=--keep",
    expects="The cluster stays",
    since="on a real control plane:",
    to="replicas at the end",
    moving=True,
)
_SERVING = '{{range .items}}{{if not (index .metadata.annotations "effective-load.io/pulled-out")}}{{.metadata.name}} {{end}}{{end}}'  # noqa: E501
_BUSY = (
    f"kubectl -n demo annotate pods $(kubectl -n demo get pods -l app=checkout -o go-template='{_SERVING}')"
    " --overwrite kwok.x-k8s.io/usage-cpu=1150m; sleep 30"
)
"""The pods that serve get busy, within the band, and metrics-server has measured it."""
IN_CLUSTER = (
    Scene(
        name="terminal-hpa.svg",
        before=_BUSY,
        command="kubectl -n demo get hpa,wmp",
        expects="checkout-stock",
        width=152,
    ),
    Scene(
        name="terminal-explain.svg",
        command="effective-load explain checkout -n demo",
        expects="checkout",
    ),
    Scene(
        name="terminal-check.svg",
        command="effective-load check",
        expects="nothing wrong",
    ),
    Scene(
        name="terminal-render.svg",
        command="kubectl -n demo get hpa checkout-stock -o yaml | effective-load render --from-hpa -",
        expects="WatermarkPolicy",
    ),
)
