"""The invariants that ``make chaos`` checks in the tables: each planted violation is found."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.chaos.battle import settle
from tests.chaos.checks import (
    CHECKS,
    Acknowledged,
    Evidence,
    Promises,
    Span,
    Times,
    Trouble,
    WrongClock,
    judge,
)
from tests.chaos.copies import done_by_copy
from tests.chaos.faults import FaultInjector
from tests.chaos.plan import Plan
from tests.chaos.sites import Sites
from tests.conftest import NewDatabase
from tests.integration.simulation.test_invariants import PLANTED_IN_WORLDS
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.nightly

LIFE = timedelta(seconds=8)
HOUR = timedelta(hours=1)
NODES = ("a", "b")

_NODE = """
INSERT INTO node (identity, name, url, address, is_self, added_at)
VALUES ($1, $2, '', '', $3 = 'self', now())
"""
_TASK = """
INSERT INTO task (
    id, lead, test, spec, scheduling_class, duration, participants, participant, schedule,
    reference, created_at
)
VALUES ($1, 'key of a', 'idle', '{}', 'exclusive', interval '1 min', $2, $3, $4, $5, $6)
"""
_PLANNING = """
INSERT INTO planning (task_id, campaign_id, added_at, planned_to, next_run_at, plan_at)
VALUES ($1, 1, now(), $2, $2, $3)
"""
_EXCHANGE = """
INSERT INTO exchange (id, task_id, state, lease_epoch, held_at, expires_at, decided_at)
SELECT $1, $2, $3::exchange_state, 1, at, at + interval '8 s', at
FROM (SELECT $4::timestamptz) AS decision (at)
"""
_RUN = """
INSERT INTO run (
    id, task_id, exchange_id, slot, attempt, participant, scheduling_class, priority, starts_at,
    ends_at, lane, state, started_at, finished_at, result, created_at, changed_at
)
SELECT
    $1, $2, $3, $4, $5::smallint, $6::smallint, 'exclusive', 0, at,
    at + interval '1 min', int8range(NULL, NULL), state::run_state,
    CASE state WHEN 'finished' THEN at END,
    CASE state WHEN 'finished' THEN at + interval '50 s' END,
    CASE state WHEN 'finished' THEN '{"slept_ms": 50000}'::jsonb END, at, at
