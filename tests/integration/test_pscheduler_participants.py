"""A lead plans tasks in which a host that runs pScheduler takes part, which does what it likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import dns.message
import dns.rcode
import dns.rrset
import pytest
import pytest_asyncio

from lead.assembly.with_node import task_preview
from node.model import times
from node.model.errors import NotFound, RefusedByParticipant
from node.model.wire.nodes import NodeAddition
from node.model.wire.plans import PlanRequest
from node.model.wire.tasks import TaskDocument, TaskPatch
from node.pscheduler.leading.hosts import PschedulerNodes
from node.trust.sealing import MEMBERSHIP
from tests.integration.plugins.targets import answering
from tests.support.clocks import START
from tests.support.previews import WorldImpactSource
from tests.support.pscheduler.participant import Fault, StandIn, free_ports
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
DURATION = 10 * times.SECOND


@dataclass
class Mixed:
    """A node of Parley, which leads, another one, and a host that runs pScheduler."""

    world: World
    a: Site
    b: Site
    host: StandIn

    @property
    def foreign(self) -> PschedulerNodes:
        """Return the way of the lead to hosts that run pScheduler."""
        foreign = self.a.node.foreign
        assert isinstance(foreign, PschedulerNodes)
        return foreign

    async def create(self, test: str = "idle", **document: Any) -> UUID:
        """Create a task of both nodes and the host, or of one node and the host."""
        spec: dict[str, Any] = {"duration": "PT10S"}
        named = ["a", "b", "ps.example"] if test == "idle" else ["a", "ps.example"]
        whole = {
            "test": {"type": test, "spec": document.pop("spec", spec)},
            "participants": document.pop("participants", named),
            "schedule": {"start": times.format_instant(HOUR), "slip": "PT1M"},
            **document,
        }
        task, _ = await self.a.node.admission.create(TaskDocument.model_validate(whole), None)
        return task

    async def plan(self) -> None:
        """Let the lead plan and deliver what is due."""
        await self.a.plan()
        await self.a.deliver()

    async def runs(self) -> dict[UUID, str]:
        """Return the runs at the lead by state; both nodes of Parley agree on those to come."""
        states = await self.a.states()
        booked = {run for run, state in states.items() if state == "scheduled"}
        there = {run for run, state in (await self.b.states()).items() if state == "scheduled"}
        assert there <= booked
        return states

    async def compare(self) -> list[str]:
        """Compare with the host when that is possible, and repair; return what differed."""
        self.world.clock.advance(5 * times.MINUTE)
        known = self.a.node.directory.find("ps.example")
        assert known is not None
        compared = await self.a.node.comparer.compare(known.identity)
        await self.world.pass_time(12 * times.SECOND)
        return [each.difference for each in compared.led_here.differences]

    async def left_here(self) -> int:
        """Return how many tasks and bookings of the host are still written here."""
        rows = await self.a.rows(
            "SELECT (SELECT count(*) FROM pscheduler_booking)"
            " + (SELECT count(*) FROM pscheduler_membership)"
        )
        return int(rows[0][0])

    async def watch(self, until: int | None = None) -> None:
        """Let the watch over bookings do what is due, at an instant."""
        if until is not None:
            self.world.clock.advance(until - self.world.clock.now())
        await self.foreign.bookings.run_once()
        await self.plan()


@pytest_asyncio.fixture(loop_scope="session")
async def mixed(world: World, tmp_path: Path) -> AsyncIterator[Mixed]:
    """Return two nodes and a host that is known to the first one."""
    a, b = await world.two()
    async with StandIn("PS.example", tmp_path, free_ports(), world.clock) as host:
        added = await a.node.registration.add(NodeAddition(url=host.url))
        assert (added.name, added.kind) == ("ps.example", "pscheduler")
        yield Mixed(world, a, b, host)


async def test_a_run_is_booked_on_all_and_its_parts_are_fetched(mixed: Mixed) -> None:
    """The host gets the task, a booking, the data of all, and is asked for its part at the end."""
    await mixed.create()
    await mixed.plan()
    assert list((await mixed.runs()).values()) == ["scheduled"]
    [run], [task] = mixed.host.runs, mixed.host.open_tasks
    assert (run.starts_at, run.data_full) == (HOUR, [{}, {}, {}])
    assert (task.participant, task.document["tool"]) == (2, "sleep")
    assert task.document["test"]["spec"]["duration"] == "PT10S"
    [kept] = await mixed.a.rows("SELECT key FROM pscheduler_membership")
    key = task.document["_key"]
    assert (kept["key"][:8], mixed.a.node.core.sealing.read(kept["key"], MEMBERSHIP)) == (
        "parley1:",
        key,
    )
    # As a program before stored it; it is used as it is, and sealed at the next start.
    await mixed.a.rows("UPDATE pscheduler_membership SET key = $1", key)
    [decision] = await mixed.a.rows("SELECT sentence, trace FROM decision")
    assert decision["sentence"].endswith("; ps.example books without holds")
    assert decision["trace"]["binding"] == ["ps.example"]
    await mixed.watch(HOUR - 4 * times.SECOND)
    mixed.world.clock.advance(4 * times.SECOND + DURATION)
    assert run.work is not None
    await run.work
    await mixed.watch(HOUR + DURATION + times.SECOND)
    [part] = await mixed.a.rows("SELECT name, result FROM part")
    assert (part["name"], part["result"]) == ("ps.example", {"slept_ms": 10_000})
    await mixed.a.node.unsealed.seal()
    assert await mixed.a.rows("SELECT key FROM pscheduler_membership") == [kept]


@pytest.mark.nightly
async def test_a_plan_is_what_is_booked_with_the_host(mixed: Mixed) -> None:
    """Runs with a host of pScheduler are booked as planned: at whole seconds, and not too soon."""
    world = mixed.world
    sources = {it.identity: WorldImpactSource(world, mixed.a, it) for it in world.sites}
    lead = mixed.a.node
    previewer = task_preview(
        lead,
        lambda identity: sources.get(identity) or lead.participant(identity),
        lambda document: lead.drafter.draft(document).task,
    )
    for start in (HOUR + times.SECOND // 2, world.clock.now() + times.SECOND):
        schedule = {
            "start": times.format_instant(start),
            "slip": "PT40S",
            "repeat": "PT1H",
            "max_runs": 60,
        }
        document: dict[str, Any] = {
            "test": {"type": "idle", "spec": {"duration": "PT10S"}},
            "participants": ["a", "b", "ps.example"],
            "schedule": schedule,
        }
        plan = await previewer.plan(PlanRequest.model_validate({**document, "runs": 512}))
        task, _ = await lead.admission.create(TaskDocument.model_validate(document), None)
        while await mixed.a.rows("SELECT 1 FROM planning WHERE plan_at <= $1", lead.clock.now()):
            await mixed.plan()
        booked = await mixed.a.rows(
            "SELECT starts_at FROM run_known WHERE task_id = $1 AND state = 'scheduled' ORDER BY 1",
            task,
        )
        assert [row[0] for row in booked] == [each.starts_at for each in plan.starts]
        assert plan.placed == plan.asked > 20


async def test_what_the_host_does_not_take_is_taken_back_everywhere(mixed: Mixed) -> None:
    """A host that answers 409 keeps nothing, and no node of Parley does."""
    mixed.host.faults.add(Fault.TAKES_NOTHING)
    await mixed.create()
    await mixed.plan()
    [(run, state)] = (await mixed.runs()).items()
    assert state == "waiting"
    assert await mixed.a.reason(run) == "ps.example: Run would create a scheduling conflict"
    assert await mixed.b.states() == {}
    assert mixed.host.booked == []


async def test_a_booking_whose_answer_is_lost_is_deleted_when_the_host_is_back(
    mixed: Mixed,
) -> None:
    """A host that dies between booking and answer keeps a booking, until it answers again."""
    mixed.host.faults.add(Fault.DIES_AFTER_BOOKING)
    await mixed.create()
    await mixed.plan()
    [(run, state)] = (await mixed.runs()).items()
    reason = await mixed.a.reason(run)
    assert state == "waiting"
    assert reason is not None
    assert reason.startswith("ps.example cannot be reached since ")
    assert await mixed.b.states() == {}
    assert len(mixed.host.booked) == 1
    await mixed.host.start()
    await mixed.watch(mixed.world.clock.now() + 30 * times.SECOND)
    assert list((await mixed.runs()).values()) == ["scheduled"]
    assert len(mixed.host.booked) == 1


async def test_a_run_that_is_gone_before_its_start_is_displaced(mixed: Mixed) -> None:
    """Five seconds before its start it is looked whether the host still has the run."""
    await mixed.create()
    await mixed.plan()
    mixed.host.preempt(mixed.host.runs[0])
    [run] = await mixed.runs()
    await mixed.watch(HOUR - 5 * times.SECOND)
    assert (await mixed.a.states())[run] == "displaced"
    told = await mixed.a.reason(run)
    assert told == "ps.example says that the run is preempted, and had not told so"
    await mixed.world.pass_time(4 * times.SECOND)
    again = await mixed.runs()
    assert again.pop(run) == "displaced"
    assert list(again.values()) == ["scheduled"]
    assert (await mixed.b.states())[run] == "cancelled"
    assert len(mixed.host.booked) == 1


async def test_a_run_that_is_forgotten_before_the_decision_is_lost_with_a_reason(
    mixed: Mixed,
) -> None:
    """A host that drops a run before it hears the data is asked once more; then it is lost."""
    mixed.host.faults.add(Fault.FORGETS_DATA)
    await mixed.create()
    await mixed.plan()
    states = await mixed.runs()
    assert "scheduled" not in states.values()
    reasons = [await mixed.a.reason(run) for run in states]
    assert any("had dropped the hold before the commit came" in str(why) for why in reasons)
    await mixed.a.deliver()
    assert mixed.host.booked == []


async def test_lies_about_free_time_book_nothing_twice(mixed: Mixed) -> None:
    """A host that offers time which is taken refuses the booking, and the run waits with that."""
    mixed.host.occupy(HOUR - times.MINUTE, HOUR + 2 * times.MINUTE)
    mixed.host.faults.add(Fault.LIES)
    await mixed.create("throughput")
    await mixed.plan()
    [(run, state)] = (await mixed.runs()).items()
    assert state == "waiting"
    assert await mixed.a.reason(run) == "ps.example: Run would create a scheduling conflict"
    mixed.host.faults.clear()
    await mixed.world.pass_time(10 * times.SECOND)
    assert await mixed.a.reason(run) == "ps.example: no 16.25 s free in this window"
    assert len(mixed.host.booked) == 1


async def test_a_run_finds_time_between_those_of_others(mixed: Mixed) -> None:
    """A start is chosen in whole seconds where the longer booking there has time."""
    mixed.host.occupy(HOUR, HOUR + 20 * times.SECOND)
    mixed.host.occupy(HOUR + 45 * times.SECOND, HOUR + 2 * times.MINUTE)
    schedule = {"start": times.format_instant(HOUR + 500_000), "slip": "PT1M"}
    await mixed.create("throughput", schedule=schedule)
    await mixed.plan()
    assert list((await mixed.runs()).values()) == ["scheduled"]
    [here] = await mixed.a.rows("SELECT starts_at FROM run")
    [there] = [run for run in mixed.host.runs if run.data_full is not None]
    assert here["starts_at"] == there.starts_at == HOUR + 20 * times.SECOND


async def test_a_slow_host_books_nothing_that_others_do_not_hold(mixed: Mixed) -> None:
    """If the holds of others expire while a host books, all book again, or nobody keeps it."""
    mixed.host.faults.add(Fault.IS_SLOW)
    await mixed.create()
    planning = asyncio.create_task(mixed.a.plan())
    await mixed.host.waiting.wait()
    mixed.world.clock.advance(times.MINUTE)
    for site in (mixed.a, mixed.b):
        await site.tend()
    mixed.host.faults.clear()
    mixed.host.go_on.set()
    await planning
    await mixed.world.pass_time(20 * times.SECOND)
    await mixed.watch()
    states = await mixed.runs()
    assert list(states.values()).count("scheduled") == len(mixed.host.booked) == 1
    [run] = [run for run, state in states.items() if state == "scheduled"]
    assert await mixed.b.state(run) == "scheduled"


async def test_a_worker_that_dies_while_the_host_books_leaves_nothing(mixed: Mixed) -> None:
    """A booking that a lost worker had requested is deleted there, though nobody got the answer."""
    mixed.host.faults.add(Fault.IS_SLOW)
    await mixed.create()
    planning = asyncio.create_task(mixed.a.plan())
    await mixed.host.waiting.wait()
    for worker in list(mixed.a.workers._busy):
        worker.cancel()
    await asyncio.gather(planning, return_exceptions=True)
    mixed.host.faults.clear()
    mixed.host.go_on.set()
    await mixed.host.next_call()
    [orphan] = mixed.host.booked
    mixed.world.clock.advance(2 * times.MINUTE)
    await mixed.world.pass_time(20 * times.SECOND)
    await mixed.watch()
    assert orphan not in mixed.host.booked
    assert list((await mixed.runs()).values()).count("scheduled") == len(mixed.host.booked) == 1


BETWEEN = """
SELECT count(*) FROM run AS one INNER JOIN run AS other ON one.during && other.during
WHERE
    one.id < other.id
    AND one.scheduling_class = 'exclusive' AND other.scheduling_class = 'exclusive'
    AND one.state IN ('booked', 'running') AND other.state IN ('booked', 'running')
