"""Mailboxes: requests that wait for nodes in pull mode, which nobody can reach.

There is one mailbox for each such node. A caller waits for the answer as if it had sent the
request, with the same timeout, so no other code needs to know how a node is reached. Nothing is
stored: a caller without an answer asks again, and ids make repeated requests harmless.

A question is handed out with one poll. If the node polls again and neither answers it nor works
on it, it was lost on its way and is handed out again. Only the newest poll of a node waits; an
older one, whose connection may be dead, returns at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID, uuid4

from node.model import times
from node.model.errors import PeerUnreachable, TooLarge
from node.model.shortfall import Shortfall
from node.model.times import to_the_second
from node.model.wire.work import QUESTIONS_MAX, AssignedQuestion, Question, Reply, WorkRequest
from node.runtime.clock import Clock

QUESTIONS_WAITING_MAX = 256
"""Maximum number of questions that wait for one node."""

BYTES_MAX = 6_000_000
"""Maximum bytes handed out at once; with its frame it must be less than a node reads."""

PRESENCE_TIMEOUT = 10 * times.SECOND
"""Maximum time since its last poll before a node counts as away."""


class MailboxOwner(Protocol):
    """The node to which a mailbox belongs."""

    @property
    def identity(self) -> str:
        """The key by which other nodes know it."""
        ...

    @property
    def name(self) -> str:
        """The word for it on this node."""
        ...


Carry = Callable[[MailboxOwner, Question], Awaitable[Reply]]
"""Forwards a question to a node that has no URL, and returns its reply.

:raises PeerUnreachable: the node did not fetch it, or did not answer in time.
"""


@dataclass
class _Waiting:
    """A question and the future of its answer; ``given`` is the number of the poll that took it."""

    sent: bytes
    reply: asyncio.Future[Reply]
    given: int | None = None


class Mailbox:
    """The questions for one node."""

    def __init__(self, clock: Clock, timeout_s: float, new_id: Callable[[], UUID]) -> None:
        """Create an empty mailbox; the node counts as present for a moment."""
        self._clock = clock
        self._timeout_s = timeout_s
        self._new_id = new_id
        self._waiting: dict[UUID, _Waiting] = {}
        self._polls = 0
        self._polls_open = 0
        self._changed = asyncio.Event()
        self._closed = False
        self.heard_at = clock.now()
        self.heard = clock.monotonic()
        """Monotonic time (µs) at which the node polled last."""
        self.figures: Shortfall | None = None

    @property
    def is_attended(self) -> bool:
        """Return whether the node is polling, or has polled a moment ago."""
        away = self._clock.monotonic() - self.heard
        return not self._closed and (self._polls_open > 0 or away < PRESENCE_TIMEOUT)

    def absence_reason(self, name: str) -> str:
        """Describe since when the node has not polled."""
        since = to_the_second(self.heard_at)
        return (
            f"{name} cannot be reached: it fetches its work itself and has not asked since {since}"
        )

    async def ask(self, name: str, question: Question) -> Reply:
        """Leave a question and wait for the answer.

        :raises PeerUnreachable: the node is away, its mailbox is full, or it did not answer.
        :raises TooLarge: the question is larger than a node can fetch.
        """
        if not self.is_attended:
            raise PeerUnreachable(self.absence_reason(name))
        if len(self._waiting) >= QUESTIONS_WAITING_MAX:
            msg = f"{name} cannot be reached: {QUESTIONS_WAITING_MAX} requests wait for it already"
            raise PeerUnreachable(msg)
        number = self._new_id()
        message = AssignedQuestion(id=number, question=question).model_dump_json().encode()
        if len(message) > BYTES_MAX:
            msg = f"a request to {name} has more than the {BYTES_MAX} bytes that it can fetch"
            raise TooLarge(msg)
        waiting = _Waiting(message, asyncio.get_running_loop().create_future())
        self._waiting[number] = waiting
        self._wake()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await waiting.reply
        except TimeoutError:
            silent = f"{name} cannot be reached: it fetched the request and gave no answer"
            msg = (
                f"{silent} within {self._timeout_s:g} s"
                if waiting.given
                else self.absence_reason(name)
            )
            raise PeerUnreachable(msg) from None
        finally:
            del self._waiting[number]

    async def take(self, request: WorkRequest) -> list[bytes]:
        """Pass on the answers of the node, and return the questions that wait for it."""
        for answer in request.answers:
            waiting = self._waiting.get(answer.id)
            if waiting is not None and waiting.given is not None and not waiting.reply.done():
                waiting.reply.set_result(answer.reply)
        self.figures = Shortfall(request.shortfall, request.busy_until)
        self._note_heard()
        self._polls += 1
        self._polls_open += 1
        self._wake()
        try:
            return await self._hand_out(self._polls, frozenset(request.working), request.wait)
        finally:
            self._polls_open -= 1
            self._note_heard()

    def _note_heard(self) -> None:
        self.heard_at, self.heard = self._clock.now(), self._clock.monotonic()

    async def _hand_out(self, poll: int, working: frozenset[UUID], wait: int) -> list[bytes]:
        questions: Sequence[_Waiting] = ()
        try:
            async with asyncio.timeout(wait / times.SECOND):
                while poll == self._polls and not self._closed:
                    if questions := self._next_questions(poll, working):
                        break
                    await self._changed.wait()
        except TimeoutError:
            pass
        for waiting in questions:
            waiting.given = poll
        return [waiting.sent for waiting in questions]

    def _next_questions(self, poll: int, working: frozenset[UUID]) -> list[_Waiting]:
        """Return the oldest questions that are not on their way, as many as fit into one answer."""
        questions: list[_Waiting] = []
        room = BYTES_MAX
        for number, waiting in self._waiting.items():
            on_its_way = waiting.given == poll or (waiting.given and number in working)
            if on_its_way or waiting.reply.done():
                continue
            room -= len(waiting.sent)
            if questions and (room < 0 or len(questions) == QUESTIONS_MAX):
                break
            questions.append(waiting)
        return questions

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def close(self) -> None:
        """End the open polls, and accept no more questions."""
        self._closed = True
        self._wake()


class Mailboxes:
    """The mailboxes of one node, in the process that serves its API."""

    def __init__(self, clock: Clock, timeout_s: float, new_id: Callable[[], UUID] = uuid4) -> None:
        """``timeout_s``: maximum time from a question to its answer."""
        self._clock = clock
        self._timeout_s = timeout_s
        self._new_id = new_id
        self._boxes: dict[str, Mailbox] = {}
        self._started = clock.now(), clock.monotonic()

    def mailbox_of(self, identity: str) -> Mailbox:
        """Return the mailbox of the node with this key."""
        if identity not in self._boxes:
            self._boxes[identity] = Mailbox(self._clock, self._timeout_s, self._new_id)
            box = self._boxes[identity]
            box.heard_at, box.heard = self._started
        return self._boxes[identity]

    async def carry(self, peer: MailboxOwner, question: Question) -> Reply:
        """Leave a question for a node and wait for the answer."""
        return await self.mailbox_of(peer.identity).ask(peer.name, question)

    def close(self) -> None:
        """Close all mailboxes."""
        for box in self._boxes.values():
            box.close()
