"""This node as a participant of the tasks it leads itself: the same port, without HTTP."""

from __future__ import annotations

from uuid import UUID

from node.core import Core
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
from node.tasks.acceptance import Acceptance
from node.timetable.booking import TimeLine
from node.timetable.freed_time import FreedTimeNotifier
from node.timetable.what_if import ImpactEstimator


class LocalParticipant:
    """Calls the time line directly."""

    def __init__(
        self,
        core: Core,
        time_line: TimeLine,
        freed_time: FreedTimeNotifier,
        acceptance: Acceptance,
        impacts: ImpactEstimator,
    ) -> None:
        """Pass each call on to the part of this node that answers it."""
        self.identity = core.identity
        self.name = core.settings.name
        self._time_line = time_line
        self._freed_time = freed_time
        self._acceptance = acceptance
        self._impacts = impacts

    async def introduce(self, introduction: Introduction) -> IntroductionAnswer:
        """Whether this host does its own part."""
        return await self._acceptance.consider(self.identity, introduction)

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Whether this host would do its own part."""
        return await self._acceptance.judge(self.identity, introduction)

    async def outlook(self, request: ImpactRequest) -> Impact:
        """What these runs would mean for this node."""
        return await self._impacts.outlook(request)

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Free ranges in the windows."""
        return await self._freed_time.propose(self.identity, request)

    async def hold(self, exchange: UUID, request: HoldRequest) -> HoldAnswer:
        """Book for now."""
        return await self._time_line.hold(exchange, self.identity, request)

    async def commit(self, exchange: UUID, request: CommitRequest) -> CommitAnswer:
        """Keep these runs."""
        return await self._time_line.commit(exchange, request)

    async def release(self, exchange: UUID, task: UUID) -> None:
        """Drop the hold."""
        await self._time_line.release(exchange, task)
