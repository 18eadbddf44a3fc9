"""Takes decisions to the participants: commits and releases, at once and then from the outbox.

A commit that comes too late finds its hold dropped. The same runs are then booked again on that
participant; what cannot be, is taken back everywhere and placed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from uuid import UUID, uuid5

import structlog

from lead.participants import ParticipantClient
from lead.store import planning
from node.batching import Batcher
from node.clock import Clock
from node.model import times
from node.model.errors import NotAuthenticated, NotFound, ParleyError, RequestError
from node.model.wire.participants import CommitRequest
from node.store import outbox
from node.store.database import Connection, Database
from node.store.outbox import Message, MessageKind, OutgoingMessage

DIRECT_DELIVERY_TIME = 5 * times.SECOND
"""The outbox leaves a new message alone so long: the worker that made it delivers it at once."""

log = structlog.get_logger()


@dataclass(frozen=True)
class DecidedExchange:
    """What was decided on an exchange, for its participants: a commit, or without it a release."""

    exchange: UUID
    task: UUID
    commit: CommitRequest | None
    participants: Sequence[ParticipantClient]


@dataclass(frozen=True)
class OutboxMessage:
    """A commit or release to one participant, written but not yet acknowledged."""

    id: int
    participant: ParticipantClient
    exchange: UUID
    task: UUID
    commit: CommitRequest | None


class DecisionDelivery:
    """Delivers commits and releases."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        participant_of: Callable[[str], ParticipantClient],
        lose_run: Callable[[UUID, str], Awaitable[None]],
    ) -> None:
        """``lose_run(run, reason)`` takes a run back everywhere and has its slot placed again."""
        self._database = database
        self._clock = clock
        self._participant_of = participant_of
        self._lose_run = lose_run
        self._delivered: Batcher[list[int], None] = Batcher(self._acknowledge)

    async def write(
        self, connection: Connection, told: Sequence[DecidedExchange], now: int
    ) -> list[OutboxMessage]:
        """Write one letter to each participant, in the transaction of the decision.

        In the outbox they only name the exchange: what was decided stands in the negotiation.
        """
        drafts = [
            OutboxMessage(0, participant, each.exchange, each.task, each.commit)
            for each in told
            for participant in each.participants
        ]
        posts = [
            OutgoingMessage(
                draft.participant.identity,
                MessageKind.RELEASE if draft.commit is None else MessageKind.COMMIT,
                {"exchange": str(draft.exchange), "task": str(draft.task)},
            )
            for draft in drafts
        ]
        ids = await outbox.post_all(connection, posts, now, DIRECT_DELIVERY_TIME)
        return [replace(draft, id=number) for number, draft in zip(ids, drafts, strict=True)]

    async def send(self, letters: Sequence[OutboxMessage]) -> None:
        """Try each at once; what fails is left to the outbox."""
        done = await asyncio.gather(*(self._try(letter) for letter in letters))
        delivered = [letter.id for letter, was in zip(letters, done, strict=True) if was]
        if delivered:
            await self._delivered.ask(delivered)

    async def _acknowledge(self, delivered: Sequence[list[int]]) -> list[None]:
        async with self._database.connection() as connection:
            await outbox.delivered(connection, list(chain.from_iterable(delivered)))
        return [None] * len(delivered)

    async def _try(self, letter: OutboxMessage) -> bool:
        try:
            await self._hand_over(letter.participant, letter.exchange, letter.task, letter.commit)
        except ParleyError:
            return False
        return True

    async def deliver(self, message: Message) -> None:
        """One message of the outbox."""
        exchange, task = UUID(message.body["exchange"]), UUID(message.body["task"])
        commit = None
        if message.kind is MessageKind.COMMIT:
            async with self._database.connection() as connection:
                commit = await planning.committed(connection, exchange)
            if commit is None:
                return  # Its task has been forgotten since.
        try:
            participant = self._participant_of(message.node)
        except NotFound:
            if commit is not None:
                await self._lose(set(commit.runs), "a node that is not known here any more")
            return
        await self._hand_over(participant, exchange, task, commit)

    async def _hand_over(
        self,
        participant: ParticipantClient,
        exchange: UUID,
        task: UUID,
        commit: CommitRequest | None,
    ) -> None:
        if commit is None:
            await participant.release(exchange, task)
            return
        try:
            answered = await participant.commit(exchange, commit)
            lost: set[UUID] = set()
            if answered.late:
                lost = await self._book_again(participant, exchange, commit)
        except NotAuthenticated:
            raise
        except RequestError as error:
            # It will not take them later either: nobody is to wait for a run that it does not have.
            log.warning("commit refused", node=participant.name, error=error.detail)
            lost = set(commit.runs)
        await self._lose(lost, participant.name)

    async def _lose(self, runs: set[UUID], name: str) -> None:
        for run in sorted(runs):
            await self._lose_run(run, f"{name} had dropped the hold before the commit came")

    async def _book_again(
        self, participant: ParticipantClient, exchange: UUID, commit: CommitRequest
    ) -> set[UUID]:
        """Book the same runs again, but for those that have ended; those that cannot be."""
        again = uuid5(exchange, "again")
        async with self._database.connection() as connection:
            hold = await planning.held_again(connection, exchange, commit.runs)
        now = self._clock.now()
        lost = {run.run for run in hold.runs if run.starts_at <= now} if hold else set()
        in_time = tuple(run for run in hold.runs if run.run not in lost) if hold else ()
        if hold is not None and in_time:
            answered = await participant.hold(again, hold.model_copy(update={"runs": in_time}))
            # What ends from here on is told to a participant that knows the run.
            async with self._database.connection() as connection:
                ended = await planning.ended(connection, [run.run for run in in_time])
            lost |= {run.run for run in in_time if run.run not in answered.held}
            kept = tuple(run.run for run in in_time if run.run not in lost | ended)
            data = {**commit.data}
            answer = await participant.commit(again, CommitRequest(runs=kept, data=data))
            if answer.late:
                lost |= set(kept)
        return lost
