"""`decide` on documents that went wrong at random: an answer or named faults. The seed makes them the same."""

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import yaml

from adapter.commands.decide import decision, reader
from tests.fuzz.kit import FUZZ_SECONDS, seeds
from tests.fuzz.spoil import EVERY, mangle, mutate

VECTORS = Path(__file__).parent.parent / "vectors"
CASES = 600 // EVERY
FILES = sorted(VECTORS.rglob("[0-9]*.yaml"))


def cases(seed: int, count: int) -> Iterator[tuple[str, str]]:
    chance = random.Random(seed)
    texts = {str(file): file.read_text() for file in FILES}
    loaded = {name: yaml.load(text, yaml.CSafeLoader) for name, text in texts.items()}
    memories = {name: decision.decision_json(reader.read_document(texts[name]))["memory"] for name in texts}
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


@FUZZ_SECONDS
def test_every_document_is_answered_or_its_faults_are_named() -> None:
    for seed in seeds():
        outcomes = Counter(outcome(name, text) for name, text in cases(seed, CASES))
        assert outcomes["answered"] > CASES / 20
        assert outcomes["refused"] > CASES / 4


def outcome(name: str, text: str) -> str:
    faults = None
    try:
        answer = decision.decision_json(reader.read_document(text))
    except reader.DocumentError as error:
        faults = error.faults
    except Exception as error:
        raise AssertionError(f"{name}: {error!r}\n{text[:200]}") from error
    if faults is not None:
        assert [fault for fault in faults if fault.advice and str(fault)] == [*faults] != [], name
        return "refused"
    assert answer["explanation"], name
    assert (answer["error"] is None) == (answer["desiredReplicas"] is not None), name
    json.dumps(answer, allow_nan=False).encode()
    "\n".join(answer["explanation"]).encode()
    return "answered"
