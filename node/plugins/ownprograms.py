"""Our own programs, those in ``tools/programs/``: starting them, reading what they print. Pure.

Some measure. One attends another tool: it starts and ends it, and adds what it lacks. One looks a
name up and becomes a tool that takes only addresses; it prints the address first, because such
tools do not report it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from node.model.errors import ToolOutputError
from node.model.targets import TargetRules
from node.model.wire.fields import Document
from node.plugins.binding import version_of
from node.plugins.contracts import Command, Output, PartContext, Result
from node.plugins.fields import CountField, Finite
from node.plugins.figures import milliseconds
from node.plugins.hops import address_in
from node.plugins.oneway import HostClock
from node.plugins.reading import Model, document_of, failure, record_of, text_of

MICROSECOND_NS = 1000

ADDRESS = "ADDRESS"
"""A placeholder in the argv of a tool, replaced by the address."""

_PROGRAMS = Path(__file__).resolve().parent / "tools" / "programs"


def checking_program(
    name: str,
    arguments: Mapping[str, object],
    rules: TargetRules | None,
    private: Mapping[str, object] | None = None,
    *,
    libraries: bool = False,
) -> Command:
    """Return the command of a program of ours that measures a target, as :func:`own_program`.

    The rules for its targets, which name this host's addresses, and what else is ``private`` are
    read from standard input, as one JSON object: lists of processes and results show the argv.
    """
    secret = dict(private or {})
    if rules is not None:
        secret["rules"] = rules.as_document()
    stdin = json.dumps(secret).encode() if secret else b""
    return own_program(
        name, {**arguments, "private": bool(secret)}, libraries=libraries, stdin=stdin
    )


def own_program(
    name: str, arguments: Mapping[str, object], *, libraries: bool = False, stdin: bytes = b""
) -> Command:
    """Return the command of a program of ours; its arguments are one JSON object.

    The program itself waits for its instant. It runs isolated, and without site packages unless it
    needs ``libraries``: a bare Python starts in some 40 ms, whatever is installed. ``stdin`` is for
    what must not be visible in a list of processes, or in a result.
    """
    isolated = ("-I",) if libraries else ("-I", "-S")
    document = json.dumps(arguments, separators=(",", ":"))
    program = str(_PROGRAMS / name)
    return Command((sys.executable, *isolated, program, document), waits_itself=True, stdin=stdin)


class _Failed(Document):
    """The output of a program of ours that could not measure."""

    error: str


def told_failure(output: Output, program: str) -> str:
    """Return why a program of ours could not measure, as it says itself.

    :raises ToolOutputError: it says nothing like that.
    """
    return document_of(output, program, _Failed).error


def measured_output(output: Output, program: str, model: type[Model], family: str = "") -> Model:
    """Return the output of a program of ours, unless it says that it could not measure.

    :raises ToolOutputError: it says so, for which the programs of a ``family`` have one name; or
        it printed something else.
    """
    if output.exit_code != 0:
        named = family or program
        raise ToolOutputError(f"{named}: {told_failure(output, named)}")
    return document_of(output, program, model)


def result_of(model: type[Document], printed: BaseModel, **others: object) -> Result:
    """Return a result with the fields that a program of ours printed under the same names.

    Times it prints in nanoseconds, under names that end in ``_ns``. ``others`` are the fields that
    it does not print, or that are something else.
    """
    fields: dict[str, object] = dict(others)
    for name in model.model_fields.keys() - others.keys():
        in_ns = f"{name[:-3]}_ns"
        if name.endswith("_ms") and in_ns in type(printed).model_fields:
            fields |= in_milliseconds({name: getattr(printed, in_ns)})
        else:
            fields[name] = getattr(printed, name)
    return model.model_validate(fields).model_dump(mode="json")


def in_milliseconds(spans_ns: Mapping[str, int | None]) -> dict[str, float | None]:
    """Return nanoseconds as milliseconds; what is None stays so."""
    return {
        name: None if span_ns is None else milliseconds(span_ns)
        for name, span_ns in spans_ns.items()
    }


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


def resolving_command(
    part: PartContext, four: Sequence[str], six: Sequence[str] | None = None
) -> Command:
    """Return the command that looks ``dest`` up and becomes ``four``, or ``six`` for IPv6."""
    arguments = {
        "host": part.addresses.get(part.spec.dest, part.spec.dest),
        "ip_version": version_of(part),
        "argv": {"4": [*four], "6": [*(four if six is None else six)]},
    }
    return replace(own_program("resolved.py", arguments), waits_itself=False)


def split_address(output: Output, program: str) -> tuple[str, list[str]]:
    """Return the address, and the lines that the tool printed after it.

    :raises node.model.errors.ToolOutputError: it is not an address, or nothing was printed.
    """
    first, *lines = text_of(output, program).splitlines() or [""]
    if not first:
        raise failure(output, program, "it printed nothing")
    return address_in(first, program), lines
