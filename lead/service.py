"""The lead of one node, put together: the worker pool, the delivery of decisions, the repairs.

What it needs of the node it leads for comes in as functions, so that the same code runs beside the
node's service in one process, in a process of its own, and against simulated participants.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from lead.conclusion import Conclusions
from lead.delivery import Delivery
from lead.episodes import Bounds, Episodes, SeatPowers, phase_of
from lead.model import SeatWeights
from lead.negotiation import Negotiator, Terms
from lead.participants import Participant
from lead.planner import ChooseTool, Planner
from lead.planning.agenda import Limits
from lead.reach import Reach
from lead.reconciliation import EVERY_S, Comparable, Reconciler
from lead.workers import POLL_S, Workers
from node.clock import Clock
from node.outbox import Outbox
from node.store.database import Database, Notice
from node.store.outbox import Kind


@dataclass(frozen=True)
class Powers:
    """What the lead may have its node do."""

    participant_of: Callable[[str], Participant]
    others: Callable[[], list[Comparable]]
    choose_tool: ChooseTool
    refuse_task: Callable[[UUID, str], Awaitable[None]]
    lose_run: Callable[[UUID, str], Awaitable[None]]
    drop_run: Callable[[str, UUID, str], Awaitable[None]]
    seats: SeatPowers


class Lead:
    """Plans the tasks of one node."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        database: Database,
        clock: Clock,
        limits: Limits,
        terms: Terms,
        powers: Powers,
        *,
        owner: str,
        workers: int,
        lease: int,
        rng: random.Random,
        weights: SeatWeights | None = None,
        poll_s: float = POLL_S,
        compare_every_s: float = EVERY_S,
    ) -> None:
        """Nothing runs before :meth:`start`; runs are charged for by ``weights``."""
        self._database = database
        self._clock = clock
        delivery = Delivery(database, clock, powers.participant_of, powers.lose_run)
        reach = Reach(clock, rng, workers)
        planner = Planner(
            database=database,
            clock=clock,
            limits=limits,
            negotiator=Negotiator(database, clock, terms),
            reach=reach,
            delivery=delivery,
            conclusions=Conclusions(database, clock, delivery, rng, weights or SeatWeights()),
            participant_of=powers.participant_of,
            choose_tool=powers.choose_tool,
            refuse_task=powers.refuse_task,
            take_back=powers.seats.take_back,
            rng=rng,
        )
        self._workers = Workers(
            database,
            clock,
            planner,
            reach,
            owner,
            size=workers,
            lease=lease,
            horizon=limits.horizon,
            poll_s=poll_s,
        )
        bounds = Bounds(limits, terms.clock_limit, poll_s, phase_of(owner, limits.horizon))
        self._episodes = Episodes(database, clock, bounds, powers.seats, rng)
        kinds = (Kind.COMMIT, Kind.RELEASE)
        self._outbox = Outbox(database, clock, kinds, delivery.deliver, poll_s=poll_s)
        self._reconciler = Reconciler(
            database,
            clock,
            limits.horizon,
            powers.others,
            powers.lose_run,
            powers.drop_run,
            every_s=compare_every_s,
        )
        self._loops: list[asyncio.Task[None]] = []

    def heard(self, notice: Notice) -> None:
        """A notification of the database."""
        self._workers.heard(notice)
        self._episodes.heard(notice)
        self._outbox.heard(notice)

    async def start(self) -> None:
        """Start to plan."""
        self._loops = [
            asyncio.create_task(self._workers.run(), name="workers"),
            asyncio.create_task(self._episodes.run(), name="episodes"),
            asyncio.create_task(self._outbox.run(), name="lead outbox"),
            asyncio.create_task(self._reconciler.run(), name="reconciler"),
        ]

    async def stop(self) -> None:
        """Stop; planning under way is finished or given back."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
