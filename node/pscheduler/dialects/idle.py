"""Idling with pScheduler's ``sleep`` and ``snooze``, and with our ``sleep``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node.model import times
from node.model.times import MILLISECOND, SECOND
from node.plugins.tests.idle import IdlePart
from node.pscheduler.dialects.contract import HeardPart, diagnostics, failed_part, failure_of
from node.pscheduler.tests.contract import Document, PartOutcome
from node.pscheduler.times import format_duration, parse_duration

_WRAP_UP = SECOND // 2
"""Our tool sleeps this much shorter than the spec says, so that a run ends within its time."""


class IdleDialect:
    """Doing nothing, for as long as the spec says."""

    own = "sleep"
    tests: tuple[str, ...] = ("idle", "idleex")

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

    def data(self, place: int, held: Mapping[str, int], version: str | None) -> Document:  # noqa: ARG002 - contract
        """Return an empty object: the others need to know nothing."""
        return {}

    def command_data(self, place: int, data: Document) -> dict[str, int]:  # noqa: ARG002 - contract
        """Return an empty object: commands need nothing of the others."""
        return {}

    def told_part(self, place: int, spec: Document, part: PartOutcome) -> Document:  # noqa: ARG002 - contract
        """Return the time for which this node has idled, as pScheduler's part."""
        if part.result is None:
            return failed_part(part)
        slept = round(IdlePart.model_validate(part.result).slept_ms * MILLISECOND)
        return {
            "succeeded": True,
            "diags": diagnostics(part),
            "error": "",
            "result": {"schema": 1, "succeeded": True, "time-slept": format_duration(slept)},
        }

    def heard_part(self, place: int, spec: Mapping[str, Any], part: Document | None) -> HeardPart:  # noqa: ARG002 - contract
        """Return the time for which another participant has idled, as our part."""
        reason = failure_of(part)
        result = (part or {}).get("result")
        if reason is not None or not isinstance(result, dict):
            return HeardPart(None, reason or "its result is no object")
        said = result.get("time-slept", result.get("duration"))
        try:
            slept = parse_duration(str(said))
        except ValueError as fault:
            return HeardPart(None, f"its result is not understood: {fault}")
        return HeardPart(IdlePart(slept_ms=slept / MILLISECOND).model_dump(mode="json"))


SLEEP = IdleDialect("sleep", "Do nothing by sleeping")
SNOOZE = IdleDialect("snooze", "Do nothing by short sleeps", times.MINUTE)
