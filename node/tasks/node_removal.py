"""Removal of another node, and with it of all open tasks between it and this one.

The requests of a removed node are refused. So it could not end the tasks that it leads here, and no
run with it could take place any more: what is booked would stay booked for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol
from uuid import UUID

from node.model.errors import NotFound, ParleyError
from node.model.reason import Reason
from node.model.reasons import lead_gone, participant_gone, removed_on
from node.model.taskstate import TaskState
from node.model.wire.nodes import NodeRemoval
from node.model.wire.participants import TaskEnd
from node.peers.directory import Directory
from node.store import nodes, notices
from node.store.core import Core
from node.store.database import Connection
from node.tasks.termination import EndedTasks, TaskTerminator

_FAREWELL_S = 5.0
"""Maximum seconds in which a removed node is told what has ended; it may be away for good."""


Also = Callable[[Connection], Awaitable[object]]


class TaskEndReceiver(Protocol):
    """A node that can be told of the end of tasks."""

    async def end_task(self, end: TaskEnd) -> None:
        """Report that a task is over."""
        ...


class NodeRemover:
    """Removes known nodes, and ends the tasks that are shared with them."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        termination: TaskTerminator,
        peer: Callable[[str], TaskEndReceiver],
    ) -> None:
        """``peer(identity)`` returns the client of a known node."""
        self._database = core.database
        self._name = core.settings.name
        self._directory = directory
        self._termination = termination
        self._peer = peer

    async def remove(self, name: str) -> NodeRemoval:
        """Remove a node and end all open tasks with it, in one transaction; return what ended.

        The node itself is told as far as it answers at once, all others until they acknowledge it.

        :raises NotFound: there is none of that name.
        """
        return await self.remove_for_reason(name, removed_on(self._name))

    async def remove_for_reason(
        self, name: str, why: Reason, also: Also | None = None
    ) -> NodeRemoval:
        """Remove a node as :meth:`remove` does, which ``why`` tells; ``also`` is done with it.

        :raises NotFound: there is none of that name.
        """
        peer = self._find_peer(name)  # the directory may forget it as soon as it is removed
        there = lead_gone(name, why)
        here = participant_gone(name, why)

        async def remove(connection: Connection) -> tuple[str, EndedTasks, EndedTasks]:
            identity = await nodes.remove(connection, name)
            if identity is None:
                msg = f"no other node named {name} is known here"
                raise NotFound(msg)
            led_there = await self._termination.end_all_of(connection, identity, there)
            led_here = await self._termination.end_all_with(connection, identity, here)
            if also is not None:
                await also(connection)
            await notices.notify(connection, "node", name, "removed")
            return identity, led_there, led_here

        identity, led_there, led_here = await self._database.settle(remove)
        ends = [
            *_task_ends(led_there.tasks, TaskState.REFUSED, there),
            *_task_ends(led_here.tasks, TaskState.CANCELLED, here),
        ]
        await self._tell_ends(peer, ends)
        await self._directory.refresh()
        return NodeRemoval(
            identity=identity,
            name=name,
            tasks_led_there=len(led_there.tasks),
            tasks_led_here=len(led_here.tasks),
            runs=led_there.runs + led_here.runs,
        )

    def _find_peer(self, name: str) -> TaskEndReceiver | None:
        known = self._directory.find(name)
        return None if known is None or known.is_self else self._peer(known.identity)

    @staticmethod
    async def _tell_ends(peer: TaskEndReceiver | None, ends: Sequence[TaskEnd]) -> None:
        if peer is None:
            return
        with contextlib.suppress(ParleyError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                for end in ends:
                    await peer.end_task(end)


def _task_ends(tasks: Sequence[UUID], state: TaskState, reason: str) -> list[TaskEnd]:
    return [TaskEnd(task=task, state=state, reason=reason) for task in tasks]
