"""Quotas of campaigns and resources of nodes limit the seats given, and refusals name them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

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
EXACTLY = {**AT_ONE, "slip": "PT0S"}


async def _pool(
    world: World,
    attributes: Sequence[Mapping[str, Any]],
    policy: Mapping[str, Any],
    **campaigns: Mapping[str, Any],
) -> Pooled:
    """Create a pool of nodes with these attributes, with these policies and campaigns."""
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
    """Create a throughput task from ``k`` nodes of the pool to its lead at ``rate`` Mb/s."""
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
    """Return axis, rule, figures and sentence of a task's latest first refusal."""
    rows = await pool.lead.rows(
        "SELECT trace, sentence FROM decision WHERE task_id = $1 ORDER BY id DESC LIMIT 1", task
    )
    trace, sentence = rows[0]
    decision = json.loads(trace) if isinstance(trace, str) else trace
    refusal = decision["verdicts"][0]
    assert refusal["sentence"] in sentence
    return refusal["axis"], refusal["rule"], refusal["figures"], refusal["sentence"]


@pytest.mark.nightly
async def test_a_quota_refuses_what_would_exceed_it(world: World) -> None:
    """A campaign that uses 600 of 1,000 Mb/s cannot use another 600 at that time, only later."""
    quota = {"lab": {"quotas": {"mbps": 1000}}, "free": {}}
    pool = await _pool(world, [{}, {}], {"set": "fbsng-quota"}, **quota)
    assert await pool.seats(await _traffic(pool, "lab", 600))
    more = await _traffic(pool, "lab", 600, EXACTLY)
    assert await pool.seats(more) == {}
    axis, rule, figures, sentence = await _verdict(pool, more)
    assert (axis, rule) == ("throttle", "quota")
    assert (figures["used"], figures["wanted"], figures["quota"]) == (600, 600, 1000)
    until = "2026-12-01T01:00:16Z"
    assert sentence == f"lab uses 600 mbps and wants 600 more, of at most 1000, until {until}"
    assert await pool.seats(await _traffic(pool, "lab", 400)), "the rest is available"
    later = {"start": "2026-12-01T02:00:00Z", "max_runs": 1}
    assert await pool.seats(await _traffic(pool, "lab", 600, later))
    assert await pool.seats(await _traffic(pool, "free", 600)), "this campaign has no quota"


async def test_a_quota_holds_for_every_run_of_a_term(world: World) -> None:
    """Usage in the third hour refuses a term whose first run would fit."""
    quota = {"lab": {"quotas": {"mbps": 1000}}}
    pool = await _pool(world, [{}, {}], {"set": "campaign-default"}, **quota)
    third = {"start": "2026-12-01T03:00:00Z", "max_runs": 1}
    # A booked run counts at its lead, too: 800 of 1,000, so that the seat is kept.
    booked = await _traffic(pool, "lab", 400, third)
    assert await pool.seats(booked)
    every_hour = {**EXACTLY, "max_runs": 4}
    more = await _traffic(pool, "lab", 700, every_hour)
    assert await pool.seats(more) == {}
    assert (await _verdict(pool, more))[:2] == ("throttle", "quota")
    fewer = {"start": "2026-12-01T01:00:00Z", "max_runs": 2}
    assert await pool.seats(await _traffic(pool, "lab", 700, fewer))


async def test_who_fills_the_path_takes_all_that_a_node_has(world: World) -> None:
    """TCP without a rate counts as all that a node has; small tests do not count."""
    quota = {"lab": {"quotas": {"mbps": 500}}}
    pool = await _pool(world, [{"mbps": 1000}, {"mbps": 200}], {"set": "fbsng-quota"}, **quota)
    pings = await pool.create(1, campaign="lab", schedule=AT_ONE)
    assert await pool.seats(pings)
    task = await _traffic(pool, "lab", None)
    assert await pool.seats(task) == {}
    assert (await _verdict(pool, task))[3] == "lab uses 0 mbps and wants 1000 more, of at most 500"


