"""``parley simulate fleet``: what policy sets promise in the long run, and whether they keep it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from node.cli.invocation import Invocation
from node.cli.output import Column, Record, RecordLayout, aligned_text
from node.cli.progress import Progress
from node.cli.simulation_result import SimulationResult

REPORT = RecordLayout(
    "seed,runs,nodes,sets,violations",
    Column("broken", lambda report: str(len(report["violations"]))),
)


def simulate_fleet(
    name: str, document: Mapping[str, Any], invocation: Invocation
) -> SimulationResult:
    """Simulate the fleet that a document describes."""
    from lead.simulation.fleet.document import FleetScenario
    from lead.simulation.fleet.drawing import draw_fleet_report
    from lead.simulation.fleet.play import play
    from lead.simulation.scenario import checked

    scenario = checked(FleetScenario, document)
    progress = Progress(quiet=invocation.quiet)

    def report_progress(share: float, doing: str) -> None:
        if progress.terminal:
            progress.status(f"{share:4.0%} done, {doing}", "simulating")

    try:
        report = play(scenario, report_progress)
    finally:
        progress.clear()
    words = [name, "--seed", str(scenario.seed), "--runs", str(scenario.runs)]
    words += [word for each in scenario.sets for word in ("--set", each)]
    return SimulationResult(
        report.model_dump(mode="json"),
        REPORT,
        report_view,
        partial(draw_fleet_report, report),
        words,
    )


def report_view(done: Record) -> str:
    """Return the trials of a simulated fleet as text: promises, and whether each was kept."""
    lines = [done["title"], f"{done['nodes']} nodes, seed {done['seed']}", ""]
    for trial in done["trials"]:
        if trial["checks"]:
            lines += [*trial_view(trial), ""]
    broken = [f"  ✗ {violation}" for violation in done["violations"]]
    return "\n".join(
        [*lines, "Broken promises", *broken] if broken else [*lines, "All promises were kept"]
    )


def trial_view(trial: Record) -> list[str]:
    """Return the lines of a trial: its promise, and a table of its checks."""
    head = ["", "set", "for whom", "found", "at least", "at most", "promised"]
    rows = [_row(check) for check in trial["checks"]]
    return [f"{trial['name']}: {trial['promise']}", *aligned_text([head, *rows], "  ").splitlines()]


def _row(check: Record) -> list[str]:
    free = check["least"] is None and check["most"] is None
    mark = "" if free else "✓" if check["holds"] else "✗"
    bounds = ["" if check[side] is None else f"{check[side]:g}" for side in ("least", "most")]
    value = f"{check['found']:g} {check['unit']}"
    return [mark, check["policy"], check["who"], value, *bounds, f"{check['promised']:g}"]
