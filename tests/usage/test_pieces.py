"""Cutting a JSON array: the pieces hold every element once, whatever the strings in them look like."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.runtime.answer_budget import Body
from adapter.runtime.decoding import array, pieces

NASTY = st.sampled_from(
    ['"items":[{"metadata":', '},{"metadata":', "]}]", '"]}]}', "\\", '\\"', "{", "}", "]", ",", "é", "\u2028", "\n"]
)
TEXT = st.lists(NASTY | st.text(max_size=5), max_size=6).map("".join)


def element(name: str, more: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "note": more, "containers": [{"name": more}]}


def document(elements: list[dict[str, Any]], **tail: Any) -> bytes:
    return json.dumps({"kind": "List", "items": elements, **tail}, separators=(",", ":")).encode()


def elements_of(body: bytes, size: int) -> list[Any]:
    found: list[Any] = []
    for piece in pieces(Body(body), array("items"), size=size):
        whole = msgspec.json.decode(piece.text)
        found += whole["items"] if piece.is_last else whole
    return found


class TestPieces:
    @given(st.lists(st.builds(element, TEXT, TEXT), min_size=1, max_size=20), st.integers(1, 400), TEXT)
    def test_every_element_is_in_exactly_one_piece(self, elements: list[Any], size: int, note: str) -> None:
        assert elements_of(document(elements, note=note), size) == elements

    @given(st.lists(st.builds(element, TEXT, TEXT), min_size=1, max_size=20), st.integers(1, 400))
    def test_spaces_make_no_difference(self, elements: list[Any], size: int) -> None:
        assert elements_of(json.dumps({"items": elements}, indent=1).encode(), size) == elements

    def test_pieces_are_about_as_large_as_asked(self) -> None:
        body = document([element(f"pod-{number}") for number in range(1000)])
        sizes = [len(piece.text) for piece in pieces(body, array("items"), size=2000)]
        assert len(sizes) > 10
        assert max(sizes) < 2400

    @pytest.mark.parametrize("body", [document([]), b'{"items":null}', b"<html>not json at all</html>", b""])
    def test_what_looks_different_is_left_whole(self, body: bytes) -> None:
        [piece] = pieces(body, array("items"), size=1)
        assert (bytes(piece.text), piece.is_last) == (body, True)

    def test_a_short_answer_is_left_whole(self) -> None:
        assert len(list(pieces(document([element("a")]), array("items")))) == 1
