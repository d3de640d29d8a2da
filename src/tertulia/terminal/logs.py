"""The log of a process: one line for each event, on standard error."""

from __future__ import annotations

import logging
import sys

import structlog

from tertulia.config import Settings


def start_log(settings: Settings) -> None:
    """For a person at a terminal, else JSON."""
    as_text = settings.log_format == "text" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    # A traceback's own lines only: its variables could hold what a user wrote. The console's usual
    # formatter shows them wherever rich is installed.
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if as_text
        else structlog.processors.JSONRenderer()
    )
    errors: structlog.typing.Processor = structlog.processors.ExceptionRenderer(
        structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if as_text else [errors]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
