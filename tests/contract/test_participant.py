"""The contract of a participant, for this node itself, a node over HTTP, and one in pull mode."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from lead.model.participants import ImpactSource, ParticipantClient
from node.client.peers import Peers, via_own_node
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import Conflict, InvalidDocument, NotFound
from node.model.wire.impacts import HOURS, ImpactRequest
from node.model.wire.participants import (
    HoldAnswer,
    HoldRequest,
    Introduction,
    Obstacle,
    ProposalRequest,
)
from node.model.wire.tasks import Participant as Listed
from node.model.wire.tasks import Schedule
from node.service import NodeService
from node.store import tasks
from node.tasks.acceptance import stored_task
from node.trust.signer import Signer
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import fetching, know, served
from tests.support.worlds import (
    DURATION,
    commit_request,
    exchange_of,
    hold_request,
    introduce,
    release_of,
)

HOUR = START + times.HOUR
FETCHES = "peer that fetches"
FETCHES_BESIDE = "peer that fetches, asked by a process beside the node"
WINDOW = (HOUR, HOUR + times.HOUR)


@dataclass
class Party:
    """A participant under test, who leads it, and where it really is."""

    participant: ParticipantClient
    impacts: ImpactSource
    lead: NodeService
    node: NodeService

    def task(
        self, *, reference: object = None, duration: int = DURATION, **options: object
    ) -> Introduction:
        """An idle task of this participant alone, whose runs may follow one upon the other."""
        schedule = Schedule(start=START - times.DAY, repeat=duration, slip=0)
        listed = [_listed(self.node)]
        made = introduce(listed, duration=duration, schedule=schedule, **options)  # type: ignore[arg-type]
        return made.model_copy(update={"reference": reference})

    async def hold(self, request: HoldRequest) -> HoldAnswer:
        """Hold runs in the exchange that their lead would open."""
        return await self.participant.hold(exchange_of(request), request)

    async def known(self, *, duration: int = DURATION, **options: object) -> Introduction:
        """A task that has been introduced and accepted."""
        made = self.task(duration=duration, **options)
        if self.node is self.lead:
            async with self.node.database.transaction() as connection:
                await tasks.keep(connection, stored_task(made, self.lead.card.identity))
        answered = await self.participant.introduce(made)
        assert answered.accepted
        return made


def _listed(node: NodeService) -> Listed:
    card = node.card
    return Listed(node=card.identity, name=card.name, url=card.url, address=card.address)


@pytest.fixture(params=["own node", "peer over HTTP", FETCHES, FETCHES_BESIDE])
async def party(
    request: pytest.FixtureRequest, new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Party]:
    """Each implementation of the port in turn."""
    async with contextlib.AsyncExitStack() as stack:
        lead = await stack.enter_async_context(served("a", await new_database(), clock, tmp_path))
        if request.param == "own node":
            yield Party(lead.local_participant, lead.local_participant, lead, lead)
            return
        pull = request.param in {FETCHES, FETCHES_BESIDE}
        far = await stack.enter_async_context(
            served("b", await new_database(), clock, tmp_path, pull=pull)
        )
        await know(lead, far)
        await know(far, lead)
        if pull:
            assert lead.directory.by_identity(far.card.identity).url is None
            await stack.enter_async_context(fetching(far))
        peer = lead.peer(far.card.identity)
        if request.param == FETCHES_BESIDE:
            peers = Peers(lead.peers._session, Signer(lead.key, clock.now), timeout_s=PATIENCE_S)
            own = peers.client_of(lead.card.identity, "a", lead.card.url)
            peers.carry = via_own_node(peers, own)
            peer = peers.client_of(far.card.identity, "b", None)
        yield Party(peer, peer, lead, far)


def _proposal(task: Introduction, *windows: tuple[int, int]) -> ProposalRequest:
    return ProposalRequest(
        task=task.task,
        lease_epoch=1,
        scheduling_class=task.scheduling_class,
        duration=task.duration,
        priority=task.priority,
        windows=windows,
    )


@pytest.mark.nightly
async def test_it_says_who_it_is(party: Party) -> None:
    """A participant carries the identity and the name of its node."""
    assert party.participant.identity == party.node.card.identity
    assert party.participant.name == party.node.card.name


@pytest.mark.mostly_nightly
async def test_it_accepts_what_it_can_do(party: Party) -> None:
    """An introduction is accepted with the tools that are offered, and may be repeated."""
    task = await party.known()
    answered = await party.participant.introduce(task)
    assert (answered.accepted, answered.reason, answered.tools) == (True, None, ("sleep",))


@pytest.mark.mostly_nightly
async def test_it_considers_without_keeping(party: Party) -> None:
    """A task that is only considered gets the answer of an introduction, and is not known after."""
    task = party.task()
    answered = await party.impacts.consider(task)
    assert (answered.accepted, answered.reason, answered.tools) == (True, None, ("sleep",))
    with pytest.raises(NotFound, match="introduce it first"):
        await party.hold(hold_request(task, [HOUR]))
    answered = await party.impacts.consider(task.model_copy(update={"test": "juggling"}))
    assert "there is no test 'juggling'" in (answered.reason or "")


@pytest.mark.mostly_nightly
async def test_it_looks_ahead_without_booking(party: Party) -> None:
    """The answer names the runs that would be displaced, and their time is free afterwards."""
    low = await party.known()
    exchange = exchange_of(low)
    kept = hold_request(low, [HOUR])
    await party.participant.hold(exchange, kept)
    await party.participant.commit(exchange, commit_request(kept))
    runs = ((HOUR + DURATION, HOUR + 2 * DURATION), (HOUR, HOUR + times.MINUTE))
    asked = ImpactRequest(
        since=START,
        scheduling_class=SchedulingClass.EXCLUSIVE,
        priority=1,
        runs=runs,
        displacing=(1,),
    )
    answered = await party.impacts.impact(asked)
    assert [(lost.window, lost.run) for lost in answered.displaced] == [(1, kept.runs[0].run)]
    assert answered.displaced_count == 1
    assert len(answered.hours) == HOURS
    full = [hour for hour in answered.hours if hour.before or hour.after]
    assert [(hour.before, hour.after) for hour in full] == [(DURATION, DURATION + times.MINUTE)]
    equal = asked.model_copy(update={"priority": 0})
    assert (await party.impacts.impact(equal)).displaced == ()
    answer = await party.participant.propose(_proposal(low, WINDOW))
    assert answer.free == ((HOUR + DURATION, HOUR + times.HOUR),)


@pytest.mark.mostly_nightly
async def test_what_others_have(party: Party) -> None:
    """Neither background runs nor those of the mesh that is asked for stand in anybody's way."""
    for start, mesh, scheduling_class in (
        (HOUR, "ours", SchedulingClass.EXCLUSIVE),
        (HOUR + DURATION, "theirs", SchedulingClass.NORMAL),
        (HOUR + 2 * DURATION, None, SchedulingClass.EXCLUSIVE),
        (HOUR + 3 * DURATION, "theirs", SchedulingClass.BACKGROUND),
    ):
        reference = None if mesh is None else {"mesh": mesh}
        task = await party.known(scheduling_class=scheduling_class, reference=reference)
        kept = hold_request(task, [start])
        exchange = exchange_of(kept)
        await party.participant.hold(exchange, kept)
        await party.participant.commit(exchange, commit_request(kept))
    runs = ((HOUR - times.HOUR, HOUR),)
    options = {"since": START, "scheduling_class": SchedulingClass.NORMAL, "priority": 0}
    for mesh, share in (("ours", 2), ("theirs", 2), (None, 3)):
        asked = ImpactRequest.model_validate({**options, "runs": runs, "mesh": mesh})
        hours = (await party.impacts.impact(asked)).hours
        assert sum(hour.others for hour in hours) == share * DURATION
        assert sum(hour.before for hour in hours) == 4 * DURATION


