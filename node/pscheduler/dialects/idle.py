"""Idling with pScheduler's ``sleep`` and ``snooze``, and with our ``sleep``. Pure."""

from __future__ import annotations

from node.model import times
from node.model.times import SECOND
from node.plugins.tests.idle import IdlePart
from node.pscheduler.dialects.contract import Dialect, diagnostics, failed_part
from node.pscheduler.tests.contract import Document, PartOutcome
from node.pscheduler.times import (
    format_duration,
    format_milliseconds,
    parse_duration,
    parse_milliseconds,
)

_WRAP_UP = SECOND // 2
"""Our tool sleeps this much shorter than the spec says, so that a run ends within its time."""


class IdleDialect(Dialect):
    """Doing nothing, for as long as the spec says."""

    own = "sleep"
    tests = ("idle", "idleex")

    def __init__(self, tool: str, description: str, longest: int | None = None) -> None:
        """``longest`` is the longest idling (µs) for which pScheduler uses the tool."""
        self.tool = tool
        self.description = description
        self._longest = longest

    def obstacle(self, spec: Document) -> str | None:
        """Return why the tool does not idle for so long; None if it does."""
        duration = parse_duration(str(spec["duration"]))
        if self._longest is not None and duration > self._longest:
            return f"{self.tool} idles for at most {format_duration(self._longest)}"
        return None

    def adapted_spec(self, spec: Document) -> Document:
        """Return a spec with which our tool idles for all of the duration.

        pScheduler books a second more than the duration, so there is time for it.
        """
        duration = times.parse_duration(spec["duration"]) + _WRAP_UP
        return {**spec, "duration": times.format_duration(duration)}

    def told_part(self, place: int, spec: Document, part: PartOutcome) -> Document:
        """Return the time for which this node has idled, as pScheduler's part."""
        if part.result is None:
            return failed_part(part)
        slept = format_milliseconds(IdlePart.model_validate(part.result).slept_ms)
        result = {"schema": 1, "succeeded": True, "time-slept": slept}
        return {"succeeded": True, "diags": diagnostics(part), "error": "", "result": result}

    def our_part(self, place: int, result: Document) -> IdlePart:
        """Return the time for which another participant has idled, as our part."""
        slept = result.get("time-slept", result.get("duration"))
        return IdlePart(slept_ms=parse_milliseconds(slept))


SLEEP = IdleDialect("sleep", "Do nothing by sleeping")
SNOOZE = IdleDialect("snooze", "Do nothing by short sleeps", times.MINUTE)
