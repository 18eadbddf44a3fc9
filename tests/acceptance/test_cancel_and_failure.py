"""Runs when tasks are cancelled and when nodes fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from node.cli.lab.supervisor import Lab
from node.execution import proctable, releaser
from tests.acceptance.conftest import Everywhere
from tests.acceptance.outsider import Json, Outsider, booked, instant
from tests.integration.host_leftovers import descendants
from tests.support.patience import PATIENCE_S

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy", "all_up"),
]

Programs = Callable[[], set[int]]


@pytest_asyncio.fixture(loop_scope="session")
async def all_up(lab: Lab) -> AsyncIterator[None]:
    """Restart the nodes that a test has killed, and return when no program is left running."""
    yield
    for node in lab.nodes:
        if lab._running[node.name].ended:
            await lab.restart(node.name)
    async with asyncio.timeout(PATIENCE_S):
        await proctable.wait_for_exits(list(below(lab)))


def below(lab: Lab, *names: str) -> set[int]:
    """Return the tools of these nodes, or of all, with their keepers; not what starts these."""
    found = set[int]()
    for name in names or tuple(lab._running):
        node = lab._running[name].pid
        (runner,) = descendants(node, but_below=descendants(node))
        found |= {pid for pid in descendants(runner) if not is_releaser(pid)}
    return found


def is_releaser(pid: int) -> bool:
    """Return whether a process begins tools, and lives as long as what starts them."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_bytes().strip() == releaser.NAME
    return False


def sleepers(duration_s: int) -> list[int]:
    """Return the processes of an idle run of this duration, anywhere in the process tree."""
    wanted = f"sleep\0{duration_s - 0.5:.6f}\0".encode()
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if (entry / "cmdline").read_bytes() == wanted:
                    pids.append(int(entry.name))
    return pids


async def measuring(run: Json, *nodes: Outsider) -> None:
    """Return when each of these nodes has started its program."""
    for node in nodes:
        await node.until(f"/v1/runs/{run['id']}", lambda found: found.get("started_at"))


async def gone(pids: list[int] | set[int]) -> None:
    """Return when these processes have exited."""
    async with asyncio.timeout(PATIENCE_S):
        await proctable.wait_for_exits(list(pids))