@pytest.mark.mostly_nightly
async def test_it_refuses_a_test_it_does_not_know(party: Party) -> None:
    """A refusal is an answer, with the reason."""
    task = party.task().model_copy(update={"test": "juggling"})
    answered = await party.participant.introduce(task)
    assert not answered.accepted
    assert "there is no test 'juggling'" in (answered.reason or "")


@pytest.mark.mostly_nightly
async def test_it_refuses_a_spec_it_does_not_understand(party: Party) -> None:
    """A wrong field of the spec is named in the refusal."""
    task = party.task().model_copy(update={"spec": {"duration": "soon"}})
    answered = await party.participant.introduce(task)
    assert not answered.accepted
    assert "/test/spec/duration" in (answered.reason or "")


@pytest.mark.mostly_nightly
async def test_it_refuses_the_place_of_another(party: Party) -> None:
    """A node that is addressed by another node's identity refuses and says so."""
    task = party.task()
    stranger = task.participants[0].model_copy(update={"node": "ed25519:" + "A" * 43})
    answered = await party.participant.introduce(
        task.model_copy(update={"participants": (stranger,)})
    )
    assert not answered.accepted
    assert answered.reason == "the introduction is addressed to another node; check its URL and key"


@pytest.mark.mostly_nightly
async def test_it_offers_its_free_time(party: Party) -> None:
    """A proposal has the free ranges, the clock and the horizon."""
    task = await party.known()
    answered = await party.participant.propose(_proposal(task, WINDOW))
    assert answered.free == (WINDOW,)
    assert answered.free_displacing is None
    assert answered.now == START
    assert answered.horizon == START + times.DAY


