"""Holds, commits and releases on one node's time line, as its lead sees them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import Conflict, NotAllowed, NotFound, PeerUnreachable
from node.model.runstate import RunState
from node.model.wire.participants import (
    CommitRequest,
    HoldAnswer,
    HoldRequest,
    Introduction,
    ProposalRequest,
)
from node.settings import Settings
from node.store import runs
from tests.clocks import START
from tests.worlds import (
    DURATION,
    HOLD_LIFE,
    Site,
    World,
    commit_request,
    hold_request,
    introduction,
)

HOUR = START + times.HOUR
REACH = times.HOUR


@dataclass
class Booker:
    """One lead, a, that books on one participant, b."""

    world: World
    lead: Site
    site: Site

    async def task(
        self,
        priority: int = 0,
        scheduling_class: SchedulingClass = SchedulingClass.EXCLUSIVE,
        duration: int = DURATION,
    ) -> Introduction:
        """A task that both know."""
        made = introduction(
            [self.lead, self.site],
            priority=priority,
            scheduling_class=scheduling_class,
            duration=duration,
        )
        await self.lead.keep(made, self.lead)
        await self.site.keep(made, self.lead)
        return made

    async def hold(self, request: HoldRequest, exchange: UUID | None = None) -> HoldAnswer:
        """Hold on b."""
        return await self.site.node.time_line.hold(exchange or uuid4(), self.lead.identity, request)

    async def book(self, task: Introduction, *starts: int) -> HoldRequest:
        """Hold and commit on b."""
        exchange, request = uuid4(), hold_request(task, starts)
        await self.hold(request, exchange)
        await self.site.node.time_line.commit(exchange, commit_request(request))
        return request

    async def free(self, *windows: tuple[int, int], priority: int = 0) -> list[tuple[int, int]]:
        """Where an exclusive run of b could go, displacing nothing."""
        request = ProposalRequest(
            task=uuid4(),
            lease_epoch=1,
            scheduling_class=SchedulingClass.EXCLUSIVE,
            duration=times.SECOND,
            priority=priority,
            windows=windows,
        )
        return list((await self.site.node.time_line.propose(request)).free)

    @property
    def time_line(self) -> object:
        """The time line of b."""
        return self.site.node.time_line


@pytest.fixture
async def booker(world: World) -> Booker:
    """A lead and a participant."""
    return Booker(world, await world.site("a"), await world.site("b"))


# -- holds -----------------------------------------------------------------------------------------


async def test_a_hold_books_what_it_can(booker: Booker) -> None:
    """Of three runs two are held; the third is refused and names what is in its way."""
    other = await booker.task(priority=7)
    [theirs] = (await booker.book(other, HOUR)).runs
    request = hold_request(await booker.task(), [HOUR - DURATION, HOUR, HOUR + DURATION])
    answered = await booker.hold(request)
    assert answered.held == (request.runs[0].run, request.runs[2].run)
    [refusal] = answered.refused
    assert refusal.run == request.runs[1].run
    assert "its time was just taken by an exclusive idle run of priority 7" in refusal.reason
    assert refusal.obstacle is not None
    assert (refusal.obstacle.run, refusal.obstacle.starts_at) == (theirs.run, HOUR)
    assert await booker.site.state(request.runs[0].run) == "held"
    assert await booker.site.state(request.runs[1].run) is None


async def test_a_run_whose_start_has_passed_is_refused(booker: Booker) -> None:
    """What comes too late for its start is refused and says so."""
    request = hold_request(await booker.task(), [START - 1, HOUR])
    answered = await booker.hold(request)
    assert answered.held == (request.runs[1].run,)
    assert [refusal.reason for refusal in answered.refused] == ["its start has passed"]


async def test_a_repeated_hold_gets_the_same_answer(booker: Booker) -> None:
    """The same exchange again is answered as before, whatever happened since."""
    await booker.book(await booker.task(), HOUR)
    exchange, request = uuid4(), hold_request(await booker.task(), [HOUR, HOUR + REACH])
    first = await booker.hold(request, exchange)
    booker.world.clock.advance(times.SECOND)
    await booker.book(await booker.task(), HOUR + 2 * REACH)
    assert await booker.hold(request, exchange) == first
    await booker.site.node.time_line.commit(exchange, commit_request(request))
    assert await booker.hold(request, exchange) == first


async def test_a_released_exchange_cannot_be_held(booker: Booker) -> None:
    """A release that overtakes its hold has the last word."""
    task, exchange = await booker.task(), uuid4()
    await booker.site.node.time_line.release(exchange, task.task)
    with pytest.raises(Conflict, match="has been released; open another"):
        await booker.hold(hold_request(task, [HOUR]), exchange)
    assert await booker.site.states() == {}


async def test_an_unknown_task_cannot_be_held(booker: Booker) -> None:
    """A task that was never introduced is not found."""
    request = hold_request(introduction([booker.lead, booker.site]), [HOUR])
    with pytest.raises(NotFound, match="introduce it first"):
        await booker.hold(request)


async def test_a_stale_lease_epoch_is_refused(booker: Booker) -> None:
    """Whoever has seen a newer epoch refuses a worker that lost its lease."""
    task = await booker.task()
    await booker.hold(hold_request(task, [HOUR], epoch=3))
    with pytest.raises(Conflict, match="lease epoch 2 is older than 3"):
        await booker.hold(hold_request(task, [HOUR + REACH], epoch=2))


async def test_another_lead_is_refused(booker: Booker) -> None:
    """Only the node that introduced a task books for it, commits and releases."""
    task, exchange = await booker.task(), uuid4()
    request = hold_request(task, [HOUR])
    stranger = await booker.world.site("c")
    time_line = booker.site.node.time_line
    with pytest.raises(Conflict, match="is led by another node"):
        await time_line.hold(exchange, stranger.identity, request)
    await booker.hold(request, exchange)
    with pytest.raises(NotAllowed, match="led by another node"):
        await time_line.check_lead(exchange, stranger.identity)


async def test_a_task_that_is_over_is_refused(booker: Booker) -> None:
    """No new run is held for a task that was cancelled here."""
    task = await booker.task()
    await booker.site.node.ending.cancel_task(task.task)
    with pytest.raises(Conflict, match="is refused here"):
        await booker.hold(hold_request(task, [HOUR]))


# -- commits and releases --------------------------------------------------------------------------


async def test_a_commit_keeps_the_chosen_runs(booker: Booker) -> None:
    """What is committed is scheduled; the rest of the exchange is free at once."""
    exchange, request = uuid4(), hold_request(await booker.task(), [HOUR, HOUR + REACH])
    await booker.hold(request, exchange)
    answered = await booker.site.node.time_line.commit(exchange, commit_request(request, keep=1))
    assert not answered.late
    assert await booker.site.states() == {request.runs[0].run: "scheduled"}
    freed = (HOUR + REACH, HOUR + REACH + DURATION)
    assert await booker.free((HOUR, HOUR + DURATION), freed) == [freed]


async def test_a_repeated_commit_is_not_late(booker: Booker) -> None:
    """A commit whose answer was lost may come again."""
    exchange, request = uuid4(), hold_request(await booker.task(), [HOUR])
    await booker.hold(request, exchange)
    for _ in range(2):
        answered = await booker.site.node.time_line.commit(exchange, commit_request(request))
        assert not answered.late
    assert await booker.site.states() == {request.runs[0].run: "scheduled"}


async def test_a_late_commit_says_so(booker: Booker) -> None:
    """A commit of a hold that was dropped, or never came, books nothing and says late."""
    exchange, task = uuid4(), await booker.task()
    request = hold_request(task, [HOUR])
    time_line = booker.site.node.time_line
    assert (await time_line.commit(exchange, commit_request(request))).late
    await booker.hold(request, exchange)
    await time_line.release(exchange, task.task)
    assert (await time_line.commit(exchange, commit_request(request))).late
    assert await booker.site.states() == {}


async def test_a_release_after_a_commit_changes_nothing(booker: Booker) -> None:
    """What is decided stays decided."""
    exchange, task = uuid4(), await booker.task()
    request = hold_request(task, [HOUR])
    await booker.hold(request, exchange)
    await booker.site.node.time_line.commit(exchange, commit_request(request))
    await booker.site.node.time_line.release(exchange, task.task)
    assert await booker.site.states() == {request.runs[0].run: "scheduled"}


async def test_only_the_lead_of_a_task_releases_before_a_hold(booker: Booker) -> None:
    """A stranger who guesses the name of an exchange cannot spoil it beforehand."""
    stranger = await booker.world.site("c")
    task, exchange = await booker.task(), uuid4()
    with pytest.raises(NotAllowed, match="led by another node"):
        await booker.site.node.time_line.check_lead(exchange, stranger.identity, task.task)
    assert (await booker.hold(hold_request(task, [HOUR]), exchange)).held


# -- holds that run out ----------------------------------------------------------------------------


async def _negotiate(booker: Booker, request: HoldRequest, state: str) -> UUID:
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
    booker: Booker, state: str, left: list[str]
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


async def test_an_exchange_its_lead_does_not_know_is_freed(booker: Booker) -> None:
    """Presumed abort: what the lead has no record of is not committed."""
    await booker.hold(hold_request(await booker.task(), [HOUR]))
    booker.world.clock.advance(HOLD_LIFE)
    assert await booker.site.node.holds.run_once() == 1
    assert await booker.site.states() == {}


async def test_a_silent_lead_is_waited_for_less_than_twice_the_life(booker: Booker) -> None:
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


async def test_a_lead_that_comes_back_in_time_is_followed(booker: Booker) -> None:
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


async def test_a_lead_that_knows_us_no_more_does_not_keep_holds(booker: Booker) -> None:
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


async def test_silent_leads_are_asked_all_at_once(booker: Booker) -> None:
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


# -- displacement ----------------------------------------------------------------------------------


async def test_a_higher_priority_sets_lower_ones_aside(booker: Booker) -> None:
    """Strictly lower priorities give way to a displacing hold; a release gives them back."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    task, exchange = await booker.task(2), uuid4()
    request = hold_request(task, [HOUR], displacing=True)
    answered = await booker.hold(request, exchange)
    assert (answered.held, answered.set_aside) == ((request.runs[0].run,), 1)
    assert await booker.site.state(low) == "set-aside"
    await booker.site.node.time_line.release(exchange, task.task)
    assert await booker.site.states() == {low: "scheduled"}


