"""Runs of lower priority give way: set aside by a hold, then displaced or restored."""

from __future__ import annotations

import pytest

from node.model import times
from node.model.wire.participants import CommitRequest
from node.runtime.settings import Settings
from node.store import runs
from tests.support.booking import HOUR, REACH, BookingLead
from tests.support.worlds import (
    DURATION,
    HOLD_LIFE,
    ON_ONE_LOOP,
    commit_request,
    exchange_of,
    hold_request,
    release_of,
)

pytestmark = ON_ONE_LOOP


async def test_a_higher_priority_sets_lower_ones_aside(booker: BookingLead) -> None:
    """A displacing hold sets strictly lower priorities aside; a release restores them."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    task = await booker.task(2)
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR], displacing=True)
    answer = await booker.hold(request, exchange)
    assert (answer.held, answer.set_aside) == ((request.runs[0].run,), 1)
    assert await booker.site.state(low) == "set-aside"
    await booker.site.node.time_line.release(exchange, release_of(task))
    assert await booker.site.states() == {low: "scheduled"}


@pytest.mark.parametrize("priority", [2, 3])
async def test_equal_or_higher_priorities_stay(booker: BookingLead, priority: int) -> None:
    """Equal and higher priorities are not displaced."""
    stays = (await booker.book(await booker.task(priority), HOUR)).runs[0].run
    answer = await booker.hold(hold_request(await booker.task(2), [HOUR], displacing=True))
    assert (answer.held, answer.set_aside) == ((), 0)
    assert await booker.site.states() == {stays: "scheduled"}


async def test_nothing_is_displaced_unless_asked_for(booker: BookingLead) -> None:
    """A hold without ``displacing`` leaves lower priorities alone."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    answer = await booker.hold(hold_request(await booker.task(9), [HOUR]))
    assert (answer.held, answer.set_aside) == ((), 0)
    assert await booker.site.states() == {low: "scheduled"}


async def test_a_running_run_is_never_displaced(booker: BookingLead) -> None:
    """A run that has started is not displaced by any priority."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    booker.world.clock.move_to(HOUR)
    async with booker.site.database.transaction() as connection:
        assert await runs.begin(connection, low, HOUR)
    request = hold_request(await booker.task(9), [HOUR + times.MINUTE], displacing=True)
    answer = await booker.hold(request)
    assert (answer.held, answer.set_aside) == ((), 0)
    assert await booker.site.states() == {low: "running"}


@pytest.mark.parametrize(("before", "state"), [(1, "scheduled"), (0, "set-aside")])
async def test_a_run_about_to_start_is_never_displaced(
    booker: BookingLead, before: int, state: str
) -> None:
    """A run is displaced at the edge of the start margin but not inside it."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    margin = Settings().start_margin
    booker.world.clock.move_to(HOUR - margin + before)
    answer = await booker.hold(hold_request(await booker.task(9), [HOUR], displacing=True))
    assert answer.set_aside == (state == "set-aside")
    assert await booker.site.state(low) == state


async def test_a_commit_displaces_and_tells_the_lead(booker: BookingLead) -> None:
    """The commit of the winner displaces the run set aside and sends its lead the reason."""
    lower = await booker.task(1)
    low = (await booker.book(lower, HOUR)).runs[0].run
    task = await booker.task(2)
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR], displacing=True)
    await booker.hold(request, exchange)
    await booker.site.node.time_line.commit(exchange, commit_request(request))
    assert await booker.site.state(low) == "displaced"
    [(node, kind, body)] = await booker.site.outbox_messages()
    assert (node, kind) == (booker.lead.identity, "run-end")
    assert (body["run"], body["state"]) == (str(low), "displaced")
    assert body["displaced_by"] == str(request.runs[0].run)
    reason = f"displaced by a run of higher priority (idle of task {task.task}, priority 2 over 1)"
    assert body["reason"] == reason
    assert await booker.site.reason(low) == reason


@pytest.mark.parametrize(
    ("winner", "whose"), [("bob", "a task of another user"), ("alice", "task ")]
)
async def test_a_reason_names_no_task_of_another_user(
    booker: BookingLead, winner: str, whose: str
) -> None:
    """A user is told of the task that displaced their run only if it is their own."""
    lower, higher = await booker.task(1), await booker.task(2)
    low = (await booker.book(lower, HOUR)).runs[0].run
    of = "UPDATE task SET requester = $2 WHERE id = $1"
    await booker.site.execute(of, lower.task, "alice")
    await booker.site.execute(of, higher.task, winner)
    request = hold_request(higher, [HOUR], displacing=True)
    await booker.hold(request, exchange_of(higher))
    await booker.site.node.time_line.commit(exchange_of(higher), commit_request(request))
    reason = str(await booker.site.reason(low))
    assert reason.startswith(f"displaced by a run of higher priority (idle of {whose}")
    assert (str(higher.task) in reason) == (winner == "alice")


