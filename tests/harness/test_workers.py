"""Which files the workers of a run take."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.workers import FILLING, FromBothEnds, is_last


class Node:
    """A worker, as far as the scheduler knows it; `taken` are the files that it was given."""

    shutting_down = False

    def __init__(self, number: int, count: int) -> None:
        self.workerinput: dict[str, Any] = {"workerid": f"gw{number}", "workercount": count}
        self.workerinput[FILLING] = is_last(self.workerinput)
        self.gateway = SimpleNamespace(id=self.workerinput["workerid"])
        self.taken: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.taken += [FILES[index] for index in indices]

    def shutdown(self) -> None:
        """All files are given."""


FILES = [f"{name}.py::test" for name in "abcdefgh"]


@pytest.mark.parametrize(
    ("workers", "taken"),
    [(3, ["a c", "b d", "h g"]), (1, ["a b"])],
)
def test_the_last_of_several_workers_takes_files_from_the_end(workers: int, taken: list[str]) -> None:
    config: Any = SimpleNamespace(
        getvalue=lambda name: ["popen"] * workers, option=SimpleNamespace(loadscopereorder=False, debug=False)
    )
    scheduler, nodes = FromBothEnds(config), [Node(number, workers) for number in range(workers)]
    for node in nodes:
        scheduler.add_node(node)  # type: ignore[arg-type]
        scheduler.add_node_collection(node, FILES)  # type: ignore[arg-type]
    scheduler.schedule()
    assert [" ".join(file[0] for file in node.taken) for node in nodes] == taken
