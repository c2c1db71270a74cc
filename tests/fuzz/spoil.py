"""Creates faulty documents: replaces values by invalid ones, and breaks texts."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

STRANGE: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**60, -(10**30), 0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", "x", "0", "-1", "1e99", "NaN", "-inf", "²", "\x00", "\ud800", "é" * 300, "y" * 10_000, [], {}, [[]],
    [None], [{}],
    {"": None}, {"a": {"b": []}}, "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00",
    "1969-12-31T23:59:59Z", "2026-01-01T12:00:00", "2026-02-30T12:00:00Z", "2026-01-01T12:00:00Z", "now", "* * * * *",
    "0 0 30 2 *", "² * * * *", "80%", "1200m", "300Mi", "app in (", "!", "rate(x[5m])", "(" * 4000, "America",
]  # fmt: skip

TEXTS: list[str] = [
    "", " ", "\x00", "\n", "²", "٣", "é", "\U0010ffff", "1", "-1", "+1", "1.5", ".", "-", "0x10", "1_000",
    "1e999999999", "1e-999999999", "NaN", "nan", "inf", "-Infinity", "9" * 400, "9" * 5000, "1" * 5000 + "s",
    "0." + "9" * 5000, " " * 5000, "a" + " " * 5000, "a" * 5000, "/" * 5000, "." * 5000, "a." * 2500, "-" * 5000,
    "%" * 5000, "%25" * 1500, "(" * 5000, "a," * 2500, "=" * 5000, "a=b," * 1200, "!" * 5000, "[" * 5000, "\\" * 5000,
    "::1%" + "a" * 5000, "999.1.1.1", "fe80::1%eth0", "[::1]", "::ffff:10.0.0.1", "10.0.0.1:80", "http://[", "//",
    "override://", "a://b:99999", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
    "2026-01-01T00:00:00", "2026-01-01T24:00:00Z", "2026-02-30T00:00:00Z", "2026-W01-1T00:00:00Z",
    "2026-01-01T00:00:00.999999999999Z", "2026-01-01T00:00:00+23:59:59.999999", "true", "null", "{}", "[]", "*",
    "a in (b", "a notin ()", "$namespace", "${",
]  # fmt: skip
"""Difficult texts for decoders of numbers, times, addresses, selectors and names."""

TOKENS: list[bytes] = [
    b"[" * 5_000 + b"]" * 5_000, b"[" * 100_000 + b"]" * 100_000, b"[" * 100_000,
    b'{"a":' * 5_000 + b"1" + b"}" * 5_000, b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    # As deep as calls may be, and as some calls may be:
    b"[" * 985 + b"]" * 985, b"[" * 930 + b"]" * 930, b'{"a":' * 930 + b"1" + b"}" * 930,
    # Half a character, two wrong halves, no UTF-8, a long form of NUL, half a character in UTF-8, NUL:
    b'"\\ud800"', b'"\\ud800 and more"', b'"\\udc00\\ud800"', b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\\u0000"',
    # Numbers of many digits, just beyond 64 bits, with huge exponents:
    b"9" * 400, b"9" * 4300, b"9" * 5000, b"-" + b"9" * 400, b"18446744073709551616", b"1e308", b"1e999999999",
    b"1e-999999999", b"0." + b"9" * 5000, b"NaN", b"-Infinity",
    # A key twice, and many small things:
    b'{"a":1,"a":{"b":2},"a":[3]}', b"[" + b"[]," * 2_000 + b"[]]", b"[" + b"{}," * 2_000 + b"{}]",
    b"{" + b",".join(b'"%d":null' % n for n in range(2_000)) + b"}",
    b'{"a":"",' + b",".join(b'"%d":"b"' % n for n in range(2_000)) + b"}", b"[" + b"null," * 2_000 + b"null]",
    b"", b'"',
]  # fmt: skip
"""JSON tokens that no encoder writes."""


def places(data: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all nested values."""
    if at:
        yield at
    for key, one in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(one, (*at, key))


def mutate(data: dict[str, Any], chance: random.Random) -> None:
    """Makes one change: replaces, drops, doubles, renames or moves a value."""
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
    """Breaks the text: cuts out or doubles a piece, or inserts strange characters."""
    start = chance.randrange(max(1, len(text)))
    end = min(len(text), start + chance.choice([1, 5, 50, 500]))
    piece = chance.choice(
        ["", text[start:end] * 2, *"{}[]:,&*!|>%@`\"'\t\n\0#-?", "<<: ", "*old", "&old ", "!!binary "]
    )
    return text[:start] + piece + text[end:]


def written(data: Any, *, escaped: bool = True) -> bytes:
    """JSON with the marks of `mark` replaced by their tokens; lone surrogates stay as they are."""
    text = json.dumps(data, ensure_ascii=escaped).encode(errors="surrogatepass")
    for number, token in enumerate(TOKENS):
        text = text.replace(json.dumps(mark(number)).encode(), token)
    return text


def mark(number: int) -> str:
    """The placeholder of a token in data."""
    return f"@@{number}@@"


def _replaced(data: Any, path: tuple[Any, ...], thing: Any) -> Any:
    if not path:
        return thing
    first, *rest = path
    inner = _replaced(data[first], tuple(rest), thing)
    return {**data, first: inner} if isinstance(data, dict) else [*data[:first], inner, *data[first + 1 :]]


@st.composite
def spoilt(draw: st.DrawFn, *documents: Any) -> bytes:
    """Strategy: JSON of one of the documents with a few changes."""
    chance = draw(st.randoms(use_true_random=False))
    data = {"root": copy.deepcopy(chance.choice(documents))}
    for _ in range(chance.choice([1, 1, 2, 5])):
        if list(places(data)):
            mutate(data, chance)
    things = [*TEXTS, *map(mark, range(len(TOKENS)))]
    for _ in range(chance.choice([0, 1, 1, 2])):
        where = list(places(data))
        if where:
            data = _replaced(data, chance.choice(where), chance.choice(things))
    text = written(data.get("root"), escaped=chance.random() < 0.7) if isinstance(data, dict) else written(data)
    return _broken(text, chance) if chance.random() < 0.3 else text


def _broken(text: bytes, chance: random.Random) -> bytes:
    """Breaks the bytes: cuts out or doubles a piece, or replaces a byte."""
    start = chance.randrange(len(text) + 1)
    end = min(len(text), start + chance.choice([0, 1, 5, 500]))
    piece = chance.choice([b"", text[start:end] * 2, b"\xff", b"\x00", b'"', b"{", b"]", b",", b"\\", b"-", b"e9"])
    return text[:start] + piece + text[end:]
