"""This node as a participant of its own tasks: the same interface as a peer, without HTTP."""

from __future__ import annotations

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
from node.store.core import Core
from node.tasks.acceptance import Acceptance
from node.timetable.booking import TimeLine
from node.timetable.freed_time import FreedTimeNotifier
from node.timetable.what_if import ImpactEstimator


class LocalParticipant:
    """A participant client that calls this node's own services."""

    binding = False

    def __init__(
        self,
        core: Core,
        time_line: TimeLine,
        freed_time: FreedTimeNotifier,
        acceptance: Acceptance,
        impacts: ImpactEstimator,
    ) -> None:
        self.identity = core.identity
        self.name = core.settings.name
        self._time_line = time_line
        self._freed_time = freed_time
        self._acceptance = acceptance
        self._impacts = impacts

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Make a task known; return whether this host takes part."""
        return await self._acceptance.consider(self.identity, introduction)

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Return whether this host would take part; nothing is stored."""
        return await self._acceptance.judge(self.identity, introduction)

    async def impact(self, request: ImpactRequest) -> Impact:
        """Return what these runs would displace here, and how full the hours would be."""
        return await self._impacts.impact(request)

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Return the free ranges in the windows."""
        return await self._freed_time.propose(self.identity, request)

    async def hold(self, exchange: UUID, request: HoldRequest) -> HoldAnswer:
        """Book these runs until the lead decides."""
        return await self._time_line.hold(exchange, self.identity, request)

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Keep these runs and drop the others of the exchange."""
        return await self._time_line.commit(exchange, request)

    async def release(self, exchange: UUID, release: Release) -> None:
        """Drop the hold and free its time."""
        await self._time_line.release(exchange, release)
