"""Quotas of bytes per period bind every task: with named participants, and of pools in all sets."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.tasks import TaskDocument
from tests.support.clocks import START
from tests.support.pool_worlds import Pooled, known_as_they_are, pooled
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP

AT = START - START % times.HOUR + times.HOUR
RATE = 80_000_000
"""Ten seconds of this are 100 MB at each end."""


async def _campaign(site: Site, quota: str | None, name: str = "ops", **more: Any) -> None:
    quotas = {} if quota is None else {"bytes": quota}
    created = CampaignDocument.model_validate({"name": name, "quotas": quotas, **more})
    await site.node.campaigns.create(created)


async def _named(
    site: Site, hours: int = 0, campaign: str = "ops", rate: int | None = RATE, **schedule: Any
) -> UUID:
    """Create and plan a throughput task from a to b, which moves 200 MB a run; return it."""
    spec = {"source": "a", "dest": "b", "duration": "PT10S", "omit": "PT0S", "rate_bps": rate}
    start = times.format_instant(AT + hours * times.HOUR)
    document = TaskDocument.model_validate(
        {
            "test": {"type": "throughput", "spec": spec},
            "schedule": {"start": start, "slip": "PT10M", **schedule},
            "campaign": campaign,
        }
    )
    task, _ = await site.node.admission.create(document, None)
    await site.plan()
    return task


async def _starts(site: Site) -> list[int]:
    """Return the hours after ``AT`` in which booked runs start."""
    rows = await site.rows("SELECT starts_at FROM run WHERE state = 'booked' ORDER BY 1")
    return [(row[0] - AT) // times.HOUR for row in rows]


async def _reasons(site: Site) -> list[str]:
    rows = await site.rows("SELECT reason FROM run WHERE state = 'waiting' ORDER BY slot, 1")
    return [row[0] for row in rows]


async def test_named_runs_beyond_the_quota_wait_and_say_until_when(world: World) -> None:
    """Two runs of 200 MB fit into 500 MB per period; the third one waits with all figures."""
    a, _ = await world.two()
    await _campaign(a, "500M/PT3H")
    for hours in (0, 1, 2):
        await _named(a, hours)
    assert await _starts(a) == [0, 1]
    until = times.to_the_second(AT + 3 * times.HOUR)
    [reason] = await _reasons(a)
    assert "ops has moved or booked 400 MB of 500 MB per 3 h, and wants 200 MB more" in reason
    assert reason.endswith(f", until {until}")
    await _named(a, 3)
    assert await _starts(a) == [0, 1, 3], "the first run is out of this period"


async def test_a_run_before_others_counts_with_them(world: World) -> None:
    """The quota holds in each period, whichever of its runs was booked first."""
    a, _ = await world.two()
    await _campaign(a, "500M/PT3H")
    for hours in (3, 4, 2):
        await _named(a, hours)
    assert await _starts(a) == [3, 4]


async def test_the_runs_of_one_task_count_beside_each_other(world: World) -> None:
    """A recurring task gets as many runs as the quota permits, in one decision."""
    a, _ = await world.two()
    await _campaign(a, "500M/P1D")
    await _named(a, repeat="PT1H", max_runs=4)
    assert await _starts(a) == [0, 1]
    assert len(await _reasons(a)) == 2


async def test_a_cancelled_run_gives_its_bytes_back(world: World) -> None:
    """The bytes that a cancelled run would have moved are free for the next."""
    a, _ = await world.two()
    await _campaign(a, "200M/P1D")
    first = await _named(a)
    await a.node.termination.cancel_task(first)
    await _named(a, 1)
    assert await _starts(a) == [1]
    assert await _reasons(a) == []


async def test_a_quota_includes_the_campaigns_below(world: World) -> None:
    """A parent's quota is for all its descendants together, and not for others."""
    a, _ = await world.two()
    await _campaign(a, "200M/P1D")
    await _campaign(a, None, "left", parent="ops")
    await _named(a, 0, "left")
    await _named(a, 1, "ops")
    await _named(a, 2, "default")
    assert await _starts(a) == [0, 2]


@pytest.mark.parametrize(
    ("quota", "rate", "words"),
    [
        ("100M/P1D", RATE, "200 MB at once are more than ops may ever move, 100 MB per day"),
        ("100M/P1D", None, "nobody knows what this run moves; give its spec a rate, or say"),
    ],
)
async def test_what_never_fits_says_what_to_do(
    world: World, quota: str, rate: int | None, words: str
) -> None:
    """A run above the quota by itself, or of an unknown amount, is refused with a remedy."""
    a, _ = await world.two()
    await _campaign(a, quota)
    await _named(a, rate=rate)
    [reason] = await _reasons(a)
    assert words in reason


async def test_nodes_that_state_their_rate_make_the_amount_known(world: World) -> None:
    """TCP without a rate counts as filling the slowest of its nodes."""
    a = await world.site("a")
    await world.site("b", attributes={"mbps": 80})
    await known_as_they_are(world)
    await _campaign(a, "300M/P1D")
    for hours in (0, 1):
        await _named(a, hours, rate=None)
    assert await _starts(a) == [0]


@pytest.mark.nightly
async def test_tasks_decided_at_the_same_time_do_not_both_take_the_rest(world: World) -> None:
    """Bytes are counted again when runs are decided, one decision after the other."""
    a, _ = await world.two()
    await _campaign(a, "400M/P1D")
    plan, a.plan = a.plan, _nothing  # type: ignore[method-assign]
    for hours in range(5):
        await _named(a, hours)
    await plan()
    assert len(await _starts(a)) == 2
    assert len(await _reasons(a)) == 3


async def _nothing() -> None:
    """Plan nothing yet."""


async def _seats(pool: Pooled, hours: int, *, runs: int = 1, k: int = 1) -> int:
    """Create a pool task of runs of 100 MB on each of its nodes; return how many seats it gets."""
    spec = {"dest": "lead", "duration": "PT10S", "omit": "PT0S", "rate_bps": RATE}
    start = times.format_instant(AT + hours * times.HOUR)
    document = TaskDocument.model_validate(
        {
            "test": {"type": "throughput", "spec": spec},
            "participants": {"pool": "europe", "k": k, "min_k": 1},
            "schedule": {"start": start, "repeat": "PT1H", "slip": "PT5M", "max_runs": runs},
            "campaign": "ops",
        }
    )
    task, _ = await pool.lead.node.admission.create(document, None)
    pool.world.clock.advance(5 * times.SECOND)
    await pool.seat()
    return sum(len(term) for term in (await pool.seats(task)).values())


@pytest.mark.parametrize("policy", ["pscheduler", "campaign-default", "fbsng-dynamic"])
@pytest.mark.nightly
async def test_pool_tasks_are_within_the_quota_in_every_set(world: World, policy: str) -> None:
    """Seats are given as far as the quota goes, and the refusal has its figures."""
    pool = await pooled(world, [{}, {}], policy={"set": policy})
    await _campaign(pool.lead, "500M/P1D")
    assert await _seats(pool, 0) == 1
    assert await _seats(pool, 1) == 1
    assert await _seats(pool, 2, runs=3) == 0
    [(sentence,)] = await pool.lead.rows("SELECT sentence FROM decision ORDER BY id DESC LIMIT 1")
    assert "ops has moved or booked" in sentence
    assert "of 500 MB per day" in sentence
