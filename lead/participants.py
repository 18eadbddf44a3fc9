"""The port: what the lead asks of a participant, be it over HTTP, in process or simulated."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

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


class Participant(Protocol):
    """A node that takes part in a task, as its lead sees it.

    Every method raises :class:`node.model.errors.PeerError` where there is no sensible answer.
    """

    identity: str
    name: str

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Make a task known; it is accepted or refused."""
        ...

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Free ranges in the windows, both passes at once."""
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
