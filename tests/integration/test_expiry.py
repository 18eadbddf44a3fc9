"""Expired holds: the lead is asked for its decision, and a silent one is not awaited for long."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from node.model import times
from node.model.errors import InvalidDocument, NotAllowed, PeerUnreachable
from node.model.hold_limits import LIFE_MAX
from node.model.wire.participants import (
    HoldRequest,
)
from node.store.database import Notice
from node.timetable import expiry
from tests.support.booking import HOUR, REACH, BookingLead
from tests.support.clocks import START
from tests.support.patience import PATIENCE_S
from tests.support.worlds import (
    DURATION,
    HOLD_LIFE,
    ON_ONE_LOOP,
    book_everywhere,
    commit_request,
    exchange_of,
    hold_everywhere,
    hold_request,
    introduction,
)

pytestmark = ON_ONE_LOOP


async def _negotiate(booker: BookingLead, request: HoldRequest, state: str) -> UUID:
    """Hold an exchange at b and insert the lead's negotiation in this state."""
    exchange = exchange_of(request)
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
    ("state", "states"), [("committed", ["scheduled"]), ("aborted", []), ("open", [])]
)
async def test_an_expired_hold_follows_the_lead(
    booker: BookingLead, state: str, states: list[str]
) -> None:
    """An expired hold follows the lead's decision; an undecided exchange is aborted."""
    request = hold_request(await booker.task(), [HOUR, HOUR + REACH])
    await _negotiate(booker, request, state)
    booker.world.clock.advance(HOLD_LIFE - 1)
    assert await booker.site.node.holds.run_once() == 0
    booker.world.clock.advance(1)
    assert await booker.site.node.holds.run_once() == 1
    assert list((await booker.site.states()).values()) == states
    decision = await booker.lead.rows("SELECT state::text FROM negotiation")
    assert decision[0][0] == ("committed" if states else "aborted")


async def test_an_exchange_its_lead_does_not_know_is_freed(booker: BookingLead) -> None:
    """An exchange of which the lead has no record is aborted (presumed abort)."""
    await booker.hold(hold_request(await booker.task(), [HOUR]))
    booker.world.clock.advance(HOLD_LIFE)
    assert await booker.site.node.holds.run_once() == 1
    assert await booker.site.states() == {}


async def test_a_silent_lead_is_waited_for_less_than_twice_the_life(booker: BookingLead) -> None:
    """A hold of an unreachable lead stays at first but is dropped before twice its life."""
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
    """A commit that was cut off is found when the lead is asked again."""
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
    """A lead that refuses to answer counts as silent, and does not delay other holds."""
    refused_hold = hold_request(await booker.task(), [HOUR])
    await booker.hold(refused_hold)
    lead = await booker.world.site("c")
    task = introduction([lead, booker.site])
    await booker.site.keep(task, lead)
    await booker.site.node.time_line.hold(
        exchange_of(task), lead.identity, hold_request(task, [HOUR + REACH])
    )

    async def refuse(call: tuple[str, str, str], phase: str) -> None:
        if call[:2] == ("b", "a"):
            raise NotAllowed("b is not known here")

    booker.world.watch = refuse
    booker.world.clock.advance(HOLD_LIFE)
    assert await booker.site.node.holds.run_once() == 1
    assert list(await booker.site.states()) == [refused_hold.runs[0].run]
    booker.world.clock.advance(HOLD_LIFE - 2 * times.SECOND)
    assert await booker.site.node.holds.run_once() == 1
    assert await booker.site.states() == {}


async def test_a_run_that_comes_back_is_looked_for_at_once(booker: BookingLead) -> None:
    """The launcher is notified of a run that gets its time back, as it may start soon."""
    site = booker.site
    [low] = await book_everywhere(introduction([site]), site, [site], [HOUR])
    task = introduction([site], priority=5)
    await site.keep(task, site)
    await hold_everywhere(site, [site], hold_request(task, [HOUR], displacing=True))
    listening, restored = asyncio.Event(), asyncio.Event()

    def heard(notice: Notice) -> None:
        site.node.launcher.on_notice(notice)
        if notice.kind == "wake":
            site.node.launcher._woken.clear()
            listening.set()
        if site.node.launcher._woken.is_set:
            restored.set()

    hearing = asyncio.create_task(site.database.listen(heard, site.clock))
    await asyncio.wait_for(listening.wait(), PATIENCE_S)
    booker.world.clock.advance(HOLD_LIFE)
    assert await site.node.holds.run_once() == 1
    assert await site.state(low) == "scheduled"
    await asyncio.wait_for(restored.wait(), PATIENCE_S)
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)


async def test_silent_leads_are_asked_all_at_once(booker: BookingLead) -> None:
    """Silent leads are asked concurrently, so that many holds do not wait for each other."""
    for number in range(20):
        await booker.hold(hold_request(await booker.task(), [HOUR + number * DURATION]))
    count = 0
    all_called = asyncio.Event()

    async def answer_never(call: tuple[str, str, str], phase: str) -> None:
        nonlocal count
        count += 1
        if count == 20:
            all_called.set()
        await all_called.wait()
        raise PeerUnreachable("no answer within 5 s")

    booker.world.watch = answer_never
    booker.world.clock.advance(HOLD_LIFE)
    await asyncio.wait_for(booker.site.node.holds.run_once(), PATIENCE_S)
    booker.world.watch = None
    assert count == 20


async def test_no_lead_holds_for_as_long_as_it_likes(booker: BookingLead) -> None:
    """A hold for longer than two minutes without a decision is refused."""
    request = hold_request(await booker.task(), [HOUR], life=LIFE_MAX + 1)
    with pytest.raises(InvalidDocument, match=r"/life: 2 min 0.000001 s is longer than a hold may"):
        await booker.hold(request)
    assert await booker.site.states() == {}
    assert (await booker.hold(request.model_copy(update={"life": LIFE_MAX}))).held


async def test_nothing_is_held_beyond_the_horizon(booker: BookingLead) -> None:
    """A run that ends beyond the horizon of proposals is refused with the reason."""
    edge = START + times.DAY - DURATION
    answer = await booker.hold(hold_request(await booker.task(), [edge, edge + DURATION]))
    [refusal] = answer.refused
    assert "beyond this node's horizon" in refusal.reason
    assert len(answer.held) == 1


async def test_more_holds_than_are_settled_at_once_are_settled_at_once(
    booker: BookingLead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass settles every expired hold, even those behind the holds of a silent lead."""
    monkeypatch.setattr(expiry, "_EXPIRED_MAX", 2)
    silent = await booker.world.site("c")
    task = introduction([silent, booker.site])
    await booker.site.keep(task, silent)
    for number in range(5):
        hold = hold_request(task, [HOUR + number * REACH], epoch=number)
        await booker.site.node.time_line.hold(exchange_of(hold), silent.identity, hold)
    for number in range(5):
        await booker.hold(hold_request(await booker.task(), [HOUR + (5 + number) * REACH]))
    booker.world.cut = {frozenset("bc")}
    booker.world.clock.advance(HOLD_LIFE)
    assert await booker.site.node.holds.run_once() == 5
    assert list((await booker.site.states()).values()) == ["held"] * 5
