"""The loggers of servers: what they are given is redacted and made printable before any handler sees it."""

from __future__ import annotations

import logging
import traceback

from nemo_gym.serve.redaction import shown

MOST_CHARS = 20_000
"""Of a message, and of a traceback: texts of models and tools may be of any length."""


class _Shown(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = shown(record.getMessage(), MOST_CHARS), ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = shown("".join(traceback.format_exception(record.exc_info[1])).rstrip("\n"), MOST_CHARS)
        return True


_shown = _Shown()


def server_log(name: str) -> logging.Logger:
    """The logger of that name, whose records hold no secrets of the config and nothing a log file can't hold."""
    logger = logging.getLogger(name)
    logger.addFilter(_shown)
    return logger
