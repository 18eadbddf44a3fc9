"""What campaigns may use and nodes have binds where seats are given, and refusals say so."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from node.model import times
from node.model.shortfall import Shortfall
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.tasks import TaskDocument
from node.store import nodes
from tests.support.clocks import START
from tests.support.pool_worlds import Pooled, pooled
from tests.support.worlds import ON_ONE_LOOP, World

pytestmark = ON_ONE_LOOP

AT_ONE = {"start": "2026-12-01T01:00:00Z", "max_runs": 1}


async def _pool(
    world: World,
    attributes: Sequence[Mapping[str, Any]],
    policy: Mapping[str, Any],
    **campaigns: Mapping[str, Any],
) -> Pooled:
    """A pool of nodes with these attributes, these policies, and these campaigns."""
    pool = await pooled(world, attributes, policy=policy)
    for name, settings in campaigns.items():
        document = CampaignDocument.model_validate({"name": name, **settings})
        await pool.lead.node.campaigns.create(document)
    return pool


async def _traffic(
    pool: Pooled,
    campaign: str,
    rate: int | None,
    schedule: Mapping[str, Any] = AT_ONE,
    k: int = 1,
    **spec: Any,
) -> UUID:
    """A throughput task from ``k`` nodes of the pool to its lead, at so many Mb/s."""
    if rate is not None:
        spec["rate_bps"] = rate * 1_000_000
    document = TaskDocument.model_validate(
        {
            "test": {"type": "throughput", "spec": {"dest": "lead", **spec}},
            "participants": {"pool": "europe", "k": k, "min_k": 1},
            "schedule": {"repeat": "PT1H", "slip": "PT5M", **schedule},
            "campaign": campaign,
        }
    )
    task, _ = await pool.lead.node.admission.create(document, None)
    pool.world.clock.advance(5 * times.SECOND)
    await pool.seat()
    return task


async def _verdict(pool: Pooled, task: UUID) -> tuple[str, str, dict[str, Any], str]:
    """Axis, rule, figures and sentence of what was last said first of a task."""
    rows = await pool.lead.rows(
        "SELECT trace, sentence FROM decision WHERE task_id = $1 ORDER BY id DESC LIMIT 1", task
    )
    trace, sentence = rows[0]
    said = json.loads(trace) if isinstance(trace, str) else trace
    no = said["verdicts"][0]
    assert no["sentence"] in sentence
    return no["axis"], no["rule"], no["figures"], no["sentence"]


async def test_a_quota_refuses_what_would_exceed_it(world: World) -> None:
    """Of 1,000 Mb/s a campaign uses 600, and may not use another 600 at that time, but later."""
    quota = {"lab": {"quotas": {"mbps": 1000}}, "free": {}}
    pool = await _pool(world, [{}, {}], {"set": "fbsng-quota"}, **quota)
    assert await pool.seats(await _traffic(pool, "lab", 600))
    more = await _traffic(pool, "lab", 600)
    assert await pool.seats(more) == {}
    axis, rule, figures, sentence = await _verdict(pool, more)
    assert (axis, rule) == ("throttle", "quota")
    assert (figures["used"], figures["wanted"], figures["quota"]) == (600, 600, 1000)
    assert sentence == "lab uses 600 mbps and wants 600 more, of at most 1000"
    assert await pool.seats(await _traffic(pool, "lab", 400)), "as much as is left"
    later = {"start": "2026-12-01T02:00:00Z", "max_runs": 1}
    assert await pool.seats(await _traffic(pool, "lab", 600, later))
    assert await pool.seats(await _traffic(pool, "free", 600)), "that has no quota"


async def test_a_quota_holds_for_every_run_of_a_term(world: World) -> None:
    """What is used in the third hour stands in the way of runs of which the first has room."""
    quota = {"lab": {"quotas": {"mbps": 1000}}}
    pool = await _pool(world, [{}, {}], {"set": "campaign-default"}, **quota)
    third = {"start": "2026-12-01T03:00:00Z", "max_runs": 1}
    assert await pool.seats(await _traffic(pool, "lab", 600, third))
    every_hour = {"start": "2026-12-01T01:00:00Z", "max_runs": 4}
    more = await _traffic(pool, "lab", 600, every_hour)
    assert await pool.seats(more) == {}
    assert (await _verdict(pool, more))[:2] == ("throttle", "quota")
    fewer = {"start": "2026-12-01T01:00:00Z", "max_runs": 2}
    assert await pool.seats(await _traffic(pool, "lab", 600, fewer))


async def test_who_fills_the_path_takes_all_that_a_node_has(world: World) -> None:
    """TCP without a rate counts as what the node says of itself, and small tests do not count."""
    quota = {"lab": {"quotas": {"mbps": 500}}}
    pool = await _pool(world, [{"mbps": 1000}, {"mbps": 200}], {"set": "fbsng-quota"}, **quota)
    pings = await pool.create(1, campaign="lab", schedule=AT_ONE)
    assert await pool.seats(pings)
    task = await _traffic(pool, "lab", None)
    assert await pool.seats(task) == {}
    assert (await _verdict(pool, task))[3] == "lab uses 0 mbps and wants 1000 more, of at most 500"


async def test_a_node_that_has_too_little_is_not_asked(world: World) -> None:
    """A rate beyond what one node says it has goes to the other one, and beyond both to none."""
    pool = await _pool(world, [{"mbps": 100}, {"mbps": 1000}], {"set": "pscheduler"}, lab={})
    task = await _traffic(pool, "lab", 600)
    assert await pool.seats(task) == {1: {1: "n2"}}
    asked = [call[1] for call in world.calls if call[2] == "propose"]
    assert "n1" not in asked
    none = await _traffic(pool, "lab", 2000)
    axis, rule, figures, sentence = await _verdict(pool, none)
    assert (axis, rule, figures["has"], figures["wanted"]) == (
        *("feasible", "too little room"),
        *(100, 2000),
    )
    assert sentence == "n1 has 100 of 100 mbps left then, but 2000 are needed"


async def test_what_fills_a_node_comes_after_what_fills_it(world: World) -> None:
    """Runs that cannot overlap do not take from each other: the second one slips."""
    pool = await _pool(world, [{"mbps": 1000}], {"set": "pscheduler"}, lab={})
    for _ in range(2):
        assert await pool.seats(await _traffic(pool, "lab", None)) == {1: {1: "n1"}}


async def test_limits_of_what_is_under_way_hold_for_later_runs_too(world: World) -> None:
    """Two of three runs at once are one too many in the second hour, where one is booked."""
    limits = {"lab": {"limits": {"nodes": {"hard": 2}}}}
    pool = await _pool(world, [{}, {}, {}], {"set": "maui-throttle"}, **limits)
    second = {"start": "2026-12-01T02:00:00Z", "max_runs": 1}
    assert await pool.seats(await pool.create(1, campaign="lab", schedule=second))
    both = {"start": "2026-12-01T01:00:00Z", "max_runs": 2}
    task = await pool.create(2, campaign="lab", schedule=both)
    assert await pool.seats(task) == {}
    axis, rule, figures, sentence = await _verdict(pool, task)
    assert (axis, rule, figures["wanted"], figures["limit"]) == ("throttle", "active limit", 3, 2)
    assert sentence == "lab would have 3 nodes at once, of at most 2 (hard)"


async def test_all_that_is_booked_ahead_counts_as_outstanding(world: World) -> None:
    """An hour that is booked for tonight leaves no time of the limit for a run of this morning."""
    limits = {"lab": {"limits": {"seat_seconds": {"hard": 3600}}}}
    pool = await _pool(world, [{}, {}], {"set": "maui-throttle"}, **limits)
    tonight = {"start": "2026-12-01T15:00:00Z", "max_runs": 1}
    booked = await pool.create(1, campaign="lab", schedule=tonight, length="PT1H")
    assert await pool.seats(booked)
    task = await pool.create(1, campaign="lab", schedule=AT_ONE)
    assert await pool.seats(task) == {}
    axis, rule, figures, _ = await _verdict(pool, task)
    assert (axis, rule, figures["kind"]) == ("throttle", "active limit", "seat_time")
    assert figures["limit"] == times.HOUR


async def test_a_node_is_not_asked_before_its_busy_time(world: World) -> None:
    """It says itself until when; who may have others give way asks it all the same."""
    pool = await _pool(world, [{}], {"set": "pscheduler"})
    node = pool.nodes[0]
    until = START + 2 * times.HOUR
    async with pool.lead.database.transaction() as connection:
        await nodes.keep_figures(connection, node.identity, Shortfall(times.HOUR, until))
    task = await pool.create(1, schedule=AT_ONE)
    assert await pool.seats(task) == {}
    axis, rule, _, sentence = await _verdict(pool, task)
    assert (axis, rule) == ("feasible", "busy-hint")
    assert sentence == (
        "n1 is busy until 2026-12-01T02:00:00Z, but the run must start by 2026-12-01T01:05:00Z"
    )
    assert await pool.seats(await pool.create(1, schedule=AT_ONE, priority=1))
    three = {"start": "2026-12-01T01:00:00Z", "max_runs": 3}
    assert await pool.seats(await pool.create(1, schedule=three)), "the last of them has time"


async def test_nodes_that_need_work_are_asked_first(world: World) -> None:
    """Of nodes that say how much is missing, the one that misses most; the full one is last."""
    pool = await _pool(world, [{}, {}, {}], {"set": "boinc-fetch"})
    now, horizon = world.clock.now(), 24 * times.HOUR
    full = Shortfall(0, now + 20 * times.HOUR)
    said = [full, Shortfall(horizon // 4, now), Shortfall(horizon // 2, now)]
    async with pool.lead.database.transaction() as connection:
        for node, figures in zip(pool.nodes, said, strict=True):
            await nodes.keep_figures(connection, node.identity, figures)
    task = await pool.create(1, schedule=AT_ONE, kind="background")
    assert await pool.seats(task) == {1: {1: "n3"}}
    three = await pool.create(3, schedule=AT_ONE, kind="background")
    assert list((await pool.seats(three))[1].values()) == ["n3", "n2", "n1"]


async def test_nodes_that_are_tied_to_a_campaign_serve_no_other(world: World) -> None:
    """What an operator wrote on a node is what the partition goes by."""
    pool = await _pool(world, [{"campaigns": "ops"}], {"set": "fbsng-partition"}, ops={}, lab={})
    task = await pool.create(1, campaign="lab", schedule=AT_ONE)
    axis, rule, _, sentence = await _verdict(pool, task)
    assert (axis, rule, sentence) == ("feasible", "partition", "n1 serves only ops")
    world.clock.advance(5 * times.SECOND)
    assert await pool.seats(await pool.create(1, campaign="ops", schedule=AT_ONE))


async def test_what_comes_at_once_is_decided_on_together(world: World) -> None:
    """Queues are looked at every five seconds: what comes sooner waits, and then goes by price."""
    pool = await _pool(world, [{}], {"set": "fbsng-dynamic"}, a={}, b={})
    first = await pool.create(1, campaign="a", schedule=AT_ONE)
    assert await pool.seats(first)
    world.clock.advance(2 * times.SECOND)
    second = await pool.create(1, campaign="b", schedule=AT_ONE)
    assert await pool.seats(second) == {}
    assert await pool.told(second) == []
    world.clock.advance(3 * times.SECOND)
    await pool.seat()
    assert await pool.seats(second)