"""
BOOKED = "SELECT starts_at FROM run WHERE state = 'booked' ORDER BY starts_at"
LOST = "SELECT state, reason FROM run WHERE state NOT IN ('booked', 'running', 'finished')"


@pytest.mark.nightly
async def test_mixed_tasks_under_every_fault(mixed: Mixed) -> None:
    """Time is booked once, losses have reasons, nothing stays behind, whatever the host does."""
    mixed.host.go_on.set()
    made: list[UUID] = []
    denying = Fault.KNOWS_NO_TASK  # nobody could end the tasks that it keeps
    for number, fault in enumerate(each for each in Fault if each is not denying):
        start = times.format_instant(HOUR + number * 10 * times.MINUTE)
        at: dict[str, Any] = {"schedule": {"start": start, "slip": "PT1M"}}
        made += [await mixed.create(test, **at) for test in ("idle", "throughput", "throughput")]
        made.append(await mixed.create(participants=["ps.example"], **at))
        mixed.host.faults.add(fault)
        for _ in range(2):
            await mixed.watch(mixed.world.clock.now() + 10 * times.SECOND)
        mixed.host.faults.clear()
        await mixed.host.start()
        for _ in range(4):
            await mixed.watch(mixed.world.clock.now() + 30 * times.SECOND)
        await mixed.runs()
        for site in (mixed.a, mixed.b):
            assert tuple((await site.rows(BETWEEN))[0]) == (0,), fault
            assert all(row["reason"] for row in await site.rows(LOST)), fault
        agreed = [run.starts_at for run in mixed.host.booked if run.work is not None]
        assert [row["starts_at"] for row in await mixed.a.rows(BOOKED)] == agreed, fault
    for task in made:
        await mixed.a.node.termination.cancel_task(task)
    await mixed.a.deliver()
    for _ in range(3):
        await mixed.watch(mixed.world.clock.now() + times.MINUTE)
    assert (mixed.host.booked, mixed.host.open_tasks) == ([], [])
    await mixed.foreign.bookings.sweep()
    assert await mixed.left_here() == 0


async def test_a_host_that_knows_no_task_ends_it_with_its_reason(mixed: Mixed) -> None:
    """A task that the host answers 404 for, and does not take again, is refused everywhere."""
    task = await mixed.create()
    mixed.host.faults.add(Fault.KNOWS_NO_TASK)
    for _ in range(3):
        await mixed.plan()
        mixed.world.clock.advance(5 * times.SECOND)
    assert "scheduled" not in (await mixed.runs()).values()
    assert await mixed.b.states() == {}
    [row] = await mixed.a.rows("SELECT state, reason FROM task WHERE id = $1", task)
    assert (row["state"], row["reason"]) == ("refused", "ps.example: No such task")
    assert await mixed.left_here() == 0


async def test_an_edit_is_a_new_task_there_and_the_old_one_is_deleted(mixed: Mixed) -> None:
    """Each revision is a task of its own at the host, and only the newest one stays."""
    task = await mixed.create()
    await mixed.plan()
    [before] = mixed.host.open_tasks
    patch = {"test": {"spec": {"duration": "PT20S"}}}
    await mixed.a.node.editing.edit(task, TaskPatch.model_validate(patch))
    for _ in range(3):
        await mixed.plan()
        mixed.world.clock.advance(2 * times.SECOND)
    [after] = mixed.host.open_tasks
    assert after.id != before.id
    assert after.document["test"]["spec"]["duration"] == "PT20S"
    assert len(mixed.host.booked) == 1
    assert list((await mixed.runs()).values()).count("scheduled") == 1


async def test_nothing_is_left_of_a_cancelled_task(mixed: Mixed) -> None:
    """The end of a task deletes it there, and is repeated until the host answers."""
    task = await mixed.create()
    await mixed.plan()
    await mixed.host.kill()
    await mixed.a.node.termination.cancel_task(task)
    await mixed.a.deliver()
    assert len(mixed.host.booked) == 1
    await mixed.host.start()
    for _ in range(3):
        await mixed.watch(mixed.world.clock.now() + times.MINUTE)
    assert (mixed.host.booked, mixed.host.open_tasks, await mixed.left_here()) == ([], [], 0)


async def test_a_host_that_lost_its_database_gets_everything_anew(mixed: Mixed) -> None:
    """A comparison finds the runs that are gone, and the task is posted again under another id."""
    await mixed.create()
    await mixed.plan()
    [before] = mixed.host.tasks
    mixed.host.tasks.clear()
    await mixed.compare()
    [after] = mixed.host.open_tasks
    assert after.id != before
    assert len(mixed.host.booked) == 1


async def test_a_comparison_finds_what_is_missing_there(mixed: Mixed) -> None:
    """A run that the host does not have any more is placed again after a comparison."""
    await mixed.create()
    await mixed.plan()
    mixed.host.forget(mixed.host.runs[0])
    assert await mixed.compare() == ["ps.example does not have it any more"]
    assert len(mixed.host.booked) == 1
    assert await mixed.compare() == []


async def test_after_a_restore_it_confirms_what_it_still_has(mixed: Mixed) -> None:
    """A lead whose database was restored begins what the host still has, and nothing else."""
    await mixed.create()
    await mixed.plan()
    [run] = await mixed.runs()
    known = mixed.a.node.directory.find("ps.example")
    assert known is not None
    peer = mixed.foreign.peer(known)
    booked = await peer.booked_run(run)
    assert (booked.lead, booked.starts_at) == (mixed.a.identity, HOUR)
    mixed.host.preempt(mixed.host.runs[0])
    with pytest.raises(NotFound, match="has no run"):
        await peer.booked_run(run)


async def test_what_it_measures_alone_is_posted_run_by_run(mixed: Mixed) -> None:
    """Each run is a task of the host; one whose answer was lost is found and deleted."""
    mixed.host.faults.add(Fault.DIES_AFTER_BOOKING)
    task = await mixed.create(participants=["ps.example"])
    await mixed.plan()
    assert list((await mixed.runs()).values()) == ["waiting"]
    [orphan] = mixed.host.open_tasks
    await mixed.host.start()
    for _ in range(4):
        await mixed.watch(mixed.world.clock.now() + 30 * times.SECOND)
    [kept] = mixed.host.open_tasks
    assert kept.id != orphan.id
    assert list((await mixed.runs()).values()) == ["scheduled"]
    await mixed.a.node.termination.cancel_task(task)
    await mixed.a.deliver()
    await mixed.watch()
    assert (mixed.host.booked, mixed.host.open_tasks) == ([], [])
    await mixed.foreign.bookings.sweep()
    assert await mixed.left_here() == 0


def zone(question: bytes) -> bytes:
    """Answer for www.example only."""
    query = dns.message.from_wire(question)
    answer = dns.message.make_response(query)
    if query.question[0].name.to_text() == "www.example.":
        answer.answer = [dns.rrset.from_text("www.example.", 60, "IN", "A", "192.0.2.80")]
    else:
        answer.set_rcode(dns.rcode.NXDOMAIN)
    return answer.to_wire()


async def test_what_it_measures_alone_is_read_as_our_own_result(mixed: Mixed) -> None:
    """A question and a request are asked by the host; their answers, or why not, are results."""
    page = {"url": f"{mixed.host.url}/hostname", "verify": False, "text": "PS.example"}
    specs = [
        ("dns", {"name": "www.example", "server": "127.0.0.1", "expected": "192.0.2.80"}),
        ("dns", {"name": "none.example", "server": "127.0.0.1"}),
        ("http", page),
    ]
    with answering(zone) as mixed.host.dns_port:
        made = [
            await mixed.create(test, spec=spec, participants=["ps.example"]) for test, spec in specs
        ]
        await mixed.plan()
        await mixed.watch(HOUR - 4 * times.SECOND)
        mixed.world.clock.advance(4 * times.SECOND)
        for run in mixed.host.runs:
            assert run.work is not None
            await run.work
        await mixed.watch(HOUR + times.MINUTE)
    there = [task.document for task in mixed.host.open_tasks]
    assert sorted(each["tools"] for each in there) == [["curl", "psurl"], ["dnspy"], ["dnspy"]]
    rows = await mixed.a.rows("SELECT task_id, state, reason, result FROM run")
    answered, unknown, fetched = (
        next(row for row in rows if row["task_id"] == task) for task in made
    )
    assert answered["state"] == fetched["state"] == "finished"
    assert answered["result"]["answers"][0]["value"] == "192.0.2.80"
    assert unknown["state"] == "failed"
    assert "The DNS query name does not exist" in unknown["reason"]
    assert (fetched["result"]["status"], fetched["result"]["matched"]) == (200, True)
    assert fetched["result"]["total_ms"] > 0


async def test_what_it_cannot_be_asked_is_refused(mixed: Mixed) -> None:
    """A spec for which pScheduler has no word is refused with the member, and nothing is posted."""
    for test, spec, reason in (
        ("http", {"url": "https://b.example/"}, "measures http only with verify false"),
        ("dns", {"name": "b", "dnssec": True}, "measures dns only with dnssec false"),
        ("dns", {"name": "b", "answers_min": 0}, "set answers_min to 1 or more"),
        ("mtu", {"dest": "192.0.2.7"}, "pScheduler has no test like mtu with this spec whose"),
    ):
        with pytest.raises(RefusedByParticipant, match=reason):
            await mixed.create(test, spec=spec, participants=["ps.example"])
    assert mixed.host.tasks == {}


async def test_what_its_limits_forbid_is_refused_at_once(mixed: Mixed) -> None:
    """A task that it would measure alone is refused for good, like one that it takes part in."""
    mixed.host.faults.add(Fault.FORBIDS)
    with pytest.raises(RefusedByParticipant, match=r"its limits forbid the task: .* limit 'few'"):
        await mixed.create(participants=["ps.example"])
    assert (mixed.host.tasks, await mixed.left_here()) == ({}, 0)
    mixed.host.faults.clear()
    await mixed.create(participants=["ps.example"])
    await mixed.plan()
    assert list((await mixed.runs()).values()) == ["scheduled"]


async def test_a_run_that_finds_no_time_alone_is_displaced_with_its_reason(mixed: Mixed) -> None:
    """A host that makes a run of its own a non-starter is found out before the start."""
    mixed.host.faults.add(Fault.TAKES_NOTHING)
    schedule = {"start": times.format_instant(HOUR), "slip": "PT0S"}
    await mixed.create(participants=["ps.example"], schedule=schedule)
    await mixed.plan()
    [run] = await mixed.runs()
    await mixed.watch(HOUR - 5 * times.SECOND)
    told = await mixed.a.reason(run)
    assert told is not None
    assert told.startswith("ps.example says that the run is nonstart (Too busy), and had not told")


async def test_it_takes_part_only_behind_a_node_of_parley(mixed: Mixed) -> None:
    """A task whose first participant is the host is refused with the reason, and not posted."""
    with pytest.raises(RefusedByParticipant, match="takes part only behind a node of Parley"):
        await mixed.create(participants=["ps.example", "a"])
    assert mixed.host.tasks == {}
