"""A fleet's seats in virtual time: what is due, the episodes over it, and what is booked by them.

Every episode is the real one, over a view made as the lead makes it: what comes due within the
horizon, the runs that are booked, the ledger by the hour, and the state of the last episode.
Simulated are the nodes' answers: a node has the time that nothing else is booked on it, and lets a
posted run go where an episode says that it may.
"""

from __future__ import annotations

import heapq
import random
from bisect import insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from lead.planning.pool_view import state_to_keep
from lead.policy.ahead_sharing import NEAR_TIME
from lead.policy.episode import Episode
from lead.policy.joint_placement import place
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
from lead.pool.assignment import PAUSE_FIRST, PAUSE_MAX
from lead.pool.snapshot_queries import LEDGER_LOOKBACK, TRIED_MAX
from lead.simulation.clock import START
from lead.simulation.fleet.ledger import WEIGHT, Ledger
from node.model import times
from node.model.spans import Span, subtract, union

_TURNS_MAX = 50
"""So many episodes follow each other at one instant at most."""


@dataclass(frozen=True, slots=True)
class DemandStream:
    """Runs of one kind that a campaign wants again and again.

    ``first`` is when the first of them is due, from the beginning; there are ``count`` of them, or
    no end of them.
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
    """How long before its start a run is known; the horizon unless said."""
    asked_at: int = 0
    """Nothing of it is known before then, from the beginning."""


@dataclass(frozen=True, slots=True)
class FleetBooking:
    """A run that was posted, for which candidate, when, and whose place it took."""

    run: PostedRun
    candidate: Candidate
    at: int
    displaced: tuple[PostedRun, ...] = ()
    slots: frozenset[str] = frozenset()
    """The slots that were given by then."""

    def after_slot(self, name: str) -> bool:
        """Whether a slot was given before."""
        return name in self.slots


@dataclass(slots=True)
class HeldEpisode:
    """An episode that was held: over what, what came of it, what it posted and gave back."""

    view: View
    outcome: EpisodeOutcome
    booked: list[FleetBooking] = field(default_factory=list)
    returned: list[PostedRun] = field(default_factory=list)


Watcher = Callable[[HeldEpisode], None]


class Fleet:
    """Nodes, campaigns, and what they want; played step by step."""

    def __init__(  # noqa: PLR0913 - what it is made of
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
    ) -> None:
        """``rng`` draws what episodes draw. A campaign is seen once it is created."""
        self._nodes = {node.name: node for node in nodes}
        self._names = tuple(self._nodes)
        self._campaigns = list(campaigns)
        self._policy = policy
        self._horizon = horizon
        self._rng = rng
        self._step = step
        self._refusals = refusals
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
        """Go on until an instant (from the beginning); tells after each step how late it is."""
        while self.now < START + until:
            self._arrive()
            self._forget()
            self._hold(watch)
            self.now += self._step
            yield self.now - START

    def _arrive(self) -> None:
        """What is known of now."""
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
        """What is over, and what can start no more."""
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

    def _hold(self, watch: Watcher) -> None:
        """Episodes, until all that waits was looked at."""
        for _ in range(_TURNS_MAX):
            candidates = [
                it for name, it in self._waiting.items() if self._again_at(name) <= self.now
            ]
            if not candidates:
                return
            held = self._episode(candidates)
            for name, noes in held.outcome.refused.items():
                tries = self._tries.get(name, (0, 0))[0] + 1
                pause = min(PAUSE_MAX, PAUSE_FIRST << min(tries - 1, 20))
                self._tries[name] = tries, max(self.now + max(pause, 1), noes[0].until or 0)
            held.returned = [it for it in self._runs.values() if it.task in held.outcome.returned]
            for run in held.returned:
                self._undo(run)
            watch(held)
            if not held.outcome.unreached:
                return

    def _again_at(self, name: str) -> int:
        """When it is tried again, after a pause that grows as the lead's does."""
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
        made: list[FleetBooking] = []
        while (ask := episode.next()) is not None:
            found = self._answer(ask)
            if found is None:
                episode.refused(ask, ask.nodes)
            else:
                made.append(replace(found, slots=frozenset(episode.slots)))
                episode.placed(ask, found.run)
        outcome = episode.outcome()
        self._state = state_to_keep(outcome.state, self.now)
        return HeldEpisode(view, outcome, made)

    def _answer(self, ask: Ask) -> FleetBooking | None:
        """Who has time is asked; then, what may give way goes, as little of it as will do."""
        starts = place(ask, self._free(ask))
        gone: list[PostedRun] = []
        if not starts and ask.displacing is not None:
            yielding = self._yielding(ask, ask.displacing)
            while not starts and yielding:
                gone.append(yielding.pop(0))
                starts = place(ask, self._free(ask, gone))
        if not starts:
            return None
        return self._book(ask, starts, gone)

    def _yielding(self, ask: Ask, displacing: Displacing) -> list[PostedRun]:
        """The posted runs that may go, the first to go first."""
        if displacing.runs is not None:
            listed = [self._runs[name] for name in displacing.runs if name in self._runs]
        else:
            listed = [it for it in self._runs.values() if it.priority < displacing.priority]
            listed.sort(key=lambda it: it.priority)
        able = [it for it in listed if not it.running and not set(it.nodes).isdisjoint(ask.nodes)]
        return able if displacing.most is None else able[: displacing.most]

    def _free(self, ask: Ask, without: Sequence[PostedRun] = ()) -> dict[str, list[Span]]:
        always = [(self.now, ask.candidate.start_by + ask.candidate.duration)]
        free = {
            name: subtract(always, self._busy[name])
            for name in ask.nodes
            if not self._refusals or self._rng.random() >= self._refusals
        }
        for run in without:
            for name in free.keys() & run.nodes:
                free[name] = union([free[name], [(run.start, run.end)]])
        return free

    def _book(self, ask: Ask, starts: dict[str, int], gone: Sequence[PostedRun]) -> FleetBooking:
        for run in gone:
            self._undo(run)
        candidate, start = ask.candidate, min(starts.values())
        run = PostedRun(
            run=f"r{next(self._numbers)}",
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
        return FleetBooking(run, candidate, self.now, tuple(gone))

    def _undo(self, run: PostedRun) -> None:
        """It is as if it had not been booked."""
        del self._runs[run.run]
        self._leave(run)
        self.ledger.charge(run, -WEIGHT)
        self._waiting[run.task] = self._placed.pop(run.run)

    def _leave(self, run: PostedRun) -> None:
        for name in run.nodes:
            self._busy[name].remove((run.start, run.end))
