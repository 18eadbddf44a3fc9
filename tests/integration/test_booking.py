"""Holds, commits and releases on one node's timeline, as a lead sees them."""

from __future__ import annotations

import asyncio
import random

import pytest

from node.model import times
from node.model.errors import Conflict, NotAllowed, NotFound
from node.model.reasons import start_has_passed
from node.model.runstate import RunState
from node.model.wire.participants import (
    CommitRequest,
    Obstacle,
)
from tests.support.booking import HOUR, REACH, BookingLead
from tests.support.clocks import START
from tests.support.worlds import (
    DURATION,
    ON_ONE_LOOP,
    World,
    commit_request,
    exchange_of,
    hold_request,
    introduction,
    release_of,
)

pytestmark = ON_ONE_LOOP

# -- holds -----------------------------------------------------------------------------------------


async def test_a_hold_books_what_it_can(booker: BookingLead) -> None:
    """A hold books the free runs and names the obstacle of each refused one."""
    other = await booker.task(priority=7)
    [theirs] = (await booker.book(other, HOUR)).runs
    request = hold_request(await booker.task(), [HOUR - DURATION, HOUR, HOUR + DURATION])
    answer = await booker.hold(request)
    assert answer.held == (request.runs[0].run, request.runs[2].run)
    [refusal] = answer.refused
    assert refusal.run == request.runs[1].run
    assert "its time was just taken by an exclusive idle run of priority 7" in refusal.reason
    assert isinstance(refusal.obstacle, Obstacle)
    assert (refusal.obstacle.run, refusal.obstacle.starts_at) == (theirs.run, HOUR)
    assert await booker.site.state(request.runs[0].run) == "held"
    assert await booker.site.state(request.runs[1].run) is None


async def test_ports_in_a_row_lie_in_the_range(
    booker: BookingLead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consecutive ports lie in the range and do not overlap while enough are free."""
    ports_of_node = booker.site.node.time_line._holds._ports
    monkeypatch.setattr(ports_of_node, "_range", range(9000, 9022))
    used_ports: set[int] = set()
    for at, count in enumerate((4, 1, 4, 2)):
        monkeypatch.setattr(ports_of_node, "_needs_port", lambda *_, count=count: count)
        answer = await booker.hold(hold_request(await booker.task(), [HOUR + at * REACH]))
        ports = range(answer.data["port"], answer.data["port"] + answer.data.get("ports", 1))
        assert len(ports) == count
        assert 9000 <= ports[0] <= ports[-1] <= 9021
        assert used_ports.isdisjoint(ports)
        used_ports.update(ports)


async def test_where_no_ports_in_a_row_are_free_the_hold_is_refused(
    booker: BookingLead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hold without enough consecutive free ports is refused with the range in the reason."""
    ports_of_node = booker.site.node.time_line._holds._ports
    monkeypatch.setattr(ports_of_node, "_needs_port", lambda *_: 4)
    cases = ((9002, "9000-9002"), (9006, None), (9006, "9000-9006"))
    for at, (last, reason) in enumerate(cases):
        monkeypatch.setattr(ports_of_node, "_range", range(9000, last + 1))
        request = hold_request(await booker.task(), [HOUR + at * REACH])
        answer = await booker.hold(request)
        if reason is None:
            assert answer.held == (request.runs[0].run,)
            assert 9000 <= answer.data["port"] <= 9003
            continue
        assert answer.held == ()
        assert answer.data == {}
        [refusal] = answer.refused
        assert refusal.reason.startswith(f"no 4 ports in a row are free in {reason} (PARLEY_PORT_")


async def test_a_run_whose_start_has_passed_is_refused(booker: BookingLead) -> None:
    """A run whose start has passed is refused with that reason."""
    request = hold_request(await booker.task(), [START - 1, HOUR])
    answer = await booker.hold(request)
    assert answer.held == (request.runs[1].run,)
    assert [refusal.reason for refusal in answer.refused] == [start_has_passed()]


async def test_a_repeated_hold_gets_the_same_answer(booker: BookingLead) -> None:
    """A repeated hold gets the first answer, whatever has changed since."""
    await booker.book(await booker.task(), HOUR)
    request = hold_request(await booker.task(), [HOUR, HOUR + REACH])
    exchange = exchange_of(request)
    first = await booker.hold(request, exchange)
    booker.world.clock.advance(times.SECOND)
    await booker.book(await booker.task(), HOUR + 2 * REACH)
    assert await booker.hold(request, exchange) == first
    await booker.site.node.time_line.commit(exchange, commit_request(request))
    assert await booker.hold(request, exchange) == first


async def test_a_released_exchange_cannot_be_held(booker: BookingLead) -> None:
    """A hold is refused if its release has overtaken it."""
    task = await booker.task()
    exchange = exchange_of(task)
    await booker.site.node.time_line.release(exchange, release_of(task))
    with pytest.raises(Conflict, match="has been released; open a new exchange"):
        await booker.hold(hold_request(task, [HOUR]), exchange)
    assert await booker.site.states() == {}


async def test_an_unknown_task_cannot_be_held(booker: BookingLead) -> None:
    """A hold for a task that was never introduced is refused as not found."""
    request = hold_request(introduction([booker.lead, booker.site]), [HOUR])
    with pytest.raises(NotFound, match="introduce it first"):
        await booker.hold(request)


async def test_a_stale_lease_epoch_is_refused(booker: BookingLead) -> None:
    """A hold under an older lease epoch than the newest seen is refused."""
    task = await booker.task()
    await booker.hold(hold_request(task, [HOUR], epoch=3))
    with pytest.raises(Conflict, match="lease epoch 2 has been superseded by epoch 3"):
        await booker.hold(hold_request(task, [HOUR + REACH], epoch=2))


async def test_another_lead_is_refused(booker: BookingLead) -> None:
    """Only the lead of a task can hold and commit its runs."""
    task = await booker.task()
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR])
    stranger = await booker.world.site("c")
    time_line = booker.site.node.time_line
    with pytest.raises(Conflict, match="is led by another node"):
        await time_line.hold(exchange, stranger.identity, request)
    await booker.hold(request, exchange)
    with pytest.raises(NotAllowed, match="led by another node"):
        await time_line.commit(exchange, commit_request(request), stranger.identity)


