"""Where questions wait for nodes that fetch them: nobody can reach these, so they ask.

One mailbox for each such node. Who asks waits for the answer as if the request had been sent, with
the same time limit, so nobody else need know how a node is reached. Nothing is kept: who asked in
vain asks again, and ids make it harmless to be asked twice.

A question is given with one poll. If the node comes again and neither answers it nor works on it,
it was lost on its way and is given again. Only the newest poll of a node waits; an older one, whose
connection may be dead, is let go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID, uuid4

from node.clock import Clock
from node.model import times
from node.model.errors import PeerUnreachable, TooLarge
from node.model.shortfall import Shortfall
from node.model.times import to_the_second
from node.model.wire.work import QUESTIONS_MAX, AssignedQuestion, Question, Reply, WorkRequest

QUESTIONS_WAITING_MAX = 256
"""Most questions that wait for one node."""

BYTES_MAX = 6_000_000
"""Most bytes handed over at once: with its frame it must be less than a node reads."""

PRESENCE_TIMEOUT = 10 * times.SECOND
"""So long after its last poll a node is expected to be back at once; then it is away."""


class MailboxOwner(Protocol):
    """Who is asked."""

    @property
    def identity(self) -> str:
        """Its key."""
        ...

    @property
    def name(self) -> str:
        """What it is called here."""
        ...


Carry = Callable[[MailboxOwner, Question], Awaitable[Reply]]
"""Puts a question to a node that has no URL.

:raises PeerUnreachable: it did not fetch it, or did not answer in time.
"""


@dataclass
class _Waiting:
    """A question and whoever waits for its answer; ``given`` counts the poll that took it."""

    sent: bytes
    reply: asyncio.Future[Reply]
    given: int | None = None


class Mailbox:
    """The questions for one node."""

    def __init__(self, clock: Clock, timeout_s: float, new_id: Callable[[], UUID]) -> None:
        """Empty; the node has a moment to come for the first time."""
        self._clock = clock
        self._timeout_s = timeout_s
        self._new_id = new_id
        self._waiting: dict[UUID, _Waiting] = {}
        self._polls = 0
        self._polls_open = 0
        self._changed = asyncio.Event()
        self._closed = False
        self.heard_at = clock.now()
        self.figures: Shortfall | None = None

    @property
    def attended(self) -> bool:
        """Whether the node waits for questions, or will be back in a moment."""
        away = self._clock.now() - self.heard_at
        return not self._closed and (self._polls_open > 0 or away < PRESENCE_TIMEOUT)

    def absence_reason(self, name: str) -> str:
        """Why nobody fetches anything, in a sentence."""
        since = to_the_second(self.heard_at)
        return (
            f"{name} cannot be reached: it fetches its work itself and has not asked since {since}"
        )

    async def ask(self, name: str, question: Question) -> Reply:
        """Leave a question and wait for the answer."""
        if not self.attended:
            raise PeerUnreachable(self.absence_reason(name))
        if len(self._waiting) >= QUESTIONS_WAITING_MAX:
            backlog = f"{QUESTIONS_WAITING_MAX} requests wait to be fetched already"
            msg = f"{name} cannot be reached: {backlog}"
            raise PeerUnreachable(msg)
        number = self._new_id()
        sent = AssignedQuestion(id=number, question=question).model_dump_json().encode()
        if len(sent) > BYTES_MAX:
            msg = f"a request to {name} has more than the {BYTES_MAX} bytes that it can fetch"
            raise TooLarge(msg)
        waiting = _Waiting(sent, asyncio.get_running_loop().create_future())
        self._waiting[number] = waiting
        self._wake()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await waiting.reply
        except TimeoutError:
            told = f"{name} cannot be reached: it fetched this and gave no answer"
            told = (
                f"{told} within {self._timeout_s:g} s"
                if waiting.given
                else self.absence_reason(name)
            )
            raise PeerUnreachable(told) from None
        finally:
            del self._waiting[number]

    async def take(self, asked: WorkRequest) -> list[bytes]:
        """Pass on the answers of the node, and return the questions that wait for it."""
        for answered in asked.answers:
            waiting = self._waiting.get(answered.id)
            if waiting is not None and waiting.given is not None and not waiting.reply.done():
                waiting.reply.set_result(answered.reply)
        self.figures = Shortfall(asked.shortfall, asked.busy_until)
        self.heard_at = self._clock.now()
        self._polls += 1
        self._polls_open += 1
        self._wake()
        try:
            return await self._give(self._polls, frozenset(asked.working), asked.wait)
        finally:
            self._polls_open -= 1
            self.heard_at = self._clock.now()

    async def _give(self, poll: int, working: frozenset[UUID], wait: int) -> list[bytes]:
        found: Sequence[_Waiting] = ()
        try:
            async with asyncio.timeout(wait / times.SECOND):
                while poll == self._polls and not self._closed:
                    if found := self._next(poll, working):
                        break
                    await self._changed.wait()
        except TimeoutError:
            pass
        for waiting in found:
            waiting.given = poll
        return [waiting.sent for waiting in found]

    def _next(self, poll: int, working: frozenset[UUID]) -> list[_Waiting]:
        """The oldest that are not on their way, as many as may go together."""
        found: list[_Waiting] = []
        room = BYTES_MAX
        for number, waiting in self._waiting.items():
            on_its_way = waiting.given == poll or (waiting.given and number in working)
            if on_its_way or waiting.reply.done():
                continue
            room -= len(waiting.sent)
            if found and (room < 0 or len(found) == QUESTIONS_MAX):
                break
            found.append(waiting)
        return found

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def close(self) -> None:
        """Let the polls go, and take no more questions."""
        self._closed = True
        self._wake()


class Mailboxes:
    """The mailboxes of one node, in the process that serves its API."""

    def __init__(self, clock: Clock, timeout_s: float, new_id: Callable[[], UUID] = uuid4) -> None:
        """``timeout_s``: how long a question may take, from asking to answer."""
        self._clock = clock
        self._timeout_s = timeout_s
        self._new_id = new_id
        self._boxes: dict[str, Mailbox] = {}
        self._started = clock.now()

    def of(self, identity: str) -> Mailbox:
        """The mailbox of the node with this key."""
        if identity not in self._boxes:
            self._boxes[identity] = Mailbox(self._clock, self._timeout_s, self._new_id)
            self._boxes[identity].heard_at = self._started
        return self._boxes[identity]

    async def carry(self, peer: MailboxOwner, question: Question) -> Reply:
        """Leave a question for a node and wait for the answer."""
        return await self.of(peer.identity).ask(peer.name, question)

    def close(self) -> None:
        """Let all polls go."""
        for box in self._boxes.values():
            box.close()
