"""Holds that run out: the lead is asked, and a silent one is not waited for too long."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest

from node.model import times
from node.model.errors import NotAllowed, PeerUnreachable
from node.model.wire.participants import (
    HoldRequest,
)
from node.store.database import Notice
from node.timetable import expiry
from tests.support.booking import HOUR, REACH, BookingLead
from tests.support.clocks import START
from tests.support.worlds import (
    DURATION,
    HOLD_LIFE,
    ON_ONE_LOOP,
    book_everywhere,
    commit_request,
    hold_everywhere,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP


async def _negotiate(booker: BookingLead, request: HoldRequest, state: str) -> UUID:
    """The lead's side of an exchange that b holds."""
    exchange = uuid4()
    await booker.lead.execute(
        "INSERT INTO negotiation VALUES ($1, $2, $3::negotiation_state, 1, $4, $5, $6, $7)",
        exchange,
        request.task,
        state,
        [run.run for run in request.runs],
        commit_request(request, keep=1).model_dump(mode="json") if state == "committed" else None,
        START,
        START + HOLD_LIFE,
    )
    await booker.hold(request, exchange)
    return exchange


@pytest.mark.parametrize(
    ("state", "left"), [("committed", ["scheduled"]), ("aborted", []), ("open", [])]
)
async def test_an_expired_hold_follows_the_lead(
    booker: BookingLead, state: str, left: list[str]
) -> None:
    """A lead that committed is followed; one that aborted, or had not decided in time, too."""
    request = hold_request(await booker.task(), [HOUR, HOUR + REACH])
    await _negotiate(booker, request, state)
    booker.world.clock.advance(HOLD_LIFE - 1)
    assert await booker.site.node.holds.run_once() == 0
    booker.world.clock.advance(1)
    assert await booker.site.node.holds.run_once() == 1
    assert list((await booker.site.states()).values()) == left
    decision = await booker.lead.rows("SELECT state::text FROM negotiation")
    assert decision[0][0] == ("committed" if left else "aborted")


async def test_an_exchange_its_lead_does_not_know_is_freed(booker: BookingLead) -> None:
    """Presumed abort: what the lead has no record of is not committed."""
    await booker.hold(hold_request(await booker.task(), [HOUR]))
    booker.world.clock.advance(HOLD_LIFE)
    assert await booker.site.node.holds.run_once() == 1
    assert await booker.site.states() == {}


async def test_a_silent_lead_is_waited_for_less_than_twice_the_life(booker: BookingLead) -> None:
    """While the lead cannot be reached the hold stays, but is gone before twice its life."""
    request = hold_request(await booker.task(), [HOUR])
    await _negotiate(booker, request, "committed")
    booker.world.cut = {frozenset("ab")}
    booker.world.clock.advance(HOLD_LIFE)
    assert await booker.site.node.holds.run_once() == 0
    assert await booker.site.state(request.runs[0].run) == "held"
    booker.world.clock.advance(HOLD_LIFE - 2 * times.SECOND)
    await booker.site.node.holds.run_once()
    assert await booker.site.states() == {}


async def test_a_lead_that_comes_back_in_time_is_followed(booker: BookingLead) -> None:
    """A commit that was only cut off is found by asking again."""
    request = hold_request(await booker.task(), [HOUR])
    await _negotiate(booker, request, "committed")
    booker.world.cut = {frozenset("ab")}
    booker.world.clock.advance(HOLD_LIFE)
    await booker.site.node.holds.run_once()
    booker.world.cut = set()
    booker.world.clock.advance(times.SECOND)
    assert await booker.site.node.holds.run_once() == 1
    assert list((await booker.site.states()).values()) == ["scheduled"]


