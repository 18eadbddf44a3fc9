"""Questions for nodes that fetch them: each gets its own answer, whatever is lost on the way."""

from __future__ import annotations

import asyncio
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.client import mailboxes
from node.client.mailboxes import PRESENCE_TIMEOUT, Mailbox, Mailboxes
from node.model import times
from node.model.errors import PeerUnreachable, TooLarge
from node.model.shortfall import Shortfall
from node.model.wire.nodes import NodeCard
from node.model.wire.work import (
    QUESTIONS_MAX,
    WAIT_MAX,
    AnsweredQuestion,
    AssignedQuestion,
    Question,
    Reply,
    WorkRequest,
)
from tests.support.clocks import START, ManualClock

B = "ed25519:" + "B" * 42 + "A"
CARD = NodeCard(identity=B, name="b", url=None, address="192.0.2.2")


def question(number: int = 0, body: str = "") -> Question:
    """A question that can be told from others."""
    path = f"/v1/participant/exchanges/{number}"
    return Question(method="GET", path=path, headers={}, body=body)


def request(
    *answers: AnsweredQuestion, working: tuple[UUID, ...] = (), wait: int = 0, missing: int = 0
) -> WorkRequest:
    """A poll."""
    return WorkRequest(
        card=CARD,
        now=START,
        shortfall=missing,
        busy_until=START,
        wait=wait,
        answers=answers,
        working=working,
    )


def answer(given: AssignedQuestion) -> AnsweredQuestion:
    """What a node answers to a question: its path."""
    return AnsweredQuestion(id=given.id, reply=Reply(status=200, body=given.question.path))


async def take(box: Mailbox, asked: WorkRequest) -> list[AssignedQuestion]:
    """What a poll brings."""
    return [AssignedQuestion.model_validate_json(sent) for sent in await box.take(asked)]


async def asked(box: Mailbox, *questions: Question) -> list[asyncio.Task[Reply]]:
    """Questions that have been left."""
    tasks = [asyncio.create_task(box.ask("b", one)) for one in questions]
    while len(box._waiting) < len(tasks):
        await ManualClock().sleep(0)
    return tasks


@pytest.fixture
def box(clock: ManualClock) -> Mailbox:
    """The mailbox of a node that may come at any moment."""
    return Mailboxes(clock, 5).of(B)


async def test_each_gets_its_own_answer(box: Mailbox) -> None:
    """Answers in any order, some of them later, come to who asked for them."""
    tasks = await asked(box, *map(question, range(3)))
    first, second, third = await take(box, request())
    assert await take(box, request(answer(third), working=(first.id, second.id))) == []
    await take(box, request(answer(second), answer(first)))
    replies = await asyncio.gather(*tasks)
    assert [reply.body for reply in replies] == [question(number).path for number in range(3)]


async def test_an_invented_answer_is_nobodys(box: Mailbox) -> None:
    """Whoever has not been given a question cannot answer it, and no name is answered twice."""
    (task,) = await asked(box, question())
    (number,) = box._waiting
    early = AnsweredQuestion(id=number, reply=Reply(status=500))
    await box.take(request(early, AnsweredQuestion(id=uuid4(), reply=Reply(status=500)), wait=0))
    (given,) = await take(box, request())
    twice = AnsweredQuestion(id=given.id, reply=Reply(status=500))
    await box.take(request(answer(given), twice))
    assert (await task).status == 200


async def test_what_was_lost_is_given_again(box: Mailbox) -> None:
    """A question that a node neither answers nor works on never arrived there."""
    (task,) = await asked(box, question())
    lost = await take(box, request())
    found = await take(box, request())
    assert found == lost
    assert await take(box, request(working=(found[0].id,))) == []
    await take(box, request(answer(found[0])))
    assert (await task).status == 200


async def test_a_question_ends_the_wait(box: Mailbox) -> None:
    """A poll that waits is answered as soon as somebody asks."""
    polling = asyncio.create_task(take(box, request(wait=WAIT_MAX)))
    while not box._polls_open:
        await ManualClock().sleep(0)
    (task,) = await asked(box, question(7))
    (given,) = await polling
    assert given.question == question(7)
    task.cancel()