FROM (SELECT $7::timestamptz, $8::text) AS wanted (at, state)
"""
_PART = """
INSERT INTO part (run_id, participant, name, result, started_at, finished_at)
SELECT id, $2, 'x', '{"slept_ms": 50000}', starts_at, finished_at FROM run WHERE id = $1
"""
_GAP = """
INSERT INTO gap (id, task_id, first_slot, last_slot, slots, reason, told_at)
VALUES ($1, $2, $3, $3, 1, 'no lead was there', now())
"""
_ARCHIVE = """
WITH made AS (
    INSERT INTO destination (digest, archiver, spec, label, ordered)
    VALUES ('', 'file', '{}', '', true) RETURNING id
)
INSERT INTO archive (id, task_id, place, destination_id, runs, created_at, changed_at)
SELECT $1, $1, 0, made.id, 'succeeded', now(), now() FROM made
"""


@dataclass
class Scene:
    """A task with two runs on two nodes: one measured an hour ago, one due in an hour."""

    dsn: dict[str, str]
    connections: dict[str, asyncpg.Connection[asyncpg.Record]]
    court: str
    results: Path
    now: datetime
    task: UUID
    exchange: UUID
    past: UUID
    coming: UUID

    async def both(self, query: str, *values: object) -> None:
        """Execute a statement on both nodes."""
        for connection in self.connections.values():
            await connection.execute(query, *values)

    async def on(self, name: str, query: str, *values: object) -> None:
        """Execute a statement on one node."""
        await self.connections[name].execute(query, *values)

    async def add_task(self, reference: str) -> UUID:
        """Insert another task of ``a`` without runs."""
        task = uuid4()
        listed = json.dumps([{"node": f"key of {name}", "name": name} for name in NODES])
        schedule = {
            "start": (self.now - HOUR).isoformat(),
            "repeat": "PT2H",
            "until": (self.now + 2 * HOUR).isoformat(),
            "slip": "PT5M",
        }
        created = self.now - 2 * HOUR
        for place, name in enumerate(NODES):
            row = (task, listed, place, json.dumps(schedule), json.dumps(reference), created)
            await self.on(name, _TASK, *row)
        await self.on("a", _PLANNING, task, self.now + HOUR, None)
        return task

    async def add_run(
        self, task: UUID, exchange: UUID, at: datetime, state: str, slot: datetime, attempt: int = 1
    ) -> UUID:
        """Insert a run on both nodes."""
        run = uuid4()
        for place, name in enumerate(NODES):
            await self.on(name, _RUN, run, task, exchange, slot, attempt, place, at, state)
            if state == "finished":
                await self.on(name, _PART, run, place)
        if state == "finished":
            await self.on("a", _PART, run, 1)
        return run

    @property
    def posted(self) -> dict[str, Acknowledged]:
        """Return what the user of the first task was promised."""
        return {str(self.task): Acknowledged("a", self.now - 2 * HOUR)}

    def write(self, run: UUID, state: str) -> None:
        """Append a result to the file of ``a``."""
        line = {"run": str(run), "state": state, "result": {"slept_ms": 50000}}
        with self.results.open("a") as file:
            file.write(json.dumps(line) + "\n")

    async def violated(
        self,
        promises: Promises | None = None,
        *,
        restored: Sequence[Span] = (),
        stepped: Sequence[WrongClock] = (),
        troubles: Sequence[Trouble] = (),
    ) -> set[str]:
        """Return the names of the violated invariants."""
        checked = promises or Promises(self.posted, {}, {})
        nodes = {name: Evidence(dsn, self.results / name) for name, dsn in self.dsn.items()}
        nodes["a"] = Evidence(self.dsn["a"], self.results)
        minute = timedelta(minutes=1)
        healed_at = self.now - HOUR
        times = Times(LIFE, minute, minute, healed_at, restored, stepped, troubles)
        verdict = await judge(nodes, self.court, checked, times)
        return {violation.check for violation in verdict.violations}


@pytest.fixture
async def scene(new_database: NewDatabase, tmp_path: Path) -> AsyncIterator[Scene]:
    """Return two nodes on which all invariants hold."""
    dsn = {name: await new_database() for name in NODES}
    connections = {name: await asyncpg.connect(address) for name, address in dsn.items()}
    court, now = await new_database(empty=True), datetime.now(UTC)
    results = tmp_path / "results.jsonl"
    scene = Scene(dsn, connections, court, results, now, uuid4(), uuid4(), uuid4(), uuid4())
    for own, other in (NODES, NODES[::-1]):
        await scene.on(own, _NODE, f"key of {own}", own, "self")
        await scene.on(own, _NODE, f"key of {other}", other, "other")
    scene.task = await scene.add_task("first")
    await scene.both(_EXCHANGE, scene.exchange, scene.task, "committed", now - 2 * HOUR)
    past, coming = now - HOUR, now + HOUR
    scene.past = await scene.add_run(scene.task, scene.exchange, past, "finished", past)
    scene.coming = await scene.add_run(scene.task, scene.exchange, coming, "booked", coming)
    await scene.on("a", _ARCHIVE, scene.task)
    scene.write(scene.past, "finished")
    yield scene
    for connection in connections.values():
        await connection.close()


async def test_a_sound_scene_breaks_nothing(scene: Scene) -> None:
    """A sound scene violates no invariant."""
    assert await scene.violated() == set()


_ALONE = {
    "all_or_none": "DELETE FROM run WHERE state = 'booked'",
    "begun_on_all": "DELETE FROM run WHERE state = 'finished'",
    "due": "UPDATE run SET state = 'running', started_at = NULL WHERE state = 'finished'",
    "forgotten": "UPDATE planning SET plan_at = now() - interval '10 min'",
    "orphans": "UPDATE task SET state = 'cancelled'",
    "parts": "DELETE FROM part WHERE participant = 1",
    "alone": "DELETE FROM part",
    "after_end": "UPDATE task SET ended_at = now() - interval '2 h'",
}
"""The statement on one node that violates an invariant."""
_AT_THE_LEAD = ("forgotten", "orphans", "parts")


@pytest.mark.parametrize("check", _ALONE)
async def test_a_fault_on_one_node_is_found(scene: Scene, check: str) -> None:
    """A fault on one node violates exactly the expected invariant."""
    await scene.on("a" if check in _AT_THE_LEAD else "b", _ALONE[check])
    assert await scene.violated() == {check}


@pytest.mark.parametrize(
    "change",
    [
        "state = 'cancelled', reason = 'because'",
        "starts_at = starts_at + interval '1 s'",
        "slot = slot + interval '1 s'",
    ],
)
async def test_a_run_that_differs_is_found(scene: Scene, change: str) -> None:
    """A future run that differs in state, time or slot between nodes is found."""
    await scene.on("b", f"UPDATE run SET {change} WHERE state = 'booked'")
    assert "all_or_none" in await scene.violated()


@pytest.mark.parametrize(("hours", "state"), [(1, "booked"), (-1, "finished")])
async def test_an_overlap_is_found(scene: Scene, hours: int, state: str) -> None:
    """Overlapping exclusive runs are found even where the constraint did not apply."""
    await scene.both("UPDATE run SET lane = NULL")
    other, exchange = await scene.add_task("second"), uuid4()
    for name in NODES:
        await scene.on(name, "DELETE FROM planning")
        await scene.on(name, "UPDATE task SET schedule = schedule - 'repeat' - 'until'")
    at = scene.now + hours * HOUR
    await scene.both(_EXCHANGE, exchange, other, "committed", scene.now - 2 * HOUR)
    await scene.add_run(other, exchange, at + timedelta(seconds=20), state, scene.now - HOUR)
    if state == "finished":
        await scene.both("UPDATE task SET state = 'finished' WHERE id = $1", other)
    assert await scene.violated() == {"overlaps"}


async def test_too_much_taken_of_a_resource_is_found(scene: Scene) -> None:
    """A resource of which more is taken at an instant than there is, is found at its keeper."""
    await scene.on("a", "INSERT INTO resource (name, number) VALUES ('link-x', 2)")
    await scene.on(
        "a",
        "INSERT INTO resource_use (run_id, resource, amount, during) "
        "SELECT id, 'link-x', 2, during FROM run WHERE state = 'booked' LIMIT 1",
    )
    assert await scene.violated() == set()
    await scene.on("a", "UPDATE resource SET number = 1")
    assert await scene.violated() == {"resources"}


async def test_more_runs_than_a_task_may_have_are_found(scene: Scene) -> None:
    """A task with runs of more slots than its schedule allows is found at its lead."""
    await scene.both("UPDATE task SET schedule = schedule || '{\"max_runs\": 1}'")
    assert await scene.violated() == {"surplus"}


async def test_time_blocked_for_nothing_is_found(scene: Scene) -> None:
    """A run that keeps its time after its exchange was released is found."""
    await scene.both("UPDATE exchange SET state = 'released'")
    assert await scene.violated() == {"blocked_for_nothing"}


async def test_a_run_set_aside_for_nobody_is_found(scene: Scene) -> None:
    """A run that is still set aside after its hold has ended is found."""
    await scene.both("UPDATE run SET state = 'set-aside' WHERE state = 'booked'")
    assert await scene.violated() == {"blocked_for_nothing"}


@pytest.mark.parametrize(("age_s", "broken"), [(17, {"old_holds"}), (10, set())])
async def test_an_old_hold_is_found(scene: Scene, age_s: int, broken: set[str]) -> None:
    """A hold older than twice its life is found."""
    held = scene.now - timedelta(seconds=age_s)
    await scene.on("b", _EXCHANGE, uuid4(), scene.task, "held", held)
    assert await scene.violated() == broken


@pytest.mark.parametrize(("hours", "broken"), [(None, {"slots"}), (2, {"slots"}), (1, set())])
async def test_a_slot_without_a_run_is_found(
    scene: Scene, hours: int | None, broken: set[str]
) -> None:
    """A due slot without any run is found, unless its lead tells that it was away then."""
    await scene.both("DELETE FROM run WHERE state = 'finished'")
    if hours is not None:
        await scene.on("a", _GAP, uuid4(), scene.task, scene.now - hours * HOUR)
    assert await scene.violated() - {"archived"} == broken


async def test_a_slot_served_twice_is_found(scene: Scene) -> None:
    """Two live runs of one slot are found, whatever their times."""
    coming = scene.now + HOUR
    at = coming + timedelta(minutes=2)
    await scene.add_run(scene.task, scene.exchange, at, "booked", coming, attempt=2)
    assert await scene.violated() == {"once", "two_of_a_slot"}


@pytest.mark.parametrize(("seconds", "found"), [(30, True), (50, False)])
async def test_attempts_that_were_measured_at_once_are_found(
    scene: Scene, seconds: int, *, found: bool
) -> None:
    """A further attempt may follow one that its lead took for failed, and not overlap it."""
    again = scene.now - HOUR + timedelta(seconds=seconds)
    await scene.add_run(scene.task, scene.exchange, again, "finished", scene.now - HOUR, attempt=2)
    failed = "UPDATE run SET state = 'failed', reason = 'because' WHERE id = $1"
    await scene.on("a", failed, scene.past)
    violated = await scene.violated()
    assert "once" not in violated
    assert ("at_once" in violated) is found


@pytest.mark.parametrize("state", ["displaced", "waiting"])
async def test_a_displaced_run_that_is_forgotten_is_found(scene: Scene, state: str) -> None:
    """A slot with time left whose last attempt was displaced, or waits in vain, is found."""
    change = f"UPDATE run SET state = '{state}', reason = 'because' WHERE state = 'booked'"
    await scene.both(change)
    assert await scene.violated() == {"displaced"}


async def test_a_displaced_run_that_is_planned_again_is_well(scene: Scene) -> None:
    """A displaced run with a later booked attempt is no violation."""
    await scene.both("UPDATE run SET state = 'displaced', reason = 'x' WHERE state = 'booked'")
    coming = scene.now + HOUR
    at = coming + timedelta(minutes=2)
    await scene.add_run(scene.task, scene.exchange, at, "booked", coming, attempt=2)
    assert await scene.violated() == set()


@pytest.mark.parametrize(
    ("node", "change"),
    [("a", "revision = 2"), ("b", "revision = 2, state = 'paused'"), ("both", "state = 'paused'")],
)
async def test_a_change_that_not_all_know_is_found(scene: Scene, node: str, change: str) -> None:
    """A revision or pause known to one node only is found, and so are runs of a paused task."""
    await scene.both("UPDATE task SET revision = 2")
    for name in NODES if node == "both" else (node,):
        await scene.on(name, f"UPDATE task SET {change}".replace("= 2", "= 3"))
    assert await scene.violated() == {"changed"}


@pytest.mark.parametrize(
    "change",
    [
        "revision = 2",
        "state = 'cancelled'",
        "priority = 3",
        'spec = \'{"duration": "PT9S"}\'',
        "reference = '\"second\"'",
    ],
)
async def test_a_task_that_was_never_changed_is_compared(scene: Scene, change: str) -> None:
    """A task that a participant has otherwise is found where the lead knows of no change."""
    await scene.on("b", f"UPDATE task SET {change}")
    assert await scene.violated() == {"changed"}


@pytest.mark.parametrize(("seconds", "broken"), [(30, set()), (90, {"cancelled_runs"})])
async def test_a_cancellation_heard_after_the_backup_may_be_forgotten(
    scene: Scene, seconds: int, broken: set[str]
) -> None:
    """A restored lead may not know of a run that was cancelled elsewhere just before its backup."""
    dumped_at = scene.now - HOUR / 2
    cancelled = Acknowledged("b", dumped_at - timedelta(seconds=seconds))
    await scene.on("b", "UPDATE run SET state = 'cancelled', reason = 'x' WHERE state = 'booked'")
    await scene.on("a", "UPDATE run SET state = 'waiting', reason = 'x' WHERE state = 'booked'")
    promises = Promises(scene.posted, {}, {str(scene.coming): cancelled})
    span = ("a", dumped_at, scene.now - HOUR / 4)
    assert await scene.violated(promises, restored=[span]) - {"displaced"} == broken


_LEFT = {
    "a message": """
        INSERT INTO outbox (node, kind, message, created_at, next_at)
        VALUES ('key of a', 'part', '{}', now() - interval '11 s', now() + interval '1 h')
    """,
    "a negotiation": """
        INSERT INTO negotiation (id, task_id, lease_epoch, run_ids, opened_at, expires_at)
        SELECT gen_random_uuid(), id, 1, '{}', now() - interval '1 min', now() - interval '11 s'
        FROM task
    """,
    "a hold": "UPDATE exchange SET state = 'held'",
    "a delivery": """
        INSERT INTO archiving
            (archive_id, destination_id, run_id, edition, outcome, created_at, next_at)
        SELECT
            archive.id, archive.destination_id, run.id, 1, 'finished',
            now() - interval '11 s', now()
        FROM archive INNER JOIN run ON run.state = 'finished'
    """,
    "a run": """
        UPDATE generation SET made_at = now() - interval '1 h';
        UPDATE run SET state = 'running' WHERE state = 'finished'
    """,
}
"""The statements at the lead that leave something to do."""


@dataclass
class _Unhealed:
    """The part of :class:`tests.chaos.sites.Sites` that waiting for rest, or injecting, uses."""

    plan: Plan
    all: list[_UnhealedSite]


@dataclass
class _UnhealedSite:
    name: str
    dsn: str
    is_up: bool = False

    async def connect(self) -> asyncpg.Connection[asyncpg.Record]:
        """Connect to the database."""
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self.dsn)
        return connection


@pytest.mark.parametrize("left", ["", *_LEFT])
async def test_what_is_left_to_do_is_found(scene: Scene, left: str) -> None:
    """A node that does not come to rest is named, whatever keeps it from that."""
    if left:
        await scene.on("a", _LEFT[left])
    sites = [_UnhealedSite(name, dsn) for name, dsn in scene.dsn.items()]
    plan = Plan(hold_life_s=0, young_s=0, settle_s=0.01)
    _, violations = await settle(cast("Sites", _Unhealed(plan, sites)))
    found = [(each.check, each.node) for each in violations]
    assert found == [("at_rest", "a")] * bool(left)


async def test_a_fault_that_was_none_is_found() -> None:
    """A fault that could not be injected as intended breaks the round."""
    plan = Plan(fault_every_s=0, host_faults=False)
    injector = FaultInjector(cast("Sites", _Unhealed(plan, [])), plan, random.Random(1))
    assert injector.violations == []
    running = asyncio.create_task(injector.run())
    async with asyncio.timeout(PATIENCE_S):
        while not injector.violations:
            await asyncio.wait({running}, timeout=0.02)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert {each.check for each in injector.violations} == {"faults"}


async def test_broken_promises_are_found(scene: Scene) -> None:
    """A lost task, a cancelled task or run that lives on, and a key used twice are found."""
    await scene.add_task("first")
    await scene.both("DELETE FROM planning")
    await scene.both("UPDATE task SET schedule = jsonb_set(schedule, '{start}', '\"2099-01-01\"')")
    task, run = str(scene.task), str(scene.coming)
    over = Acknowledged("a", scene.now)
    promises = Promises(
        {str(uuid4()): over, **scene.posted}, {task: over}, {run: Acknowledged("b", scene.now)}
    )
    violated = await scene.violated(promises)
    assert violated == {"promised", "cancelled_tasks", "cancelled_runs", "asked_once"}


async def test_a_part_that_differs_is_found(scene: Scene) -> None:
    """A result that a participant measured and its lead has otherwise is found."""
    await scene.on("b", "UPDATE part SET result = '{}'")
    assert await scene.violated() == {"parts"}


async def test_a_run_without_its_result_is_found(scene: Scene) -> None:
    """A run that is finished without a result is found."""
    await scene.on("a", "DELETE FROM archive; UPDATE run SET result = NULL")
    assert await scene.violated() == {"merged"}


async def test_results_that_were_not_merged_are_found(scene: Scene) -> None:
    """A run that failed although all participants measured is found."""
    await scene.on("a", "DELETE FROM archive")
    scene.results.unlink()
    change = "state = 'failed', reason = 'because' WHERE state = 'finished'"
    await scene.on("a", f"UPDATE run SET {change}")
    assert await scene.violated() == {"merged"}


async def test_a_slot_that_was_placed_again_has_one_result(scene: Scene) -> None:
    """A run whose parts came when another attempt was placed stays failed, and that is right."""
    await scene.on("a", "DELETE FROM archive")
    scene.results.unlink()
    await scene.on("a", "UPDATE run SET state = 'failed', reason = 'x' WHERE state = 'finished'")
    assert await scene.violated() == {"merged"}
    slot, later = scene.now - HOUR, scene.now - timedelta(minutes=50)
    await scene.add_run(scene.task, scene.exchange, later, "finished", slot, attempt=2)
    assert await scene.violated() == set()


async def test_a_further_attempt_that_was_cancelled_leaves_the_slot_to_the_first(
    scene: Scene,
) -> None:
    """One of two attempts counts: parts of the first came after the second was cancelled."""
    slot, later = scene.now - HOUR, scene.now - timedelta(minutes=50)
    again = await scene.add_run(scene.task, scene.exchange, later, "finished", slot, attempt=2)
    assert "once" in await scene.violated()
    change = "UPDATE run SET state = 'cancelled', reason = 'x', result = NULL WHERE id = $1"
    await scene.on("a", change, again)
    assert await scene.violated() == set()


async def test_a_measurement_without_the_others_needs_a_reason(scene: Scene) -> None:
    """A run that one participant missed, and says why, is no violation."""
    await scene.on("a", "DELETE FROM archive; DELETE FROM part WHERE participant = 0")
    scene.results.unlink()
    change = "state = 'failed', reason = 'because' WHERE state = 'finished'"
    await scene.on("a", f"UPDATE run SET {change}")
    assert await scene.violated() == set()


@pytest.mark.parametrize(("node", "broken"), [("b", {"after_end"}), ("a", set())])
async def test_a_measurement_after_a_cancellation_is_found(
    scene: Scene, node: str, broken: set[str]
) -> None:
    """A run that begins where it was cancelled is found; elsewhere only if that could be known."""
    await scene.on("a", "DELETE FROM archive; DELETE FROM part; DELETE FROM run WHERE slot < now()")
    await scene.on("a", "UPDATE task SET created_at = now()")
    scene.results.unlink()
    cancelled = Acknowledged(node, scene.now - HOUR - timedelta(seconds=10))
    promises = Promises(scene.posted, {}, {str(scene.past): cancelled})
    assert await scene.violated(promises) - {"begun_on_all"} == broken


@pytest.mark.parametrize(
    ("between", "minutes", "broken"),
    [
        (("a", "b"), 4.0, set()),
        (("b", "b"), 4.0, set()),
        (("a", "b"), 1.5, {"after_end"}),
        (("a", "c"), 4.0, {"after_end"}),
    ],
)
async def test_a_cancellation_that_could_not_be_heard_of_is_excused(
    scene: Scene, between: tuple[str, str], minutes: float, broken: set[str]
) -> None:
    """A run that begins elsewhere is excused if the nodes could not hear each other before that."""
    await scene.on("a", "DELETE FROM archive; DELETE FROM part; DELETE FROM run WHERE slot < now()")
    await scene.on("a", "UPDATE task SET created_at = now()")
    scene.results.unlink()
    at = scene.now - HOUR - timedelta(minutes=4)
    promises = Promises(scene.posted, {}, {str(scene.past): Acknowledged("a", at)})
    trouble = (*between, at, at + timedelta(minutes=minutes))
    assert await scene.violated(promises, troubles=[trouble]) - {"begun_on_all"} == broken


async def test_a_task_that_never_ends_is_found(scene: Scene) -> None:
    """A task that is active although its slots and runs are over is found."""
    await scene.both("DELETE FROM run WHERE state = 'booked'")
    until = json.dumps((scene.now - HOUR / 2).isoformat())
    await scene.both("UPDATE task SET schedule = jsonb_set(schedule, '{until}', $1)", until)
    assert await scene.violated() == {"ended"}


async def test_a_result_that_was_not_delivered_is_found(scene: Scene) -> None:
    """A result that is not in its file is found, whatever the tables say."""
    scene.results.unlink()
    assert await scene.violated() == {"archived"}


async def test_a_result_that_was_none_is_found(scene: Scene) -> None:
    """A line about the success of a run that did not take place is found."""
    scene.write(scene.coming, "finished")
    assert await scene.violated() == {"archived"}


_FORGOTTEN = {"promised", "begun_on_all"}


@pytest.mark.parametrize(("restores", "excused"), [(0, set()), (1, _FORGOTTEN)])
async def test_a_restored_database_may_forget_but_not_disagree(
    scene: Scene, restores: int, excused: set[str]
) -> None:
    """Only what was acknowledged or measured since the backup may be lacking after a restore."""
    await scene.on("a", "DELETE FROM task")
    span = ("a", scene.now - 3 * HOUR, scene.now - HOUR / 2)
    violated = await scene.violated(restored=[span] * restores)
    assert violated == {"all_or_none", "orphans"} | _FORGOTTEN - excused


_FORGOTTEN_PART = "DELETE FROM archive; DELETE FROM part WHERE participant = 1"


@pytest.mark.parametrize(
    ("state", "restored", "minutes", "broken"),
    [
        ("cancelled", "a", 4, set()),
        ("displaced", "a", 4, set()),
        ("cancelled", "a", 6, set()),  # it may have waited for its sender
        ("cancelled", "a", -12, {"parts"}),  # the restore was over before it was measured
        ("cancelled", "b", 4, {"parts"}),  # another database forgot nothing of it
        ("failed", "a", 4, {"parts"}),  # the lead asks for it
        ("missed", "a", 4, {"parts"}),
    ],
)
async def test_a_part_that_came_after_the_backup_is_missing_if_nobody_asks_for_it(
    scene: Scene, state: str, restored: str, minutes: int, broken: set[str]
) -> None:
    """The part of a run that was cancelled as it was measured is not asked for after a restore."""
    scene.results.unlink()
    await scene.on("a", _FORGOTTEN_PART)
    await scene.on(
        "a", f"UPDATE run SET state = '{state}', reason = 'because' WHERE state = 'finished'"
    )
    dumped_at = scene.now - HOUR + timedelta(minutes=minutes)
    span = (restored, dumped_at, dumped_at + timedelta(minutes=5))
    assert await scene.violated(restored=[span]) - {"displaced"} == broken


async def test_a_part_that_nobody_forgot_is_there(scene: Scene) -> None:
    """Without a restore the part of a cancelled run is where its lead keeps it."""
    scene.results.unlink()
    await scene.on("a", _FORGOTTEN_PART)
    await scene.on(
        "a", "UPDATE run SET state = 'cancelled', reason = 'because' WHERE state = 'finished'"
    )
    assert await scene.violated() == {"parts"}


async def test_a_wrong_clock_excuses_what_was_measured_by_it(scene: Scene) -> None:
    """A run may be measured alone if a node's clock was wrong at that time."""
    await scene.on("b", _ALONE["alone"])
    wrong = scene.now - HOUR - timedelta(minutes=1), scene.now - HOUR + timedelta(minutes=1)
    told = [each + timedelta(hours=3) for each in wrong]
    span = ("b", told[0], told[1], wrong[1])
    assert await scene.violated(stepped=[span]) == set()