async def test_a_node_that_has_too_little_is_not_asked(world: World) -> None:
    """A rate beyond one node's resources goes to the other, and beyond both to none."""
    pool = await _pool(world, [{"mbps": 100}, {"mbps": 1000}], {"set": "pscheduler"}, lab={})
    task = await _traffic(pool, "lab", 600)
    assert await pool.seats(task) == {1: {1: "n2"}}
    nodes_asked = [call[1] for call in world.calls if call[2] == "propose"]
    assert "n1" not in nodes_asked
    none = await _traffic(pool, "lab", 2000)
    axis, rule, figures, sentence = await _verdict(pool, none)
    assert (axis, rule, figures["has"], figures["wanted"]) == (
        *("feasible", "too little room"),
        *(100, 2000),
    )
    assert sentence == "n1 has 100 of 100 mbps left then, but 2000 are needed"


async def test_what_fills_a_node_comes_after_what_fills_it(world: World) -> None:
    """Runs that cannot overlap do not share resources: the second one slips."""
    pool = await _pool(world, [{"mbps": 1000}], {"set": "pscheduler"}, lab={})
    for _ in range(2):
        assert await pool.seats(await _traffic(pool, "lab", None)) == {1: {1: "n1"}}


@pytest.mark.nightly
async def test_limits_of_what_is_under_way_hold_for_later_runs_too(world: World) -> None:
    """A limit on concurrent nodes refuses a term whose second hour would exceed it."""
    limits = {"lab": {"limits": {"nodes": {"hard": 2}}}}
    pool = await _pool(world, [{}, {}, {}], {"set": "maui-throttle"}, **limits)
    second = {"start": "2026-12-01T02:00:00Z", "max_runs": 1}
    assert await pool.seats(await pool.create(1, campaign="lab", schedule=second))
    both = {**EXACTLY, "max_runs": 2}
    task = await pool.create(2, campaign="lab", schedule=both, request={"min_k": 2})
    assert await pool.seats(task) == {}
    axis, rule, figures, sentence = await _verdict(pool, task)
    assert (axis, rule, figures["wanted"], figures["limit"]) == ("throttle", "active limit", 3, 2)
    until = "2026-12-01T02:01:00Z"
    assert sentence == f"lab would have 3 nodes at once, of at most 2 (hard), until {until}"


async def test_all_that_is_booked_ahead_counts_as_outstanding(world: World) -> None:
    """An hour booked for tonight counts towards the limit of a run this morning."""
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
    """A node is not asked before its reported busy time, except by runs that may displace."""
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
    assert await pool.seats(await pool.create(1, schedule=three)), "the last run has time"


async def test_nodes_that_need_work_are_asked_first(world: World) -> None:
    """Nodes that report missing work are asked first, the one that misses most before all."""
    pool = await _pool(world, [{}, {}, {}], {"set": "boinc-fetch"})
    now, horizon = world.clock.now(), 24 * times.HOUR
    full = Shortfall(0, now + 20 * times.HOUR)
    reported = [full, Shortfall(horizon // 4, now), Shortfall(horizon // 2, now)]
    async with pool.lead.database.transaction() as connection:
        for node, figures in zip(pool.nodes, reported, strict=True):
            await nodes.keep_figures(connection, node.identity, figures)
    task = await pool.create(1, schedule=AT_ONE, kind="background")
    assert await pool.seats(task) == {1: {1: "n3"}}
    three = await pool.create(3, schedule=AT_ONE, kind="background")
    assert list((await pool.seats(three))[1].values()) == ["n3", "n2", "n1"]


async def test_nodes_that_are_tied_to_a_campaign_serve_no_other(world: World) -> None:
    """A node assigned to one campaign serves no other in the partition policy."""
    pool = await _pool(world, [{"campaigns": "ops"}], {"set": "fbsng-partition"}, ops={}, lab={})
    task = await pool.create(1, campaign="lab", schedule=AT_ONE)
    axis, rule, _, sentence = await _verdict(pool, task)
    assert (axis, rule, sentence) == ("feasible", "partition", "n1 serves only ops")
    world.clock.advance(5 * times.SECOND)
    assert await pool.seats(await pool.create(1, campaign="ops", schedule=AT_ONE))


async def test_what_comes_at_once_is_decided_on_together(world: World) -> None:
    """Tasks that arrive within five seconds are decided on together, by price."""
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
