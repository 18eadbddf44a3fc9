"""What libraries log, as lines like our own: nothing raw stands among the lines of a service."""

from __future__ import annotations

import logging

import structlog

log = structlog.get_logger()

_TOLD_AGAIN_S = 60.0
_KNOWN_MAX = 1000
_HOUSE_KEEPING = "apscheduler"


class LogRouter(logging.Handler):
    """Passes records on; the same words again within a minute are only counted.

    What the timer of house-keeping says under load (a job is late, or still runs when it is due
    again) is of no use to an operator: it is told as ``debug``.
    """

    def __init__(self) -> None:
        """Of warnings and worse."""
        super().__init__(logging.WARNING)
        self._told: dict[tuple[str, str], tuple[float, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Tell it, or count it."""
        key = record.name, str(record.msg)
        told_at, kept_back = self._told.get(key, (None, 0))
        if told_at is not None and record.created - told_at < _TOLD_AGAIN_S:
            self._told[key] = told_at, kept_back + 1
            return
        if len(self._told) >= _KNOWN_MAX:
            self._told.clear()
        self._told[key] = record.created, 0
        quiet = record.name.startswith(_HOUSE_KEEPING) and record.levelno == logging.WARNING
        log.log(
            logging.DEBUG if quiet else record.levelno,
            "house-keeping is late" if quiet else record.getMessage(),
            by=record.name,
            exc_info=record.exc_info if record.levelno >= logging.ERROR else None,
            **({"error": str(record.exc_info[1])} if record.exc_info else {}),
            **({"said": record.getMessage()} if quiet else {}),
            **({"more": kept_back} if kept_back else {}),
        )


def route() -> None:
    """From now on, everything that libraries log goes this way."""
    logging.basicConfig(handlers=[LogRouter()], level=logging.WARNING, force=True)
