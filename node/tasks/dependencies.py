"""Checks of the task that another task is to follow."""

from __future__ import annotations

from uuid import UUID

from node.model.dependencies import find_cycle
from node.model.errors import FieldFault, InvalidDocument
from node.model.figure_names import condition_fault
from node.model.taskstate import OPEN
from node.model.wire.tasks import Dependency
from node.store import dependencies
from node.store.database import Connection
from node.store.dependencies import FollowedTask


async def check_followed(
    connection: Connection, after: Dependency | None, lead: str, task: UUID | None = None
) -> None:
    """Check that a task led by this node can follow another one.

    ``lead`` is the identity of this node; ``task`` is None for a task that is being created.

    :raises InvalidDocument: it cannot; names the reason, for a cycle its path.
    """
    if after is None:
        return
    chain = await dependencies.dependency_chain(connection, after.task)
    if (fault := _chain_fault(after.task, chain, lead, task)) is not None:
        raise InvalidDocument([FieldFault("/after/task", fault)])
    if (fault := condition_fault(after.when, chain[0].test, chain[0].reference)) is not None:
        raise InvalidDocument([FieldFault("/after/when", fault)])


def _chain_fault(
    followed: UUID, chain: list[FollowedTask], lead: str, task: UUID | None
) -> str | None:
    """Return why a task cannot follow the first one of this chain; None if it can. Pure."""
    if not chain:
        return (
            f"there is no task {followed} on this node; a task follows one of the same lead, so "
            "create it on the node that leads that one"
        )
    first = chain[0]
    if first.lead != lead:
        return (
            f"task {followed} is led by another node, which alone knows when its runs end; create "
            "this task on that node"
        )
    if first.pooled or first.parent is not None:
        return (
            f"task {followed} asks for nodes of a pool, so that several of its runs end together; "
            "follow a task with named participants"
        )
    path = None if task is None else find_cycle(task, [each.id for each in chain])
    if path is not None:
        return f"the task would follow itself: {' → '.join(map(str, path))}; follow another one"
    if first.state not in OPEN:
        return f"task {followed} has ended ({first.state}), so no run of it is left to follow"
    return None