@pytest.mark.parametrize(
    ("ahead", "right_s", "lasted_s"),
    [
        (timedelta(), 0, 60),  # it was right again as the run began
        (timedelta(seconds=5), -1, 40),
        (HOUR, -3600, 60),  # it told the run's own time an hour before
        (-HOUR, 3600, 60),  # and here an hour after
        (timedelta(days=1), 86_400, 60),
    ],
)
async def test_a_wrong_clock_excuses_nothing_that_began_after_it(
    scene: Scene, ahead: timedelta, right_s: int, lasted_s: int
) -> None:
    """A run must not be measured alone though a clock was wrong, or told its time, elsewhen."""
    await scene.on("b", _ALONE["alone"])
    right_at = scene.now - HOUR + timedelta(seconds=right_s)
    ended = right_at + ahead
    span = ("b", ended - timedelta(seconds=lasted_s), ended, right_at)
    assert await scene.violated(stepped=[span]) == {"alone"}


@pytest.mark.parametrize("state", ["missed", "failed", "finished"])
async def test_a_run_that_is_over_before_its_start_is_found(scene: Scene, state: str) -> None:
    """No clock excuses a run that is over and starts in an hour."""
    query = "UPDATE run SET state = $2::run_state, reason = 'late' WHERE id = $1"
    await scene.on("b", query, scene.coming, state)
    told = scene.now + HOUR - timedelta(minutes=1), scene.now + HOUR + timedelta(minutes=1)
    span = ("b", *told, scene.now)
    assert "over_too_early" in await scene.violated(stepped=[span])


