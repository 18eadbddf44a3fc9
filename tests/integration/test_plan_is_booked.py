"""Plans over HTTP, compared with what is booked when the task is posted next."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from lead.assembly.lead import Lead
from lead.assembly.with_node import lead_of
from node.model import times
from node.model.principals import Role
from node.model.rates import RateLimit
from node.model.wire.tasks import TaskDocument
from node.store import nodes
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.command_line import CommandResult, run_command
from tests.support.limits import RANKED_ALIKE, limit, share
from tests.support.loopback import free_port
from tests.support.served_nodes import (
    Asker,
    Served,
    asker,
    give_token,
    know,
    served,
    user,
)

HOUR = START // times.HOUR * times.HOUR + 2 * times.HOUR
RULE = """
version = 1

[who.all]
others = true

[[rule]]
name = "few"
who = ["all"]
"""


@dataclass
class Trio:
    """Three nodes that know each other: a, which leads, b, which has limits, and c."""

    a: Asker
    b: Served
    c: Served
    lead: Lead
    clock: ManualClock

    async def planned(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the plan of a task."""
        status, plan = await self.a.ask("POST", "/v1/plans", {**document, "runs": 512})
        assert status == 200, plan
        return dict(plan)

    async def posted(self, document: dict[str, Any]) -> str:
        """Post a task, have its lead plan it once, and return its id."""
        status, task = await self.a.ask("POST", "/v1/tasks", document)
        assert status == 201, task
        await self.work()
        return str(task["id"])

    async def work(self) -> None:
        """Plan what is due, and deliver the decisions."""
        await plan_once(self.lead)

    async def runs(self, task: str) -> list[tuple[int, int | None, str | None]]:
        """Return slot, start, and reason of the runs of a task; one that waits has no start."""
        query = (
            "SELECT slot, starts_at, state::text, reason FROM run "
            "WHERE task_id = $1 AND state IN ('booked', 'waiting') ORDER BY 1"
        )
        return [
            (row[0], row[1], None) if row[2] == "booked" else (row[0], None, row[3])
            for row in await self.a.rows(query, UUID(task))
        ]

    async def compare(self, document: dict[str, Any], asker: Asker | None = None) -> dict[str, Any]:
        """Plan a task and post it, as the owner or another user of a; return the plan.

        It is what was booked, and what gave way.
        """
        asker = asker or self.a
        status, plan = await asker.ask("POST", "/v1/plans", {**document, "runs": 512})
        assert status == 200, plan
        status, task = await asker.ask("POST", "/v1/tasks", document)
        if plan["outcome"] == "refused":
            assert status in {403, 429}, task
            assert task["detail"] == plan["sentence"]
            return dict(plan)
        assert status == 201, task
        await self.work()
        await self.require_booked(plan, task["id"])
        return dict(plan)

    async def compare_together(
        self, documents: list[dict[str, Any]], asker: Asker | None = None
    ) -> list[str]:
        """Plan tasks as a list and post them as one; return the outcomes of the plans.

        Each is what was booked, or refused.
        """
        asker = asker or self.a
        asked = [{**document, "runs": 512} for document in documents]
        status, plans = await asker.ask("POST", "/v1/plans", asked)
        assert status == 200, plans
        status, created = await asker.ask("POST", "/v1/tasks", documents)
        assert status == 200, created
        await self.settle()
        outcomes = []
        for planned, creation in zip(plans["items"], created["items"], strict=True):
            plan = planned["plan"]
            outcomes.append(plan["outcome"])
            if plan["outcome"] == "refused":
                assert creation["problem"]["detail"] == plan["sentence"]
            else:
                await self.require_booked(plan, creation["task"])
        return outcomes

    async def require_booked(self, plan: dict[str, Any], task: str) -> None:
        """Check that the runs of a task, and what gave way to them, are those of its plan."""
        assert await self.runs(task) == told(plan)
        [[tool]] = await self.a.rows("SELECT tool FROM task WHERE id = $1", UUID(task))
        assert tool == plan["tool"]
        assert await self.displaced(task) == sorted(
            (it["name"], times.parse_instant(it["starts_at"]), times.parse_instant(it["by"]))
            for it in plan["displaced"]
        )
        assert plan["displaced_count"] == len(plan["displaced"])

    async def displaced(self, task: str) -> list[tuple[str, int, int]]:
        """Return node, start, and start of the run in its place, of what gave way to a task."""
        found: list[tuple[str, int, int]] = []
        for node in (self.a.node, self.b, self.c):
            async with node.database.connection() as connection:
                rows = await connection.fetch(
                    "SELECT lost.starts_at, run.starts_at FROM run AS lost "
                    "INNER JOIN run ON lost.displaced_by = run.id "
                    "WHERE lost.state = 'displaced' AND lost.participant IS NOT NULL "
                    "AND run.participant IS NOT NULL "
                    "AND run.task_id = $1",
                    UUID(task),
                )
            found += [(node.card.name, row[0], row[1]) for row in rows]
        return sorted(found)

    async def settle(self) -> None:
        """Plan until nothing is due: tasks that were planned at once may meet each other.

        Leads are told meanwhile which of their runs gave way.
        """
        for _ in range(40):
            await self.work()
            for node in (self.a.node, self.b, self.c):
                await node.outbox.run_once()
            [[due]] = await self.a.rows(
                "SELECT count(*) FROM planning WHERE plan_at <= $1", self.clock.now()
            )
            if not due:
                return
        pytest.fail("the lead goes on planning")

    async def parley(self, *arguments: str) -> CommandResult:
        """Run a command, which asks the node that leads."""
        assert self.a.node.card.url is not None
        settings = {"PARLEY_SERVER": self.a.node.card.url, "PARLEY_TOKEN": "secret", "TZ": "UTC"}
        return await run_command(arguments, {**os.environ, **settings})