@pytest.mark.mostly_nightly
async def test_it_offers_what_lower_priorities_would_leave(party: Party) -> None:
    """Both passes are answered at once, and what stands in the way is named."""
    low = await party.known()
    await party.hold(hold_request(low, [HOUR]))
    high = await party.known(priority=1)
    busy = (HOUR, HOUR + DURATION)
    answered = await party.participant.propose(_proposal(high, busy, WINDOW))
    assert answered.free == ((busy[1], WINDOW[1]),)
    assert answered.free_displacing == (busy, WINDOW)
    equal = await party.known()
    answered = await party.participant.propose(_proposal(equal, busy))
    assert answered.free == ()
    [obstacle] = answered.obstacles
    assert isinstance(obstacle, Obstacle)
    assert (obstacle.window, obstacle.starts_at, obstacle.test) == (0, HOUR, "idle")
    assert "busy with an exclusive idle run" in (answered.reason or "")


@pytest.mark.mostly_nightly
async def test_it_holds_and_repeats_its_answer(party: Party) -> None:
    """A hold takes the time, and the same exchange again gets the same answer."""
    task = await party.known()
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR, HOUR + DURATION])
    first = await party.participant.hold(exchange, request)
    assert first.held == tuple(run.run for run in request.runs)
    assert await party.participant.hold(exchange, request) == first
    answered = await party.participant.propose(_proposal(task, (HOUR, HOUR + 2 * DURATION)))
    assert answered.free == ()


@pytest.mark.mostly_nightly
async def test_it_refuses_run_by_run(party: Party) -> None:
    """An occupied slot is refused with its obstacle, and the others are held."""
    task = await party.known()
    await party.hold(hold_request(task, [HOUR]))
    other = await party.known()
    request = hold_request(other, [HOUR, HOUR + DURATION])
    answered = await party.hold(request)
    assert answered.held == (request.runs[1].run,)
    [refusal] = answered.refused
    assert refusal.run == request.runs[0].run
    assert isinstance(refusal.obstacle, Obstacle)
    assert refusal.obstacle.task == task.task


@pytest.mark.mostly_nightly
async def test_it_displaces_when_told_to(party: Party) -> None:
    """A displacing hold sets lower priorities aside, and its release gives them back."""
    low = await party.known()
    kept = hold_request(low, [HOUR])
    exchange = exchange_of(low)
    await party.participant.hold(exchange, kept)
    await party.participant.commit(exchange, commit_request(kept))
    high = await party.known(priority=1)
    second = exchange_of(high)
    answered = await party.participant.hold(second, hold_request(high, [HOUR], displacing=True))
    assert answered.set_aside == 1
    await party.participant.release(second, release_of(high))
    answered = await party.hold(hold_request(high, [HOUR], epoch=2))
    [refusal] = answered.refused
    assert isinstance(refusal.obstacle, Obstacle)
    assert refusal.obstacle.run == kept.runs[0].run