async def test_a_lead_that_knows_us_no_more_does_not_keep_holds(booker: BookingLead) -> None:
    """A lead that refuses to answer is as silent as one that is away; other holds go on."""
    refused = hold_request(await booker.task(), [HOUR])
    await booker.hold(refused)
    lead = await booker.world.site("c")
    task = introduction([lead, booker.site])
    await booker.site.keep(task, lead)
    await booker.site.node.time_line.hold(
        uuid4(), lead.identity, hold_request(task, [HOUR + REACH])
    )

    async def refuse(call: tuple[str, str, str], phase: str) -> None:
        if call[:2] == ("b", "a"):
            raise NotAllowed("b is not known here")

    booker.world.watch = refuse
    booker.world.clock.advance(HOLD_LIFE)
    assert await booker.site.node.holds.run_once() == 1
    assert list(await booker.site.states()) == [refused.runs[0].run]
    booker.world.clock.advance(HOLD_LIFE - 2 * times.SECOND)
    assert await booker.site.node.holds.run_once() == 1
    assert await booker.site.states() == {}


async def test_a_run_that_comes_back_is_looked_for_at_once(booker: BookingLead) -> None:
    """The launcher hears of a run that gets its time back: it may have to start soon."""
    site = booker.site
    [low] = await book_everywhere(introduction([site]), site, [site], [HOUR])
    task = introduction([site], priority=5)
    await site.keep(task, site)
    await hold_everywhere(site, [site], hold_request(task, [HOUR], displacing=True))
    listening, back = asyncio.Event(), asyncio.Event()

    def heard(notice: Notice) -> None:
        site.node.launcher.heard(notice)
        if notice.kind == "wake":
            site.node.launcher._woken.clear()
            listening.set()
        if site.node.launcher._woken.is_set:
            back.set()

    hearing = asyncio.create_task(site.database.listen(heard, site.clock))
    await asyncio.wait_for(listening.wait(), 10)
    booker.world.clock.advance(HOLD_LIFE)
    assert await site.node.holds.run_once() == 1
    assert await site.state(low) == "scheduled"
    await asyncio.wait_for(back.wait(), 10)
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)


async def test_silent_leads_are_asked_all_at_once(booker: BookingLead) -> None:
    """Many holds of a lead that takes long to say nothing do not wait for each other."""
    for number in range(20):
        await booker.hold(hold_request(await booker.task(), [HOUR + number * DURATION]))
    asked = 0
    all_asked = asyncio.Event()

    async def silent(call: tuple[str, str, str], phase: str) -> None:
        nonlocal asked
        asked += 1
        if asked == 20:
            all_asked.set()
        await all_asked.wait()
        raise PeerUnreachable("no answer within 5 s")

    booker.world.watch = silent
    booker.world.clock.advance(HOLD_LIFE)
    await asyncio.wait_for(booker.site.node.holds.run_once(), 10)
    booker.world.watch = None
    assert asked == 20


async def test_no_lead_holds_for_as_long_as_it_likes(booker: BookingLead) -> None:
    """A hold is asked about after ten minutes at the latest, whatever life its lead wishes it."""
    await booker.hold(hold_request(await booker.task(), [HOUR], life=times.DAY))
    booker.world.clock.advance(10 * times.MINUTE)
    assert await booker.site.node.holds.run_once() == 1
    assert await booker.site.states() == {}


async def test_nothing_is_held_beyond_the_horizon(booker: BookingLead) -> None:
    """A run that would end later than a proposal may offer is refused, with the reason."""
    edge = START + times.DAY - DURATION
    answered = await booker.hold(hold_request(await booker.task(), [edge, edge + DURATION]))
    [refused] = answered.refused
    assert "beyond this node's horizon" in refused.reason
    assert len(answered.held) == 1


async def test_more_holds_than_are_settled_at_once_are_settled_at_once(
    booker: BookingLead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One look settles every hold that ran out, also behind those of a lead that says nothing."""
    monkeypatch.setattr(expiry, "_EXPIRED_MAX", 2)
    silent = await booker.world.site("c")
    task = introduction([silent, booker.site])
    await booker.site.keep(task, silent)
    for number in range(5):
        hold = hold_request(task, [HOUR + number * REACH])
        await booker.site.node.time_line.hold(uuid4(), silent.identity, hold)
    for number in range(5):
        await booker.hold(hold_request(await booker.task(), [HOUR + (5 + number) * REACH]))
    booker.world.cut = {frozenset("bc")}
    booker.world.clock.advance(HOLD_LIFE)
    assert await booker.site.node.holds.run_once() == 5
    assert list((await booker.site.states()).values()) == ["held"] * 5
