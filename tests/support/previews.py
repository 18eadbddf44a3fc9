"""Previews in a world: the lead's preview of tasks over wires that can be cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from lead.assembly.with_node import task_preview
from lead.exchange.preview import TaskPreviewer
from node.model.wire.impacts import Impact, ImpactRequest
from node.model.wire.participants import (
    Introduction,
    IntroductionAnswer,
    Proposal,
    ProposalRequest,
)
from node.model.wire.plans import Plan, PlanRequest
from node.store.tasks import StoredTask
from tests.support.worlds import Site, World


class WorldImpactSource:
    """A node as another one questions it, without HTTP."""

    def __init__(self, world: World, sender: Site, receiver: Site) -> None:
        """Ask every question in the name of ``sender``."""
        self.identity = receiver.identity
        self.name = receiver.name
        self._world = world
        self._sender = sender
        self._receiver = receiver

    async def _meet(self, what: str) -> None:
        await self._world.meet((self._sender.name, self.name, what), "asked")

    async def consider(self, introduction: Introduction) -> IntroductionAnswer:
        """Answer as over HTTP."""
        await self._meet("consider")
        return await self._receiver.node.acceptance.judge(self._sender.identity, introduction)

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Answer as over HTTP."""
        await self._meet("propose")
        interest = self._receiver.node.freed_time
        return await interest.propose(self._sender.identity, request)

    async def impact(self, request: ImpactRequest) -> Impact:
        """Answer as over HTTP."""
        await self._meet("impact")
        return await self._receiver.node.impacts.impact(request, self._sender.identity)


def task_previewer(world: World, site: Site, task: UUID | None = None) -> TaskPreviewer:
    """Return the preview service of one node; every task it drafts has the given id, if any."""
    by_identity = {other.identity: other for other in world.sites}

    def draft(document: Any) -> StoredTask:
        drafted = site.node.drafter.draft(document).task
        return drafted if task is None else replace(drafted, id=task)

    return task_preview(
        site.node, lambda identity: WorldImpactSource(world, site, by_identity[identity]), draft
    )


async def plan(world: World, site: Site, document: dict[str, Any], **options: Any) -> Plan:
    """Return the preview of this task at this node."""
    task = options.pop("task", None)
    request = PlanRequest.model_validate({**document, **options})
    return await task_previewer(world, site, task).plan(request)


def idle(*participants: Site, seconds: int = 300, **options: Any) -> dict[str, Any]:
    """Return a task document of an exclusive idle test; ``options`` are other fields."""
    spec = {
        "duration": f"PT{seconds}S",
        "class": "exclusive",
        "participants": [site.name for site in participants],
    }
    return {"test": {"type": "idle", "spec": spec}, **options}
