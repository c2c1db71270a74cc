"""What is used of aiohttp beside its documentation: where a version has changed it, this says so in a sentence."""

import inspect

import pytest
from aiohttp import web

from adapter.apiserver.handler import json_answer
from adapter.runtime.inbound import HttpConnection


@pytest.mark.parametrize("attribute", ["_status", "_headers", "_eof_sent"])
def test_a_response_of_aiohttp_has_the_attributes_that_an_answer_in_one_piece_sets(attribute: str) -> None:
    assert hasattr(web.StreamResponse(), attribute), (
        f"aiohttp's StreamResponse has no {attribute} any more, which {json_answer.__module__} sets"
        " instead of calling its __init__: look at what status, headers and prepared read now"
    )


@pytest.mark.parametrize("method", ["connection_made", "connection_lost", "data_received", "handle_error"])
def test_a_connection_of_aiohttp_has_the_methods_that_ours_replaces(method: str) -> None:
    theirs, ours = (inspect.signature(getattr(kind, method)) for kind in (web.RequestHandler, HttpConnection))
    assert list(theirs.parameters) == list(ours.parameters), (
        f"aiohttp's RequestHandler.{method} takes {theirs} now, and {HttpConnection.__module__} replaces it with {ours}"
    )
