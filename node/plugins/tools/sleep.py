"""Idling with the system's own ``sleep``. Pure."""

from __future__ import annotations

from node.model.times import MILLISECOND, SECOND
from node.plugins.binding import EITHER
from node.plugins.contracts import Command, Output, PartContext, Requirement, Result
from node.plugins.outline import ClientTool
from node.plugins.reading import failure
from node.plugins.tests.idle import IdlePart, IdleSpec

_WRAP_UP = SECOND // 2
"""The booked time is the spec's to the microsecond, so the sleep is this much shorter: even after a
late start it has ended by itself when the launcher ends what still runs before the booked end."""


class SleepTool(ClientTool):
    """The system's own ``sleep``."""

    name = "sleep"
    tests: tuple[str, ...] = ("idle",)
    requirement: Requirement | None = Requirement("sleep", "coreutils", ("sleep", "--version"))
    tried: tuple[str, ...] = ("9.1",)
    binds = EITHER  # it sends nothing anywhere

    def duration(self, spec: IdleSpec) -> int:
        """Return the spec's duration, in microseconds."""
        return spec.duration

    def command(self, part: PartContext) -> Command:
        """Return ``sleep 179.5``."""
        return Command(argv=("sleep", f"{_sleep_time(part) / SECOND:.6f}"))

    def read(self, part: PartContext, output: Output) -> Result:
        """Return how long it was to sleep, in milliseconds.

        A sleep that started late and was ended at the booked end has idled as long as it could.

        :raises node.model.errors.ToolOutputError: it did not sleep to the end.
        """
        if output.exit_code != 0 and output.ended_by != "end":
            raise failure(output, "sleep", "it did not sleep to the end")
        return IdlePart(slept_ms=_sleep_time(part) / MILLISECOND).model_dump(mode="json")


def _sleep_time(part: PartContext) -> int:
    spec: IdleSpec = part.spec
    return spec.duration - _WRAP_UP


TOOL = SleepTool()