async def test_the_newest_poll_is_served(box: Mailbox) -> None:
    """An older poll, whose connection may be dead, is let go with nothing."""
    old = asyncio.create_task(take(box, request(wait=WAIT_MAX)))
    while not box._polls_open:
        await ManualClock().sleep(0)
    new = asyncio.create_task(take(box, request(wait=WAIT_MAX)))
    assert await old == []
    (task,) = await asked(box, question())
    assert len(await new) == 1
    task.cancel()


async def test_who_does_not_come_is_away(box: Mailbox, clock: ManualClock) -> None:
    """After a while without a poll questions are refused at once, and say since when."""
    await box.take(request())
    clock.advance(PRESENCE_TIMEOUT)
    since = "it fetches its work itself and has not asked since 2026-12-01T00:00:00Z"
    with pytest.raises(PeerUnreachable, match=f"^b cannot be reached: {since}$"):
        await box.ask("b", question())
    await box.take(request())
    (task,) = await asked(box, question())
    task.cancel()


async def test_nobody_waits_longer_than_over_http(clock: ManualClock) -> None:
    """A question that was fetched and not answered in time is not waited for, nor given again."""
    box = Mailboxes(clock, 0.01).of(B)
    (task,) = await asked(box, question())
    assert len(await box.take(request())) == 1
    with pytest.raises(PeerUnreachable, match=r"gave no answer within 0.01 s"):
        await task
    assert await box.take(request()) == []


async def test_there_is_an_end_to_what_waits(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many questions, and one too long, are refused; those that fit together go together."""
    monkeypatch.setattr(mailboxes, "BYTES_MAX", 1000)
    with pytest.raises(TooLarge, match="more than the 1000 bytes"):
        await box.ask("b", question(body="x" * 1000))
    tasks = await asked(box, *(question(number, "x" * 300) for number in range(3)))
    assert [given.question.body for given in await take(box, request())] == ["x" * 300] * 2
    monkeypatch.setattr(mailboxes, "QUESTIONS_WAITING_MAX", 3)
    with pytest.raises(PeerUnreachable, match="3 requests wait for it already"):
        await box.ask("b", question())
    for task in tasks:
        task.cancel()


async def test_so_many_go_together(box: Mailbox) -> None:
    """A poll brings no more questions than a node works on."""
    tasks = await asked(box, *map(question, range(QUESTIONS_MAX + 1)))
    first = await take(box, request())
    assert len(first) == QUESTIONS_MAX
    following = await take(box, request(working=tuple(given.id for given in first)))
    assert [given.question for given in following] == [question(QUESTIONS_MAX)]
    for task in tasks:
        task.cancel()


async def test_a_closed_mailbox_lets_go(box: Mailbox, clock: ManualClock) -> None:
    """When the service ends, no poll waits and nobody asks any more."""
    polling = asyncio.create_task(take(box, request(wait=WAIT_MAX, missing=times.HOUR)))
    while not box._polls_open:
        await ManualClock().sleep(0)
    box.close()
    assert await polling == []
    assert not box.attended
    assert box.figures == Shortfall(times.HOUR, START)


@given(st.lists(st.sampled_from(["lost", "kept", "slow"]), max_size=30), st.integers(1, 6))
def test_nothing_is_lost(fates: list[str], count: int) -> None:
    """Whatever becomes of each poll and its answer, in the end every question has its own."""

    async def story() -> None:
        box = Mailboxes(ManualClock(), 5).of(B)
        tasks = await asked(box, *map(question, range(count)))
        working: dict[UUID, AssignedQuestion] = {}
        answers: dict[UUID, AnsweredQuestion] = {}
        taken: list[UUID] = []
        for fate in [*fates, "kept", "kept", "kept"]:
            sent = tuple(answers.values())
            came = await take(box, request(*sent, working=tuple(working)))
            if fate == "lost":
                continue
            answers.clear()
            taken += [given.id for given in came]
            working |= {given.id: given for given in came}
            if fate == "kept":
                answers |= {number: answer(given) for number, given in working.items()}
                working.clear()
        assert len(set(taken)) == len(taken) == count
        replies = await asyncio.gather(*tasks)
        assert [reply.body for reply in replies] == [question(n).path for n in range(count)]

    asyncio.run(story())
