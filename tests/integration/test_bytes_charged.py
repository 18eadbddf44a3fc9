"""The ledger counts the bytes that runs move: as expected with the booking, then as measured."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.ids import TaskId, run_id
from node.model.wire.tasks import Schedule
from node.store import campaigns, runs
from node.store.runs import KeptPart
from tests.support.clocks import START
from tests.support.pool_worlds import known_as_they_are
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
MEGABYTE = 1_000_000
EXPECTED = 60 * MEGABYTE
"""Ten seconds and two more at 40 Mb/s."""
_LEDGER = "SELECT coalesce(sum(bytes), 0)::bigint, count(*) FROM charge"
_BY_HOUR = "SELECT hour, sum(bytes)::bigint FROM charge_hour WHERE bytes <> 0 GROUP BY hour"
_BY_DAY = "SELECT day, campaign, node, bytes FROM campaign_node_day ORDER BY node"


async def _booked(lead: Site, other: Site, **spec: Any) -> tuple[UUID, UUID]:
    """Book a throughput run of two nodes at 40 Mb/s; return task and run."""
    task = introduction((lead, other), schedule=Schedule(start=HOUR, slip=0)).model_copy(
        update={
            "test": "throughput",
            "spec": {"dest": other.name, "rate_bps": 40 * MEGABYTE, **spec},
        }
    )
    for site in (lead, other):
        await site.keep(task, lead)
    await lead.plan()
    return task.task, run_id(TaskId(task.task), HOUR, 1)


async def _net(site: Site) -> int:
    """Return the bytes in the ledger, which its sums by the hour must equal."""
    net: int = (await site.rows(_LEDGER))[0][0]
    by_hour = {row[0]: row[1] for row in await site.rows(_BY_HOUR)}
    assert by_hour == ({HOUR - HOUR % times.HOUR: net} if net else {})
    return net


async def _begin(*sites: Site, run: UUID) -> None:
    sites[0].clock.move_to(HOUR + times.SECOND)
    for site in sites:
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run, site.clock.now())


def _part(site: Site, place: int, moved: int | None) -> KeptPart:
    """Return a part that sent or received this much, or failed."""
    if moved is None:
        return KeptPart(place, site.name, None, "no route to host", HOUR, HOUR + DURATION // 2)
    figures = {"bytes": moved, "duration_ms": 1e4, "rate_bps": min(moved * 0.8, 1e12)}
    result: dict[str, Any] = {
        "sent": figures | {"retransmits": 0} if place == 0 else None,
        "received": figures if place == 1 else None,
        **dict.fromkeys(("datagrams", "rtt_ms", "congestion", "cpu")),
        "intervals": [],
    }
    return KeptPart(place, site.name, result, None, HOUR, HOUR + DURATION)


async def test_a_booking_is_charged_what_it_is_expected_to_move(world: World) -> None:
    """Each node of a run is charged its bytes, at the lead, in the hour in which it starts."""
    a, b = await world.two()
    await _booked(a, b)
    assert await _net(a) == 2 * EXPECTED
    assert (await b.rows(_LEDGER))[0][1] == 0
    day = START - START % times.DAY
    by_day = [tuple(row) for row in await a.rows(_BY_DAY)]
    assert by_day == [(day, "default", name, EXPECTED) for name in ("a", "b")]


async def test_a_cancelled_run_gives_its_bytes_back(world: World) -> None:
    """A run that is cancelled before it begins has moved nothing."""
    a, b = await world.two()
    _, run = await _booked(a, b)
    await a.node.termination.cancel_run(run)
    assert await _net(a) == 0


async def test_what_was_measured_replaces_what_was_expected(world: World) -> None:
    """A part that says what it moved is charged that, more or less than expected."""
    a, b = await world.two()
    _, run = await _booked(a, b, omit="PT0S")
    await _begin(a, b, run=run)
    a.clock.move_to(HOUR + DURATION)
    for place, (site, moved) in enumerate(((a, 70 * MEGABYTE), (b, 30 * MEGABYTE))):
        await site.node.collector.keep_own(run, _part(site, place, moved))
        await world.settle()
    assert await a.state(run) == "finished"
    assert await _net(a) == 100 * MEGABYTE


async def test_a_run_that_is_cancelled_gives_back_the_bytes_of_the_rest(world: World) -> None:
    """A run that ends early and measured nothing counts for the part of its time."""
    a, b = await world.two()
    _, run = await _booked(a, b, omit="PT0S")
    await _begin(a, b, run=run)
    a.clock.move_to(HOUR + DURATION // 5)
    await a.node.termination.cancel_run(run)
    assert await _net(a) == 2 * 10 * MEGABYTE


async def test_a_late_part_replaces_what_was_expected(world: World) -> None:
    """A participant that sends nothing counts as expected; its late part says what it was."""
    a, b = await world.two()
    _, run = await _booked(a, b, omit="PT0S")
    await _begin(a, b, run=run)
    a.clock.move_to(HOUR + DURATION // 2)
    await a.node.collector.keep_own(run, _part(a, 0, 20 * MEGABYTE))
    a.clock.move_to(HOUR + 2 * DURATION)
    await a.node.collector.give_up(a.clock.now())
    assert await a.state(run) == "failed"
    assert await _net(a) == 20 * MEGABYTE + 50 * MEGABYTE
    await b.node.collector.keep_own(run, _part(b, 1, 19 * MEGABYTE))
    await world.settle()
    assert await a.state(run) == "finished"
    assert await _net(a) == 39 * MEGABYTE


async def test_a_participant_cannot_report_more_than_any_link_carries(world: World) -> None:
    """A part that claims four exabytes is charged a terabit per second, and kept as no result."""
    a, b = await world.two()
    _, run = await _booked(a, b, omit="PT0S")
    await _begin(a, b, run=run)
    await b.node.collector.keep_own(run, _part(b, 1, 2**62))
    a.clock.move_to(HOUR + DURATION)
    await a.node.collector.keep_own(run, _part(a, 0, 0))
    await world.settle()
    [(state, reason)] = await a.rows("SELECT state::text, reason FROM run")
    assert state == "failed"
    assert f"received is left out: {2**62} bytes in 10000 ms are not " in reason
    kept = await a.rows("SELECT result #>> '{received,bytes}' FROM part WHERE participant = 1")
    assert [row[0] for row in kept] == [f"{2**62}"]
    assert await _net(a) == 125_000 * MEGABYTE * DURATION // times.SECOND


async def test_the_bytes_of_runs_move_with_their_task(world: World) -> None:
    """An edit to another campaign moves the bytes of the runs to come."""
    a, b = await world.two()
    await a.execute(
        "INSERT INTO campaign (name, created_at, changed_at) VALUES ('x', now(), now())"
    )
    task, _ = await _booked(a, b)
    await a.execute("UPDATE task SET campaign = 'x' WHERE id = $1", task)
    async with a.database.transaction() as connection:
        await campaigns.assign(connection, task, a.clock.now())
    charged = [(row[1], row[3]) for row in await a.rows(_BY_DAY) if row[3]]
    assert charged == [("x", EXPECTED)] * 2


@pytest.mark.parametrize("mbps", [None, 80])
async def test_a_path_that_is_filled_is_charged_what_its_nodes_state(
    world: World, mbps: int | None
) -> None:
    """TCP without a rate counts as the rate of the slowest node, and as nothing if none says."""
    a = await world.site("a")
    b = await world.site("b", attributes={} if mbps is None else {"mbps": mbps})
    await known_as_they_are(world)
    await _booked(a, b, rate_bps=None, omit="PT0S")
    assert await _net(a) == (0 if mbps is None else 2 * 100 * MEGABYTE)
