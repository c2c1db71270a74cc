"""Which files each worker of `make test` takes: tests of real servers wait more than they work."""

from typing import Any

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

FILLING = "takes files from the end"
"""The key of a worker's input that says so."""


def is_last(worker: dict[str, Any]) -> bool:
    """Whether this is the input of the last of several workers."""
    return worker["workercount"] > 1 and worker["workerid"] == f"gw{worker['workercount'] - 1}"


class FromBothEnds(LoadFileScheduling):
    """Hands out files in order, but those from the end, which need no server, to the worker that is FILLING."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.workerinput.get(FILLING):
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)
