"""The log of the program while it is simulated: nothing is printed, logged faults are findings.

An exception that the program logs (``log.exception``) is one that a real node would survive; in a
simulation it counts as a violated invariant.
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
    """Record the faults and the repairs that are logged inside the block; drop all other events."""

    def record(_logger: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        process = PROCESS.get()
        if level in {"error", "critical", "exception"} and (process is None or process.alive):
            error = event.get("exc_info")
            history.record_violation(f"a fault was logged: {event.get('event')} {_repr_of(error)}")
        if event.get("event") == "repaired differences":
            history.repaired += int(event["differences"])
        raise structlog.DropEvent

    previous = structlog.get_config()
    structlog.configure(processors=[_with_error, record])
    try:
        yield
    finally:
        structlog.configure(**previous)


def _with_error(_logger: Any, _level: str, event: MutableMapping[str, Any]) -> Any:
    """Replace ``exc_info=True`` by the exception that is being handled."""
    if event.get("exc_info") is True:
        event["exc_info"] = sys.exc_info()[1]
    return event


def _repr_of(error: object) -> str:
    return repr(error) if isinstance(error, BaseException) else ""
