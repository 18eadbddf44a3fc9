"""Notices that a database server hangs, so that nobody waits long for it.

A server that was stopped, or whose disk or network stands still, keeps its connections open and
answers nothing. A statement may well take long at a server that answers others. So whatever takes
long makes the detector ask the server on a connection of its own; only if that is not answered
either, all that waits is broken off, and whatever comes is refused at once until it answers again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import structlog

from node.model.errors import DatabaseUnavailable

log = structlog.get_logger()


@dataclass(frozen=True)
class HangLimits:
    """Limits in seconds: ``use_s`` for any work without a question, ``probe_s`` for a probe.

    After ``probes`` probes without an answer it hangs. The sum is the longest wait of a request.
    ``lock_s`` is the longest wait of a statement for what somebody else has locked.
    """

    use_s: float = 1.5
    probe_s: float = 2.5
    probes: int = 2
    lock_s: float = 8.0

    @property
    def total_s(self) -> float:
        """The longest time from the beginning of a use to its end at a server that hangs."""
        return self.use_s + self.probes * self.probe_s


class HangDetector:
    """Watches the uses of one server, and breaks them off when it hangs."""

    def __init__(self, probe: Callable[[], Awaitable[None]], limits: HangLimits) -> None:
        """``probe`` returns or raises as soon as the server has answered, whatever it answers."""
        self._probe = probe
        self._limits = limits
        self._uses: dict[object, Callable[[], None]] = {}
        self._examining: asyncio.Task[None] | None = None
        self._hangs = False

    @contextlib.contextmanager
    def watch(self, break_off: Callable[[], None]) -> Iterator[None]:
        """Watch a use of the server: ``break_off`` must end it, and is called once if it hangs.

        :raises DatabaseUnavailable: it hangs.
        """
        if self._hangs:
            raise DatabaseUnavailable(self._reason)
        key = object()
        loop = asyncio.get_running_loop()
        self._uses[key] = break_off
        timer = loop.call_later(self._limits.use_s, self._suspect, key)
        try:
            yield
        except DatabaseUnavailable as error:
            if self._hangs:
                raise DatabaseUnavailable(self._reason) from error
            raise
        finally:
            timer.cancel()
            self._uses.pop(key, None)

    @contextlib.contextmanager
    def break_off_if_hanging(self, break_off: Callable[[], None]) -> Iterator[None]:
        """Call ``break_off`` if the server hangs meanwhile, however long that takes."""
        key = object()
        self._uses[key] = break_off
        try:
            yield
        finally:
            self._uses.pop(key, None)

    async def stop(self) -> None:
        """Stop asking the server."""
        if self._examining is not None:
            self._examining.cancel()
            await asyncio.gather(self._examining, return_exceptions=True)

    @property
    def _reason(self) -> str:
        return (
            f"the database hangs: it has not answered within {self._limits.total_s:g} s; requests "
            "are refused until it answers again. See whether its processes run and its disk works"
        )

    def _suspect(self, key: object) -> None:
        """Ask the server, as a use takes long; again later if it still does."""
        if key not in self._uses:
            return
        asyncio.get_running_loop().call_later(self._limits.use_s, self._suspect, key)
        if self._examining is None or self._examining.done():
            self._examining = asyncio.create_task(
                self._probe_until_answered(), name="examine database"
            )

    async def _probe_until_answered(self) -> None:
        unanswered = 0
        while not await self._answers():
            unanswered += 1
            if unanswered == self._limits.probes:
                self._break_off()
        if self._hangs:
            log.warning("the database answers again")
        self._hangs = False

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(self._limits.probe_s):
                await self._probe()
        except TimeoutError:
            return False
        return True

    def _break_off(self) -> None:
        log.error("the database hangs", waiting=len(self._uses), error=self._reason)
        self._hangs = True
        for break_off in list(self._uses.values()):
            break_off()
