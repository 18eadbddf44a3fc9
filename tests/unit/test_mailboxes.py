"""Questions for nodes that fetch them: each gets its own answer, whatever message is lost."""

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
    """Return a question that can be told from others."""
    path = f"/v1/participant/exchanges/{number}"
    return Question(method="GET", path=path, headers={}, body=body)


def request(
    *answers: AnsweredQuestion, working: tuple[UUID, ...] = (), wait: int = 0, missing: int = 0
) -> WorkRequest:
    """Return a poll."""
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
    """Return a node's answer to a question: its path."""
    return AnsweredQuestion(id=given.id, reply=Reply(status=200, body=given.question.path))


async def take(box: Mailbox, poll: WorkRequest) -> list[AssignedQuestion]:
    """Return the questions that a poll brings."""
    return [AssignedQuestion.model_validate_json(sent) for sent in await box.take(poll)]


async def asked(box: Mailbox, *questions: Question) -> list[asyncio.Task[Reply]]:
    """Leave the questions in the mailbox, and return the tasks that wait for the replies."""
    tasks = [asyncio.create_task(box.ask("b", one)) for one in questions]
    while len(box._waiting) < len(tasks):
        await ManualClock().sleep(0)
    return tasks


@pytest.fixture
def box(clock: ManualClock) -> Mailbox:
    """Return the mailbox of a node that may poll at any moment."""
    return Mailboxes(clock, 5).mailbox_of(B)


async def test_each_question_gets_its_own_answer(box: Mailbox) -> None:
    """Answers in any order and at any time reach the question they belong to."""
    tasks = await asked(box, *map(question, range(3)))
    first, second, third = await take(box, request())
    assert await take(box, request(answer(third), working=(first.id, second.id))) == []
    await take(box, request(answer(second), answer(first)))
    replies = await asyncio.gather(*tasks)
    assert [reply.body for reply in replies] == [question(number).path for number in range(3)]


async def test_an_invented_answer_is_ignored(box: Mailbox) -> None:
    """Only an assigned question can be answered, and only once."""
    (task,) = await asked(box, question())
    (number,) = box._waiting
    early = AnsweredQuestion(id=number, reply=Reply(status=500))
    await box.take(request(early, AnsweredQuestion(id=uuid4(), reply=Reply(status=500)), wait=0))
    (given,) = await take(box, request())
    twice = AnsweredQuestion(id=given.id, reply=Reply(status=500))
    await box.take(request(answer(given), twice))
    assert (await task).status == 200


async def test_a_lost_question_is_assigned_again(box: Mailbox) -> None:
    """A question that a node neither answers nor works on is assigned again."""
    (task,) = await asked(box, question())
    lost = await take(box, request())
    result = await take(box, request())
    assert result == lost
    assert await take(box, request(working=(result[0].id,))) == []
    await take(box, request(answer(result[0])))
    assert (await task).status == 200


async def test_a_question_ends_the_wait(box: Mailbox) -> None:
    """A waiting poll is answered as soon as a question arrives."""
    polling = asyncio.create_task(take(box, request(wait=WAIT_MAX)))
    while not box._polls_open:
        await ManualClock().sleep(0)
    (task,) = await asked(box, question(7))
    (given,) = await polling
    assert given.question == question(7)
    task.cancel()


async def test_the_newest_poll_is_served(box: Mailbox) -> None:
    """An older poll, whose connection may be dead, is released without a question."""
    old = asyncio.create_task(take(box, request(wait=WAIT_MAX)))
    while not box._polls_open:
        await ManualClock().sleep(0)
    new = asyncio.create_task(take(box, request(wait=WAIT_MAX)))
    assert await old == []
    (task,) = await asked(box, question())
    assert len(await new) == 1
    task.cancel()


async def test_a_node_without_polls_is_away(box: Mailbox, clock: ManualClock) -> None:
    """Questions are refused after a while without a poll, with the time of the last one."""
    await box.take(request())
    clock.advance(PRESENCE_TIMEOUT)
    since = "it fetches its work itself and has not asked since 2026-12-01T00:00:00Z"
    with pytest.raises(PeerUnreachable, match=f"^b cannot be reached: {since}$"):
        await box.ask("b", question())
    await box.take(request())
    (task,) = await asked(box, question())
    task.cancel()


async def test_a_question_times_out_as_over_http(clock: ManualClock) -> None:
    """A question fetched but not answered in time is neither awaited nor assigned again."""
    box = Mailboxes(clock, 0.01).mailbox_of(B)
    (task,) = await asked(box, question())
    assert len(await box.take(request())) == 1
    with pytest.raises(PeerUnreachable, match=r"gave no answer within 0.01 s"):
        await task
    assert await box.take(request()) == []


async def test_the_mailbox_is_bounded(box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many questions and too long ones are refused, and those that fit go together."""
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


async def test_a_poll_brings_a_limited_number_of_questions(box: Mailbox) -> None:
    """A poll brings no more questions than a node works on."""
    tasks = await asked(box, *map(question, range(QUESTIONS_MAX + 1)))
    first = await take(box, request())
    assert len(first) == QUESTIONS_MAX
    following = await take(box, request(working=tuple(given.id for given in first)))
    assert [given.question for given in following] == [question(QUESTIONS_MAX)]
    for task in tasks:
        task.cancel()


async def test_a_closed_mailbox_releases_all_waiters(box: Mailbox, clock: ManualClock) -> None:
    """No poll waits and no question is accepted any more when the service ends."""
    polling = asyncio.create_task(take(box, request(wait=WAIT_MAX, missing=times.HOUR)))
    while not box._polls_open:
        await ManualClock().sleep(0)
    box.close()
    assert await polling == []
    assert not box.is_attended
    assert box.figures == Shortfall(times.HOUR, START)


@given(st.lists(st.sampled_from(["lost", "kept", "slow"]), max_size=30), st.integers(1, 6))
def test_no_question_is_lost(fates: list[str], count: int) -> None:
    """Every question gets its own answer, whatever becomes of each poll and its answer."""

    async def story() -> None:
        box = Mailboxes(ManualClock(), 5).mailbox_of(B)
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


def test_a_node_that_went_away_is_missed_whatever_the_date() -> None:
    """A node that polled before the clock was set back is not there until the former hour."""
    clock = ManualClock()
    box = Mailboxes(clock, 1).mailbox_of(B)
    clock.step(-times.HOUR)
    clock.advance(PRESENCE_TIMEOUT - 1)
    assert box.is_attended
    clock.advance(1)
    assert not box.is_attended
