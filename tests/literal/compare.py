"""Compares the two implementations."""

import json
from typing import Any

import yaml

from adapter.commands.decide import decision, reader
from tests.literal import model
from tests.literal.generator import sequence
from tests.literal.memory import Memory

FIELDS = ("desiredReplicas", "served", "verdict", "heldBy", "error")


def reduced(answer: dict[str, Any]) -> dict[str, Any]:
    """The adapter's answer, reduced to the fields that both implementations give."""
    return {name: answer[name] for name in FIELDS} | {
        "pods": {pod["name"]: pod["state"] for pod in answer["pods"]},
        "metrics": {
            one["name"]: {name: one[name] for name in ("n", "missing", "proposal")}
            for one in answer["metrics"]
            if one["verdict"] != "Error" and answer["current"] > 0 and answer["verdict"] != "Error"
        },
    }


def adapters(given: dict[str, Any], memory: dict[str, Any] | None) -> dict[str, Any]:
    read = reader.DocumentReader(given | ({"memory": memory} if memory is not None else {}))
    return decision.decision_json(read.case())


def difference(one: Any, other: Any, path: str = "") -> str:
    """The first difference of two answers, empty if there is none. Of errors only the presence is compared."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys(), key=lambda key: (key != "pods", str(key))):
            found = difference(one.get(key, "absent"), other.get(key, "absent"), f"{path}.{key}".lstrip("."))
            if found:
                return found
        return ""
    if path == "error":
        one, other = one is not None, other is not None
    return "" if one == other else f"{path}: the page says {one}, the adapter {other}"


class Case:
    """One sequence, with the first difference in it."""

    def __init__(self, seed: int) -> None:
        self.seed, self.step, self.difference = seed, 0, ""
        self.given: dict[str, Any] = {}
        self.memory_given: dict[str, Any] | None = None
        self.memory: Memory = Memory()
        self.answers: list[dict[str, Any]] = []
        memory: dict[str, Any] | None = None
        for step, given in enumerate(sequence(seed)):
            self.step, self.given, self.memory_given, self.own_memory = step, given, memory, self.memory
            literal, after = model.answer(given, self.memory)
            full = adapters(given, memory)
            self.difference = difference(literal, reduced(full))
            self.answers.append(literal)
            self.full = full
            if self.difference:
                return
            self.memory, memory = after, json.loads(json.dumps(full["memory"]))

    def __str__(self) -> str:
        own = "\n".join(f"  {key}: {value}" for key, value in self.answers[-1].items())
        said = "\n".join(f"  {line}" for line in self.full["explanation"])
        theirs = "\n".join(f"  {key}: {value}" for key, value in reduced(self.full).items())
        given = yaml.safe_dump(
            self.given | ({"memory": self.memory_given} if self.memory_given else {}), sort_keys=False
        )
        return (
            f"seed {self.seed}, document {self.step}: {self.difference}\nthe page:\n{own}\nthe adapter:\n{theirs}\n"
            f"{said}\nits document:\n{given}"
        )
