"""The lead of one node, put together: the workers, the delivery of decisions, and the repairs.

It gets the functions of its node as arguments, so that the same code runs beside the node's service
in one process, in a process of its own, and against simulated participants.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from lead.exchange.decision import AttemptRecorder
from lead.exchange.delivery import DecisionDelivery
from lead.exchange.displacement import CampaignDisplacement
from lead.exchange.freed_room import FreedRoom
from lead.exchange.negotiation import NegotiationSettings, Negotiator
from lead.exchange.planner import ChooseTool, Planner, PlannerDependencies
from lead.exchange.reachability import ReachabilityTracker
from lead.exchange.reconciliation import Reconciler, ReconciliationDependencies
from lead.exchange.user_limits import LeadLimits
from lead.exchange.workers import POLL_S, Workers, WorkerSettings
from lead.model.participants import ParticipantClient
from lead.planning.agenda import Limits
from lead.pool.episodes import EpisodeLimits, EpisodeLoop, SeatDependencies, phase_of
from node.journal.outbox import Outbox
from node.model.seat_weights import SeatWeights
from node.model.task_terms import Relocate
from node.runtime.clock import Clock, StepWatcher
from node.runtime.housekeeping import COMPARE_S, Housekeeper, lead_jobs
from node.runtime.instruments import Instruments
from node.store.database import Database, Notice
from node.store.outbox import MessageKind


@dataclass(frozen=True)
class LeadDependencies:
    """The functions of the node that the lead uses."""

    participant_of: Callable[[str], ParticipantClient]
    relocate: Relocate
    choose_tool: ChooseTool
    refuse_task: Callable[[UUID, str], Awaitable[None]]
    lose_run: Callable[[UUID, str], Awaitable[None]]
    limits: LeadLimits
    displacement: CampaignDisplacement
    reconciliation: ReconciliationDependencies
    seats: SeatDependencies
    instruments: Instruments
    steps: StepWatcher


@dataclass(frozen=True)
class LeadSettings:
    """The settings of a lead.

    ``owner`` names this process in leases; no other process may use the same name. ``lease`` is in
    microseconds, ``poll_s`` and ``compare_every_s`` are in seconds.
    """

    limits: Limits
    terms: NegotiationSettings
    weights: SeatWeights
    workers: int
    lease: int
    owner: str
    poll_s: float = POLL_S
    compare_every_s: float = COMPARE_S


class Lead:
    """Plans the tasks of one node."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        settings: LeadSettings,
        dependencies: LeadDependencies,
        rng: random.Random,
    ) -> None:
        """Build all parts; nothing runs before :meth:`start`."""
        self._database = database
        self._clock = clock
        self.delivery = DecisionDelivery(
            database, clock, dependencies.participant_of, dependencies.lose_run
        )
        self.reachability = ReachabilityTracker(clock, rng, settings.workers)
        self.planner = self._planner(settings, dependencies, rng)
        horizon, poll_s = settings.limits.horizon, settings.poll_s
        self.workers = Workers(
            database,
            clock,
            self.planner,
            self.reachability,
            WorkerSettings(settings.owner, settings.workers, settings.lease, horizon, poll_s),
            dependencies.steps,
        )
        bounds = EpisodeLimits(
            settings.limits, settings.terms.clock_limit, poll_s, phase_of(settings.owner, horizon)
        )
        self.episodes = EpisodeLoop(
            database, clock, bounds, dependencies.seats, rng, dependencies.steps
        )
        self.freed_room = FreedRoom(database, clock)
        kinds = (MessageKind.COMMIT, MessageKind.RELEASE)
        self.outbox = Outbox(
            database, clock, kinds, self.delivery.deliver, dependencies.instruments, poll_s=poll_s
        )
        self.reconciler = Reconciler(database, clock, dependencies.reconciliation, horizon)
        self._housekeeper = Housekeeper(clock)
        self._compare_every_s = settings.compare_every_s
        self._learn_uses = dependencies.limits.shared.learn_from_all
        self._loops: list[asyncio.Task[None]] = []

    def _planner(
        self, settings: LeadSettings, dependencies: LeadDependencies, rng: random.Random
    ) -> Planner:
        database, clock, delivery = self._database, self._clock, self.delivery
        limits, displacement = dependencies.limits, dependencies.displacement
        return Planner(
            database,
            clock,
            settings.limits,
            PlannerDependencies(
                negotiator=Negotiator(database, clock, settings.terms, limits, displacement),
                reach=self.reachability,
                delivery=delivery,
                recorder=AttemptRecorder(database, clock, delivery, rng, settings.weights, limits),
                participant_of=dependencies.participant_of,
                relocate=dependencies.relocate,
                choose_tool=dependencies.choose_tool,
                refuse_task=dependencies.refuse_task,
                take_back=dependencies.seats.take_back,
                instruments=dependencies.instruments,
            ),
            rng,
        )

    def on_notice(self, notice: Notice) -> None:
        """Pass a notification of the database to all parts."""
        self.workers.on_notice(notice)
        self.episodes.on_notice(notice)
        self.freed_room.on_notice(notice)
        self.outbox.on_notice(notice)

    async def start(self) -> None:
        """Start the loops."""
        self._loops = [
            asyncio.create_task(self.workers.run(), name="workers"),
            asyncio.create_task(self.episodes.run(), name="episodes"),
            asyncio.create_task(self.freed_room.run(), name="freed room"),
            asyncio.create_task(self.outbox.run(), name="lead outbox"),
        ]
        compare = self.reconciler.compare_all
        jobs = lead_jobs(
            compare=compare, learn_uses=self._learn_uses, every_s=self._compare_every_s
        )
        self._housekeeper.start(jobs)

    async def stop(self) -> None:
        """Stop the loops; planning under way is finished, or its claim is given back."""
        await self._housekeeper.stop()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