async def test_a_task_that_is_over_is_refused(booker: BookingLead) -> None:
    """A hold for a task that was cancelled here is refused."""
    task = await booker.task()
    await booker.site.node.termination.cancel_task(task.task)
    with pytest.raises(Conflict, match="is refused here"):
        await booker.hold(hold_request(task, [HOUR]))


# -- commits and releases --------------------------------------------------------------------------


async def test_a_commit_keeps_the_chosen_runs(booker: BookingLead) -> None:
    """A commit schedules the runs it names and frees the others at once."""
    request = hold_request(await booker.task(), [HOUR, HOUR + REACH])
    exchange = exchange_of(request)
    await booker.hold(request, exchange)
    answer = await booker.site.node.time_line.commit(exchange, commit_request(request, keep=1))
    assert not answer.late
    assert await booker.site.states() == {request.runs[0].run: "scheduled"}
    freed = (HOUR + REACH, HOUR + REACH + DURATION)
    assert await booker.free((HOUR, HOUR + DURATION), freed) == [freed]


async def test_a_repeated_commit_is_not_late(booker: BookingLead) -> None:
    """A repeated commit succeeds like the first one."""
    request = hold_request(await booker.task(), [HOUR])
    exchange = exchange_of(request)
    await booker.hold(request, exchange)
    for _ in range(2):
        answer = await booker.site.node.time_line.commit(exchange, commit_request(request))
        assert not answer.late
    assert await booker.site.states() == {request.runs[0].run: "scheduled"}


async def test_a_late_commit_says_so(booker: BookingLead) -> None:
    """A commit of a hold that was dropped, or never arrived, books nothing and reports late."""
    task = await booker.task()
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR])
    time_line = booker.site.node.time_line
    assert (await time_line.commit(exchange, commit_request(request))).late
    await booker.hold(request, exchange)
    await time_line.release(exchange, release_of(task))
    assert (await time_line.commit(exchange, commit_request(request))).late
    assert await booker.site.states() == {}


async def test_a_release_after_a_commit_changes_nothing(booker: BookingLead) -> None:
    """A release after the commit has no effect."""
    task = await booker.task()
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR])
    await booker.hold(request, exchange)
    await booker.site.node.time_line.commit(exchange, commit_request(request))
    await booker.site.node.time_line.release(exchange, release_of(task))
    assert await booker.site.states() == {request.runs[0].run: "scheduled"}


