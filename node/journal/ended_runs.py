"""Logs and counts each run that ends on this node.

Ends come as notifications of the database, so those that other processes of this node wrote are
among them. What ended meanwhile is looked up in one query.
"""

from __future__ import annotations

from uuid import UUID

import structlog

from node.model.errors import DatabaseUnavailable
from node.model.headline import headline
from node.model.outcome import Judgement
from node.model.runstate import OVER, RunState
from node.runtime import tracing
from node.runtime.clock import LatchedEvent
from node.store import runs
from node.store.core import Core
from node.store.database import Notice
from node.store.runs import EndedRun

GATHER_S = 0.5
"""Time for which ends are gathered, so that one query serves all runs of an instant."""
AT_ONCE = 1000
CAUSES_MAX = 200
"""Maximum number of causes that are labels; further ones are counted as ``other``."""
_CAUSE_LENGTH_MAX = 120
_IDLE_S = 60.0
_RETRY_S = 5.0

log = structlog.get_logger()


class EndedRunRecorder:
    """Looks up the runs that ended, writes a line of the log for each, and counts them."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._pending: dict[UUID, None] = {}
        self._woken = LatchedEvent()
        self._causes: set[str] = set()

    def on_notice(self, notice: Notice) -> None:
        """Remember a run that ended."""
        if notice.kind == "run" and notice.words and notice.words[-1] in OVER:
            self._pending[UUID(notice.id)] = None
            self._woken.set()

    async def run(self) -> None:
        """Record ends until cancelled."""
        while True:
            await self._woken.wait(_IDLE_S)
            self._woken.clear()
            await self._core.clock.sleep(GATHER_S)
            try:
                while self._pending:
                    await self.record()
            except DatabaseUnavailable:
                await self._core.clock.sleep(_RETRY_S)  # its outage is logged already
                self._woken.set()

    async def record(self) -> None:
        """Record some of the runs that ended so far."""
        some = list(self._pending)[:AT_ONCE]
        async with self._core.database.connection() as connection:
            found = await runs.find_ended(connection, some)
        for run in some:
            del self._pending[run]
        for ended in found:
            with tracing.within(tracing.run_trace(ended.id)):
                self._log_and_count(ended)

    def _log_and_count(self, ended: EndedRun) -> None:
        names = [each.name for each in ended.participants]
        leads = ended.lead == self._core.identity
        log.info(
            "run ended",
            state=ended.state,
            what=headline(ended.test, names, ended.spec),
            task=str(ended.task),
            run=str(ended.id),
            **({"reason": ended.reason} if ended.reason else {}),
            judgement=ended.judgement,
            **({"verdict": ended.verdict} if ended.verdict not in {None, "clean"} else {}),
        )
        self._core.instruments.count_ended_run(
            "lead" if leads else "participant",
            ended.test,
            ended.state,
            self._cause_label(ended),
            ended.campaign or "",
        )

    def _cause_label(self, ended: EndedRun) -> str:
        """Return the label of the cause; reasons may have words of others, so it is bounded."""
        if ended.judgement in {Judgement.BAD, Judgement.NO_ANSWER}:
            return ended.judgement
        if ended.cause is None or ended.state == RunState.FINISHED:
            return ""
        cause = ended.cause[:_CAUSE_LENGTH_MAX]
        if cause not in self._causes:
            if len(self._causes) >= CAUSES_MAX:
                return "other"
            self._causes.add(cause)
        return cause