async def plan_once(lead: Lead) -> None:
    """Plan what is due at a node, and deliver the decisions."""
    await lead.workers.run_once()
    await asyncio.gather(*lead.workers._busy)
    await lead.outbox.run_once()


def told(plan: dict[str, Any]) -> list[tuple[int, int | None, str | None]]:
    """Return slot, start, and reason of each run of a plan."""
    booked = [
        (times.parse_instant(it["slot"]), times.parse_instant(it["starts_at"]), None)
        for it in plan["starts"]
    ]
    waiting = [(times.parse_instant(it["slot"]), None, it["reason"]) for it in plan["unplaced"]]
    return sorted([*booked, *waiting], key=lambda each: each[0])


@pytest.fixture
async def trio(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Trio]:
    """Return three nodes that know each other."""
    async with contextlib.AsyncExitStack() as stack:
        # One worker: tasks that are planned at the same time may meet, and try again later.
        a = await stack.enter_async_context(
            asker("a", await new_database(), clock, tmp_path / "a", workers=1)
        )
        b, c = [
            await stack.enter_async_context(
                served(name, await new_database(), clock, tmp_path / name)
            )
            for name in ("b", "c")
        ]
        for node in (a.node, b, c):
            await node.own_card.look_again()
        for node in (a.node, b, c):
            await know(node, *(other for other in (a.node, b, c) if other is not node))
        lead = lead_of(a.node, owner="worker", rng=random.Random(1))
        yield Trio(a, b, c, lead, clock)


def idle(
    *names: str, duration: str = "PT1M", kind: str = "exclusive", **schedule: Any
) -> dict[str, Any]:
    """Return a task of these participants."""
    spec = {"duration": duration, "class": kind, "participants": list(names)}
    return {"test": {"type": "idle", "spec": spec}, "schedule": schedule}


def at(instant: int, **schedule: Any) -> dict[str, Any]:
    """Return a schedule that begins then."""
    return {"start": times.format_instant(instant), **schedule}


@pytest.mark.nightly
async def test_no_more_runs_are_promised_than_a_quota_leaves(trio: Trio) -> None:
    """A plan counts its own runs, and those that are booked, toward the quota of another host."""
    await limit(trio.b, RULE + 'most.runs = "4/PT1H"')
    document = idle("a", "b", **at(HOUR, repeat="PT5M", max_runs=36))
    plan = await trio.compare(document)
    assert (plan["outcome"], plan["asked"], plan["placed"]) == ("partly", 36, 12)
    reason = plan["unplaced"][0]["reason"]
    assert reason.startswith("b: no 1 min free: limit 'few': 4 runs of 4 runs per hour used, ")
    assert plan["sentence"].startswith("12 of 36 runs would be booked")
    by_name = {each["name"]: each for each in plan["participants"]}
    assert (by_name["a"]["windows_free"], by_name["b"]["windows_free"]) == (36, 12)
    again = await trio.compare(idle("b", "c", **at(HOUR + 1, repeat="PT5M", max_runs=36)))
    assert (again["outcome"], again["placed"]) == ("no-time", 0)
    assert "limit 'few': 4 runs of 4 runs per hour used" in again["sentence"]
    free = await trio.compare(idle("a", "c", **at(HOUR, repeat="PT5M", slip="PT4M", max_runs=36)))
    assert (free["outcome"], free["placed"]) == ("found", 36)