@pytest.mark.parametrize("priority", [2, 3])
async def test_equal_or_higher_priorities_stay(booker: Booker, priority: int) -> None:
    """Only strictly lower priorities are displaced."""
    stays = (await booker.book(await booker.task(priority), HOUR)).runs[0].run
    answered = await booker.hold(hold_request(await booker.task(2), [HOUR], displacing=True))
    assert (answered.held, answered.set_aside) == ((), 0)
    assert await booker.site.states() == {stays: "scheduled"}


async def test_nothing_is_displaced_unless_asked_for(booker: Booker) -> None:
    """A hold of the first pass leaves lower priorities alone."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    answered = await booker.hold(hold_request(await booker.task(9), [HOUR]))
    assert (answered.held, answered.set_aside) == ((), 0)
    assert await booker.site.states() == {low: "scheduled"}


async def test_a_running_run_is_never_displaced(booker: Booker) -> None:
    """What runs already goes on, however important the other is."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    booker.world.clock.move_to(HOUR)
    async with booker.site.database.transaction() as connection:
        assert await runs.begin(connection, low, HOUR)
    request = hold_request(await booker.task(9), [HOUR + times.MINUTE], displacing=True)
    answered = await booker.hold(request)
    assert (answered.held, answered.set_aside) == ((), 0)
    assert await booker.site.states() == {low: "running"}


