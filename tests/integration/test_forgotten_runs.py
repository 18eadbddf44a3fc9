"""Runs that a restored database forgot: others have their parts, and what follows them waits."""

from __future__ import annotations

from uuid import UUID

import pytest

from node.execution.restores import PARTS_SENT_AGAIN_WITHIN
from node.model import times
from node.model.wire.tasks import TaskDocument
from node.store import runs
from node.store.runs import KeptPart
from tests.support.backups import back_up, put_back, restore
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP

MINUTE = times.MINUTE
FORGOT = "or measured it and forgot that when its database was restored from a backup"


async def _create(lead: Site, *names: str, **fields: object) -> UUID:
    spec = {"duration": "PT1M", "class": "exclusive", "participants": list(names)}
    document = {"test": {"type": "idle", "spec": spec}, **fields}
    task, _ = await lead.node.admission.create(TaskDocument.model_validate(document), None)
    return task


async def _runs(site: Site, task: UUID) -> list[tuple[str, str | None]]:
    query = "SELECT state::text, reason FROM run WHERE task_id = $1 ORDER BY slot, attempt"
    return [(row[0], row[1]) for row in await site.rows(query, task)]


async def _book(world: World, *names: str, outcome: str) -> tuple[UUID, UUID]:
    """Have the first site book a run of these nodes, and have a task of its own follow it."""
    lead = world.sites[0]
    # What is made anew within a minute of the database is not taken for restored.
    await lead.execute("UPDATE schema_version SET applied_at = now() - interval '1 hour'")
    first = await _create(lead, *names, schedule={"start": "PT5M", "slip": "PT1M"})
    then = await _create(lead, *names, after={"task": str(first), "outcome": outcome})
    await lead.plan()
    await world.settle()
    return first, then


async def _measure(world: World, task: UUID, *sites: Site) -> None:
    """Let the run of a task take place on these nodes."""
    [row] = await world.sites[0].rows("SELECT * FROM run WHERE task_id = $1", task)
    world.clock.move_to(row["starts_at"])
    for place, site in enumerate(sites):
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, row["id"], site.clock.now())
        part = KeptPart(
            place, site.name, {"slept_ms": 1.0}, None, row["starts_at"], row["ends_at"], ("sleep",)
        )
        await site.node.collector.keep_own(row["id"], part)
    world.clock.move_to(row["ends_at"])
    await world.settle()


async def _come_back(world: World, lead: Site) -> None:
    """Start the lead anew on the data that it has now, minutes later, and do its housekeeping."""
    world.clock.advance(5 * MINUTE)
    await lead.node.launcher.recover()
    await lead.node.launcher.run_once()
    for task in lead.node.launcher._tasks.copy().values():
        await task
    await lead.tend()


@pytest.mark.nightly
async def test_what_others_measured_is_followed_after_a_restore(world: World) -> None:
    """A lead that takes no part hears from its participants what it forgot, before it gives up."""
    a, b, c = await world.three()
    first, then = await _book(world, "b", "c", outcome="succeeded")
    backup = await back_up(a)
    await _measure(world, first, b, c)
    assert [state for state, _ in await _runs(a, first)] == ["finished"]
    await restore(world, a, backup)
    await _come_back(world, a)
    assert [state for state, _ in await _runs(a, first)] == ["merging"]
    assert await _runs(a, then) == []
    await a.node.comparer.compare_all()
    await world.settle()
    assert [state for state, _ in await _runs(a, first)] == ["finished"]
    assert [state for state, _ in await _runs(a, then)] == ["waiting"]


@pytest.mark.parametrize("outcome", ["ended", "succeeded"])
@pytest.mark.nightly
async def test_a_lead_that_forgot_its_own_part_asks_for_the_others(
    world: World, outcome: str
) -> None:
    """A run that others measured with the lead has ended; nobody can tell that it succeeded."""
    a, b = await world.two()
    first, then = await _book(world, "a", "b", outcome=outcome)
    backup = await back_up(a)
    await _measure(world, first, a, b)
    await restore(world, a, backup)
    await _come_back(world, a)
    assert [state for state, _ in await _runs(a, first)] == ["merging"]
    assert await _runs(a, then) == []
    await a.node.comparer.compare_all()
    await world.settle()
    [(state, reason)] = await _runs(a, first)
    assert (state, FORGOT in (reason or "")) == ("failed", True)
    assert len(await a.rows("SELECT FROM part WHERE result IS NOT NULL")) == 1
    [(followed, why)] = await _runs(a, then)
    assert followed == ("waiting" if outcome == "ended" else "cancelled")
    assert (FORGOT in (why or "")) == (outcome == "succeeded")


