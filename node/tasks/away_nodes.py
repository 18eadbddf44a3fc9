"""One question at a time to a node that is away: those who come meanwhile have its answer, too.

A list of tasks would wait for such a node with each of them otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from node.model.errors import PeerUnreachable
from node.store.core import Core
from node.store.nodes import KnownNode

Answer = TypeVar("Answer")


class AwayNodes:
    """The nodes that are known to be away, and have just been asked again in vain."""

    def __init__(self, core: Core) -> None:
        """Ask a node again once ``peer_timeout`` has passed since its last silence."""
        self._clock = core.clock
        self._patience = core.settings.peer_timeout
        self._asking: dict[str, asyncio.Future[str | None]] = {}
        self._silent: dict[str, tuple[int, str]] = {}
        """By identity, until when a node is not asked, and what the last question came to."""

    async def ask(self, node: KnownNode, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer of a node; of one that is away, only the first question is sent.

        :raises PeerUnreachable: it did not answer, or has not answered another one just now.
        """
        if node.unreachable_since is None:
            return await question()
        until, why = self._silent.get(node.identity, (0, ""))
        if self._clock.monotonic() < until:
            raise PeerUnreachable(why)
        asking = self._asking.get(node.identity)
        if asking is not None:
            silence = await asyncio.shield(asking)
            if silence is not None:
                raise PeerUnreachable(silence)
            return await question()
        return await self._ask_first(node.identity, question)

    async def _ask_first(self, identity: str, question: Callable[[], Awaitable[Answer]]) -> Answer:
        asking = self._asking[identity] = asyncio.get_running_loop().create_future()
        silence = None
        try:
            return await question()
        except PeerUnreachable as error:
            silence = error.detail
            self._silent[identity] = self._clock.monotonic() + self._patience, silence
            raise
        finally:
            del self._asking[identity]
            asking.set_result(silence)
