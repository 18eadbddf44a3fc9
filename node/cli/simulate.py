"""``parley simulate``: simulate a world of nodes in virtual time, on this host, without a node.

The report goes to standard output, progress to standard error. The same scenario and seed give
the same report, byte for byte. A broken promise is a fault of the program: exit code 8, with the
command that simulates the same world again.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from node.cli.invocation import Invocation
from node.cli.options import options
from node.cli.output import Column, Record, RecordLayout, aligned_text, pairs_text, titled_lines
from node.cli.policy_plans import POLICY_PLAN, policy_plan_view
from node.cli.progress import Progress
from node.cli.session import runs_here
from node.model import times

if TYPE_CHECKING:
    from lead.simulation.world import World
    from node.runtime.clock import Clock

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


FLEET_REPORT = RecordLayout(
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
    from lead.simulation.scenario import validated

    scenario = validated(FleetScenario, document)
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
        FLEET_REPORT,
        fleet_view,
        partial(draw_fleet_report, report),
        words,
    )


def fleet_view(done: Record) -> str:
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
    return titled_lines(f"{trial['name']}: {trial['promise']}", [head, *rows])


def _row(check: Record) -> list[str]:
    free = check["least"] is None and check["most"] is None
    mark = "" if free else "✓" if check["holds"] else "✗"
    bounds = ["" if check[side] is None else f"{check[side]:g}" for side in ("least", "most")]
    value = f"{check['found']:g} {check['unit']}"
    return [mark, check["policy"], check["who"], value, *bounds, f"{check['promised']:g}"]


_ON_A_TERMINAL = times.SECOND // 5
_IN_A_FILE = 30 * times.SECOND


def _days_text(days: float | None) -> str:
    return "" if days is None else f"{days:g}"


SCENARIO = RecordLayout(
    "name,nodes,days,title",
    Column("name", lambda scenario: scenario["name"], whole=True),
    Column("nodes", lambda scenario: str(scenario["nodes"])),
    Column("days", lambda scenario: _days_text(scenario["days"])),
    Column("what", lambda scenario: scenario["title"]),
)

REPORT = RecordLayout(
    "seed,days,nodes,tasks,promised,delivered,displaced",
    Column("delivered", lambda report: str(report["delivered"])),
)


@click.command("simulate")
@click.argument("scenario", required=False)
@options("--seed 0..  Seed of the random numbers; another seed gives another world.")
@click.option(
    "--days", type=click.FloatRange(0, 366, min_open=True), help="Days to simulate; 0.5 is 12 h."
)
@click.option(
    "--svg",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Also draw the report into this file.",
)
@options("""
    --set NAME... as sets  For a fleet: only this policy set; repeat for more.
    --runs 100..           For a fleet: number of runs over which shares are computed.
    --list as listing      List the built-in scenarios.
    --show                 Print the file of the scenario, as a start for your own.
