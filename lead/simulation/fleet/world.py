"""The seats of a fleet in virtual time: demand, the episodes over it, and their bookings.

Every episode is the real one, over a view built as the lead builds it: the runs due within the
horizon, the booked runs, the ledger by the hour, and the state of the previous episode. Only the
answers of the nodes are simulated: a node is free whenever nothing else is booked on it, and gives
up a posted run where an episode allows it.
"""

from __future__ import annotations

import heapq
import random
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from uuid import UUID

from lead.planning.pool_view import LEDGER_LOOKBACK, state_to_keep
from lead.policy.ahead_sharing import NEAR_TIME
from lead.policy.episode import Episode
from lead.policy.placement_requests import Ask, Displacing, EpisodeOutcome
from lead.policy.sets import PolicyComposition
from lead.policy.view import (
    BUCKET,
    CampaignView,
    Candidate,
    NodeView,
    PoolView,
    PostedRun,
    RememberedState,
    View,
)
from lead.pool.assignment import PAUSE_FIRST, PAUSE_MAX, PAUSE_OF_HOLDERS
from lead.pool.snapshot_queries import TRIED_MAX
from lead.simulation.clock import START
from lead.simulation.fleet.ledger import WEIGHT, Ledger
from lead.simulation.fleet.seats import find_seats
from node.model import times
from node.model.spans import Span, subtract, union

_EPISODES_MAX = 50
"""Maximum number of consecutive episodes at one instant."""


@dataclass(frozen=True, slots=True)
class DemandStream:
    """Recurring runs of one kind that a campaign wants.

    ``first`` is the due time of the first run, from the beginning; ``count`` is the number of runs,
    or None for an endless stream.
    """

    name: str
    campaign: str
    first: int
    every: int
    length: int
    slip: int
    k: int = 1
    together: bool = False
    priority: int = 0
    count: int | None = None
    known_for: int | None = None
    """Time before its start from which a run is known; the horizon if None."""
    asked_at: int = 0
    """Time from the beginning before which none of the runs is known."""


@dataclass(frozen=True, slots=True)
class FleetBooking:
    """A posted run with its candidate, the instant of booking, and the runs it displaced."""

    run: PostedRun
    candidate: Candidate
    at: int
    displaced: tuple[PostedRun, ...] = ()
    slots: frozenset[str] = frozenset()
    """The slots that the episode had reserved by then."""

    def after_slot(self, name: str) -> bool:
        """Return whether the slot was reserved before this booking."""
        return name in self.slots


@dataclass(slots=True)
class HeldEpisode:
    """An episode with its view, its outcome, its bookings, and the runs it gave back."""

    view: View
    outcome: EpisodeOutcome
    booked: list[FleetBooking] = field(default_factory=list)
    returned: list[PostedRun] = field(default_factory=list)


Watcher = Callable[[HeldEpisode], None]


