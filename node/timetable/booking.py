"""This node's time line, as leads see it: proposals, holds, commits, releases, comparisons.

The same object serves the participant API (another node leads) and the lead on this host (called
directly). Every answer is a wire document. Requests that arrive at the same time are answered
together, in one transaction for each kind.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

from node.model.digests import fingerprint, terms_fingerprint
from node.model.errors import InvalidDocument, ParleyError
from node.model.hold_limits import foreign_exchange
from node.model.taskstate import OPEN, UNKNOWN
from node.model.wire.participants import (
    DIFFERENCES_MAX,
    MESSAGE_WEIGHT_MAX,
    CommitAnswer,
    CommitRequest,
    DecisionAnswer,
    Differences,
    DigestRequest,
    HoldAnswer,
    HoldRequest,
    Proposal,
    ProposalRequest,
    Release,
)
from node.runtime.batching import Batcher
from node.sharing.host_limits import LimitKeeper
from node.sharing.lead_share_use import ShareEnforcer
from node.sharing.quota_use import LimitEnforcer
from node.sharing.resources import ResourceCounter
from node.store import bookings, tasks
from node.store.bookings import ExchangeRuling, Hold
from node.store.core import Core
from node.store.database import Notice
from node.timetable.holds import HoldBooker, ToolFigure
from node.timetable.proposals import Proposals
from node.timetable.rulings import RulingApplier


class TimeLine:
    """This node's time line, as those who book on it see it."""

    def __init__(
        self,
        core: Core,
        needs_port: ToolFigure,
        duration_with: ToolFigure,
        rng: random.Random,
        limits: LimitKeeper,
    ) -> None:
        """``needs_port(task, tool)`` returns how many consecutive ports this node must assign.

        ``duration_with(task, tool)`` returns how long a run with that tool takes (microseconds).
        """
        self._database = core.database
        self._shares = ShareEnforcer(core)
        self.limits = LimitEnforcer(core, limits)
        resources = ResourceCounter(core, limits)
        self._proposals = Proposals(core, self._shares, self.limits, resources)
        self._holds = HoldBooker(
            core, needs_port, duration_with, rng, self._shares, self.limits, resources
        )
        self._rulings = RulingApplier(core)
        self._proposal_batches = Batcher(
            self._proposals.answer,
            weight=lambda asked: len(asked[1].windows),
            weight_max=MESSAGE_WEIGHT_MAX,
        )
        self._hold_batches = Batcher(
            self._hold_all,
            weight=lambda hold: len(hold.request.runs),
            weight_max=MESSAGE_WEIGHT_MAX,
            apart=lambda hold: (hold.exchange, hold.request.task, *hold.runs),
        )
        self._ruling_batches = Batcher(
            self._rulings.apply_all,
            weight=lambda ruling: len(ruling.commit.runs) if ruling.commit else 1,
            weight_max=MESSAGE_WEIGHT_MAX,
            apart=lambda ruling: (ruling.exchange,),
        )

    def on_notice(self, notice: Notice) -> None:
        """Keep what is cached of this time line up to date with a database notification."""
        self._shares.on_notice(notice)
        self._proposals.on_notice(notice)

    async def note(self, lead: str, request: ProposalRequest) -> None:
        """Record for which hours a lead wants time, where its owner has set shares."""
        await self._shares.note(lead, request)

    async def propose(self, lead: str, request: ProposalRequest) -> Proposal:
        """Return the free ranges in the windows, for both passes, and what is in the way.

        ``lead`` is the identity of the node that asks.
        """
        return await self._proposal_batches.ask((lead, request))

    async def hold(self, exchange: UUID, lead: str, request: HoldRequest) -> HoldAnswer:
        """Book these runs until the lead decides; a repeat gets the same answer.

        :raises InvalidDocument: it contradicts the introduction of the task, or has foreign ids.
        :raises NotFound: the task was never introduced here, or an older revision of it.
        :raises Conflict: it has ended, another node leads it, or the lease epoch is old.
        """
        fault = foreign_exchange(exchange, request.task, request.lease_epoch)
        if fault is not None:
            raise InvalidDocument([fault])
        return await self._hold_batches.ask(Hold(exchange, lead, request))

    async def _hold_all(self, holds: Sequence[Hold]) -> list[HoldAnswer | ParleyError]:
        answers, new = await self._holds.hold_all(holds)
        for hold, answer in zip(holds, answers, strict=True):
            # Repeats of an earlier hold are in the calendar already, or have been given back since.
            if hold.exchange in new and isinstance(answer, HoldAnswer):
                counted, task = new[hold.exchange]
                self._proposals.note_booked(task, counted, answer)
        return answers

    async def commit(
        self, exchange: UUID, request: CommitRequest, sender: str | None = None
    ) -> CommitAnswer:
        """Keep these runs and drop the rest; what was set aside for the kept ones is displaced.

        ``sender`` is the identity of the node that decides; None is this node itself.

        :raises NotAllowed: another node than ``sender`` leads the task.
        """
        return await self._ruling_batches.ask(ExchangeRuling(exchange, None, request, sender))

    async def release(
        self, exchange: UUID, release: Release, sender: str | None = None
    ) -> CommitAnswer:
        """Drop a hold and free its time; harmless if it is not held, or not held yet.

        ``sender`` is the identity of the node that decides; None is this node itself.

        :raises InvalidDocument: the exchange is not one of that task and lease epoch.
        :raises NotAllowed: another node than ``sender`` leads the task.
        """
        fault = foreign_exchange(exchange, release.task, release.lease_epoch)
        if fault is not None:
            raise InvalidDocument([fault])
        return await self._ruling_batches.ask(ExchangeRuling(exchange, release.task, None, sender))

    async def decision(self, exchange: UUID, sender: str | None = None) -> DecisionAnswer:
        """Return the commit of an exchange that this node leads, or that it is open or aborted.

        An unknown exchange is aborted. ``sender`` is the identity of the node that asks; None is
        this node itself.

        :raises NotFound: the sender takes no part in it.
        """
        return await self._rulings.decision(exchange, sender)

    async def compare(self, lead: str, request: DigestRequest) -> Differences:
        """Compare the lead's open tasks and their future runs with what is known and booked here.

        Returns the tasks that are unknown or have ended here, the revisions and terms that differ,
        and the runs that differ: at most ``DIFFERENCES_MAX`` runs, but all runs of one task.
        """
        digests = {digest.task: digest for digest in request.tasks}
        async with self._database.connection() as connection:
            known = await bookings.runs_to_come(
                connection, list(digests), lead, request.now, request.until
            )
            stored = await tasks.fetch_all(connection, list(known))
        terms = {task.id: terms_fingerprint(task.terms) for task in stored}
        differing: dict[UUID, dict[UUID, int]] = {}
        ended, revisions, otherwise = {}, {}, list[UUID]()
        run_count = 0
        for task, digest in digests.items():
            state, revision, runs = known.get(task, (UNKNOWN, 0, {}))
            if state not in OPEN:
                ended[task] = state
                continue
            if (state, revision) != (digest.state, digest.revision):
                revisions[task] = revision
            elif digest.fingerprint is not None and terms[task] != digest.terms:
                otherwise.append(task)
            if digest.fingerprint not in (None, fingerprint(runs)):
                run_count += len(runs)
                if not differing or run_count <= DIFFERENCES_MAX:
                    differing[task] = runs
        return Differences(
            tasks=differing, ended=ended, revisions=revisions, terms=tuple(otherwise)
        )
