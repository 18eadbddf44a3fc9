"""Route the log records of libraries into our structured log."""

from __future__ import annotations

import logging

import structlog
from aiohttp.http_exceptions import HttpProcessingError
from structlog.typing import EventDict

from node.model import times
from node.runtime.clock import Clock

log = structlog.get_logger()

_REPEAT_S = 60.0
_KNOWN_MAX = 1000


class _Repetitions:
    """The messages of the last minute, and how often each was repeated in it."""

    def __init__(self) -> None:
        self._logged: dict[object, tuple[float, int]] = {}

    def count(self, message: object, now: float) -> int | None:
        """Return how often a message was repeated since it was logged; None to drop it as well.

        ``now`` is in seconds.
        """
        logged_at, repeats = self._logged.get(message, (None, 0))
        if logged_at is not None and now - logged_at < _REPEAT_S:
            self._logged[message] = logged_at, repeats + 1
            return None
        if len(self._logged) >= _KNOWN_MAX:
            self._logged.clear()
        self._logged[message] = now, 0
        return repeats


class LogRouter(logging.Handler):
    """Forwards records; counts those that repeat a message within a minute."""

    def __init__(self) -> None:
        """Handle warnings and worse."""
        super().__init__(logging.WARNING)
        self._repetitions = _Repetitions()

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record; count it instead if the same message was logged within a minute."""
        repeats = self._repetitions.count((record.name, str(record.msg)), record.created)
        if repeats is None:
            return
        # aiohttp takes what anybody sends that is no HTTP for an error of the server.
        malformed = record.exc_info and isinstance(record.exc_info[1], HttpProcessingError)
        level = logging.INFO if malformed else record.levelno
        log.log(
            level,
            record.getMessage(),
            by=record.name,
            exc_info=record.exc_info if level >= logging.ERROR else None,
            **({"error": str(record.exc_info[1])} if record.exc_info else {}),
            **({"more": repeats} if repeats else {}),
        )


class RepetitionFilter:
    """Drops a warning or an error that says the same as one of the last minute; counts them.

    What fails once a second, for each run that waits, is logged once a minute.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._repetitions = _Repetitions()

    def __call__(self, _logger: object, _method: str, event: EventDict) -> EventDict:
        """Return the event, with the number of those dropped before it; drop a repetition."""
        if event.get("level") not in {"warning", "error"}:
            return event
        key = tuple(sorted((name, str(value)) for name, value in event.items()))
        repeats = self._repetitions.count(key, self._clock.monotonic() / times.SECOND)
        if repeats is None:
            raise structlog.DropEvent
        return {**event, "more": repeats} if repeats else event


def route_library_logs() -> None:
    """Send all records of the module ``logging`` through :class:`LogRouter` from now on."""
    logging.basicConfig(handlers=[LogRouter()], level=logging.WARNING, force=True)
