"""Messages to other nodes arrive in an order in which they can be understood."""

from __future__ import annotations

import pytest

from node.journal.outbox import Deliver, Outbox
from node.model import times
from node.model.errors import NotAuthenticated, PeerUnreachable, UnknownPeer
from node.model.wire.tasks import Schedule
from node.runtime.instruments import Instruments
from node.store import outbox
from node.store.outbox import Message, MessageKind, OutgoingMessage
from tests.support.clocks import START
from tests.support.worlds import ON_ONE_LOOP, Site, World, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR


def _outbox(site: Site, deliver: Deliver, *kinds: MessageKind) -> Outbox:
    return Outbox(site.database, site.clock, kinds, deliver, Instruments())


async def test_the_end_of_a_task_does_not_overtake_its_change(world: World) -> None:
    """A participant that missed a change hears of it before it hears that the task is over."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=HOUR), accepted=None)
    await a.keep(task, a)
    heard: list[MessageKind] = []
    there = False

    async def deliver(message: Message) -> None:
        if not there:
            raise PeerUnreachable("b is away")
        heard.append(message.kind)

    delivering = _outbox(a, deliver, MessageKind.TASK_CHANGE, MessageKind.TASK_END)
    await a.node.editing.pause(task.task)
    for _ in range(4):  # its pauses grow
        await delivering.run_once()
        a.clock.advance(8 * times.SECOND)
    await delivering.run_once()
    await a.node.termination.cancel_task(task.task)
    there = True
    assert await delivering.start_due() == pytest.approx(5)
    await delivering.run_once()
    assert heard == []
    a.clock.advance(30 * times.SECOND)
    await delivering.run_once()
    await delivering.run_once()
    assert heard == [MessageKind.TASK_CHANGE, MessageKind.TASK_END]


@pytest.mark.parametrize("refusal", [NotAuthenticated, UnknownPeer])
async def test_a_signature_that_is_not_taken_is_sent_again(
    world: World, refusal: type[NotAuthenticated]
) -> None:
    """A message answered with 401 stays, and is sent once the receiver takes the signature."""
    a, _ = await world.two()
    async with a.database.transaction() as connection:
        posts = [OutgoingMessage("b", MessageKind.RUN_END, {"number": n}) for n in range(3)]
        await outbox.post_all(connection, posts, a.clock.now())
    taken = False
    heard: list[int] = []

    async def deliver(message: Message) -> None:
        if not taken:
            raise refusal("the signature is not valid here")
        heard.append(message.body["number"])

    delivering = _outbox(a, deliver, MessageKind.RUN_END)
    await delivering.run_once()
    rows = await a.rows("SELECT attempts, last_error FROM outbox")
    assert [tuple(row) for row in rows] == 3 * [(1, "the signature is not valid here")]
    taken = True
    a.clock.advance(2 * times.SECOND)
    await delivering.run_once()
    assert heard == [0, 1, 2]
    assert await a.outbox_messages() == []


async def test_messages_behind_one_that_failed_wait_no_longer_than_it(world: World) -> None:
    """A node that was away for a moment hears all that waits for it as soon as it is back."""
    a, b = await world.two()
    tasks = [introduction([a, b], schedule=Schedule(start=HOUR)) for _ in range(5)]
    for task in tasks:
        for site in (a, b):
            await site.keep(task, a)
    world.cut = {frozenset("ab")}
    for task in tasks:
        await a.node.termination.cancel_task(task.task)
    await world.pass_time(2 * times.SECOND)
    assert len(await a.outbox_messages()) == len(tasks)
    world.cut = set()
    await world.pass_time(6 * times.SECOND)
    assert await a.outbox_messages() == []
    states = await b.rows("SELECT DISTINCT state::text FROM task")
    assert [row[0] for row in states] == ["cancelled"]


@pytest.mark.parametrize(("is_away", "longest"), [(False, 30), (True, 300)])
async def test_a_node_that_answers_others_is_tried_again_within_half_a_minute(
    world: World, *, is_away: bool, longest: int
) -> None:
    """Pauses grow to five minutes only for a node that does not answer anything."""
    a, b = await world.two()
    task = introduction([a, b], schedule=Schedule(start=HOUR))
    for site in (a, b):
        await site.keep(task, a)
    world.cut = {frozenset("ab")}
    await a.node.termination.cancel_task(task.task)
    since = a.clock.now() if is_away else None
    await a.execute("UPDATE node SET unreachable_since = $1 WHERE NOT is_self", since)
    await a.execute("UPDATE outbox SET attempts = 12")
    await world.settle()
    [row] = await a.rows("SELECT next_at FROM outbox")
    assert row[0] - a.clock.now() == longest * times.SECOND
