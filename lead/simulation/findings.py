"""What the program logs while it is simulated: nothing is printed, faults are findings.

Whatever the program itself calls a fault (``log.exception``) is one that a real node would have
logged and gone on from; in a simulation it counts as a broken promise.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

import structlog

from lead.simulation.history import History
from lead.simulation.loop import PROCESS


@contextlib.contextmanager
def findings(history: History) -> Iterator[None]:
    """Take down the faults that are logged meanwhile, and the repairs; drop all the rest."""

    def caught(_logger: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        process = PROCESS.get()
        if level in {"error", "critical", "exception"} and (process is None or process.alive):
            error = event.get("exc_info")
            history.violated(f"a fault was logged: {event.get('event')} {_named(error)}")
        if event.get("event") == "repaired differences":
            history.repaired += int(event["runs"])
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[_with_error, caught])
    try:
        yield
    finally:
        structlog.configure(**before)


def _with_error(_logger: Any, _level: str, event: MutableMapping[str, Any]) -> Any:
    """The exception that is being handled, in the place of a mere wish to have it."""
    if event.get("exc_info") is True:
        event["exc_info"] = sys.exc_info()[1]
    return event


def _named(error: object) -> str:
    return repr(error) if isinstance(error, BaseException) else ""
