"""Logs: one format for all, levels that can change, no secrets."""

import io
import json
import logging
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from adapter.telemetry import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The stream of logs in a test; logging is restored afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_object_with_its_values(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    structlog.get_logger("adapter.kube").info("watch began anew", resource="pods", reason="410")
    (line,) = lines(stream)
    assert line["timestamp"].endswith("Z")
    assert (line["event"], line["level"], line["logger"]) == ("watch began anew", "info", "adapter.kube")
    assert (line["resource"], line["reason"]) == ("pods", "410")


@pytest.mark.parametrize("form", ["json", "console"])
def test_an_exception_is_logged_with_its_traceback_and_no_variable(stream: io.StringIO, form: logs.Format) -> None:
    logs.configure("info", form, stream)
    token = secrets.token_hex(4)
    try:
        int("broken")
    except ValueError:
        structlog.get_logger().exception("failed")
    text = stream.getvalue() if form == "console" else lines(stream)[0]["exception"]
    assert "Traceback" in text
    assert "ValueError: invalid literal" in text
    assert token not in text


def test_events_below_a_level_that_can_change_are_not_logged_and_no_line_comes_twice(
    stream: io.StringIO,
) -> None:
    logs.configure("warning", "json", stream)
    logger = structlog.get_logger("a")
    logger.info("first")
    logs.configure("debug", "json", stream)
    logger.debug("second")
    logging.getLogger("b").debug("third")
    assert [line["event"] for line in lines(stream)] == ["second", "third"]


@pytest.mark.parametrize("key", ["password", "Authorization", "bearer_token", "client_token", "private_key"])
def test_values_under_secret_keys_are_hidden(stream: io.StringIO, key: str) -> None:
    logs.configure("info", "json", stream)
    structlog.get_logger().info("asked", **{key: "hunter2", "url": "http://h"})
    (line,) = lines(stream)
    assert "hunter2" not in stream.getvalue()
    assert line["url"] == "http://h"


def test_the_console_format_is_for_people(stream: io.StringIO) -> None:
    logs.configure("info", "console", stream)
    structlog.get_logger().warning("watch began anew", resource="pods")
    text = stream.getvalue()
    assert "watch began anew" in text
    assert "resource=pods" in text
    assert "\x1b[" not in text
