"""The port between lead and participants, which may be remote, in process, or simulated."""

from __future__ import annotations

from collections.abc import Mapping
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
    Release,
)


class ProposalSource(Protocol):
    """A node that can be asked when it has time.

    Every method of these ports raises :class:`node.model.errors.PeerError` if the node does not
    answer, or not sensibly.
    """

    identity: str
    name: str

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Return the free ranges in the windows, for both passes at once."""
        ...


class IntroducingSource:
    """A participant that is asked for the time of a task that it does not know."""

    def __init__(self, source: ProposalSource, introduction: Introduction | None) -> None:
        """Tell ``source`` this introduction with each request, as far as there is one."""
        self.identity = source.identity
        self.name = source.name
        self._source = source
        self._introduction = introduction

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Return the free ranges in the windows."""
        update = {"introduction": self._introduction}
        return await self._source.propose(request.model_copy(update=update))


class TakingSource:
    """A node that keeps resources which the runs of a task take; it is asked what is left."""

    def __init__(
        self, source: ProposalSource, takes: Mapping[str, int], *, keeps_only: bool
    ) -> None:
        """Tell ``source`` what each run takes, and whether it does nothing beside."""
        self.identity = source.identity
        self.name = source.name
        self._source = source
        self._update = {"takes": dict(takes), "keeps_only": keeps_only}

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Return the free ranges in the windows."""
        return await self._source.propose(request.model_copy(update=self._update))


class ImpactSource(ProposalSource, Protocol):
    """A node that can be asked what would happen; nothing is booked or stored there."""

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Return whether the node would accept this task."""
        ...

    async def impact(self, request: ImpactRequest) -> Impact:
        """Return what these runs would displace there, and how full the node would be."""
        ...


class ParticipantClient(ProposalSource, Protocol):
    """A node that takes part in a task, as its lead sees it.

    If it is ``binding``, it books without holds: what is held there stands for good until it is
    released, whatever becomes of its lead. So it is held last, when all others have agreed.
    """

    binding: bool

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Make a task known; the node accepts or refuses it."""
        ...

    async def hold(self, exchange: UUID, request: HoldRequest) -> HoldAnswer:
        """Book these runs until the decision; a repeat of the exchange gets the same answer."""
        ...

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Keep these runs of the exchange and drop the others."""
        ...

    async def release(self, exchange: UUID, release: Release) -> None:
        """Drop the hold and free its time."""
        ...


class TakingParticipant(TakingSource):
    """A participant that keeps resources, or a node that only keeps them."""

    def __init__(
        self, client: ParticipantClient, takes: Mapping[str, int], *, keeps_only: bool
    ) -> None:
        """Tell ``client`` what each run takes, and whether it does nothing beside."""
        super().__init__(client, takes, keeps_only=keeps_only)
        self.binding = client.binding
        self.introduce = client.introduce
        self.hold = client.hold
        self.commit = client.commit
        self.release = client.release