@pytest.mark.parametrize(("before", "left"), [(1, "scheduled"), (0, "set-aside")])
async def test_a_run_about_to_start_is_never_displaced(
    booker: Booker, before: int, left: str
) -> None:
    """Inside the start margin a run is safe; at its edge it still gives way."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    margin = Settings().start_margin
    booker.world.clock.move_to(HOUR - margin + before)
    answered = await booker.hold(hold_request(await booker.task(9), [HOUR], displacing=True))
    assert answered.set_aside == (left == "set-aside")
    assert await booker.site.state(low) == left


async def test_a_commit_displaces_and_tells_the_lead(booker: Booker) -> None:
    """Once the winner is committed, what was set aside is displaced and its lead is told why."""
    lower = await booker.task(1)
    low = (await booker.book(lower, HOUR)).runs[0].run
    task, exchange = await booker.task(2), uuid4()
    request = hold_request(task, [HOUR], displacing=True)
    await booker.hold(request, exchange)
    await booker.site.node.time_line.commit(exchange, commit_request(request))
    assert await booker.site.state(low) == "displaced"
    [(node, kind, body)] = await booker.site.letters()
    assert (node, kind) == (booker.lead.identity, "run-end")
    assert (body["run"], body["state"]) == (str(low), "displaced")
    assert body["displaced_by"] == str(request.runs[0].run)
    reason = f"displaced by a run of higher priority (idle of task {task.task}, priority 2 over 1)"
    assert body["reason"] == reason
    assert await booker.site.reason(low) == reason


async def test_a_set_aside_run_comes_back_when_the_hold_runs_out(booker: Booker) -> None:
    """Expiry gives set-aside runs their time back, as a release does."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    await booker.hold(hold_request(await booker.task(2), [HOUR], displacing=True))
    booker.world.clock.advance(HOLD_LIFE)
    assert await booker.site.node.holds.run_once() == 1
    assert await booker.site.states() == {low: "scheduled"}
    assert await booker.site.letters() == []