@pytest.mark.nightly
async def test_a_lead_waits_for_parts_only_so_long(world: World) -> None:
    """If nobody has a part, the run is given up when all can have been asked for it."""
    a, *_ = await world.three()
    first, then = await _book(world, "b", "c", outcome="succeeded")
    backup = await back_up(a)
    await restore(world, a, backup)
    world.clock.advance(5 * MINUTE)
    await _come_back(world, a)
    for passing, state in ((PARTS_SENT_AGAIN_WITHIN - 1, "merging"), (1, "failed")):
        world.clock.advance(passing)
        await a.tend()
        assert [each for each, _ in await _runs(a, first)] == [state]
    [(state, reason)] = await _runs(a, then)
    assert (state, "sent no part in time" in (reason or "")) == ("cancelled", True)


@pytest.mark.nightly
async def test_what_nobody_else_has_is_missed(world: World) -> None:
    """A lead that measured alone cannot hear from others, and says what it does not know."""
    [a] = [await world.site("a")]
    first, then = await _book(world, "a", outcome="ended")
    backup = await back_up(a)
    await _measure(world, first, a)
    await restore(world, a, backup)
    await _come_back(world, a)
    [(state, reason)] = await _runs(a, first)
    assert (state, FORGOT in (reason or "")) == ("missed", True)
    [(state, reason)] = await _runs(a, then)
    assert (state, FORGOT in (reason or "")) == ("cancelled", True)


@pytest.mark.nightly
async def test_a_restore_under_a_running_process_is_no_lateness(world: World) -> None:
    """A process whose data are put back does not say that it came too late to what it measured."""
    [a] = [await world.site("a")]
    first, _ = await _book(world, "a", outcome="ended")
    await a.execute("UPDATE generation SET made_at = made_at - interval '1 hour'")
    backup = await back_up(a)
    launcher = a.node.launcher
    await a.node.mark_database()
    await _measure(world, first, a)
    known = a.database.marked_at
    await put_back(world, a, backup)
    a.database.marked_at = known  # by the process, which lives on
    world.clock.advance(5 * MINUTE)
    assert not a.database.was_restored
    await launcher.run_once()
    for task in launcher._tasks.copy().values():
        await task
    [(state, reason)] = await _runs(a, first)
    assert (state, reason) == (
        "missed",
        f"the node had not begun it at {times.to_the_second(world.clock.now())}, {FORGOT}",
    )


@pytest.mark.nightly
async def test_what_was_begun_before_the_data_went_back_ends(world: World) -> None:
    """A run that a process measures while its data are put back to before its start is over."""
    a, b = await world.two()
    first, _ = await _book(world, "a", "b", outcome="ended")
    backup = await back_up(b)
    [row] = await a.rows("SELECT * FROM run WHERE task_id = $1", first)
    world.clock.move_to(row["starts_at"])
    async with b.database.transaction() as connection:
        assert await runs.begin(connection, row["id"], world.clock.now())
    await restore(world, b, backup)
    world.clock.move_to(row["ends_at"])
    part = KeptPart(1, "b", {"slept_ms": 1.0}, None, row["starts_at"], row["ends_at"])
    await b.node.collector.keep_own(row["id"], part)
    assert await _runs(b, first) == [("finished", None)]


@pytest.mark.nightly
async def test_a_run_that_was_booked_after_the_backup_may_have_been_measured(world: World) -> None:
    """A lead that does not know the booking of a past slot any more says what it cannot know."""
    a, b = await world.two()
    await a.execute("UPDATE schema_version SET applied_at = now() - interval '1 hour'")
    first = await _create(a, "a", "b", schedule={"start": "PT5M", "slip": "PT1M"})
    then = await _create(a, "a", "b", after={"task": str(first), "outcome": "ended"})
    backup = await back_up(a)
    await a.plan()
    await world.settle()
    await _measure(world, first, a, b)
    await restore(world, a, backup)
    await _come_back(world, a)
    await a.plan()
    [(state, reason)] = await _runs(a, first)
    unknown = "and its lead forgot that when its database was restored from a backup"
    assert (state, unknown in (reason or "")) == ("unplaced", True)
    [(state, reason)] = await _runs(a, then)
    assert (state, unknown in (reason or "")) == ("cancelled", True)
