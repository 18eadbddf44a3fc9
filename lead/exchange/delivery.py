"""Delivers decisions to the participants: commits and releases, at once and then by the outbox.

A commit that is late finds its hold dropped. The same runs are then booked again on that
participant. Runs that cannot be booked again are taken back everywhere and placed anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from uuid import UUID

import structlog

from lead.model.participants import ParticipantClient
from lead.model.reasons import hold_dropped
from lead.store import planning
from node.model import times
from node.model.errors import NotAuthenticated, NotFound, ParleyError, RequestError
from node.model.ids import repeated_exchange_id
from node.model.wire.participants import CommitRequest, Release
from node.runtime.batching import Batcher
from node.runtime.clock import Clock
from node.store import outbox
from node.store.database import Connection, Database
from node.store.outbox import Message, MessageKind, OutgoingMessage

DIRECT_DELIVERY_TIME = 5 * times.SECOND
"""Time in which the outbox skips a new message: the worker that wrote it delivers it at once."""

log = structlog.get_logger()


@dataclass(frozen=True)
class DecidedExchange:
    """The decision on an exchange, for its participants: a commit, or None for a release."""

    exchange: UUID
    task: UUID
    lease_epoch: int
    commit: CommitRequest | None
    participants: Sequence[ParticipantClient]


@dataclass(frozen=True)
class OutboxMessage:
    """A commit or release for one participant, stored but not acknowledged yet."""

    id: int
    participant: ParticipantClient
    exchange: UUID
    task: UUID
    lease_epoch: int
    commit: CommitRequest | None

    @property
    def release(self) -> Release:
        """The message that is sent without a commit."""
        return Release(task=self.task, lease_epoch=self.lease_epoch)


class DecisionDelivery:
    """Sends the decisions on exchanges, commits and releases, until participants acknowledge."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        participant_of: Callable[[str], ParticipantClient],
        lose_run: Callable[[UUID, str], Awaitable[None]],
    ) -> None:
        """``lose_run(run, reason)`` takes a run back everywhere and has its slot placed anew."""
        self._database = database
        self._clock = clock
        self._participant_of = participant_of
        self._lose_run = lose_run
        self._delivered: Batcher[list[int], None] = Batcher(self._acknowledge)

    async def write(
        self, connection: Connection, decided: Sequence[DecidedExchange], now: int
    ) -> list[OutboxMessage]:
        """Write one message for each participant, in the transaction of the decision.

        The outbox stores only the exchange id; the decision itself is stored with the negotiation.
        """
        drafts = [
            OutboxMessage(0, participant, each.exchange, each.task, each.lease_epoch, each.commit)
            for each in decided
            for participant in each.participants
        ]
        posts = [
            OutgoingMessage(
                draft.participant.identity,
                MessageKind.RELEASE if draft.commit is None else MessageKind.COMMIT,
                {
                    "exchange": str(draft.exchange),
                    "task": str(draft.task),
                    "lease_epoch": draft.lease_epoch,
                },
            )
            for draft in drafts
        ]
        ids = await outbox.post_all(connection, posts, now, DIRECT_DELIVERY_TIME)
        return [replace(draft, id=number) for number, draft in zip(ids, drafts, strict=True)]

    async def send(self, messages: Sequence[OutboxMessage]) -> None:
        """Deliver the messages at once; those that fail are left to the outbox."""
        outcomes = await asyncio.gather(*(self._try(message) for message in messages))
        delivered = [it.id for it, is_ok in zip(messages, outcomes, strict=True) if is_ok]
        if delivered:
            await self._delivered.ask(delivered)

    async def _acknowledge(self, delivered: Sequence[list[int]]) -> list[None]:
        async with self._database.connection() as connection:
            await outbox.delete_delivered(connection, list(chain.from_iterable(delivered)))
        return [None] * len(delivered)

    async def _try(self, message: OutboxMessage) -> bool:
        try:
            await self._hand_over(
                message.participant, message.exchange, message.release, message.commit
            )
        except ParleyError:
            return False
        return True

    async def deliver(self, message: Message) -> None:
        """Deliver one message of the outbox."""
        exchange = UUID(message.body["exchange"])
        release = Release(task=message.body["task"], lease_epoch=message.body["lease_epoch"])
        commit = None
        if message.kind is MessageKind.COMMIT:
            async with self._database.connection() as connection:
                commit = await planning.find_commit(connection, exchange)
            if commit is None:
                return  # the task has been deleted since
        try:
            participant = self._participant_of(message.node)
        except NotFound:
            if commit is not None:
                await self._lose(set(commit.runs), None)
            return
        await self._hand_over(participant, exchange, release, commit)

    async def _hand_over(
        self,
        participant: ParticipantClient,
        exchange: UUID,
        release: Release,
        commit: CommitRequest | None,
    ) -> None:
        if commit is None:
            await participant.release(exchange, release)
            return
        try:
            answered = await participant.commit(exchange, commit)
            lost: set[UUID] = set()
            if answered.late:
                lost = await self._book_again(participant, exchange, commit)
        except NotAuthenticated:
            raise
        except RequestError as error:
            # It would refuse the commit again. Take the runs back, so that no node waits for them.
            log.warning("commit refused", node=participant.name, error=error.detail)
            lost = set(commit.runs)
        await self._lose(lost, participant.name)

    async def _lose(self, runs: set[UUID], name: str | None) -> None:
        for run in sorted(runs):
            await self._lose_run(run, hold_dropped(name))

    async def _book_again(
        self, participant: ParticipantClient, exchange: UUID, commit: CommitRequest
    ) -> set[UUID]:
        """Book the same runs again on a late participant; return those that it cannot have."""
        second = repeated_exchange_id(exchange)
        generation = self._database.generation
        async with self._database.connection() as connection:
            hold = await planning.repeated_hold_request(
                connection, exchange, commit.runs, generation
            )
        now = self._clock.now()
        lost = {run.run for run in hold.runs if run.starts_at <= now} if hold else set()
        in_time = tuple(run for run in hold.runs if run.run not in lost) if hold else ()
        if hold is not None and in_time:
            answered = await participant.hold(second, hold.model_copy(update={"runs": in_time}))
            # A run that ends from here on is ended at the participant too: it knows the run now.
            async with self._database.connection() as connection:
                ended = await planning.find_ended_runs(connection, [run.run for run in in_time])
            lost |= {run.run for run in in_time if run.run not in answered.held}
            booked = tuple(run.run for run in in_time if run.run not in lost | ended)
            data = {**commit.data}
            answer = await participant.commit(second, CommitRequest(runs=booked, data=data))
            if answer.late:
                lost |= set(booked)
        return lost
