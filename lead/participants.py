"""The port: what the lead asks of a participant, be it over HTTP, in process or simulated."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from node.model.wire.impacts import Impact, ImpactRequest
from node.model.wire.participants import (
    CommitAnswer,
    CommitRequest,
    HoldAnswer,
    HoldRequest,
    Introduction,
    IntroductionAnswer,
    Proposal,
    ProposalRequest,
)


class ProposalSource(Protocol):
    """A node that says when it has time.

    Every method of these ports raises :class:`node.model.errors.PeerError` where there is no
    sensible answer.
    """

    identity: str
    name: str

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Free ranges in the windows, both passes at once."""
        ...


class ImpactSource(ProposalSource, Protocol):
    """A node that is asked what would happen; nothing is booked or kept there."""

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Whether it would accept this task."""
        ...

    async def outlook(self, request: ImpactRequest) -> Impact:
        """What these runs would displace there, and how full it would be with them."""
        ...


class ParticipantClient(ProposalSource, Protocol):
    """A node that takes part in a task, as its lead sees it."""

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Make a task known; it is accepted or refused."""
        ...

    async def hold(self, exchange: UUID, request: HoldRequest) -> HoldAnswer:
        """Book for now; the same exchange again gets the same answer."""
        ...

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Keep these runs of the exchange, drop the others."""
        ...

    async def release(self, exchange: UUID, task: UUID) -> None:
        """Drop the hold."""
        ...