@pytest.mark.nightly
async def test_a_retry_tells_the_reason_of_the_plan(trio: Trio) -> None:
    """A run that waits for a quota has the reason of its plan, however often it was tried."""
    await limit(trio.b, RULE + 'most.runs = "2/PT1H"')
    plan = await trio.compare(idle("a", "b", **at(HOUR, repeat="PT10M", max_runs=9)))
    [[task]] = await trio.a.rows("SELECT id FROM task")
    trio.clock.advance(6 * times.MINUTE)
    await trio.settle()
    [[attempts]] = await trio.a.rows("SELECT count(*) FROM decision WHERE task_id = $1", task)
    assert attempts > 1
    assert await trio.runs(str(task)) == told(plan)


@pytest.mark.nightly
async def test_no_hold_is_asked_for_that_a_quota_refuses(trio: Trio) -> None:
    """The lead asks for the runs only that the quotas of all participants leave."""
    await limit(trio.b, RULE + 'most.runs = "4/PT1H"')
    await trio.posted(idle("a", "b", **at(HOUR, repeat="PT5M", max_runs=36)))
    await trio.posted(idle("b", "c", **at(HOUR, repeat="PT5M", max_runs=3)))
    async with trio.b.database.connection() as connection:
        asked = await connection.fetch("SELECT answer::text FROM exchange")
    answers = [json.loads(row[0]) for row in asked]
    assert [(len(it["held"]), it["refused"]) for it in answers] == [(12, [])]


@pytest.mark.nightly
async def test_a_run_moves_into_the_next_period_if_it_may_slip(trio: Trio) -> None:
    """A run whose window reaches beyond a period that is used up starts when the next begins."""
    await limit(trio.b, RULE + 'most.runs = "2/PT1H"')
    schedule = at(HOUR + 46 * times.MINUTE, repeat="PT6M", slip="PT6M", max_runs=3)
    plan = await trio.compare(idle("a", "b", **schedule))
    starts = [times.parse_instant(it["starts_at"]) - HOUR for it in plan["starts"]]
    assert starts == [m * times.MINUTE for m in (46, 52, 60)]


@pytest.mark.parametrize(
    "most",
    [
        'runs = "3/PT1H"',
        'time = "PT7M/P1D"',
        'runs = "5/PT2H", time = "PT3M/PT1H"',
        "runs_at_once = 1",
        "tasks = 2",
    ],
)
@pytest.mark.nightly
async def test_random_tasks_are_booked_as_planned(trio: Trio, most: str) -> None:
    """The next task is booked as its plan says, whatever was booked before."""
    await limit(trio.b, f"{RULE}most = {{ {most} }}")
    rng = random.Random(most)
    outcomes = set()
    for _ in range(6):
        names = rng.choice([("a", "b"), ("b", "c"), ("b",), ("a", "b", "c")])
        schedule = at(
            HOUR + rng.randrange(180) * times.MINUTE,
            repeat=rng.choice(["PT5M", "PT17M", "PT1H"]),
            slip=rng.choice(["PT0S", "PT4M", "PT40M"]),
            max_runs=rng.choice([1, 6, 40]),
        )
        duration, kind = rng.choice(["PT30S", "PT1M", "PT4M"]), rng.choice(["exclusive", "normal"])
        document = idle(*names, duration=duration, kind=kind, **schedule)
        outcomes.add((await trio.compare(document))["outcome"])
    assert len(outcomes) > 1


@pytest.mark.nightly
async def test_a_node_of_an_earlier_version_does_not_tell_its_quotas(trio: Trio) -> None:
    """A node without the feature is asked as before, and the plan says what it cannot say."""
    await limit(trio.b, RULE + 'most.runs = "1/PT1H"')
    card = trio.b.card.model_copy(update={"attributes": {}})
    async with trio.a.node.database.transaction() as connection:
        await nodes.keep(connection, card, trio.clock.now())
    await trio.a.node.directory.refresh()
    document = idle("a", "b", **at(HOUR, repeat="PT5M", max_runs=3))
    plan = await trio.planned(document)
    assert (plan["outcome"], plan["placed"]) == ("found", 3)
    assert plan["sentence"].endswith("; b does not tell its quotas")
    runs = await trio.runs(await trio.posted(document))
    assert [reason is None for _, _, reason in runs] == [True, False, False]


