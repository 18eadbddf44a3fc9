"""Comparison of two nodes in both directions: what each leads, and what it has of the other.

As lead, a node compares its open tasks and future runs with its participant's
(``lead/exchange/reconciliation.py``). As participant, it asks the lead about tasks that only it may
have (``confirmation.py``). Both do so at intervals. Both do everything at once for an operator,
when a node was added, and when the database of one of them is new or was restored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Protocol

import structlog

from node.model.errors import ParleyError
from node.model.wire.comparisons import NodeComparison, TaskComparison
from node.peers.directory import Directory
from node.runtime.gathering import WAITED_AT_ONCE, gather_some
from node.store import nodes
from node.store.core import Core
from node.store.nodes import KnownNode
from node.tasks.confirmation import TaskConfirmer

CompareLed = Callable[[str], Awaitable[TaskComparison]]
"""``compare(identity)`` compares the tasks led here with what that node has of them."""

_PAUSES_S = (2, 4, 8, 15, 30, 60, 60)

log = structlog.get_logger()


class ComparisonPeer(Protocol):
    """Another node that can be asked to compare with this one."""

    async def compare_with_sender(self) -> NodeComparison:
        """Return the differences between that node and this one, as that node found them."""
        ...


class NodeComparer:
    """Compares this node with others, and repairs what differs."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        confirmer: TaskConfirmer,
        compare_led: CompareLed,
        peer: Callable[[str], ComparisonPeer],
    ) -> None:
        """``peer(identity)`` returns the client of a known node."""
        self._clock = core.clock
        self._database = core.database
        self._directory = directory
        self._confirmer = confirmer
        self._compare_led = compare_led
        self._peer = peer
        self._under_way: dict[str, asyncio.Task[NodeComparison]] = {}

    async def compare(self, identity: str) -> NodeComparison:
        """Compare with a node in both directions; return what differed.

        :raises ParleyError: one of the two does not get an answer of the other.
        """
        generation = self._database.generation
        ours = await self.compare_own_side(identity)
        theirs = await self._peer(identity).compare_with_sender()
        async with self._database.connection() as connection:
            await nodes.note_compared(connection, identity, generation)
        return ours.with_others(theirs)

    async def compare_own_side(self, identity: str) -> NodeComparison:
        """Compare what this node leads and has of a node; whoever asks meanwhile gets the same.

        :raises ParleyError: that node does not answer.
        """
        comparing = self._under_way.get(identity)
        if comparing is None:
            comparing = asyncio.create_task(self._compare(identity), name="comparison")
            self._under_way[identity] = comparing
            comparing.add_done_callback(partial(self._forget_comparison, identity))
        return await asyncio.shield(comparing)

    async def _compare(self, identity: str) -> NodeComparison:
        led_there = await self._confirmer.ask(identity)
        return NodeComparison(led_here=await self._compare_led(identity), led_there=led_there)

    def _forget_comparison(self, identity: str, comparing: asyncio.Task[NodeComparison]) -> None:
        del self._under_way[identity]
        if not comparing.cancelled():
            comparing.exception()  # retrieved, because whoever waited may have gone

    async def compare_with(self, name: str) -> None:
        """Compare with the node of this name, if it is known; a failure is logged."""
        known = self._directory.find(name)
        if known is not None and not known.is_self:
            await self._compare_or_log(known)

    async def compare_all(self) -> None:
        """Compare with all nodes; a failure with one does not affect the others."""
        await self._compare_each(self._others())

    async def compare_until_answered(self) -> None:
        """Compare with all nodes with which a restored database has not been compared yet.

        A node may be away at the moment in which this one comes back: after a pause, it is asked
        again. Until it answers, what is shared with it begins only on another one's word
        (``execution/agreement.py``).
        """
        pauses = chain(_PAUSES_S, repeat(_PAUSES_S[-1]))
        left = await self._uncompared_nodes()
        while left:
            await self._compare_each(left)
            left = await self._uncompared_nodes()
            if left:
                await self._clock.sleep(next(pauses))

    async def _uncompared_nodes(self) -> list[KnownNode]:
        async with self._database.connection() as connection:
            found = await nodes.uncompared_nodes(connection)
        return [known for known in self._others() if known.identity in found]

    def _others(self) -> list[KnownNode]:
        return [known for known in self._directory.all if not known.is_self]

    async def _compare_each(self, others: Sequence[KnownNode]) -> None:
        await gather_some(self._compare_or_log, others, WAITED_AT_ONCE)

    async def _compare_or_log(self, known: KnownNode) -> None:
        try:
            await self.compare(known.identity)
        except ParleyError as error:
            log.info("not compared", node=known.name, error=error.detail)

    async def stop(self) -> None:
        """End the comparisons under way."""
        ending = list(self._under_way.values())
        for comparing in ending:
            comparing.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