@pytest.mark.parametrize(
    ("state", "early_s", "told", "broken"),
    [
        ("missed", 6, 0, {"over_too_early"}),
        ("failed", 600, 0, {"over_too_early"}),
        ("missed", 4, 0, set()),
        ("missed", 600, 1, set()),  # by a wrong clock, which was right before its start
        ("cancelled", 600, 0, set()),
    ],
)
async def test_a_run_that_was_over_before_its_start_is_found(
    scene: Scene, state: str, early_s: int, told: int, broken: set[str]
) -> None:
    """A run that was over before its start is found though its start has passed since."""
    await scene.on("b", "DELETE FROM part WHERE participant = 1")
    at = scene.now - HOUR - timedelta(seconds=early_s)
    query = """
        UPDATE run SET state = $2::run_state, reason = 'late', changed_at = $3, started_at = NULL,
            finished_at = NULL
        WHERE id = $1
    """
    await scene.on("b", query, scene.past, state, at)
    second = timedelta(seconds=1)
    spans = [("b", at - second, at + second, at + second)] * told
    assert await scene.violated(stepped=spans) - {"parts"} == broken


async def test_what_a_copy_did_is_found(scene: Scene) -> None:
    """Each thing that a copy did in the name of its node is found in its database."""
    before, dsn = scene.now - HOUR / 2, scene.dsn["b"]
    assert await done_by_copy("b", dsn, before) == []
    await scene.on("b", _EXCHANGE, uuid4(), scene.task, "held", scene.now)
    await scene.on("b", "UPDATE run SET started_at = now() WHERE state = 'booked'")
    await scene.add_task("by the copy")
    await scene.on("b", "UPDATE task SET created_at = now() WHERE reference <> '\"first\"'")
    found = await done_by_copy("b", dsn, before)
    assert {each.check for each in found} == {"twice"}
    assert sorted(each.what.partition(" at ")[0] for each in found) == [
        "the copy began a run",
        "the copy held time",
        "the copy took a task",
    ]


def test_every_invariant_is_planted() -> None:
    """Every invariant has a test that violates it."""
    planted = {
        *_ALONE,
        *("overlaps", "blocked_for_nothing", "old_holds", "slots", "once", "at_once", "displaced"),
        *("two_of_a_slot", "surplus", "changed", "merged", "ended", "archived", "over_too_early"),
        *("promised", "cancelled_tasks", "cancelled_runs", "asked_once", "resources"),
        *PLANTED_IN_WORLDS,
    }
    assert planted == set(CHECKS)


async def test_a_slot_beyond_the_horizon_is_not_overdue(scene: Scene) -> None:
    """A task whose next slot lies beyond the horizon may be planned later."""
    overdue = "UPDATE planning SET plan_at = now() - interval '10 min'"
    await scene.on("a", f"{overdue}, next_run_at = now() + interval '7 h'")
    assert await scene.violated() == set()
