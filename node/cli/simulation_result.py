"""Print and draw the report of a simulation, with the command that repeats it if it failed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from node.cli.invocation import Invocation
from node.cli.output import Record, RecordLayout

BROKEN = 8
"""The exit code if a promise was broken, which is a fault of the program."""


@dataclass(frozen=True)
class SimulationResult:
    """A report, its view and drawing, and the arguments of ``parley simulate`` that repeat it."""

    report: Record
    kind: RecordLayout
    view: Callable[[Record], str]
    drawn: Callable[[], str]
    again: Sequence[str]


def print_result(simulated: SimulationResult, svg: Path | None, invocation: Invocation) -> int:
    """Print the report, draw it into ``svg`` if given, and return the exit code."""
    if svg is not None:
        svg.write_text(simulated.drawn(), "utf-8")
    report = simulated.report
    invocation.writer().print_one(report, simulated.kind, simulated.view)
    if not report["violations"]:
        return 0
    count = len(report["violations"])
    broken = f"{count} promises were" if count > 1 else "a promise was"
    again = shlex.join(["parley", "simulate", *simulated.again])
    sys.stderr.write(f"✗ {broken} broken with seed {report['seed']}\n  again with: {again}\n")
    return BROKEN