async def test_a_set_aside_run_comes_back_when_the_hold_runs_out(booker: BookingLead) -> None:
    """The expiry of a hold restores the runs that it had set aside."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    await booker.hold(hold_request(await booker.task(2), [HOUR], displacing=True))
    booker.world.clock.advance(HOLD_LIFE)
    assert await booker.site.node.holds.run_once() == 1
    assert await booker.site.states() == {low: "scheduled"}
    assert await booker.site.outbox_messages() == []


async def test_a_set_aside_run_whose_time_is_gone_is_displaced(booker: BookingLead) -> None:
    """A run whose time was taken while it was set aside is displaced, and its lead is notified."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    task = await booker.task(2)
    exchange = exchange_of(task)
    await booker.hold(hold_request(task, [HOUR], displacing=True), exchange)
    await booker.book(await booker.task(0), HOUR - DURATION, HOUR + DURATION)
    thief = await booker.task(0, duration=times.MINUTE)
    await booker.site.execute("UPDATE run SET ends_at = $2 WHERE task_id = $1", task.task, HOUR + 9)
    await booker.book(thief, HOUR + times.MINUTE)
    await booker.site.node.time_line.release(exchange, release_of(task))
    assert await booker.site.state(low) == "displaced"
    assert "lost its time meanwhile" in (await booker.site.reason(low) or "")
    assert [body["run"] for _, _, body in await booker.site.outbox_messages()] == [str(low)]


async def test_a_refused_winner_gives_back_at_once(booker: BookingLead) -> None:
    """A refused winner restores at once what was set aside for it."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    high = (await booker.book(await booker.task(9), HOUR + DURATION)).runs[0].run
    task = await booker.task(5, duration=2 * DURATION)
    answer = await booker.hold(hold_request(task, [HOUR], displacing=True))
    assert answer.held == ()
    assert await booker.site.states() == {low: "scheduled", high: "scheduled"}


async def test_a_commit_of_a_part_gives_back_the_rest(booker: BookingLead) -> None:
    """A commit displaces only what was set aside for the runs it keeps."""
    lost, kept = (
        run.run for run in (await booker.book(await booker.task(1), HOUR, 2 * REACH + HOUR)).runs
    )
    request = hold_request(await booker.task(2), [HOUR, 2 * REACH + HOUR], displacing=True)
    exchange = exchange_of(request)
    await booker.hold(request, exchange)
    await booker.site.node.time_line.commit(exchange, commit_request(request, keep=1))
    assert await booker.site.state(lost) == "displaced"
    assert await booker.site.state(kept) == "scheduled"


async def test_a_held_run_that_gave_way_goes_with_its_release(booker: BookingLead) -> None:
    """A held run that was set aside by a second hold is deleted with its own release."""
    tasks = [await booker.task(1), await booker.task(2)]
    for task in tasks:
        await booker.hold(hold_request(task, [HOUR], displacing=True))
    for task in tasks:
        await booker.site.node.time_line.release(exchange_of(task), release_of(task))
    assert await booker.site.states() == {}
    assert await booker.free((HOUR, HOUR + DURATION)) == [(HOUR, HOUR + DURATION)]


async def test_a_chain_of_displacements_unwinds(booker: BookingLead) -> None:
    """Holds that displace each other restore in turn when released, down to the first owner."""
    owner = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    chain = [await booker.task(priority) for priority in (2, 3)]
    for task in chain:
        await booker.hold(hold_request(task, [HOUR], displacing=True))
    for task in reversed(chain):
        await booker.site.node.time_line.release(exchange_of(task), release_of(task))
    assert await booker.site.states() == {owner: "scheduled"}


async def test_what_gave_way_to_a_displaced_run_is_not_forgotten(booker: BookingLead) -> None:
    """A run set aside by a hold is settled, too, when that hold is displaced itself."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    task = await booker.task(2)
    held = exchange_of(task)
    await booker.hold(hold_request(task, [HOUR], displacing=True), held)
    winner = hold_request(await booker.task(3), [HOUR], displacing=True)
    exchange = exchange_of(winner)
    await booker.hold(winner, exchange)
    await booker.site.node.time_line.commit(exchange, commit_request(winner))
    await booker.site.node.time_line.release(held, release_of(task))
    assert await booker.site.state(low) == "displaced"
    assert str(low) in {body["run"] for _, _, body in await booker.site.outbox_messages()}


async def test_a_commit_displaces_for_its_own_runs_only(booker: BookingLead) -> None:
    """A commit that names runs of another exchange has no effect on those."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    held = hold_request(await booker.task(2), [HOUR], displacing=True)
    await booker.hold(held)
    other = hold_request(await booker.task(1), [HOUR + REACH])
    exchange = exchange_of(other)
    await booker.hold(other, exchange)
    named = (*commit_request(other).runs, *commit_request(held).runs)
    await booker.site.node.time_line.commit(exchange, CommitRequest(runs=named, data={}))
    assert await booker.site.state(low) == "set-aside"
