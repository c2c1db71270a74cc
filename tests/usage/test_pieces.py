"""Cutting a JSON array: the pieces hold every element once, whatever the strings in them look like."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.usage.pieces import cut

NASTY = st.sampled_from(
    ['"items":[{"metadata":', '},{"metadata":', "]}]", '"]}]}', "\\", '\\"', "{", "}", "]", ",", "é", "\u2028", "\n"]
)
TEXT = st.lists(NASTY | st.text(max_size=5), max_size=6).map("".join)


def element(name: str, more: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name}, "note": more, "containers": [{"name": more}]}


def document(elements: list[dict[str, Any]], **tail: Any) -> bytes:
    return json.dumps({"kind": "List", "items": elements, **tail}, separators=(",", ":")).encode()


def elements_of(body: bytes, size: int) -> list[Any]:
    found = cut(body, opening=b'"items":[', first=b'{"metadata":', size=size)
    assert found is not None
    assert json.loads(found.envelope)["items"] == []
    pieces = [json.loads(piece) for piece in found.pieces]
    assert all(pieces)
    return [one for piece in pieces for one in piece]


class TestCut:
    @given(st.lists(st.builds(element, TEXT, TEXT), min_size=1, max_size=20), st.integers(1, 400))
    def test_every_element_is_in_exactly_one_piece(self, elements: list[dict[str, Any]], size: int) -> None:
        body = document(elements)
        if len(body) > size:
            assert elements_of(body, size) == elements

    @given(st.lists(st.builds(element, TEXT, TEXT), min_size=1, max_size=8), TEXT)
    def test_what_follows_the_array_never_yields_a_wrong_element(self, elements: list[Any], note: str) -> None:
        """The end may be guessed wrongly, but then something does not decode, and the caller decodes the whole."""
        found = cut(document(elements, note=note), opening=b'"items":[', first=b'{"metadata":', size=10)
        assert found is not None
        try:
            assert msgspec.json.decode(found.envelope)["items"] == []
            seen = [one for piece in found.pieces for one in msgspec.json.decode(piece)]
        except msgspec.DecodeError:
            return
        assert seen == elements

    def test_pieces_are_about_as_large_as_asked(self) -> None:
        body = document([element(f"pod-{number}") for number in range(1000)])
        found = cut(body, opening=b'"items":[', first=b'{"metadata":', size=2000)
        assert found is not None
        sizes = [len(piece) for piece in found.pieces]
        assert len(sizes) > 10
        assert max(sizes) < 2200

    @pytest.mark.parametrize(
        "body",
        [
            document([]),
            json.dumps({"items": [element("a")]}, indent=1).encode(),
            b'{"items":null}',
            b"<html>not json at all</html>",
            b"",
        ],
    )
    def test_what_looks_different_is_left_whole(self, body: bytes) -> None:
        assert cut(body, opening=b'"items":[', first=b'{"metadata":', size=1) is None

    def test_a_short_answer_is_left_whole(self) -> None:
        assert cut(document([element("a")]), opening=b'"items":[', first=b'{"metadata":') is None