@pytest.mark.nightly
async def test_the_plan_of_an_edit_gives_its_runs_back_to_the_quota(trio: Trio) -> None:
    """An edit of a task is booked as planned: what it had counts toward no quota meanwhile."""
    await limit(trio.b, RULE + 'most = { runs = "4/PT1H", tasks = 1 }')
    task = await trio.posted(idle("a", "b", **at(HOUR, repeat="PT15M", max_runs=8)))
    moved = idle("a", "b", **at(HOUR + 5 * times.MINUTE, repeat="PT10M", max_runs=8))
    plan = await trio.planned({**moved, "instead_of": task})
    assert (plan["outcome"], plan["placed"]) == ("partly", 6)
    assert (await trio.planned(moved))["outcome"] == "unreachable"
    status, edited = await trio.a.ask("PATCH", f"/v1/tasks/{task}", {"schedule": moved["schedule"]})
    assert status == 200, edited
    await trio.a.node.outbox.run_once()
    await trio.work()
    assert await trio.runs(task) == told(plan)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 10))]
)
@pytest.mark.nightly
async def test_random_priorities_displace_as_planned(trio: Trio, seed: int) -> None:
    """Runs displace those that the plan says, on nodes that rank the tasks of others lower, too."""
    rng = random.Random(seed)
    await limit(trio.b, RULE + 'most.runs = "9/PT2H"')
    await limit(trio.c, RANKED_ALIKE)
    others = [lead_of(each, owner="worker", rng=random.Random(seed)) for each in (trio.b, trio.c)]
    low = {**idle("a", "c", duration="PT4M", **at(HOUR, repeat="PT5M")), "priority": -5}
    await trio.posted(low)
    displaced = 0
    for number in range(9):
        document = idle(
            *rng.choice([("a", "b"), ("c", "b"), ("c",), ("a", "b", "c"), ("a", "c")]),
            duration=rng.choice(["PT1M", "PT4M"]),
            kind=rng.choice(["exclusive", "exclusive", "normal"]),
            **at(
                HOUR + rng.randrange(5) * times.MINUTE,
                repeat=rng.choice(["PT5M", "PT10M"]),
                slip=rng.choice(["PT0S", "PT1M"]),
                max_runs=rng.choice([3, 8]),
            ),
        )
        document["priority"] = rng.randrange(-2, 3)
        if number % 3 == 0:  # of b or c itself
            lead = others[number % 2]
            document["test"]["spec"]["participants"] = [("b", "c")[number % 2]]
            posted = TaskDocument.model_validate(document)
            await (trio.b, trio.c)[number % 2].admission.create(posted, None)
            await plan_once(lead)
            continue
        displaced += (await trio.compare(document))["displaced_count"]
    assert displaced


@pytest.mark.nightly
async def test_a_series_loses_no_more_than_its_budget(trio: Trio) -> None:
    """A series gives way once in twenty runs: plans and bookings of higher priorities know it."""
    await limit(trio.c, RANKED_ALIKE)
    times_of_series: dict[str, Any] = {"repeat": "PT5M", "max_runs": 22}
    low = idle("a", "c", duration="PT4M", **at(HOUR, **times_of_series))
    low["schedule"]["displacement_budget"] = "1/20"
    series = await trio.posted(low)
    displaced, reasons = [], []
    for number in (3, 4, 12, 21, 2):
        high = idle("c", **at(HOUR + number * 5 * times.MINUTE, slip="PT0S"))
        plan = await trio.compare({**high, "priority": 3})
        displaced.append(plan["displaced_count"])
        reasons += [it["reason"] for it in plan["unplaced"]]
        await trio.settle()
    assert displaced == [1, 0, 0, 0, 0]
    assert len(reasons) == 4
    assert all("may lose no further run (displacement_budget)" in it for it in reasons)
    status, edited = await trio.a.ask(
        "PATCH", f"/v1/tasks/{series}", {"schedule": {"displacement_budget": "1/10"}}
    )
    assert (status, edited["schedule"]["displacement_budget"]) == (200, "1/10")
    await trio.settle()
    plan = await trio.compare(
        {**idle("c", **at(HOUR + 21 * 5 * times.MINUTE, slip="PT0S")), "priority": 3}
    )
    assert plan["displaced_count"] == 1


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 5))]
)
@pytest.mark.nightly
async def test_a_list_of_several_priorities_is_booked_as_planned(trio: Trio, seed: int) -> None:
    """Runs of a list give way to later ones, and they and what waits for them are planned again."""
    rng = random.Random(seed)
    if seed % 2:
        await limit(trio.b, RULE + 'most.runs = "6/PT1H"\nrank = "own"')
    documents = []
    for number in range(5):
        often: dict[str, Any] = {"repeat": "PT10M", "max_runs": 4}
        start = at(HOUR + number * times.MINUTE, **often, slip=rng.choice(["PT0S", "PT1M", "PT6M"]))
        names = rng.choice(["ab", "bc", "ac", "abc", "a", "b"])
        document = idle(*names, duration=rng.choice(["PT4M", "PT8M"]), **start)
        documents.append({**document, "priority": rng.randrange(-3, 4)})
    asked = [{**document, "runs": 512} for document in documents]
    _, plans = await trio.a.ask("POST", "/v1/plans", asked)
    _, created = await trio.a.ask("POST", "/v1/tasks", documents)
    await trio.settle()
    for _ in range(4):  # What others gave way to is asked for again when its pause is over.
        trio.clock.advance(3 * times.MINUTE)
        await trio.settle()
    booked = [await trio.runs(each["task"]) for each in created["items"]]
    assert booked == [told(each["plan"]) for each in plans["items"]]
    assert any(each["plan"]["displaced_count"] for each in plans["items"])