@pytest.mark.mostly_nightly
async def test_it_commits_once(party: Party) -> None:
    """A commit is taken, and a repeated one is no error; the dropped runs are free."""
    task = await party.known()
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR, HOUR + DURATION])
    await party.participant.hold(exchange, request)
    for _ in range(2):
        assert not (await party.participant.commit(exchange, commit_request(request, keep=1))).late
    span = (HOUR, HOUR + 2 * DURATION)
    answered = await party.participant.propose(_proposal(task, span))
    assert answered.free == ((HOUR + DURATION, HOUR + 2 * DURATION),)


@pytest.mark.mostly_nightly
async def test_it_releases_as_often_as_asked(party: Party) -> None:
    """A release frees the time at once and may come again."""
    task = await party.known()
    exchange = exchange_of(task)
    await party.participant.hold(exchange, hold_request(task, [HOUR]))
    for _ in range(2):
        await party.participant.release(exchange, release_of(task))
    answered = await party.participant.propose(_proposal(task, WINDOW))
    assert answered.free == (WINDOW,)


@pytest.mark.mostly_nightly
async def test_it_says_when_a_commit_is_late(party: Party) -> None:
    """A commit of what was released, or was never held, is answered as late."""
    task = await party.known()
    exchange = exchange_of(task)
    request = hold_request(task, [HOUR])
    assert (await party.participant.commit(uuid4(), commit_request(request))).late
    await party.participant.hold(exchange, request)
    await party.participant.release(exchange, release_of(task))
    assert (await party.participant.commit(exchange, commit_request(request))).late


@pytest.mark.mostly_nightly
async def test_a_release_that_comes_first_wins(party: Party) -> None:
    """A hold that its own release has overtaken is a conflict."""
    task = await party.known()
    exchange = exchange_of(task)
    await party.participant.release(exchange, release_of(task))
    with pytest.raises(Conflict, match="has been released"):
        await party.participant.hold(exchange, hold_request(task, [HOUR]))


@pytest.mark.mostly_nightly
async def test_it_does_not_hold_for_unknown_tasks(party: Party) -> None:
    """A task that was never introduced is not found, so that its lead introduces it."""
    with pytest.raises(NotFound, match="introduce it first"):
        await party.hold(hold_request(party.task(), [HOUR]))


@pytest.mark.mostly_nightly
async def test_it_refuses_an_old_lease(party: Party) -> None:
    """A worker that lost its lease is told so."""
    task = await party.known()
    await party.hold(hold_request(task, [HOUR], epoch=2))
    with pytest.raises(Conflict, match="lease epoch 1 has been superseded by epoch 2"):
        await party.hold(hold_request(task, [HOUR + times.HOUR]))


@pytest.mark.mostly_nightly
async def test_it_lets_background_runs_share(party: Party) -> None:
    """Background runs are held whatever else is booked."""
    task = await party.known()
    await party.hold(hold_request(task, [HOUR]))
    quiet = await party.known(scheduling_class=SchedulingClass.BACKGROUND)
    answered = await party.participant.propose(_proposal(quiet, WINDOW))
    assert answered.free == (WINDOW,)
    assert (await party.hold(hold_request(quiet, [HOUR]))).held


@pytest.mark.mostly_nightly
async def test_no_hold_is_lost_among_many(party: Party) -> None:
    """The largest batch is held in one exchange."""
    task = await party.known(duration=times.MINUTE)
    starts = [HOUR + number * times.MINUTE for number in range(512)]
    answered = await party.hold(hold_request(task, starts))
    assert len(answered.held) == 512


@pytest.mark.mostly_nightly
async def test_it_refuses_a_tool_it_does_not_know(party: Party) -> None:
    """A hold for a tool that is not there is refused, and nothing is booked."""
    task = await party.known()
    request = hold_request(task, [HOUR]).model_copy(update={"tool": "magic"})
    with pytest.raises(InvalidDocument, match="there is no tool 'magic' here"):
        await party.hold(request)
    answered = await party.participant.propose(_proposal(task, WINDOW))
    assert answered.free == (WINDOW,)
