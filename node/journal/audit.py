"""The audit of this node: who, from where, what, on what, and with which outcome.

What a user has changed is written before the answer; the rest is collected for a moment. While the
database takes nothing, entries are written to the log, and to the table once it can be reached.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict

import structlog

from node.model.audit import AuditBudget, AuditEntry
from node.model.errors import ParleyError
from node.runtime.batching import Batcher, act_when_woken
from node.store import audit
from node.store.core import Core

_BATCH = 500
_WAITING_MAX = 5000
"""Maximum number of entries in memory that could not be written yet; the oldest are given up."""

log = structlog.get_logger()


class AuditLog:
    """Writes the entries of requests."""

    def __init__(self, core: Core) -> None:
        self._database = core.database
        self._clock = core.clock
        self._budget = AuditBudget()
        self._noted: list[AuditEntry] = []
        self._unwritten: deque[AuditEntry] = deque(maxlen=_WAITING_MAX)
        self._woken = asyncio.Event()
        self._writing = Batcher(self._write, weight_max=_BATCH, items_max=_BATCH)

    async def record(self, entry: AuditEntry) -> None:
        """Write an entry, and return once it is durable; or once it is in the log instead."""
        await self._writing.ask(entry)

    def note(self, entry: AuditEntry) -> None:
        """Have an entry written soon; requests beyond a caller's rate are only counted."""
        if not self._budget.admits(entry, self._clock.monotonic()):
            return
        if len(self._noted) >= _WAITING_MAX:
            self._budget.leave_out(entry)
            return
        self._noted.append(entry)
        self._woken.set()

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        await act_when_woken(self._woken, self._clock.sleep, self.flush, "audit not written")

    async def flush(self) -> None:
        """Write the noted entries, and those that could not be written before."""
        if self._noted or self._unwritten:
            await self._write(())

    async def catch_up(self) -> None:
        """Write the noted entries, and how many requests were left out since the last time."""
        self._noted += self._budget.take_left_out(self._clock.now())
        await self.flush()

    async def _write(self, batch: Sequence[AuditEntry]) -> list[None]:
        new = [*self._noted, *batch]
        entries = [*self._unwritten, *new]
        self._noted.clear()
        self._unwritten.clear()
        try:
            async with self._database.connection() as connection:
                await audit.keep(connection, entries)
        except ParleyError as error:
            for entry in new:
                log.warning("not in the audit yet", error=error.detail, **asdict(entry))
            self._unwritten.extend(entries)
        except asyncio.CancelledError:
            self._unwritten.extend(entries)  # for what the stop of the node writes
            raise
        except Exception:
            log.exception("not in the audit", entries=[asdict(entry) for entry in entries])
        return [None] * len(batch)