class Fleet:
    """Nodes, campaigns and their demand, played step by step."""

    def __init__(  # noqa: PLR0913 - the parts of a fleet
        self,
        nodes: Sequence[NodeView],
        campaigns: Sequence[CampaignView],
        streams: Sequence[DemandStream],
        policy: PolicyComposition,
        *,
        horizon: int,
        step: int,
        refusals: float = 0,
        rng: random.Random,
        with_blocked: bool = False,
    ) -> None:
        """Create a fleet; ``rng`` serves the episodes. Campaigns are visible once created.

        With ``with_blocked``, runs that found no time take part in the episodes between their
        tries, as those of a lead do where policies mind them.
        """
        self._nodes = {node.name: node for node in nodes}
        self._names = tuple(self._nodes)
        self._campaigns = list(campaigns)
        self._policy = policy
        self._horizon = horizon
        self._rng = rng
        self._step = step
        self._refusals = refusals
        self._with_blocked = with_blocked and policy.minds_blocked
        self._pause_max = PAUSE_OF_HOLDERS if with_blocked and policy.holds_others else PAUSE_MAX
        self._busy: dict[str, list[Span]] = {name: [] for name in self._names}
        self.ledger = Ledger()
        self.now = START
        self._numbers = count(1)
        self._coming: list[tuple[int, int, int, DemandStream]] = []
        self._waiting: dict[str, Candidate] = {}
        self._runs: dict[str, PostedRun] = {}
        self._placed: dict[str, Candidate] = {}
        self._state = RememberedState()
        self._tries: dict[str, tuple[int, int]] = {}
        self.missed: list[Candidate] = []
        for number, stream in enumerate(streams):
            self._announce(stream, number, 0)

    def _announce(self, stream: DemandStream, number: int, turn: int) -> None:
        if stream.count is None or turn < stream.count:
            due = START + stream.first + turn * stream.every
            known_at = (
                due - stream.known_for if stream.known_for else due - due % BUCKET - self._horizon
            )
            known_at = max(known_at, START + stream.asked_at)
            heapq.heappush(self._coming, (known_at, number, turn, stream))

    def play(self, until: int, watch: Watcher) -> Iterator[int]:
        """Play until an instant from the beginning; yield the time after each step."""
        while self.now < START + until:
            self._arrive()
            self._forget()
            self._run_episodes(watch)
            self.now += self._step
            yield self.now - START

    def _arrive(self) -> None:
        """Add the runs that are known by now to the waiting ones."""
        while self._coming and self._coming[0][0] <= self.now:
            known_at, number, turn, stream = heapq.heappop(self._coming)
            due = START + stream.first + turn * stream.every
            name = f"{stream.name} {times.format_instant(due)}"
            self._waiting[name] = Candidate(
                task=name,
                campaign=stream.campaign,
                next_run_at=due,
                duration=stream.length,
                nodes=self._names,
                slip=stream.slip,
                added_at=START + number,
                priority=stream.priority,
                k=stream.k,
                k_min=stream.k,
                spare=len(self._names),
                together=stream.together,
                waits_since=max(known_at, START),
            )
            self._announce(stream, number, turn + 1)

    def _forget(self) -> None:
        """Drop runs that have ended and waiting ones that can no longer start."""
        for name, run in list(self._runs.items()):
            if run.end <= self.now:
                del self._runs[name]
                self._leave(run)
                self._placed.pop(name, None)
            elif run.start <= self.now and not run.running:
                self._runs[name] = replace(run, running=True)
        for name, candidate in list(self._waiting.items()):
            if candidate.start_by < self.now:
                del self._waiting[name]
                self._tries.pop(name, None)
                self.missed.append(candidate)

    def _run_episodes(self, watch: Watcher) -> None:
        """Run episodes until every waiting run has been considered."""
        for _ in range(_EPISODES_MAX):
            candidates = [
                it for name, it in self._waiting.items() if self._retry_at(name) <= self.now
            ]
            if not candidates:
                return
            tried = {it.task for it in candidates}
            if self._with_blocked:
                blocked = (it for name, it in self._waiting.items() if name not in tried)
                candidates += [replace(it, blocked=True) for it in blocked]
            held = self._episode(candidates)
            for name in held.outcome.refused.keys() & tried:
                refusals = held.outcome.refused[name]
                tries = self._tries.get(name, (0, 0))[0] + 1
                pause = min(self._pause_max, PAUSE_FIRST << min(tries - 1, 20))
                self._tries[name] = tries, max(self.now + max(pause, 1), refusals[0].until or 0)
            held.returned = [it for it in self._runs.values() if it.task in held.outcome.returned]
            for run in held.returned:
                self._undo(run)
            watch(held)
            if not held.outcome.unreached:
                return

    def _retry_at(self, name: str) -> int:
        """Return the instant of the next try, after a pause that grows as the lead's does."""
        return self._tries.get(name, (0, 0))[1]

    def _view(self, candidates: Sequence[Candidate]) -> View:
        ahead = self.now + NEAR_TIME
        return View(
            now=self.now,
            horizon=self._horizon,
            pool=PoolView("fleet", self._names),
            nodes=self._nodes,
            campaigns={it.name: it for it in self._campaigns if it.created_at <= self.now},
            candidates=candidates,
            runs=list(self._runs.values()),
            ledger=self.ledger.read(self.now - LEDGER_LOOKBACK),
            state=self._state,
            workers=TRIED_MAX,
            returnable=[it.task for it in reversed(self._runs.values()) if it.start >= ahead],
        )

    def _episode(self, candidates: Sequence[Candidate]) -> HeldEpisode:
        view = self._view(candidates)
        episode = Episode(view, self._policy, self._rng)
        bookings: list[FleetBooking] = []
        while (ask := episode.next_ask()) is not None:
            booking = self._answer(ask)
            if booking is None:
                episode.record_refusal(ask)
            else:
                bookings.append(replace(booking, slots=frozenset(episode.slots)))
                episode.record_placement(ask, booking.run)
        outcome = episode.outcome()
        self._state = state_to_keep(outcome.state, self.now)
        return HeldEpisode(view, outcome, bookings)

    def _answer(self, ask: Ask) -> FleetBooking | None:
        """Book nodes that a lead would find, and displace what is in the way there."""
        may_yield = self._runs_that_may_yield(ask, ask.displacing) if ask.displacing else []
        free = self._free_time(ask)
        displacing = {
            name: union([spans, [(run.start, run.end) for run in may_yield if name in run.nodes]])
            for name, spans in free.items()
        }
        found = find_seats(ask, free, displacing, may_yield)
        if found is None:
            return None
        starts = {name: found.starts[name][0] for name in found.seats.values()}
        displaced = [
            run
            for run in may_yield
            if any(
                name in run.nodes and run.start < at + ask.candidate.duration and at < run.end
                for name, at in starts.items()
            )
        ]
        return self._book(ask, starts, displaced)

    def _runs_that_may_yield(self, ask: Ask, displacing: Displacing) -> list[PostedRun]:
        """Return the posted runs that may be displaced, the first to go first."""
        if displacing.runs is not None:
            posted = [self._runs[name] for name in displacing.runs if name in self._runs]
        else:
            posted = [it for it in self._runs.values() if it.priority < displacing.priority]
            posted.sort(key=lambda it: it.priority)
        return [it for it in posted if not it.running and not set(it.nodes).isdisjoint(ask.nodes)]

    def _free_time(self, ask: Ask) -> dict[str, list[Span]]:
        always = [(self.now, ask.candidate.start_by + ask.candidate.duration)]
        return {
            name: subtract(always, self._busy[name])
            for name in ask.nodes
            if not self._refusals or self._rng.random() >= self._refusals
        }

    def _book(
        self, ask: Ask, starts: dict[str, int], displaced: Sequence[PostedRun]
    ) -> FleetBooking:
        for run in displaced:
            self._undo(run)
        candidate, start = ask.candidate, min(starts.values())
        run = PostedRun(
            run=str(UUID(int=next(self._numbers))),
            task=candidate.task,
            campaign=candidate.campaign,
            nodes=tuple(starts),
            start=start,
            end=max(starts.values()) + candidate.duration,
            scheduling_class=candidate.scheduling_class,
            priority=candidate.priority,
        )
        self._runs[run.run] = run
        self._placed[run.run] = self._waiting.pop(candidate.task)
        self._tries.pop(candidate.task, None)
        for name in run.nodes:
            insort(self._busy[name], (run.start, run.end))
        self.ledger.charge(run)
        return FleetBooking(run, candidate, self.now, tuple(displaced))

    def _undo(self, run: PostedRun) -> None:
        """Reverse a booking: the run waits again."""
        del self._runs[run.run]
        self._leave(run)
        self.ledger.charge(run, -WEIGHT)
        self._waiting[run.task] = self._placed.pop(run.run)

    def _leave(self, run: PostedRun) -> None:
        for name in run.nodes:
            self._busy[name].remove((run.start, run.end))