async def test_a_set_aside_run_whose_time_is_gone_is_displaced(booker: Booker) -> None:
    """If somebody else has taken the time meanwhile the run is lost, and its lead is told."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    task, exchange = await booker.task(2), uuid4()
    await booker.hold(hold_request(task, [HOUR], displacing=True), exchange)
    await booker.book(await booker.task(0), HOUR - DURATION, HOUR + DURATION)
    thief = await booker.task(0, duration=times.MINUTE)
    await booker.site.execute("UPDATE run SET ends_at = $2 WHERE task_id = $1", task.task, HOUR + 9)
    await booker.book(thief, HOUR + times.MINUTE)
    await booker.site.node.time_line.release(exchange, task.task)
    assert await booker.site.state(low) == "displaced"
    assert "lost its time meanwhile" in (await booker.site.reason(low) or "")
    assert [body["run"] for _, _, body in await booker.site.letters()] == [str(low)]


async def test_a_refused_winner_gives_back_at_once(booker: Booker) -> None:
    """If the winner cannot be booked after all, what gave way for it has its time back."""
    low = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    high = (await booker.book(await booker.task(9), HOUR + DURATION)).runs[0].run
    task = await booker.task(5, duration=2 * DURATION)
    answered = await booker.hold(hold_request(task, [HOUR], displacing=True))
    assert answered.held == ()
    assert await booker.site.states() == {low: "scheduled", high: "scheduled"}


async def test_a_commit_of_a_part_gives_back_the_rest(booker: Booker) -> None:
    """A commit displaces what gave way to the kept runs only."""
    lost, kept = (
        run.run for run in (await booker.book(await booker.task(1), HOUR, 2 * REACH + HOUR)).runs
    )
    exchange = uuid4()
    request = hold_request(await booker.task(2), [HOUR, 2 * REACH + HOUR], displacing=True)
    await booker.hold(request, exchange)
    await booker.site.node.time_line.commit(exchange, commit_request(request, keep=1))
    assert await booker.site.state(lost) == "displaced"
    assert await booker.site.state(kept) == "scheduled"


async def test_a_held_run_that_gave_way_goes_with_its_release(booker: Booker) -> None:
    """A held run set aside by a second hold is gone after both are released; nothing is left."""
    first, second = (uuid4(), await booker.task(1)), (uuid4(), await booker.task(2))
    for exchange, task in (first, second):
        await booker.hold(hold_request(task, [HOUR], displacing=True), exchange)
    for exchange, task in (first, second):
        await booker.site.node.time_line.release(exchange, task.task)
    assert await booker.site.states() == {}
    assert await booker.free((HOUR, HOUR + DURATION)) == [(HOUR, HOUR + DURATION)]


async def test_a_chain_of_displacements_unwinds(booker: Booker) -> None:
    """Three holds over each other: the released ones give back in turn, the first owner wins."""
    owner = (await booker.book(await booker.task(1), HOUR)).runs[0].run
    chain = [(uuid4(), await booker.task(priority)) for priority in (2, 3)]
    for exchange, task in chain:
        await booker.hold(hold_request(task, [HOUR], displacing=True), exchange)
    for exchange, task in reversed(chain):
        await booker.site.node.time_line.release(exchange, task.task)
    assert await booker.site.states() == {owner: "scheduled"}


# -- at the lead -----------------------------------------------------------------------------------


async def test_at_its_lead_a_released_run_waits(booker: Booker) -> None:
    """The slot of a dropped hold is not lost at its lead: it waits, with a reason."""
    task, exchange = await booker.task(), uuid4()
    request = hold_request(task, [HOUR])
    time_line = booker.lead.node.time_line
    await time_line.hold(exchange, booker.lead.identity, request)
    await time_line.release(exchange, task.task)
    [run] = request.runs
    assert await booker.lead.states() == {run.run: "waiting"}
    again = await time_line.hold(uuid4(), booker.lead.identity, request)
    assert again.held == (run.run,)
    assert await booker.lead.states() == {run.run: "held"}


# -- many at once ----------------------------------------------------------------------------------


async def test_of_thirty_overlapping_holds_one_wins(world: World) -> None:
    """Whoever is first has the time; the others are refused, and none meets an error."""
    booker = Booker(world, await world.site("a"), await world.site("b", connections=30))
    requests = [hold_request(await booker.task(), [HOUR + number]) for number in range(30)]
    answers = await asyncio.gather(*(booker.hold(request) for request in requests))
    assert sum(len(answered.held) for answered in answers) == 1
    assert sum(len(answered.refused) for answered in answers) == 29
    assert len(await booker.site.states()) == 1


async def test_concurrent_batches_share_the_time(world: World) -> None:
    """Batches of 288 runs in any order leave no dead-lock, and each time belongs to one of them."""
    booker = Booker(world, await world.site("a"), await world.site("b", connections=10))
    rng = random.Random(7)
    requests = []
    for _ in range(6):
        starts = [HOUR + number * DURATION for number in range(288)]
        rng.shuffle(starts)
        requests.append(hold_request(await booker.task(), starts))
    answers = await asyncio.gather(*(booker.hold(request) for request in requests))
    assert sum(len(answered.held) for answered in answers) == 288
    overlapping = """
    SELECT count(*) FROM run INNER JOIN run AS other ON run.during && other.during
    WHERE run.id < other.id
    """
    assert (await booker.site.rows(overlapping))[0][0] == 0


async def test_concurrent_displacing_batches_end_consistent(world: World) -> None:
    """Batches of growing priority that displace each other leave one owner for each time."""
    booker = Booker(world, await world.site("a"), await world.site("b", connections=10))
    rng = random.Random(8)
    starts = [HOUR + number * DURATION for number in range(50)]
    await booker.book(await booker.task(0), *starts)
    exchanges = []
    for priority in range(1, 6):
        rng.shuffle(starts)
        task = await booker.task(priority)
        exchanges.append((uuid4(), task, hold_request(task, starts, displacing=True)))
    await asyncio.gather(*(booker.hold(request, exchange) for exchange, _, request in exchanges))
    time_line = booker.site.node.time_line
    await asyncio.gather(
        *(time_line.release(exchange, task.task) for exchange, task, _ in exchanges)
    )
    kept = await booker.site.rows("SELECT priority, state::text, count(*) FROM run GROUP BY 1, 2")
    states = {(row[0], row[1]): row[2] for row in kept}
    assert set(states) <= {(0, str(RunState.BOOKED)), (0, str(RunState.DISPLACED))}
    assert sum(states.values()) == 50
    told = [body["run"] for _, _, body in await booker.site.letters()]
    assert len(told) == states.get((0, str(RunState.DISPLACED)), 0)


async def test_a_commit_against_a_release_has_one_winner(booker: Booker) -> None:
    """Of a commit and a release at the same instant one is first, and both say the same."""
    for number in range(10):
        task, exchange = await booker.task(), uuid4()
        request = hold_request(task, [HOUR + number * REACH])
        await booker.hold(request, exchange)
        time_line = booker.site.node.time_line
        commit = CommitRequest(runs=(request.runs[0].run,), data={})
        answered, _ = await asyncio.gather(
            time_line.commit(exchange, commit), time_line.release(exchange, task.task)
        )
        left = await booker.site.state(request.runs[0].run)
        assert left == (None if answered.late else "scheduled")
