"""Structured logs on standard error: our events and those of libraries in one format, without secrets."""

import logging
import re
import sys
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor

_SECRET = re.compile(r"(?i)password|secret_value|authorization|bearer|token$|private_key")
_HIDDEN = "(hidden)"

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["json", "console"]


def configure(level: Level = "info", form: Format = "json", stream: TextIO | None = None) -> None:
    """Set up logging for the process; may be called again when the settings change.

    Records of standard-library loggers (aiohttp, asyncio, kubernetes) get the same format.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        hide_secrets,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    rendering: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if form == "console":
        rendering.append(structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback))
    else:
        rendering += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processors=rendering, foreign_pre_chain=shared))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def hide_secrets(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A structlog processor that hides values under keys that name a secret."""
    for key in event:
        if _SECRET.search(key):
            event[key] = _HIDDEN
    return event