def soon(seconds: float) -> str:
    """Return an instant in so many seconds."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


@pytest.mark.parametrize(("place", "duration_s"), [(0, 3601), (2, 3602)])
@pytest.mark.nightly
async def test_a_cancelled_run_stops_everywhere(
    place: int, duration_s: int, nodes: list[Outsider]
) -> None:
    """A run cancelled by its lead or a participant ends the programs of all participants."""
    a = nodes[0]
    run = await a.run(await a.create("idle", *nodes, spec={"duration": f"PT{duration_s}S"}))
    await measuring(run, *nodes)
    pids = sleepers(duration_s)
    assert len(pids) == 3
    answer = await nodes[place].ask("DELETE", f"/v1/runs/{run['id']}")
    assert (answer.status, answer.body["state"]) == (200, "cancelled")
    await gone(pids)
    for node in nodes:
        ended = await node.until_state(run, "cancelled")
        assert ended["reason"] == f"cancelled on {nodes[place].name}"
    again = await a.ask("DELETE", f"/v1/runs/{run['id']}")
    assert (again.status, again.body["state"]) == (200, "cancelled")


@pytest.mark.needs("iperf3", "cubic")
@pytest.mark.nightly
async def test_a_cancelled_measurement_stops_at_both_ends(
    lab: Lab, a: Outsider, b: Outsider
) -> None:
    """A throughput run that is cancelled leaves neither client nor server behind."""
    task = await a.create("throughput", a, b, spec={"duration": "PT5M"})
    run = await a.run(task)
    await measuring(run, a, b)
    pids = below(lab, "a", "b")
    assert len(pids) >= 2
    await a.cancel(task)
    await gone(pids)
    for node in (a, b):
        ended = await node.until_state(run, "cancelled")
        assert ended["reason"] == "the task was cancelled: cancelled on a"


async def test_a_cancelled_task_frees_all(nodes: list[Outsider]) -> None:
    """Cancelling a task ends its running run and frees the time of future runs on all nodes."""
    a, b, c = nodes
    spec = {"duration": "PT30M", "class": "exclusive"}
    schedule = {"start": soon(3), "repeat": "PT1H", "max_runs": 5, "slip": "PT0S"}
    task = await a.create("idle", *nodes, spec=spec, schedule=schedule)
    runs = await a.runs(task)
    assert len(runs) == 5
    await measuring(runs[0], *nodes)
    pids = sleepers(1800)
    assert (await b.cancel(task))["state"] == "refused"  # which is how a participant withdraws
    for node in nodes:
        for run in runs:
            ended = await node.until_state(run, "cancelled")
            assert ended["reason"] == "the task was refused: b withdrew from it"
    await gone(pids)
    other = {"start": runs[1]["starts_at"], "slip": "PT0S"}
    fits = await c.run(await c.create("idle", *nodes, spec=spec, schedule=other))
    assert fits["starts_at"] == runs[1]["starts_at"]
    assert (await c.until_state(fits, "scheduled"))["reason"] is None


async def test_a_participant_that_is_down(
    lab: Lab, a: Outsider, c: Outsider, everywhere: Everywhere
) -> None:
    """A task with a node that is down is accepted, waits with the reason, and runs later."""
    await lab.kill("c")
    task = await a.create("idle", a, c, schedule={"slip": "PT5M"})
    assert [each["accepted"] for each in task["participants"]] == [True, None]
    waiting = await a.run(task)
    assert waiting["state"] == "waiting"
    assert "c" in waiting["reason"].split()[:3], waiting["reason"]
    reason, asked, _ = waiting["reason"].partition("; asked again at ")
    assert asked
    assert f"{reason}{asked}" in (await a.explain("task", task))["sentence"]
    await lab.restart("c")
    run = await a.finished(waiting)
    assert {booked(each) for each in await everywhere(run)} == {booked(run)}


@pytest.mark.nightly
async def test_a_participant_is_killed(lab: Lab, nodes: list[Outsider]) -> None:
    """A node that was killed marks the run it broke and the one it missed after its restart."""
    a, b, c = nodes
    broken = await a.run(await a.create("idle", a, c, spec={"duration": "PT16S"}))
    rigid = {"start": soon(10), "slip": "PT0S"}
    task = await b.create("idle", b, c, spec={"duration": "PT3S"}, schedule=rigid)
    missed = await b.run(task)
    await measuring(broken, a, c)
    pids = sleepers(16)
    assert len(pids) == 2
    (died_with_it,) = set(pids) & below(lab, "c")
    await lab.kill("c")
    await gone([died_with_it])
    assert {*sleepers(16)} == {*pids} - {died_with_it}
    await b.until_state(missed, "merging")  # its own part is done, two seconds after the start
    await lab.restart("c")
    seen = await c.over(broken)
    assert (seen["state"], seen["reason"]) == ("failed", "the node was restarted during the run")
    seen = await c.over(missed)
    assert seen["state"] == "missed"
    assert seen["reason"].startswith("the node was down at its start and came back at 20")
    seen = await b.over(missed)
    assert (seen["state"], seen["reason"][:31]) == ("failed", "c: the node was down at its sta")
    seen = await a.over(broken)
    told = (seen["state"], seen["reason"])
    assert told == ("failed", "c: the node was restarted during the run")
    await gone(pids)


@pytest.mark.nightly
async def test_a_slot_is_measured_once_a_participant_is_back(
    lab: Lab, a: Outsider, c: Outsider
) -> None:
    """A participant that is away over the start has the slot measured later, within its slip."""
    schedule = {"start": soon(10), "slip": "PT2M"}
    task = await a.create("idle", a, c, spec={"duration": "PT2S"}, schedule=schedule)
    first = await a.run(task)
    await a.until_state(first, "scheduled")
    await lab.kill("c")
    await a.until_state(first, "merging")
    await lab.restart("c")
    assert (await a.over(first))["state"] == "failed"

    async with a.changes() as changed:
        while len(attempts := await a.runs(task)) < 2:
            await changed()
    (second,) = [run for run in attempts if run["attempt"] == 2]
    assert second["slot"] == first["slot"]
    for node in (a, c):
        seen = await node.until_state(second, "finished")
        assert instant(seen["starts_at"]) > instant(first["ends_at"])


@pytest.mark.nightly
async def test_the_lead_is_killed(lab: Lab, nodes: list[Outsider]) -> None:
    """Participants continue without their lead, which has their results when it is back."""
    a, b, c = nodes
    led = await a.create("idle", b, c, spec={"duration": "PT12S"})
    shared = await a.create("idle", a, b, spec={"duration": "PT14S"})
    led_run, shared_run = await a.run(led), await a.run(shared)
    await measuring(shared_run, a, b)
    await measuring(led_run, b, c)
    pids = [*sleepers(12), *sleepers(14)]
    assert len(pids) == 4
    (died_with_it,) = set(pids) & below(lab, "a")
    await lab.kill("a")
    await gone([died_with_it])
    assert {*sleepers(12), *sleepers(14)} == {*pids} - {died_with_it}
    for node, run in ((b, led_run), (c, led_run), (b, shared_run)):
        await node.until_state(run, "finished")
    assert sleepers(12) + sleepers(14) == []
    await lab.restart("a")
    seen = await a.until_state(led_run, "finished")
    assert seen["result"]["participants"] == 2
    seen = await a.until_state(shared_run, "failed")
    assert seen["reason"] == "a: the node was restarted during the run"
    (part,) = [part for part in seen["parts"] if part["name"] == "b"]
    assert part["result"] == {"slept_ms": 13500.0}


@contextlib.asynccontextmanager
async def undecided(lead: Outsider) -> AsyncIterator[None]:
    """Prevent a lead from storing decisions, so that its exchanges stay held."""
    connection = await asyncpg.connect(lead.dsn)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE decision IN EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


async def held(node: Outsider, task: Json) -> Json:
    """The run of a task that a node holds."""
    path = f"/v1/runs?task={task['id']}&state=held"
    return (await node.until(path, lambda page: page.get("items")))["items"][0]


@pytest.mark.nightly
async def test_the_lead_is_killed_between_hold_and_commit(
    lab: Lab, a: Outsider, b: Outsider, free_hour: datetime, everywhere: Everywhere
) -> None:
    """A hold expires without its lead, and the run is booked when the lead is back."""
    spec = {"duration": "PT10M", "class": "exclusive"}
    schedule = {"start": free_hour.isoformat(), "slip": "PT30M"}
    async with undecided(a):
        task = await a.create("idle", a, b, spec=spec, schedule=schedule)
        run = await held(b, task)
        await lab.kill("a")
    path = f"/v1/runs?task={task['id']}&state=held,scheduled"
    await b.until(path, lambda page: page["items"] == [])
    rigid = {**schedule, "slip": "PT0S"}
    taken = await b.run(await b.create("idle", b, spec=spec, schedule=rigid))
    assert taken["starts_at"] == run["starts_at"]
    await lab.restart("a")
    path = f"/v1/tasks/{task['id']}/runs?state=scheduled"
    placed = (await a.until(path, lambda page: page["items"]))["items"][0]
    assert instant(placed["starts_at"]) == instant(taken["ends_at"])
    await b.until_state(placed, "scheduled")
    assert {booked(each) for each in await everywhere(placed)} == {booked(placed)}


@pytest.mark.nightly
async def test_a_decision_outlives_everybody(
    lab: Lab, a: Outsider, b: Outsider, free_hour: datetime, everywhere: Everywhere
) -> None:
    """A run that was decided is booked on all its participants, even if all of them were killed."""
    schedule = {"start": free_hour.isoformat(), "slip": "PT10M"}
    async with undecided(a):
        task = await a.create("idle", a, b, schedule=schedule)
        run = await held(b, task)
        await lab.kill("b")
    await a.until_state(run, "scheduled")
    await lab.kill("a")
    await asyncio.gather(lab.restart("a"), lab.restart("b"))
    await b.until_state(run, "scheduled")
    assert {booked(each) for each in await everywhere(run)} == {booked(run)}


@pytest.mark.nightly
async def test_a_stop_in_mid_run(lab: Lab, a: Outsider, c: Outsider) -> None:
    """A node that is stopped ends its programs, marks their runs, and reports to their lead."""
    run = await a.run(await a.create("idle", a, c, spec={"duration": "PT20S"}))
    await measuring(run, a, c)
    pids = sleepers(20)
    assert len(pids) == 2
    await lab.restart("c")
    assert len(sleepers(20)) < 2  # that of the other node may end meanwhile on a busy machine
    seen = await c.over(run)
    assert (seen["state"], seen["reason"]) == ("failed", "the node was stopped during the run")
    seen = await a.over(run)
    assert (seen["state"], seen["reason"]) == ("failed", "c: the node was stopped during the run")
    await gone(pids)
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)


@contextlib.contextmanager
def standing_still(lab: Lab, name: str) -> Iterator[None]:
    """Stop a node's process, as when a virtual machine is moved, and let it go on afterwards."""
    os.kill(lab.pid(name), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(lab.pid(name), signal.SIGCONT)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.nightly
async def test_a_node_stands_still_at_a_start(
    lab: Lab, a: Outsider, c: Outsider, place: int
) -> None:
    """A node that stood still when it had prepared a run misses it, and the run and task end."""
    still, other = (a, c) if place == 0 else (c, a)

    async def standing_still_at_a_start() -> tuple[Json, Json, Json]:
        task = await a.create("idle", a, c, spec={"duration": "PT4S"})
        run = await a.run(task)
        await still.until_state(run, "running")
        with standing_still(lab, still.name):
            # Its own part is over, 3.5 s after the start.
            await other.until_state(run, "merging", "finished")
        return task, run, await still.over(run)

    task, run, missed = await standing_still_at_a_start()
    for _ in range(4):  # a busy host may report the preparation only after the start
        if missed["started_at"] is None:
            break
        task, run, missed = await standing_still_at_a_start()
    assert missed["state"] == "missed"
    assert missed["reason"].startswith("could not be started in time: ")
    seen = await other.over(run)
    told = (seen["state"], seen["reason"])
    assert told == ("finished", None) if place == 0 else ("failed", f"c: {missed['reason']}")
    for node in (a, c):
        await node.until(f"/v1/tasks/{task['id']}", lambda found: found["state"] == "finished")
