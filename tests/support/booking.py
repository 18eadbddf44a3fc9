"""A lead that books on one participant, for the tests of the time line."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

from node.model import times
from node.model.classes import SchedulingClass
from node.model.wire.participants import (
    HoldAnswer,
    HoldRequest,
    Introduction,
    Proposal,
    ProposalRequest,
)
from tests.support.clocks import START
from tests.support.worlds import (
    DURATION,
    Site,
    World,
    commit_request,
    exchange_of,
    hold_request,
    introduction,
)

HOUR = START + times.HOUR
REACH = times.HOUR


@dataclass
class BookingLead:
    """A lead a that books on a participant b."""

    world: World
    lead: Site
    site: Site

    async def task(
        self,
        priority: int = 0,
        scheduling_class: SchedulingClass = SchedulingClass.EXCLUSIVE,
        duration: int = DURATION,
    ) -> Introduction:
        """Create a task that both know."""
        made = introduction(
            [self.lead, self.site],
            priority=priority,
            scheduling_class=scheduling_class,
            duration=duration,
        )
        await self.lead.keep(made, self.lead)
        await self.site.keep(made, self.lead)
        return made

    async def hold(self, request: HoldRequest, exchange: UUID | None = None) -> HoldAnswer:
        """Hold runs on b."""
        return await self.site.node.time_line.hold(
            exchange or exchange_of(request), self.lead.identity, request
        )

    async def book(self, task: Introduction, *starts: int) -> HoldRequest:
        """Hold and commit runs on b."""
        request = hold_request(task, starts)
        exchange = exchange_of(request)
        await self.hold(request)
        await self.site.node.time_line.commit(exchange, commit_request(request))
        return request

    async def free(self, *windows: tuple[int, int], priority: int = 0) -> list[tuple[int, int]]:
        """Return where an exclusive run of b could go without displacing anything."""
        return list((await self._proposal(windows, priority)).free)

    async def displacing(self, *windows: tuple[int, int], priority: int) -> list[tuple[int, int]]:
        """Return where it could go with displacement."""
        answered = await self._proposal(windows, priority)
        return list(answered.free_displacing or answered.free)

    async def ask(self, task: Introduction, window: tuple[int, int]) -> Proposal:
        """Return b's answer to a proposal request for a task."""
        request = ProposalRequest(
            task=task.task,
            lease_epoch=1,
            scheduling_class=task.scheduling_class,
            duration=task.duration,
            priority=task.priority,
            windows=(window,),
            test=task.test,
            campaign=task.campaign,
            pool_task=task.pool_task,
        )
        return await self.site.node.time_line.propose(self.lead.identity, request)

    async def _proposal(self, windows: tuple[tuple[int, int], ...], priority: int) -> Proposal:
        request = ProposalRequest(
            task=uuid4(),
            lease_epoch=1,
            scheduling_class=SchedulingClass.EXCLUSIVE,
            duration=times.SECOND,
            priority=priority,
            windows=windows,
        )
        return await self.site.node.time_line.propose(self.lead.identity, request)