""")
@click.option(
    "--compare",
    "compared",
    nargs=2,
    metavar="A B",
    help="For a pool: play it under two sets with their options, such as 'shares serial=true'.",
)
@runs_here
def simulate(  # one parameter for each option
    invocation: Invocation,
    scenario: str | None,
    seed: int | None,
    days: float | None,
    svg: Path | None,
    sets: tuple[str, ...],
    runs: int | None,
    compared: tuple[str, str] | None,
    listing: bool,
    show: bool,
) -> int:
    """Simulate SCENARIO, a name or a TOML or JSON file: what would be promised and delivered.

    \b
    A world of nodes runs over a Postgres of its own, which must be installed as for a node. What
    takes how long, in seconds of processor time, a third to a half of it that of Postgres:
      start of the server                     3
      database of a node                      0.2, and 9 MB
      delivered run                           0.1 to 0.2: two to three minutes for a thousand
      hour of four nodes (small)              8
      hour of pools of six nodes (pools)      11
    A fleet needs no Postgres: a minute for 10,000 runs of a set; nor does a pool (parley simulate
    pool --compare shares turns). How far it is, is told on standard
    error: continuously on a terminal, else every half minute.
    """  # noqa: D301 - click's mark for lines to keep
    if listing:
        return _list(invocation)
    if scenario is None:
        raise click.UsageError("name a scenario; parley simulate --list shows the built-in ones")
    if show:
        return _show(scenario)
    if svg is not None and not svg.parent.is_dir():
        raise click.UsageError(f"--svg: there is no folder {svg.parent}")
    given = {
        "seed": seed,
        "days": days,
        "runs": runs,
        "sets": sets or None,
        "compared": compared,
    }
    return _simulate_by_name(scenario, given, svg, invocation)


def _list(invocation: Invocation) -> int:
    from lead.simulation.fleet.document import FleetScenario
    from lead.simulation.pool_file import PoolFile
    from lead.simulation.scenario import FLEET, POOL, built_in, read, validated

    records: list[Record] = [
        {"name": name, "nodes": s.nodes.count, "days": s.days, "title": s.title}
        for name, s in built_in().items()
    ]
    one = validated(FleetScenario, read(FLEET))
    records.append({"name": FLEET, "nodes": one.nodes, "days": None, "title": one.title})
    pool = validated(PoolFile, read(POOL))
    days = pool.hours / 24
    records.append({"name": POOL, "nodes": pool.nodes, "days": days, "title": pool.title})
    invocation.writer().print_list(records, SCENARIO)
    return 0


def _show(name: str) -> int:
    from lead.simulation.scenario import built_in_text, read

    read(name)  # raises an error that explains a wrong name
    click.echo(built_in_text(name), nl=False)
    return 0


def _simulate_by_name(
    name: str, options: Mapping[str, Any], svg: Path | None, invocation: Invocation
) -> int:
    from lead.simulation.scenario import read

    document = read(name)
    of_fleets = isinstance(document, dict) and document.get("fleet")
    given = {word: value for word, value in options.items() if value is not None}
    of_pools = isinstance(document, dict) and document.get("pool") is True
    if of_pools:
        return _compare(document, given, svg, invocation)
    if "compared" in given:
        raise click.UsageError("--compare is for a file of a pool, such as: parley simulate pool")
    wrong = given.keys() & ({"days"} if of_fleets else {"sets", "runs"})
    if wrong:
        raise click.UsageError("--set and --runs are for fleets, --days is for worlds of nodes")
    if of_fleets:
        return print_result(
            simulate_fleet(name, {**document, **given}, invocation), svg, invocation
        )
    return print_result(_simulate(name, given, invocation), svg, invocation)


def _compare(
    document: Mapping[str, Any], given: Mapping[str, Any], svg: Path | None, invocation: Invocation
) -> int:
    """Play the pool of a file under two sets, and print what differs."""
    from lead.simulation.pool_drawing import draw_pool
    from lead.simulation.pool_file import PoolFile, comparison, placements_of, rehearsed
    from lead.simulation.scenario import validated

    if given.keys() - {"compared", "seed"} or "compared" not in given:
        raise click.UsageError("for a pool name two sets: --compare shares 'turns laid=spread'")
    sets: tuple[str, str] = given["compared"]
    seed = {"seed": given["seed"]} if "seed" in given else {}
    file = validated(PoolFile, {**document, **seed})
    try:
        before, after = (rehearsed(file, recipe) for recipe in sets)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if svg is not None:
        played = [
            (recipe, placements_of(it)) for recipe, it in zip(sets, (before, after), strict=True)
        ]
        svg.write_text(draw_pool(file, played), "utf-8")
    plan = comparison(before, after, file)
    invocation.writer().print_one(plan, POLICY_PLAN, policy_plan_view)
    return 0


def _simulate(name: str, given: Mapping[str, Any], invocation: Invocation) -> SimulationResult:
    from lead.simulation.drawing import draw_report
    from lead.simulation.scenario import named_scenario
    from lead.simulation.world import simulate
    from node.runtime.clock import SystemClock

    scenario = named_scenario(name).model_copy(update=dict(given))
    progress = Progress(quiet=invocation.quiet)
    watch = _Watch(progress, SystemClock(), scenario.days)
    try:
        result = simulate(
            scenario, progress=watch, preparing=partial(watch.prepare, scenario.nodes.count)
        )
    finally:
        progress.clear()
    words = [name, "--seed", str(scenario.seed), "--days", f"{scenario.days:g}"]
    return SimulationResult(
        result.model_dump(mode="json"), REPORT, report_view, partial(draw_report, result), words
    )


class _Watch:
    """Reports the progress of the simulation: continuously on a terminal, else now and then.

    It does not estimate the remaining time: a day costs twice as much in the beginning as later,
    and other load on this host changes it as much.
    """

    def __init__(self, progress: Progress, clock: Clock, days: float) -> None:
        self._progress = progress
        self._clock = clock
        self._days = days
        self._began = self._reported_at = clock.now()

    def prepare(self, databases: int, ready: int) -> None:
        """Report that so many of the databases of nodes are ready, on a terminal."""
        if self._progress.terminal:
            text = f"starting Postgres, {ready:,} of {databases:,} databases are ready"
            self._progress.status(text, "preparing")

    def __call__(self, share: float, world: World) -> None:
        """Report that this share of the work is done."""
        now = self._clock.now()
        if now - self._reported_at < (_ON_A_TERMINAL if self._progress.terminal else _IN_A_FILE):
            return
        self._reported_at = now
        text = _progress_text(share, world, self._days, now - self._began)
        if self._progress.terminal:
            self._progress.status(text, "simulating")
        else:
            self._progress.note(text)


def _progress_text(share: float, world: World, days: float, took: int) -> str:
    passed = world.loop.now / times.DAY
    messages = sum(world.network.sent.values())
    parts = (
        f"{share:4.0%} done",
        f"day {min(passed, days):.2f} of {days:.3g}",
        f"{world.created:,} of {world.wished:,} tasks",
        f"{messages:,} messages",
        f"{took // times.SECOND:,} s so far",
    )
    return ", ".join(parts)


def report_view(done: Record) -> str:
    """Return the report of a simulated world as text."""
    promised, delivered = done["promised"], done["delivered"]
    share = f" ({delivered / promised:.2%})" if promised else ""
    lines = [
        done["title"],
        "",
        pairs_text(
            [
                ("seed", str(done["seed"])),
                ("simulated", f"{done['days']:g} days, {done['nodes']} nodes"),
                ("tasks", _tasks_text(done)),
                ("promised", f"{promised:,} runs"),
                ("delivered", f"{delivered:,}{share}"),
                ("displaced", _displaced_text(done)),
                ("messages", _messages_text(done)),
                ("faults", ", ".join(f"{n} {kind}" for kind, n in done["faults"].items())),
                ("repaired", _repaired_text(done)),
            ]
        ),
    ]
    if done["not_delivered"]:
        lines += ["", "Not delivered", _undelivered_text(done)]
    if done["occupancy"]:
        lines += ["", "Share of the time that the nodes measured", _occupancy_text(done)]
    if done["shares"]:
        lines += ["", *trial_view(done["shares"])]
    return "\n".join([*lines, "", _verdict_text(done)])


def _tasks_text(done: Record) -> str:
    refused = f", {done['refused_tasks']:,} refused" if done["refused_tasks"] else ""
    return f"{done['tasks']:,}{refused}"


def _displaced_text(done: Record) -> str:
    if not done["displaced"]:
        return "0"
    return f"{done['displaced']:,}, {done['displaced_and_delivered']:,} of them delivered later"


def _messages_text(done: Record) -> str:
    total = sum(done["messages"].values())
    return f"{total:,}, {done['messages_per_run']:g} for each delivered run"


def _repaired_text(done: Record) -> str:
    count = done["repaired_differences"]
    return f"{count} differences between a lead and a participant" if count else ""


def _undelivered_text(done: Record) -> str:
    rows = [[f"{r['slots']:,}", r["state"], r["reason"]] for r in done["not_delivered"]]
    return aligned_text(rows, "  ")


def _occupancy_text(done: Record) -> str:
    head = ["class", "least", "median", "most"]
    rows = [
        [o["scheduling_class"], f"{o['least']:.1%}", f"{o['median']:.1%}", f"{o['most']:.1%}"]
        for o in done["occupancy"]
    ]
    fullest = ", ".join(f"{f['node']} {f['share']:.1%}" for f in done["fullest"])
    return f"{aligned_text([head, *rows], '  ')}\n  fullest: {fullest}"


def _verdict_text(done: Record) -> str:
    if done["violations"]:
        broken = [f"  ✗ {violation}" for violation in done["violations"]]
        return "\n".join(["Broken promises", *broken])
    return "\n".join(["Checked and kept", *(f"  ✓ {name}" for name in done["invariants"])])