@pytest.mark.parametrize(
    "patch",
    [
        {"schedule": {"max_runs": 12}},
        {"priority": 6},
        {"schedule": {"repeat": "PT15M"}},
        pytest.param({"schedule": {"max_runs": 3}}, marks=pytest.mark.nightly),
        pytest.param({"campaign": "other"}, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.nightly
async def test_an_edit_keeps_the_runs_that_its_plan_says(trio: Trio, patch: dict[str, Any]) -> None:
    """Runs that an edit leaves booked stay where they are, though earlier time is free by now."""
    await trio.a.ask("POST", "/v1/campaigns", {"name": "other"})
    blocker = await trio.posted(idle("b", duration="PT8M", **at(HOUR)))
    schedule = at(HOUR, repeat="PT10M", slip="PT9M", max_runs=6)
    document = idle("a", "b", duration="PT1M", **schedule)
    task = await trio.posted(document)
    await trio.a.ask("DELETE", f"/v1/tasks/{blocker}")
    await trio.settle()
    edited = {**document, **patch, "schedule": {**schedule, **patch.get("schedule", {})}}
    plan = await trio.planned({**edited, "instead_of": task})
    status, answer = await trio.a.ask("PATCH", f"/v1/tasks/{task}", patch)
    assert status == 200, answer
    await trio.settle()
    await trio.settle()
    assert await trio.runs(task) == told(plan)
    late = times.parse_instant(plan["starts"][0]["starts_at"]) - HOUR
    assert late == (0 if "repeat" in patch.get("schedule", {}) else 8 * times.MINUTE)


async def test_a_node_that_is_away_is_told_as_such(trio: Trio, tmp_path: Path) -> None:
    """The plan has the sentence and the exit code of the task that is created only if it fits."""
    card = trio.b.card.model_copy(update={"url": f"http://127.0.0.1:{free_port()}"})
    async with trio.a.node.database.transaction() as connection:
        await nodes.keep(connection, card, trio.clock.now())
    await trio.a.node.directory.refresh()
    document = idle("a", "b", **at(HOUR))
    file = tmp_path / "task.json"
    file.write_text(json.dumps(document))
    assert (await trio.compare(document))["outcome"] == "unreachable"
    planned = await trio.parley("plan", "task", "--file", str(file))
    created = await trio.parley("task", "create", "--if-time", "--file", str(file))
    assert (planned.code, created.code) == (5, 5), created.err


@pytest.mark.nightly
async def test_runs_of_a_suspended_campaign_wait_as_planned(trio: Trio) -> None:
    """The plan lists the runs that would wait until the campaign goes on, with the reason."""
    await trio.a.ask("POST", "/v1/campaigns", {"name": "resting", "level": 0})
    document = {**idle("a", "b", **at(HOUR, repeat="PT10M", max_runs=4)), "campaign": "resting"}
    plan = await trio.compare(document)
    assert (plan["outcome"], plan["asked"], len(plan["unplaced"])) == ("no-time", 4, 4)


@pytest.mark.parametrize("most", ['runs = "5/PT1H"', "tasks = 2", 'time = "PT6M/PT1H"'])
@pytest.mark.nightly
async def test_tasks_of_users_are_booked_as_planned(trio: Trio, most: str) -> None:
    """The limits that the lead's host sets its users are in the plan, as in the refusal."""
    text = '[who.students]\ntokens = ["alice"]\n[[rule]]\nname = "course"\nwho = ["students"]\n'
    await limit(trio.a.node, f"version = 1\n{text}most = {{ {most} }}\n")
    await limit(trio.b, RULE + 'most.runs = "7/PT1H"')
    await give_token(trio.a.node, "hers", "alice", Role.OPERATE)
    outcomes = set()
    async with user(trio.a, "hers") as alice:
        for number, names in enumerate([("a", "b"), ("b", "c"), ("a",), ("a", "c")]):
            document = idle(*names, **at(HOUR + number, repeat="PT10M", slip="PT2M", max_runs=9))
            outcomes.add((await trio.compare(document, alice))["outcome"])
    assert len(outcomes) > 1


def in_turn(*groups: str, kind: str = "normal") -> list[dict[str, Any]]:
    """Return a task for each of these groups of nodes, whose runs begin a minute later each."""
    often: dict[str, Any] = {"repeat": "PT20M", "slip": "PT2M", "max_runs": 3}
    return [
        idle(*names, duration="PT4M", kind=kind, **at(HOUR + number * times.MINUTE, **often))
        for number, names in enumerate(groups)
    ]


COURSE = """
version = 1

[who.students]
tokens = ["alice"]

[[rule]]
name = "course"
who = ["students"]
"""


@pytest.mark.parametrize(
    "text",
    [
        RULE + "most.tasks = 2",
        RULE + 'most = { runs_at_once = 2, runs = "5/PT1H" }',
        pytest.param(RULE + "most.runs_at_once = 1", marks=pytest.mark.nightly),
        pytest.param(
            RULE + '[[cap]]\nname = "together"\nwho = ["all"]\ntasks = 2\nruns = "5/PT1H"\n',
            marks=pytest.mark.nightly,
        ),
    ],
)
@pytest.mark.nightly
async def test_tasks_of_a_list_are_booked_as_planned(trio: Trio, text: str) -> None:
    """The tasks of a list leave each other less of the limits of another host."""
    await limit(trio.b, text)
    outcomes = await trio.compare_together(in_turn("ab", "bc", "ab", "ac", "ab", "bc"))
    assert len(set(outcomes)) > 1


@pytest.mark.nightly
async def test_tasks_of_a_list_that_begin_together_are_planned_in_its_order(trio: Trio) -> None:
    """Tasks with the same first start get their time in the order of the list, as planned."""
    documents = [idle("a", "b", duration="PT4M", **at(HOUR, slip="PT1H")) for _ in range(6)]
    assert await trio.compare_together(documents) == ["found"] * 6


@pytest.mark.nightly
async def test_a_booked_run_gives_way_to_one_task_of_a_list(trio: Trio) -> None:
    """A run is told once, with the task of the list that displaced it, though that gives way."""
    low = {**idle("a", "b", duration="PT8M", **at(HOUR + 4 * times.MINUTE)), "priority": -2}
    await trio.posted(low)
    start = at(HOUR + 5 * times.MINUTE, slip="PT0S")
    high = {**idle("a", "b", duration="PT1M", **start), "priority": 1}
    middle = idle("a", "b", duration="PT8M", **at(HOUR, slip="PT0S"))
    assert await trio.compare_together([high, middle]) == ["found", "no-time"]


@pytest.mark.nightly
async def test_a_limit_of_a_campaign_is_free_of_what_gives_way_to_a_list(trio: Trio) -> None:
    """A run that gives way to a task of a list leaves its campaign to a later one of the list."""
    single = {"name": "single", "limits": {"runs": {"hard": 1}}}
    await trio.a.ask("POST", "/v1/campaigns", single)
    start = at(HOUR, slip="PT0S")
    low = {**idle("a", "b", duration="PT8M", **start), "priority": -2, "campaign": "single"}
    await trio.posted(low)
    high = idle("a", "b", duration="PT8M", **start)
    start = at(HOUR + times.MINUTE, slip="PT0S")
    other = {**idle("c", duration="PT1M", **start), "campaign": "single"}
    assert await trio.compare_together([high, other]) == ["found", "found"]


@pytest.mark.nightly
async def test_levels_decide_among_tasks_that_are_planned_at_once(trio: Trio) -> None:
    """A lead with one worker plans by first runs; what comes later waits, whatever its level."""
    await trio.a.ask("POST", "/v1/campaigns", {"name": "high", "level": 9})
    early = idle("a", "b", duration="PT4M", **at(HOUR))
    start = at(HOUR + times.MINUTE, slip="PT0S")
    late = {**idle("a", duration="PT4M", **start), "campaign": "high"}
    assert await trio.compare_together([late, early]) == ["no-time", "found"]


@pytest.mark.nightly
async def test_tasks_of_a_users_list_are_booked_as_planned(trio: Trio) -> None:
    """The tasks of a list leave each other less of what their user may have."""
    most = 'most = { tasks = 3, runs_at_once = 1, runs = "4/PT1H" }'
    await limit(trio.a.node, COURSE + most)
    await give_token(trio.a.node, "hers", "alice", Role.OPERATE)
    async with user(trio.a, "hers") as alice:
        outcomes = await trio.compare_together(in_turn(*["ab"] * 4), alice)
    assert outcomes[-1] == "refused"


@pytest.mark.nightly
async def test_a_user_without_time_is_told_so_before_participants_are(trio: Trio) -> None:
    """A limit is told first if tasks of a list take both a node and what its user may have."""
    await limit(trio.a.node, COURSE + "most.runs_at_once = 1")
    await give_token(trio.a.node, "hers", "alice", Role.OPERATE)
    documents = [
        idle("b", duration="PT8M", **at(HOUR)),
        idle("b", duration="PT1M", **at(HOUR + times.MINUTE)),
    ]
    async with user(trio.a, "hers") as alice:
        assert await trio.compare_together(documents, alice) == ["found", "no-time"]


@pytest.mark.nightly
async def test_the_rates_of_a_list_add_up(trio: Trio) -> None:
    """Tasks of a list get no more of a target together than its cap allows at one time."""
    cap = '[[cap]]\nname = "targets"\nprefix = { v4 = 24, v6 = 48 }\nbps = 1000\nruns = "8/PT1H"'
    await limit(trio.b, f"{RULE}{cap}\n")
    slow = {"source": "b", "count": 5, "interval": "PT1S"}
    documents = [
        {
            "test": {"type": "rtt", "spec": {**slow, "dest": f"198.51.100.{number}"}},
            "schedule": at(HOUR + number * times.SECOND, repeat="PT10M", max_runs=5, slip="PT1M"),
        }
        for number in range(1, 5)
    ]
    assert len(set(await trio.compare_together(documents))) > 1


@pytest.mark.nightly
async def test_new_tasks_that_come_too_fast_are_planned_so(trio: Trio) -> None:
    """A plan counts the tasks that a host takes of its lead in a second, in a list and alone."""
    trio.b.acceptance._new_tasks = RateLimit(times.SECOND, 3)
    outcomes = await trio.compare_together(in_turn(*["ab"] * 5))
    assert outcomes == ["found"] * 3 + ["unreachable"] * 2
    assert (await trio.compare(in_turn("bc")[0]))["outcome"] == "unreachable"


@pytest.mark.parametrize("kind", ["exclusive", pytest.param("normal", marks=pytest.mark.nightly)])
@pytest.mark.nightly
async def test_a_plan_keeps_to_the_share_of_its_lead(trio: Trio, kind: str) -> None:
    """A lead with a third of the time that another one wants plans its part, and books it."""
    await share(trio.b, {"a": 1, "c": 2})
    wanted = idle("b", "c", duration="PT10M", **at(HOUR, repeat="PT20M", max_runs=40))
    await trio.c.admission.create(TaskDocument.model_validate(wanted), None)
    await plan_once(lead_of(trio.c, owner="worker", rng=random.Random(3)))
    reasons = []
    for number in range(2):
        schedule = at(HOUR + number * times.MINUTE, repeat="PT7M", max_runs=60, slip="PT6M")
        plan = await trio.compare(idle("a", "b", duration="PT4M", kind=kind, **schedule))
        reasons += [each["reason"] for each in plan["unplaced"]]
    assert any("above its share of 33.3 %" in each for each in reasons)


@pytest.mark.nightly
async def test_an_urgent_task_displaces_once_it_has_waited(trio: Trio) -> None:
    """A plan says from when on others give way, and promises no start before."""
    outage = {"name": "outage", "level": "urgent"}
    status, _ = await trio.a.ask("POST", "/v1/campaigns", outage)
    assert status == 201
    soon = trio.clock.now() + 5 * times.SECOND
    for start in (soon, HOUR):
        await trio.posted({**idle("a", duration="PT30M", **at(start)), "priority": 5})
    too_soon = {**idle("a", "b", **at(soon + times.SECOND)), "campaign": "outage"}
    assert (await trio.planned(too_soon))["outcome"] == "no-time"
    task = {**idle("a", "b", **at(HOUR)), "campaign": "outage"}
    plan = await trio.planned(task)
    assert "once it has waited" in plan["sentence"]
    posted = await trio.posted(task)
    assert [each[1] for each in await trio.runs(posted)] == [None]
    trio.clock.advance(10 * times.SECOND + 500 * times.MILLISECOND)
    await trio.settle()
    await trio.require_booked(plan, posted)


@pytest.mark.nightly
async def test_an_urgent_task_tells_that_it_waits_though_nobody_could_give_way(trio: Trio) -> None:
    """The plan has the reason of the first attempt if displacing others would not help."""
    await limit(trio.b, RULE + 'most.runs = "1/PT1H"')
    await trio.a.ask("POST", "/v1/campaigns", {"name": "outage", "level": "urgent"})
    for names, start in (("a", HOUR), ("b", HOUR + 30 * times.MINUTE)):
        await trio.posted(idle(*names, duration="PT20M", **at(start)))
    plan = await trio.compare({**idle("a", "b", **at(HOUR)), "campaign": "outage"})
    assert "outage is urgent, but has waited 0 of the 10 s" in plan["sentence"]


@pytest.mark.nightly
async def test_an_alternative_is_booked_as_it_says(trio: Trio) -> None:
    """The document of an alternative finds time for as many runs as the plan tells of it."""
    await trio.posted(idle("b", duration="PT50M", **at(HOUR)))
    document = idle("a", "b", duration="PT20M", **at(HOUR + 35 * times.MINUTE, slip="PT2M"))
    plan = await trio.planned(document)
    assert (plan["outcome"], plan["placed"]) == ("no-time", 0)
    [first, *_] = plan["alternatives"]
    booked = await trio.compare(first["document"])
    assert [booked["placed"], booked["asked"]] == [first["placed"], first["asked"]]
    assert booked["starts"][0]["starts_at"] == first["starts_at"]


@pytest.mark.nightly
async def test_a_plan_wants_no_time_of_others(trio: Trio) -> None:
    """Shares of leads are kept for those who post tasks, not for those who only ask."""
    await share(trio.b, {"a": 1, "c": 1})
    document = idle("a", "b", **at(HOUR, repeat="PT5M", max_runs=3))
    asked = "SELECT count(*) FROM lead_question"
    await trio.planned(document)
    async with trio.b.database.connection() as connection:
        assert await connection.fetchval(asked) == 0
        await trio.posted(document)
        assert await connection.fetchval(asked) > 0


MESH = """
name = "lab"

[groups]
all = ["a", "b", "c"]

[tests.busy]
type = "idle"
spec = { duration = "PT1M", class = "normal" }

[schedules.often]
repeat = "PT10M"

[[measure]]
shape = "full-mesh"
members = "all"
test = "busy"
schedule = "often"
"""


@pytest.mark.parametrize(
    ("most", "kind"),
    [
        ('runs = "10/P1D"', "normal"),
        pytest.param('time = "PT25M/PT6H"', "exclusive", marks=pytest.mark.nightly),
        pytest.param('runs = "7/PT3H"', "exclusive", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.nightly
async def test_a_quota_is_counted_once_over_all_pairs_of_a_mesh(
    trio: Trio, tmp_path: Path, most: str, kind: str
) -> None:
    """Each pair of a mesh gets the runs after mesh apply that mesh plan says."""
    await limit(trio.b, f"{RULE}most = {{ {most} }}")
    file = tmp_path / "lab.toml"
    file.write_text(MESH.replace("normal", kind))
    planned = await trio.parley("mesh", "plan", str(file), "-o", "json")
    plan = json.loads(planned.out)
    assert (planned.code, plan["asked"], plan["sampled"]) == (4, 6, False), planned.err
    applied = await trio.parley("mesh", "apply", str(file), "-o", "json")
    assert applied.code == 0, applied.err
    assert plan["findings"][0]["detail"] in applied.err, "apply says the same before it creates"
    await trio.settle()
    rows = await trio.a.rows(
        "SELECT reference->>'key', count(*) FILTER (WHERE run.state = 'booked'), count(*), "
        "min(starts_at) FILTER (WHERE run.state = 'booked'), "
        "(array_agg(run.reason ORDER BY slot) FILTER (WHERE run.state = 'waiting'))[1] "
        "FROM task INNER JOIN run ON run.task_id = task.id GROUP BY 1"
    )
    booked = {key: counted for key, *counted in rows}
    assert booked == {
        it["key"]: [
            it["placed"],
            it["asked"],
            None if it["starts_at"] is None else times.parse_instant(it["starts_at"]),
            it["reason"],
        ]
        for it in plan["plans"]
    }
    assert 0 < sum(booked[key][0] for key in booked if "b" in key.split("/")[1:]) < 4 * 143
    for it in plan["plans"]:
        quota = it["placed"] < it["asked"]
        assert quota is ("b" in it["key"].split("/")[1:])
        assert not quota or "limit 'few': " in it["reason"]
