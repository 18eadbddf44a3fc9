"""Previews of other policies for a pool: the hours to come under those of now, and under others.

Everything is read once: tasks, terms, bookings, the ledger, what policies remember, and the free
time that the nodes state. Then both policies are rehearsed on it (``rehearsal/``), with real
episodes and the real search for seats. Nothing is booked or stored, and no node is told of it.

A rehearsal is bounded in time: of more than it can plan, the nearest hours count.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from lead.exchange.collection import ask
from lead.model.participants import IntroducingSource
from lead.model.records import OpenTerm, PoolTask
from lead.planning.pool_view import SeatCase
from lead.pool.episode_driver import EpisodeDriver
from lead.pool.episodes import EpisodeLimits, SeatDependencies, due_terms, input_reader
from lead.pool.membership import Membership
from lead.pool.rehearsal.forecast import Rehearsal, compared
from lead.pool.rehearsal.node_time import Closed
from lead.pool.rehearsal.situation import situation_of
from lead.pool.rehearsal.world import Fleet
from lead.pool.seat_slots import FIRST_EPOCH
from lead.pool.snapshot import PoolAhead, policies_of
from lead.store import episodes
from node.model import predicates, times
from node.model.classes import SchedulingClass, blockers
from node.model.spans import Span, normalise, subtract
from node.model.terms import term_length
from node.model.wire.participants import ProposalRequest
from node.model.wire.policy_plans import PolicyPlan, PolicyPlanRequest
from node.model.wire.pools import PolicyChoice
from node.model.wire.seats import SeatRequest
from node.runtime.clock import Clock
from node.store.database import Database
from node.store.pools import StoredPool

BUDGET = 4 * times.SECOND
"""The time that one rehearsal may take."""
_STEPS = 144
_MANY = 2000
"""With more terms to plan than this, the rehearsal advances by the hour."""


@dataclass(frozen=True)
class _Known:
    """Everything that both rehearsals begin with."""

    ahead: PoolAhead
    membership: Membership
    closed: Closed
    fixed: dict[UUID, Sequence[str]]


class PolicyPreviewer:
    """Previews policies of pools."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        bounds: EpisodeLimits,
        dependencies: SeatDependencies,
    ) -> None:
        """``bounds`` are those of the episode loop."""
        self._database = database
        self._clock = clock
        self._bounds = bounds
        self._dependencies = dependencies
        self._reader = input_reader(database, clock, bounds.limits, dependencies)
        self._driver = EpisodeDriver(
            clock,
            bounds.clock_limit,
            dependencies.participant_of,
            dependencies.seat_task,
            random.Random(0),
        )

    async def plan(self, pool: StoredPool, request: PolicyPlanRequest) -> PolicyPlan:
        """Return what these policies would change in a pool; they have been checked."""
        now = self._clock.now()
        until = now + request.hours * times.HOUR
        known, notes = await self._read(pool, until)
        changed = replace(
            pool,
            policy_set=request.policy.set,
            options=dict(request.policy.options),
            overrides={str(axis): dict(it) for axis, it in request.policy.overrides.items()},
        )
        before, after = compared(
            [
                await asyncio.to_thread(self._rehearse, each, known, until, anew=request.anew)
                for each in (pool, changed)
            ]
        )
        seats, runs = known.ahead.seats, known.ahead.view.runs
        return PolicyPlan(
            pool=pool.name,
            since=now,
            until=until,
            booked=sum(run.task in seats and run.start < until for run in runs),
            before=before,
            after=after,
            notes=tuple(notes),
        )

    async def _read(self, pool: StoredPool, until: int) -> tuple[_Known, list[str]]:
        dependencies = self._dependencies
        membership = Membership(
            {pool.name: pool}, await dependencies.known(), dependencies.wanted_of
        )
        async with self._database.connection() as connection:
            tasks = await episodes.tasks_of_pool(connection, pool.name)
        coming = [term for task in tasks for term in self._terms_to_come(pool, task, until)]
        ahead = await self._reader.read_ahead(membership, pool, tasks, coming, until)
        fixed: dict[UUID, Sequence[str]] = {}
        for case in ahead.cases:
            if case.pool_task.id not in fixed and case.able:
                fixed[case.pool_task.id] = self._driver.fixed_nodes(case, membership)
        closed, silent = await self._closed_time(ahead, membership, fixed, pool, until)
        notes = [f"{name} did not answer, and counts as busy" for name in silent]
        return _Known(ahead, membership, closed, fixed), notes + (
            [ahead.note] if ahead.note else []
        )

    def _terms_to_come(self, pool: StoredPool, task: PoolTask, until: int) -> list[OpenTerm]:
        request = SeatRequest.model_validate(task.request)
        length = term_length(request.choice or pool.choice, pool.term)
        terms, _ = due_terms(task, request, length, self._bounds.limits.horizon, until)
        return [term for term in terms if term.term.starts_at < until]

    async def _closed_time(
        self,
        ahead: PoolAhead,
        membership: Membership,
        fixed: dict[UUID, Sequence[str]],
        pool: StoredPool,
        until: int,
    ) -> tuple[dict[tuple[str, SchedulingClass], Sequence[Span]], list[str]]:
        """Ask nodes for their time; return when others take it, and who did not answer."""
        members = [it.name for it in membership.members(predicates.parse(pool.match))]
        names = dict.fromkeys([*members, *(name for several in fixed.values() for name in several)])
        closed: dict[tuple[str, SchedulingClass], Sequence[Span]] = {}
        silent: dict[str, None] = {}
        by_class: dict[SchedulingClass, list[SeatCase]] = {}
        for case in ahead.cases:
            by_class.setdefault(case.pool_task.terms.scheduling_class, []).append(case)
        for kind, cases in by_class.items():
            shortest = min(cases, key=lambda case: case.pool_task.terms.duration)
            window = (
                self._clock.now() + self._bounds.limits.margin,
                max(until, *(case.open.over_at for case in cases)),
            )
            free = await self._free_time(shortest, list(names), window, membership)
            for name in names:
                if name not in free:
                    silent[name] = None
                taken = subtract([window], normalise(free.get(name, ())))
                own = [
                    (run.start, run.end)
                    for run in ahead.view.runs
                    if name in run.nodes and run.scheduling_class in blockers(kind)
                ]
                closed[name, kind] = subtract(taken, normalise(own))
        return closed, list(silent)

    async def _free_time(
        self, case: SeatCase, names: Sequence[str], window: Span, membership: Membership
    ) -> dict[str, list[Span]]:
        """Return by node the time that it has for runs like those of a case.

        Time beyond its horizon counts as free.
        """
        terms = case.pool_task.terms
        question = ProposalRequest(
            task=case.pool_task.id,
            lease_epoch=FIRST_EPOCH,
            scheduling_class=terms.scheduling_class,
            duration=terms.duration,
            priority=terms.priority,
            yielding=(),
            windows=(window,),
            test=terms.test,
            campaign=case.pool_task.campaign,
            preview=True,
        )
        participants = [
            IntroducingSource(
                self._dependencies.participant_of(membership.by_name[name].identity),
                self._driver.introduction(case, name),
            )
            for name in names
            if name in membership.by_name
        ]
        collected = await ask(participants, question, self._clock, self._bounds.clock_limit)
        return {
            name: [*it.free, *([(it.horizon, window[1])] if it.horizon < window[1] else [])]
            for name, it in collected.proposals.items()
        }

    def _rehearse(self, pool: StoredPool, known: _Known, until: int, *, anew: bool) -> Rehearsal:
        """Play the time up to an instant under the policies of a pool."""
        view, policy = known.ahead.view, policies_of(pool)
        situation = situation_of(
            known.ahead, policy, known.closed, known.membership.facts, known.fixed
        )
        fleet = Fleet(
            list(view.nodes.values()),
            list(view.campaigns.values()),
            (),
            policy,
            horizon=view.horizon,
            step=times.HOUR if len(situation.demands) > _MANY else (until - view.now) // _STEPS,
            rng=random.Random(0),
            situation=situation,
            with_blocked=True,
            is_enough=_deadline(self._clock),
        )
        if anew:
            fleet.give_back()
        choice = PolicyChoice.model_validate(
            {"set": pool.policy_set, "options": pool.options, "overrides": pool.overrides}
        )
        return Rehearsal(fleet, choice, until)


def _deadline(clock: Clock) -> Callable[[], bool]:
    """Return whether the time that a rehearsal may take is over."""
    until = clock.monotonic() + BUDGET
    return lambda: clock.monotonic() >= until