@pytest.mark.nightly
async def test_only_the_lead_of_a_task_releases_before_a_hold(booker: BookingLead) -> None:
    """A node that does not lead the task cannot release an exchange in advance."""
    stranger = await booker.world.site("c")
    task = await booker.task()
    exchange = exchange_of(task)
    with pytest.raises(NotAllowed, match="led by another node"):
        await booker.site.node.time_line.release(exchange, release_of(task), stranger.identity)
    assert (await booker.hold(hold_request(task, [HOUR]), exchange)).held


# -- at the lead -----------------------------------------------------------------------------------


async def test_at_its_lead_a_released_run_waits(booker: BookingLead) -> None:
    """A released run waits at its lead, with a reason, and can be held again."""
    task = await booker.task()
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR])
    time_line = booker.lead.node.time_line
    await time_line.hold(exchange, booker.lead.identity, request)
    await time_line.release(exchange, release_of(task))
    [run] = request.runs
    assert await booker.lead.states() == {run.run: "waiting"}
    request = hold_request(task, [HOUR], epoch=2)
    again = await time_line.hold(exchange_of(request), booker.lead.identity, request)
    assert again.held == (run.run,)
    assert await booker.lead.states() == {run.run: "held"}


# -- many at once ----------------------------------------------------------------------------------


async def test_of_thirty_overlapping_holds_one_wins(world: World) -> None:
    """Thirty concurrent overlapping holds result in one booked run and 29 refusals."""
    booker = BookingLead(world, await world.site("a"), await world.site("b", connections=30))
    requests = [hold_request(await booker.task(), [HOUR + number]) for number in range(30)]
    answers = await asyncio.gather(*(booker.hold(request) for request in requests))
    assert sum(len(answer.held) for answer in answers) == 1
    assert sum(len(answer.refused) for answer in answers) == 29
    assert len(await booker.site.states()) == 1


@pytest.mark.nightly
async def test_concurrent_batches_share_the_time(world: World) -> None:
    """Concurrent batches in any order cause no deadlock, and each time has one owner."""
    booker = BookingLead(world, await world.site("a"), await world.site("b", connections=10))
    rng = random.Random(7)
    requests = []
    for _ in range(6):
        starts = [START + number * DURATION for number in range(288)]
        rng.shuffle(starts)
        requests.append(hold_request(await booker.task(), starts))
    answers = await asyncio.gather(*(booker.hold(request) for request in requests))
    assert sum(len(answer.held) for answer in answers) == 288
    overlapping = """
    SELECT count(*) FROM run INNER JOIN run AS other ON run.during && other.during
    WHERE run.id < other.id
    """
    assert (await booker.site.rows(overlapping))[0][0] == 0


async def test_concurrent_displacing_batches_end_consistent(world: World) -> None:
    """Concurrent displacing batches of growing priority leave one owner of each time."""
    booker = BookingLead(world, await world.site("a"), await world.site("b", connections=10))
    rng = random.Random(8)
    starts = [HOUR + number * DURATION for number in range(50)]
    await booker.book(await booker.task(0), *starts)
    exchanges = []
    for priority in range(1, 6):
        rng.shuffle(starts)
        task = await booker.task(priority)
        exchanges.append((exchange_of(task), task, hold_request(task, starts, displacing=True)))
    await asyncio.gather(*(booker.hold(request, exchange) for exchange, _, request in exchanges))
    time_line = booker.site.node.time_line
    await asyncio.gather(
        *(time_line.release(exchange, release_of(task)) for exchange, task, _ in exchanges)
    )
    rows = await booker.site.rows("SELECT priority, state::text, count(*) FROM run GROUP BY 1, 2")
    states = {(row[0], row[1]): row[2] for row in rows}
    assert set(states) <= {(0, str(RunState.BOOKED)), (0, str(RunState.DISPLACED))}
    assert sum(states.values()) == 50
    messages = [body["run"] for _, _, body in await booker.site.outbox_messages()]
    assert len(messages) == states.get((0, str(RunState.DISPLACED)), 0)


async def test_a_commit_against_a_release_has_one_winner(booker: BookingLead) -> None:
    """A concurrent commit and release agree on which came first."""
    for number in range(10):
        task = await booker.task()
        exchange = exchange_of(task)
        request = hold_request(task, [HOUR + number * REACH])
        await booker.hold(request, exchange)
        time_line = booker.site.node.time_line
        commit = CommitRequest(runs=(request.runs[0].run,), data={})
        answer, _ = await asyncio.gather(
            time_line.commit(exchange, commit), time_line.release(exchange, release_of(task))
        )
        state = await booker.site.state(request.runs[0].run)
        assert state == (None if answer.late else "scheduled")
