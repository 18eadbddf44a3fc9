"""``parley simulate fleet``: what sets of policies promise in the long run, and what came of it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from node.cli.invocation import Invocation
from node.cli.output import Column, Kind, Output, Record, aligned
from node.cli.progress import Progress

BROKEN = 8

REPORT = Kind(
    columns=(Column("broken", lambda report: str(len(report["violations"]))),),
    fields=("seed", "runs", "nodes", "sets", "violations"),
    empty="",
    key="seed",
)


def simulated(
    name: str,
    document: Mapping[str, Any],
    svg: Path | None,
    invocation: Invocation,
) -> int:
    """Play what a document describes; the exit code."""
    from lead.simulation.fleet.document import FleetScenario
    from lead.simulation.fleet.drawing import drawn
    from lead.simulation.fleet.play import play
    from lead.simulation.scenario import checked

    scenario = checked(FleetScenario, document)
    progress = Progress(quiet=invocation.quiet)

    def tell(share: float, doing: str) -> None:
        if progress.terminal:
            progress.status(f"{share:4.0%} done, {doing}", "simulating")

    try:
        told = play(scenario, tell)
    finally:
        progress.clear()
    if svg is not None:
        svg.write_text(drawn(told), "utf-8")
    done = told.model_dump(mode="json")
    Output(invocation.output, invocation.picked).one(done, REPORT, report_view)
    if not done["violations"]:
        return 0
    words = ["parley", "simulate", name, "--seed", str(scenario.seed), "--runs", str(scenario.runs)]
    words += [word for each in scenario.sets for word in ("--set", each)]
    again = shlex.join(words)
    sys.stderr.write(f"✗ {len(done['violations'])} promises were broken\n  again with: {again}\n")
    return BROKEN


def report_view(done: Record) -> str:
    """The report for a person."""
    lines = [done["title"], f"{done['nodes']} nodes, seed {done['seed']}", ""]
    for trial in done["trials"]:
        if trial["checks"]:
            head = ["", "set", "for whom", "found", "at least", "at most", "promised"]
            rows = [_row(check) for check in trial["checks"]]
            lines += [f"{trial['name']}: {trial['promise']}", aligned([head, *rows], "  "), ""]
    broken = [f"  ✗ {violation}" for violation in done["violations"]]
    return "\n".join(
        [*lines, "Broken promises", *broken] if broken else [*lines, "All of it holds"]
    )


def _row(check: Record) -> list[str]:
    free = check["least"] is None and check["most"] is None
    mark = "" if free else "✓" if check["holds"] else "✗"
    bounds = ["" if check[side] is None else f"{check[side]:g}" for side in ("least", "most")]
    found = f"{check['found']:g} {check['unit']}"
    return [mark, check["policy"], check["who"], found, *bounds, f"{check['promised']:g}"]
