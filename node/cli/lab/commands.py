"""``parley lab``: several complete nodes on this host, for trying and testing.

A lab is kept up while there is work, and always taken down: the signals are handled from before the
first process starts until after the last one has ended, so another Ctrl-C during the clean-up
changes nothing, and nothing is left behind. All tasks of the demo are created at the first node. It
leads all three, even the one between the other two, so its page shows them all.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from node.cli.failures import INTERRUPTED, print_error_lines, report
from node.cli.follow import OPEN, follow_run, follow_task
from node.cli.groups import command_group
from node.cli.invocation import Invocation
from node.cli.options import options
from node.cli.outcomes import NO_RESULT, exit_code
from node.cli.output import OutputWriter, aligned_text, readable_text
from node.cli.progress import Progress
from node.cli.references import short
from node.cli.session import Session
from node.cli.times import clock_time
from node.model.errors import NotAllowed, ParleyError
from node.model.loopback import is_exposed
from node.model.times import duration_text

if TYPE_CHECKING:
    from node.cli.lab.nodes import LabNode
    from node.cli.lab.wan import WanSettings
    from node.client.users import UserClient
    from node.model.wire.runs import Run
    from node.model.wire.tasks import Task
    from node.runtime.clock import Clock


class LabHandle(Protocol):
    """Several nodes on this host."""

    @property
    def nodes(self) -> Sequence[LabNode]:
        """The nodes, once they are up."""
        ...

    async def start(self) -> None:
        """Start all nodes, and return when they answer."""
        ...

    async def stop(self) -> None:
        """Stop all nodes, and remove everything created for them."""
        ...

    async def restart_ended(self) -> None:
        """Restart the nodes that have ended."""
        ...


def tls_variables(node: LabNode) -> str:
    """Return the shell variables by which commands trust a node's TLS; empty without TLS."""
    if node.url.startswith("https:"):
        return f" PARLEY_IDENTITY={node.identity}"
    return " PARLEY_PLAIN_HTTP=1" if is_exposed(node.url) else ""


def usage_lines(node: LabNode) -> list[str]:
    """Tell how to use a node: its page, logged in by the link, and the exports of a terminal."""
    return [
        f"The page of {node.name}: {node.url}/#token={node.token}",
        "In another terminal:",
        f"  export PARLEY_SERVER={node.url} PARLEY_TOKEN={node.token}{tls_variables(node)}",
    ]


def new_lab(
    count: int, progress: Progress, wan: WanSettings | None = None, *, tls: bool = False
) -> LabHandle:
    """Return a lab that reports its start, and nodes that die."""
    from node.cli.lab.supervisor import Lab as RealLab  # loads the whole service

    def note_death(name: str, why: str) -> None:
        progress.clear()
        print_error_lines(
            f"! {death_reason(name, why, {node.name for node in lab.nodes})}"
        )  # even with --quiet

    lab = RealLab(count, wan, tls=tls, progress=progress.note, died=note_death)
    return lab


def death_reason(name: str, why: str, nodes: Collection[str]) -> str:
    """Describe that a part of a lab has ended by itself, and how to continue."""
    if name in nodes:
        return f"node {why}\n  The others continue. To start it again: kill -USR1 {os.getpid()}"
    return (
        f"{why}\n  Nothing can be measured any more: stop the lab (Ctrl-C), and start another one"
    )


Done = TypeVar("Done")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_with_lab(
    lab: LabHandle, progress: Progress, work: Callable[[], Coroutine[Any, Any, int]]
) -> int:
    """Start the lab, work until the work is done or a signal comes, and return the exit code.

    A signal during the work is a normal end: 0. A signal before that: 130. USR1 restarts nodes
    that have ended.
    """
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    restarts: set[asyncio.Task[None]] = set()

    def restart() -> None:
        if not restarts:
            task = asyncio.create_task(_restart_ended(lab))
            restarts.add(task)
            task.add_done_callback(restarts.discard)

    loop.add_signal_handler(signal.SIGUSR1, restart)
    for number in _ENDING:
        loop.add_signal_handler(number, ending.set)
    try:
        progress.status("starting the nodes", "starting")
        started = await _run_until(ending, lab.start())
        if started.cancelled():
            return INTERRUPTED
        started.result()
        progress.clear()
        worked = await _run_until(ending, work())
        return 0 if worked.cancelled() else worked.result()
    finally:
        if progress.terminal:  # in a pipe the last line must be that of the work
            progress.status("taking the lab down", "ending")
        loop.add_signal_handler(signal.SIGUSR1, lambda: None)  # no restart from now on
        for task in restarts:
            task.cancel()
        await lab.stop()
        progress.clear()


async def _restart_ended(lab: LabHandle) -> None:
    try:
        await lab.restart_ended()
    except ParleyError as error:
        print_error_lines(f"✗ {error.detail}")


