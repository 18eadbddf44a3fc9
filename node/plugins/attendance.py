"""Tools attended by a program of ours, which starts and ends them and adds what they lack. Pure.

See ``tools/programs/attended.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from node.model.errors import ToolOutputError
from node.model.wire.fields import Document
from node.plugins.contracts import Command, Output
from node.plugins.fields import CountField, Finite
from node.plugins.figures import milliseconds
from node.plugins.oneway import HostClock
from node.plugins.ownprograms import MICROSECOND_NS, own_program
from node.plugins.reading import failure, record_of, text_of


class ClockOutput(Document):
    """The state of their host's clock as our own programs print it."""

    synchronised: bool | None
    error_bound_ns: CountField | None
    stepped_ns: Finite
    identity: str = Field(max_length=64, pattern=r"^[0-9a-f]*$")

    @property
    def clock(self) -> HostClock:
        """The same in the units of results."""
        bound_ns = self.error_bound_ns
        return HostClock(
            synchronised=self.synchronised,
            error_bound_ms=None if bound_ns is None else milliseconds(bound_ns),
            stepped_ms=round(self.stepped_ns / 1e6, 3),
            identity=self.identity,
        )


class AttendanceReport(Document):
    """The record that the attending program appends to the tool's output."""

    congestion: Annotated[str, Field(max_length=32)] | None
    clock: ClockOutput
    exit_code: Annotated[int, Field(ge=-256, le=256)]


def attended_command(
    argv: Sequence[str],
    at: int,
    until: int | None = None,
    flow: tuple[int, bool] | None = None,
) -> Command:
    """Return the command that starts ``argv`` at one instant and ends it at another (microseconds).

    ``flow`` is the port of the TCP connection whose congestion control to report, and whether it is
    this end's port.
    """
    arguments: dict[str, object] = {
        "argv": [*argv],
        "at_ns": at * MICROSECOND_NS,
        "until_ns": None if until is None else until * MICROSECOND_NS,
        "flow": None if flow is None else {"port": flow[0], "own": flow[1]},
    }
    return own_program("attended.py", arguments)


def split_attendance(output: Output, program: str) -> tuple[Output, AttendanceReport]:
    """Split the output into what the tool printed and the report of the attending program.

    :raises ToolOutputError: there is no report: the tool was not started, or was killed.
    """
    text = text_of(output, program)
    printed, mark, appendix = text.rpartition("\x1e")
    if not mark:
        raise failure(output, program, "there is no report of how it ended")
    report = record_of(appendix.encode(), program, AttendanceReport)
    if report.exit_code < 0 and output.ended_by != "itself":
        raise ToolOutputError(f"{program} had not finished at the end of the run")
    return replace(output, stdout=printed.encode(), exit_code=report.exit_code), report
