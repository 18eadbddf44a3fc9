"""Counted resources of the fleet over HTTP: two leads, four nodes, and one of them keeps a link."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from lead.assembly.lead import Lead
from lead.assembly.with_node import lead_of
from node.model import times
from node.model.host_limits.document import EVERYTHING
from node.store import nodes
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.limits import RANKED_ALIKE, limit
from tests.support.served_nodes import Asker, Served, asker, know, served

HOUR = START // times.HOUR * times.HOUR + 2 * times.HOUR
LINK = '\n[[resource]]\nname = "link-x"\nnumber = {number}\n'


@dataclass
class Fleet:
    """Leads a and b, node c, and node k, which keeps the resource link-x; all know each other."""

    a: Asker
    b: Asker
    c: Served
    k: Served
    leads: dict[str, Lead]
    clock: ManualClock

    @property
    def nodes(self) -> list[Served]:
        """All nodes."""
        return [self.a.node, self.b.node, self.c, self.k]

    async def keep(self, number: int = 1) -> None:
        """Have k keep so many of link-x."""
        await limit(self.k, RANKED_ALIKE + LINK.format(number=number))

    async def post(self, lead: Asker, document: dict[str, Any]) -> str:
        """Post a task at a lead, have it planned, and return its id."""
        status, task = await lead.ask("POST", "/v1/tasks", document)
        assert status == 201, task
        await self.plan()
        return str(task["id"])

    async def plan(self) -> None:
        """Plan what is due at both leads at the same time, until nothing is; deliver all."""
        for _ in range(20):
            await asyncio.gather(*(lead.workers.run_once() for lead in self.leads.values()))
            busy = [task for lead in self.leads.values() for task in lead.workers._busy]
            await asyncio.gather(*busy)
            for lead in self.leads.values():
                await lead.outbox.run_once()
            for node in self.nodes:
                await node.outbox.run_once()
            due = [
                (await asked.rows("SELECT count(*) FROM planning WHERE plan_at <= $1", now))[0][0]
                for now in [self.clock.now()]
                for asked in (self.a, self.b)
            ]
            if not any(due):
                return
        pytest.fail("the leads go on planning")

    async def later(self, duration: int) -> None:
        """Let time pass, with the housekeeping of all nodes, and plan what is due."""
        self.clock.advance(duration)
        for node in self.nodes:
            await node.holds.run_once()
            await node._end_overdue()
            await node.freed_time.run_once()
        await self.plan()

    async def taken(self) -> list[tuple[int, int]]:
        """Return start and end of what is taken of the link at its keeper, in order."""
        rows = await self.at(
            self.k, "SELECT starts_at, ends_at FROM resource_taken ORDER BY starts_at, ends_at"
        )
        return [(row[0], row[1]) for row in rows]

    @staticmethod
    async def at(node: Served, query: str, *values: Any) -> list[Any]:
        """Return rows of the tables of a node."""
        async with node.database.connection() as connection:
            return list(await connection.fetch(query, *values))


@pytest.fixture
async def fleet(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Fleet]:
    """Return four nodes that know each other; k keeps one of link-x."""
    async with contextlib.AsyncExitStack() as stack:
        a, b = [
            await stack.enter_async_context(
                asker(name, await new_database(), clock, tmp_path / name, workers=1)
            )
            for name in "ab"
        ]
        c, k = [
            await stack.enter_async_context(
                served(name, await new_database(), clock, tmp_path / name)
            )
            for name in "ck"
        ]
        every = [a.node, b.node, c, k]
        for node in every:
            await node.own_card.look_again()
        for node in every:
            await know(node, *(other for other in every if other is not node))
        leads = {
            it.node.card.name: lead_of(it.node, owner="worker", rng=random.Random(1))
            for it in (a, b)
        }
        made = Fleet(a, b, c, k, leads, clock)
        await made.keep()
        yield made


def idle(
    *names: str, takes: str | None = "link-x@k", priority: int = 0, **schedule: Any
) -> dict[str, Any]:
    """Return a task of a minute on these nodes, which takes the link."""
    spec = {"duration": "PT1M", "class": "exclusive", "participants": list(names)}
    return {
        "test": {"type": "idle", "spec": spec},
        "schedule": {"start": times.format_instant(HOUR), "slip": "PT0S", **schedule},
        "takes": [] if takes is None else [takes],
        "priority": priority,
    }


def overlaps(spans: list[tuple[int, int]]) -> int:
    """Return the most of these spans that there are at one instant."""
    return max((sum(start <= at < end for start, end in spans) for at, _ in spans), default=0)


async def starts(lead: Asker, task: str) -> list[int]:
    """Return the starts of the booked runs of a task, in minutes after the hour of these tests."""
    query = "SELECT starts_at FROM run WHERE task_id = $1 AND state = 'booked' ORDER BY 1"
    return [(row[0] - HOUR) // times.MINUTE for row in await lead.rows(query, UUID(task))]


@pytest.mark.nightly
async def test_two_leads_never_take_one_link_at_once(fleet: Fleet) -> None:
    """Runs on different nodes, by different leads, follow each other on a link of number one."""
    posted = [
        (lead, await lead.ask("POST", "/v1/tasks", document))
        for _ in range(3)
        for lead, document in (
            (fleet.a, idle("a", slip="PT30M", repeat="PT10M", max_runs=3)),
            (fleet.b, idle("b", "c", slip="PT30M", repeat="PT10M", max_runs=3)),
        )
    ]
    assert all(status == 201 for _, (status, _) in posted), posted
    await fleet.plan()
    for _ in range(6):  # who was too late by an instant tries again after a pause
        await fleet.later(times.MINUTE)
    booked = [len(await starts(lead, task["id"])) for lead, (_, task) in posted]
    assert booked == [3] * 6
    taken = await fleet.taken()
    assert (len(taken), overlaps(taken)) == (18, 1)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.nightly
async def test_so_many_runs_at_once_as_there_are(fleet: Fleet, number: int) -> None:
    """A resource has a number, and so many runs take it at one time."""
    await fleet.keep(number)
    for lead, names in ((fleet.a, "a"), (fleet.b, "b"), (fleet.b, "c"), (fleet.a, "k")):
        await fleet.post(lead, idle(*names, slip="PT30M"))
    taken = await fleet.taken()
    assert (len(taken), overlaps(taken)) == (4, number)


@pytest.mark.nightly
async def test_a_run_takes_as_much_as_its_task_says(fleet: Fleet) -> None:
    """A run that takes two of three leaves one; a task that takes more than there is is refused."""
    await fleet.keep(3)
    first = await fleet.post(fleet.a, idle("a", takes="link-x@k:2", slip="PT30M"))
    second = await fleet.post(fleet.b, idle("b", takes="link-x@k:2", slip="PT30M"))
    third = await fleet.post(fleet.b, idle("c", slip="PT30M"))
    assert [await starts(fleet.a, first), await starts(fleet.b, second)] == [[0], [1]]
    assert await starts(fleet.b, third) == [0]
    status, problem = await fleet.a.ask("POST", "/v1/tasks", idle("a", takes="link-x@k:4"))
    assert status == 422, problem
    assert problem["detail"] == (
        "k: a run takes 4 of resource 'link-x', and there is no more than 3"
    )


@pytest.mark.nightly
async def test_the_plan_is_what_is_booked(fleet: Fleet) -> None:
    """A plan sees what is taken of a link, names it in its reason, and is booked like that."""
    await fleet.post(fleet.b, idle("b", "c", repeat="PT4M", max_runs=3))
    document = idle("a", repeat="PT2M", max_runs=6)
    status, plan = await fleet.a.ask("POST", "/v1/plans", {**document, "runs": 512})
    assert status == 200, plan
    assert (plan["outcome"], plan["asked"], plan["placed"]) == ("partly", 6, 3)
    end = times.format_instant(HOUR + times.MINUTE)
    why = f"resource 'link-x': 1 of 1 taken by a run that another node leads until {end}"
    assert plan["unplaced"][0]["reason"] == f"k: no 1 min free: {why}"
    assert {each["name"]: each["windows_free"] for each in plan["participants"]} == {"a": 6, "k": 3}
    task = await fleet.post(fleet.a, document)
    assert await starts(fleet.a, task) == [2, 6, 10]
    waiting = await fleet.a.rows(
        "SELECT reason FROM run WHERE task_id = $1 AND state = 'waiting' ORDER BY slot", UUID(task)
    )
    assert [row[0] for row in waiting] == [each["reason"] for each in plan["unplaced"]]
    status, explained = await fleet.a.ask("GET", f"/v1/tasks/{task}/explain")
    assert (status, why in str(explained)) == (200, True)


@pytest.mark.nightly
async def test_a_plan_of_several_tasks_counts_what_each_takes(fleet: Fleet) -> None:
    """Two new tasks on different nodes of one list do not get the same minute of a link."""
    documents = [idle("a", slip="PT10M"), idle("c", slip="PT10M"), idle("b")]
    status, plans = await fleet.a.ask("POST", "/v1/plans", documents)
    assert status == 200, plans
    planned = [
        [(times.parse_instant(it["starts_at"]) - HOUR) // times.MINUTE for it in each["starts"]]
        for each in (item["plan"] for item in plans["items"])
    ]
    assert planned == [[0], [1], []]
    assert "resource 'link-x': 1 of 1 taken" in plans["items"][2]["plan"]["sentence"]
    tasks = [await fleet.post(fleet.a, document) for document in documents]
    assert [await starts(fleet.a, task) for task in tasks] == planned


@pytest.mark.nightly
async def test_a_keeper_that_measures_is_asked_once(fleet: Fleet) -> None:
    """A keeper that takes part itself holds each run once, for both; so does a lead that keeps."""
    await limit(fleet.a.node, EVERYTHING + LINK.format(number=1))
    at_k = await fleet.post(fleet.a, idle("a", "k", slip="PT30M"))
    other = await fleet.post(fleet.b, idle("b", slip="PT30M"))
    assert [await starts(fleet.a, at_k), await starts(fleet.b, other)] == [[0], [1]]
    runs = await fleet.at(fleet.k, "SELECT takes, participant, lane IS NULL FROM run ORDER BY 2")
    assert [tuple(row) for row in runs] == [(True, 1, False), (True, None, True)]
    own = await fleet.post(fleet.a, idle("c", takes="link-x@a", start=times.format_instant(HOUR)))
    foreign = await fleet.post(fleet.b, idle("b", takes="link-x@a", slip="PT30M"))
    assert await starts(fleet.a, own) == [0]
    assert await starts(fleet.b, foreign) == [2]
    [[state, scheduling_class]] = await fleet.a.rows(
        "SELECT exchange.state::text, run.scheduling_class::text FROM run "
        "INNER JOIN exchange ON run.exchange_id = exchange.id WHERE run.task_id = $1",
        UUID(own),
    )
    assert (state, scheduling_class) == ("committed", "exclusive")


@pytest.mark.nightly
async def test_a_higher_priority_takes_the_link(fleet: Fleet) -> None:
    """A run displaces what takes the link with a lower priority; that is placed again elsewhere."""
    low = await fleet.post(fleet.b, idle("b", slip="PT30M"))
    document = idle("a", priority=5)
    status, plan = await fleet.a.ask("POST", "/v1/plans", {**document, "runs": 512})
    assert (status, plan["placed"], plan["starts"][0]["displacing"]) == (200, 1, True)
    high = await fleet.post(fleet.a, document)
    assert [await starts(fleet.a, high), await starts(fleet.b, low)] == [[0], [1]]
    taken = await fleet.taken()
    assert (len(taken), overlaps(taken)) == (2, 1)
    reasons = await fleet.b.rows("SELECT reason FROM run WHERE state = 'displaced'")
    assert reasons[0][0].startswith("displaced by a run of higher priority")


@pytest.mark.nightly
async def test_a_release_gives_the_link_back(fleet: Fleet) -> None:
    """A run that gave way comes back if the one in its place is not held by all."""
    low = await fleet.post(fleet.b, idle("b"))
    await fleet.post(fleet.b, idle("c", takes=None, priority=9))
    high = await fleet.post(fleet.a, idle("a", "c", priority=5))
    assert [await starts(fleet.a, high), await starts(fleet.b, low)] == [[], [0]]
    taken = await fleet.taken()
    assert taken == [(HOUR, HOUR + times.MINUTE)]


@pytest.mark.nightly
async def test_what_is_cancelled_is_given_back_at_once(fleet: Fleet) -> None:
    """The end of a task frees the link, and who was refused is planned without waiting."""
    first = await fleet.post(fleet.b, idle("b"))
    second = await fleet.post(fleet.a, idle("a"))
    assert await starts(fleet.a, second) == []
    status, _ = await fleet.b.ask("DELETE", f"/v1/tasks/{first}")
    assert status in {200, 204}
    await fleet.plan()
    assert await fleet.taken() == []
    fleet.k.freed_time._freed.append((HOUR, HOUR + times.MINUTE))
    await fleet.k.freed_time.run_once()
    await fleet.plan()
    assert await starts(fleet.a, second) == [0]


@pytest.mark.nightly
async def test_time_that_is_over_ends_what_was_kept(fleet: Fleet) -> None:
    """A keeper that does not measure finishes what it kept once its time is over."""
    await fleet.post(fleet.a, idle("a"))
    await fleet.later(2 * times.HOUR + 2 * times.MINUTE)
    runs = await fleet.at(fleet.k, "SELECT state::text, participant FROM run")
    assert [tuple(row) for row in runs] == [("finished", None)]
    assert await fleet.at(fleet.k, "SELECT FROM resource_use") == []


@pytest.mark.nightly
async def test_the_limits_tell_what_is_taken(fleet: Fleet) -> None:
    """The limits of a keeper have what is taken now of each resource, and the most to come."""
    await limit(fleet.a.node, RANKED_ALIKE + LINK.format(number=3))
    for takes in ("link-x@a:2", "link-x@a"):
        await fleet.post(fleet.b, idle("b" if takes[-1] == "a" else "c", takes=takes))
    status, limits = await fleet.a.ask("GET", "/v1/limits")
    told = {"name": "link-x", "number": 3, "taken": 0, "peak": 3, "runs": 2}
    assert (status, limits["resources"]) == (200, [told])


@pytest.mark.nightly
async def test_who_was_refused_hears_of_what_is_given_back(fleet: Fleet) -> None:
    """The database tells of the span in which there is more of a resource again."""
    task = await fleet.post(fleet.b, idle("b"))
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with fleet.k.database.connection() as pooled:
        connection: Any = pooled

        def hear(*told: Any) -> None:
            heard.put_nowait(told[-1])

        await connection.add_listener("parley", hear)
        await fleet.b.ask("DELETE", f"/v1/tasks/{task}")
        await fleet.plan()
        told = [await heard.get()]
        while not told[-1].startswith("freed"):
            told.append(await heard.get())
        await connection.remove_listener("parley", hear)
    assert told[-1] == f"freed {HOUR} {HOUR + times.MINUTE}"


async def test_no_keeper_no_run(fleet: Fleet) -> None:
    """A task whose keeper is unknown, or does not keep that, or cannot, is refused with why."""
    status, problem = await fleet.a.ask("POST", "/v1/tasks", idle("a", takes="link-x@nobody"))
    assert (status, problem["errors"][0]["pointer"]) == (422, "/takes/0")
    assert "nobody is not a node known here" in problem["errors"][0]["detail"]
    status, problem = await fleet.a.ask("POST", "/v1/tasks", idle("a", takes="link-y@k"))
    assert (status, problem["detail"]) == (
        422,
        "k: it keeps no resource 'link-y'; it keeps link-x",
    )
    card = fleet.k.card.model_copy(update={"attributes": {}})
    async with fleet.a.node.database.transaction() as connection:
        await nodes.keep(connection, card, fleet.clock.now())
    await fleet.a.node.directory.refresh()
    status, problem = await fleet.a.ask("POST", "/v1/tasks", idle("a"))
    assert status == 422, problem
    assert problem["detail"].startswith("k: it keeps resources from the next release")


@pytest.mark.nightly
async def test_a_resource_is_given_up_by_its_owner(fleet: Fleet) -> None:
    """Once its owner keeps a resource no more, nothing new is booked, and the reason says so."""
    task = await fleet.post(fleet.a, idle("a", repeat="PT1H", max_runs=40, until=None))
    booked = len(await starts(fleet.a, task))
    await limit(fleet.k, EVERYTHING)
    await fleet.later(3 * times.HOUR + times.MINUTE)
    waiting = await fleet.a.rows("SELECT DISTINCT reason FROM run WHERE state = 'waiting'")
    assert [row[0] for row in waiting] == ["k: no 1 min free: resource 'link-x': 0 of 0 taken"]
    assert len(await fleet.at(fleet.k, "SELECT FROM run WHERE state = 'booked'")) <= booked


@pytest.mark.nightly
async def test_the_database_refuses_more_than_there_is(fleet: Fleet) -> None:
    """No transaction leaves too much taken, whoever books, and however many at once."""
    await fleet.post(fleet.a, idle("a"))
    [run] = (await fleet.at(fleet.k, "SELECT id FROM run"))[0]
    task = await fleet.post(fleet.b, idle("b", start=times.format_instant(HOUR + times.HOUR)))

    async def move() -> None:
        async with fleet.k.database.transaction() as connection:
            await connection.execute(
                "UPDATE run SET starts_at = $2, ends_at = $3 WHERE task_id = $1",
                UUID(task),
                HOUR,
                HOUR + times.MINUTE,
            )
            await connection.execute(
                "DELETE FROM resource_use WHERE run_id IN (SELECT id FROM run WHERE task_id = $1)",
                UUID(task),
            )
            await connection.execute(
                "INSERT INTO resource_use (run_id, resource, amount, during) "
                "SELECT id, 'link-x', 1, during FROM run WHERE task_id = $1",
                UUID(task),
            )

    with pytest.raises(asyncpg.ExclusionViolationError, match="more is taken of resource link-x"):
        await move()
    assert run
