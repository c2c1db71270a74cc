"""`decide` on documents that went wrong at random: an answer or named faults, in time. The seed makes them the same.

EFFECTIVE_LOAD_FUZZ=20000 tries so many.
"""

import copy
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from adapter import document

VECTORS = Path(__file__).parent.parent / "vectors"
CASES = int(os.environ.get("EFFECTIVE_LOAD_FUZZ", "600"))
SEED = int(os.environ.get("EFFECTIVE_LOAD_FUZZ_SEED", "10"))
SECONDS = 2.0
FILES = sorted(VECTORS.rglob("[0-9]*.yaml"))
STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**60, -(10**30), 0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", "x", "0", "-1", "1e99", "NaN", "-inf", "²", "\x00", "\ud800", "é" * 300, "y" * 10_000, [], {}, [[]],
    [None], [{}],
    {"": None}, {"a": {"b": []}}, "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00",
    "1969-12-31T23:59:59Z", "2026-01-01T12:00:00", "2026-02-30T12:00:00Z", "2026-01-01T12:00:00Z", "now", "* * * * *",
    "0 0 30 2 *", "² * * * *", "80%", "1200m", "300Mi", "app in (", "!", "rate(x[5m])", "(" * 4000, "America",
]  # fmt: skip


def places(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    for key, one in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(one, (*at, key))


def mutate(data: dict[str, Any], chance: random.Random) -> None:
    """One change: a value replaced, dropped, doubled, renamed, or put in another's place."""
    *above, last = chance.choice(list(places(data)))
    parent: Any = data
    for step in above:
        parent = parent[step]
    match chance.randrange(8):
        case 0:
            del parent[last]
        case 1 if isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        case 2 if isinstance(parent, dict):
            parent[chance.choice(["x", "1", "", "\ud800"])] = parent.pop(last)
        case 3:
            other: Any = copy.deepcopy(data)
            for step in chance.choice(list(places(data))):
                other = other[step]
            parent[last] = other
        case _:
            parent[last] = copy.deepcopy(chance.choice(STRANGE))


def mangle(text: str, chance: random.Random) -> str:
    """The text itself broken: a piece cut out, doubled, or strange characters put in."""
    start = chance.randrange(len(text))
    end = min(len(text), start + chance.choice([1, 5, 50, 500]))
    piece = chance.choice(
        ["", text[start:end] * 2, *"{}[]:,&*!|>%@`\"'\t\n\0#-?", "<<: ", "*old", "&old ", "!!binary "]
    )
    return text[:start] + piece + text[end:]


def cases(seed: int, count: int) -> Iterator[tuple[str, str]]:
    chance = random.Random(seed)
    texts = {str(file): file.read_text() for file in FILES}
    loaded = {name: yaml.safe_load(text) for name, text in texts.items()}
    memories = {name: document.answer(document.read(texts[name]))["memory"] for name in texts}
    for number in range(count):
        name = chance.choice(list(texts))
        if number % 4 == 0:
            yield f"{seed}/{number} {name}", mangle(texts[name], chance)
            continue
        data = copy.deepcopy(loaded[name] | {"memory": memories[chance.choice(list(memories))]})
        for _ in range(chance.choice([1, 1, 1, 2, 5])):
            mutate(data, chance)
        text = json.dumps(data)
        if number % 4 == 1:
            text = yaml.safe_dump(data, allow_unicode=True)
        yield f"{seed}/{number} {name}", mangle(text, chance) if number % 10 == 0 else text


def test_every_document_is_answered_or_its_faults_are_named_in_time() -> None:
    answered = refused = 0
    for name, text in cases(SEED, CASES):
        began = time.process_time()
        try:
            answer = document.answer(document.read(text))
        except document.DocumentError as error:
            refused += 1
            faults = error.faults
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}\n{text[:200]}") from error
        else:
            answered += 1
            faults = None
            assert answer["explanation"], name
            assert (answer["error"] is None) == (answer["desiredReplicas"] is not None), name
            json.dumps(answer, allow_nan=False).encode()
            "\n".join(answer["explanation"]).encode()
        assert faults is None or [fault for fault in faults if fault.advice and str(fault)] == [*faults] != [], name
        assert time.process_time() - began < SECONDS, name
    assert answered > CASES / 20
    assert refused > CASES / 4
