"""Log records on their way out of the process, with the run's secrets masked."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

_SEVERITY = {10: 5, 20: 9, 30: 13, 40: 17, 50: 21}


class RedactedLogHandler(logging.Handler):
    """Sends log messages, formatted and redacted, to an OpenTelemetry logger provider."""

    def __init__(self, provider: Any, redact: Callable[[str], str] | None) -> None:
        super().__init__()
        self._provider = provider
        self._redact = redact or (lambda text: text)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("opentelemetry"):
            return  # what exporting itself has to say must not be exported
        try:
            self._provider.get_logger(record.name).emit(self._translated(record))
        except Exception:
            self.handleError(record)

    def _translated(self, record: logging.LogRecord) -> Any:
        from opentelemetry._logs import LogRecord, SeverityNumber

        severity = _SEVERITY.get(record.levelno // 10 * 10, 9)
        return LogRecord(
            timestamp=int(record.created * 1e9),
            observed_timestamp=time.time_ns(),
            severity_text=record.levelname,
            severity_number=SeverityNumber(severity),
            body=self._redact(self.format(record)),
        )
