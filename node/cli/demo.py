"""``parley lab demo``: three nodes that measure each other.

All tasks are created at the first node. It leads all three, even the one between the other two,
so its page shows them all.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from node.cli.failures import print_error_lines, report
from node.cli.follow import NO_RESULT, OPEN, follow_run, follow_task, outcome_exit_code
from node.cli.invocation import Invocation
from node.cli.output import OutputWriter, aligned_text, readable_text
from node.cli.progress import Progress
from node.cli.references import short
from node.cli.serving import LabHandle, new_lab, run_with_lab, usage_lines
from node.cli.session import Session
from node.cli.times import clock_time, duration_text
from node.model.errors import ParleyError

if TYPE_CHECKING:
    from node.client.users import UserClient
    from node.model.wire.runs import Run
    from node.model.wire.tasks import Task
    from node.runtime.clock import Clock

CAMPAIGN = "demo"
_NODES = 3
_CHECK_S = 120
"""Timeout of the check; a round takes about a quarter of it."""


@dataclass(frozen=True)
class DemoMeasurement:
    """A measurement of the demo: its test, its nodes by index, and its interval."""

    test: str
    source: int
    dest: int
    repeat: str
    spec: dict[str, Any]


WISHES = (
    DemoMeasurement("rtt", 0, 1, "PT20S", {"count": 5}),
    DemoMeasurement("latency", 1, 2, "PT30S", {"count": 50, "interval": "PT0.02S"}),
    DemoMeasurement("throughput", 2, 0, "PT1M", {"duration": "PT3S", "omit": "PT0S"}),
)


@click.command("demo")
@click.option("--check", is_flag=True, help="Stop after the first complete round.")
@click.pass_context
def demo(context: click.Context, *, check: bool) -> None:
    """Start three nodes that measure each other, and show the results until Ctrl-C."""
    from node.client.users import UserClient  # slow to load
    from node.runtime.clock import SystemClock

    clock, progress = SystemClock(), Progress()
    lab = new_lab(_NODES, progress)

    async def work() -> int:
        first = lab.nodes[0]
        async with UserClient(first.url, first.token, clock) as client:
            return await run_demo(lab, client, clock, progress, check=check)

    try:
        context.exit(asyncio.run(run_with_lab(lab, progress, work)))
    except ParleyError as error:
        progress.clear()
        report(error, context.ensure_object(Invocation))
        context.exit(NO_RESULT)


async def run_demo(
    lab: LabHandle, client: UserClient, clock: Clock, progress: Progress, *, check: bool
) -> int:
    """Run the demo on a lab that is up, and return the exit code."""
    session = Session(client, clock, OutputWriter("table"), progress)
    limit = asyncio.timeout(_CHECK_S if check else None)
    try:
        async with limit:
            created = await _create(session, lab)
            runs = [await follow_task(session, task) for task in created]
    except TimeoutError:
        if not limit.expired():
            raise
        print_error_lines(f"✗ the first runs did not finish within {_CHECK_S} s")
        return NO_RESULT
    session.output.print_text(results_table(runs))
    if check:
        return _print_check(lab, runs)
    session.output.print_text("\n".join(["", *usage_lines(lab.nodes[0])]))
    print_error_lines("\nPrinting new results until Ctrl-C:")
    await asyncio.gather(*(_print_new(session, task) for task in created))
    return 0


async def _create(session: Session, lab: LabHandle) -> list[Task]:
    tools = (await session.client.tools()).items
    campaign = {"name": CAMPAIGN, "description": "the tasks of the demo"}
    await session.client.add_campaign(campaign)
    created = []
    for wish in WISHES:
        source, dest = lab.nodes[wish.source].name, lab.nodes[wish.dest].name
        fitting = [tool for tool in tools if wish.test in tool.tests]
        if not any(tool.available for tool in fitting):
            reason = "; ".join(tool.reason or tool.name for tool in fitting) or "no tool is known"
            session.progress.note(f"{wish.test} is skipped: {reason}")
            continue
        task = await session.client.create_task(document_of(wish, source, dest))
        # Plan one after the other: three batches at once would compete for the same times.
        task = await session.client.until_planned(task.id)
        session.progress.note(
            f"{task.headline} every {duration_text(wish.repeat)}: task {short(task.id)}"
        )
        created.append(task)
    return created


def document_of(wish: DemoMeasurement, source: str, dest: str) -> dict[str, Any]:
    """Return the task document of a measurement between the nodes with these names."""
    return {
        "test": {"type": wish.test, "spec": {"source": source, "dest": dest, **wish.spec}},
        "schedule": {"repeat": wish.repeat},
        "campaign": CAMPAIGN,
    }


def results_table(runs: Sequence[Run]) -> str:
    """Return a row for each run of the first round: task, nodes, result."""
    return aligned_text([("what", "start", "result"), *map(_row, runs)])


def _row(run: Run) -> tuple[str, ...]:
    outcome = run.summary or run.reason or run.state
    if outcome_exit_code(run.state, total_loss=run.total_loss) != 0:
        outcome = f"{run.state}: {run.reason or run.summary or 'no reason given'}"
    return tuple(map(readable_text, (run.headline, clock_time(run.starts_at), outcome)))


def _print_check(lab: LabHandle, runs: Sequence[Run]) -> int:
    """Print whether all results came; return the exit code, 0 if they did."""
    failed = [run for run in runs if outcome_exit_code(run.state, total_loss=run.total_loss) != 0]
    for run in failed:
        why = readable_text(run.reason or run.summary or "no reason given")
        print_error_lines(f"✗ {run.headline}: {run.state}: {why}")
    if not runs:
        print_error_lines("✗ nothing could be measured")
    finished = len(runs) - len(failed)
    sys.stdout.write(
        f"demo: {len(lab.nodes)} nodes, {finished} runs finished, {len(failed)} failed\n"
    )
    sys.stdout.flush()
    return NO_RESULT if failed or not runs else 0


async def _print_new(session: Session, task: Task) -> None:
    """Print each further result of a task as it comes, until cancelled."""
    silent = Session(session.client, session.clock, session.output, Progress(quiet=True))
    while (run := await session.client.until_run(task.id, OPEN)) is not None:
        over = await follow_run(silent, run)
        session.output.print_text("  ".join(_row(over)))