async def _run_until(ending: asyncio.Event, work: Coroutine[Any, Any, Done]) -> asyncio.Task[Done]:
    """Run ``work`` until it is done, or the event is set, which cancels it; return its task."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(ending.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        working.cancel()  # no effect if it is done
        await asyncio.wait({working, waiting})
    return working


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
@options("--check  Stop after the first complete round.")
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
    if exit_code(run.model_dump()) != 0:
        outcome = f"{run.state}: {run.reason or run.summary or 'no reason given'}"
    return tuple(map(readable_text, (run.headline, clock_time(run.starts_at), outcome)))


def _print_check(lab: LabHandle, runs: Sequence[Run]) -> int:
    """Print whether all results came; return the exit code, 0 if they did."""
    failed = [run for run in runs if exit_code(run.model_dump()) != 0]
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


_NODES_MAX = 50
_WHOLE = 100


class _Loss(click.ParamType[float]):
    """A share of packets: ``1%``, ``1`` and ``0.01`` are all one percent."""

    name = "loss"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        try:
            number = float(value.removesuffix("%"))
        except ValueError:
            self.fail(f"{value!r} is not a share; write 1% or 0.01", param, ctx)
        percent = value.endswith("%") or number >= 1
        share = number / _WHOLE if percent else number
        if not 0 <= share <= 1:
            self.fail(f"{value!r} is not between 0% and 100%", param, ctx)
        return share


def wan_sentence(wan: WanSettings) -> str:
    """Return the emulated delay, loss and rate in one sentence."""
    rate = f", {wan.rate_mbit:g} Mb/s" if wan.rate_mbit else ""
    loss = f"{_WHOLE * wan.loss:g} % loss"
    return f"between the nodes: {wan.delay_ms:g} ms and {loss} in each direction{rate}"


lab_group = command_group("lab")


lab_group.add_command(demo)


@lab_group.command("up")
@click.option(
    "--nodes",
    type=click.IntRange(1, _NODES_MAX),
    default=3,
    show_default=True,
    help="Number of nodes.",
)
@options("""
    --json as as_json  Print one line of JSON when all nodes are up.
    --namespaces       Network namespaces with a WAN between them (as root).
""")
@click.option(
    "--delay-ms", type=click.FloatRange(0, 10_000), help="Delay of the WAN in each direction."
)
@options("--loss LOSS  Loss of the WAN in each direction: 1% or 0.01.", {"LOSS": _Loss()})
@click.option("--rate-mbit", type=click.FloatRange(0.01, 100_000), help="Rate of the WAN in Mb/s.")
@options("--tls  Let nodes and commands speak TLS, as real hosts do.")
@options("-q, --quiet  Print no progress on standard error.")
@click.pass_context
def up(
    context: click.Context,
    /,
    *,
    nodes: int,
    as_json: bool,
    namespaces: bool,
    tls: bool,
    quiet: bool,
    **network: float | None,
) -> None:
    """Start nodes, each with its own database, and serve until Ctrl-C; clean up everything."""
    progress = Progress(quiet=quiet)
    try:
        wan = wan_of(namespaces=namespaces, **network)
        if wan is not None:
            progress.note(wan_sentence(wan))
        lab = new_lab(nodes, progress, wan, tls=tls)
        context.exit(asyncio.run(run_with_lab(lab, progress, lambda: _serve(lab, as_json=as_json))))
    except ParleyError as error:
        progress.clear()
        context.exit(report(error, context.ensure_object(Invocation)))


def wan_of(*, namespaces: bool, **network: float | None) -> WanSettings | None:
    """Return the requested network, or ``None`` for plain loopback.

    :raises NotAllowed: namespaces need root.
    """
    given = {name: value for name, value in network.items() if value is not None}
    if not namespaces:
        if given:
            option = "--" + next(iter(given)).replace("_", "-")
            msg = f"{option} needs --namespaces: loopback has no delay, loss or rate to set"
            raise click.UsageError(msg)
        return None
    if os.geteuid() != 0:
        raise NotAllowed("--namespaces needs root; run it with sudo, or without --namespaces")
    from node.cli.lab.wan import WanSettings

    return WanSettings(given.get("delay_ms", 0), given.get("loss", 0), given.get("rate_mbit"))


async def _serve(lab: LabHandle, *, as_json: bool) -> int:
    click.echo(ready_line(lab) if as_json else ready_text(lab))
    if not as_json:
        print_error_lines("Serving until Ctrl-C.")
    await asyncio.Event().wait()
    return 0


def ready_line(lab: LabHandle) -> str:
    """Return what a program needs to use the nodes, as one line of JSON."""
    names = ("name", "url", "token", "dsn", "address", "state")
    nodes = [{name: getattr(node, name) for name in names} for node in lab.nodes]
    return json.dumps({"nodes": nodes})


def ready_text(lab: LabHandle) -> str:
    """Describe the nodes and how to use them."""
    first = lab.nodes[0]
    rows = [("node", "API and page", "measurement address", "its token")]
    rows += [(node.name, node.url, node.address, f"{node.state}/token") for node in lab.nodes]
    last = lab.nodes[-1]
    return "\n".join(
        [
            aligned_text(rows),
            "",
            *usage_lines(first),
            f"  parley latency {last.name}",
            "Attributes are set on the node itself, with its own token:",
            f"  PARLEY_SERVER={last.url}{tls_variables(last)} \\",
            f"    PARLEY_TOKEN=$(cat {last.state}/token) \\",
            "    parley node set site=two",
        ]
    )
