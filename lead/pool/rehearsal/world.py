"""The seats of a pool in virtual time: demand, the episodes over it, and their bookings.

Every episode is the real one, over a view built as the lead builds it: the runs due within the
horizon, the booked runs, the ledger by the hour, and the state of the previous episode. Only the
answers of the nodes are simulated: a node is free whenever nothing else is booked on it, and gives
up a posted run where an episode allows it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from uuid import UUID

from lead.planning.pool_view import LEDGER_LOOKBACK, candidate_of, state_to_keep, windows_of
from lead.policy.contested import NOTICE
from lead.policy.episode import Episode
from lead.policy.limit_counting import spent_with
from lead.policy.placement_requests import Ask, Displacing, EpisodeOutcome
from lead.policy.sets import PolicyComposition
from lead.policy.view import (
    BUCKET,
    CampaignView,
    Candidate,
    Charge,
    NodeView,
    PoolView,
    PostedRun,
    RememberedState,
    ReservationView,
    View,
)
from lead.pool.assignment import PAUSE_FIRST, PAUSE_MAX, PAUSE_OF_GIVERS, PAUSE_OF_HOLDERS
from lead.pool.rehearsal.ledger import WEIGHT, Ledger
from lead.pool.rehearsal.node_time import NodeTime
from lead.pool.rehearsal.seats import Seeking, find_seats
from lead.pool.seat_search import SeatSearchResult
from lead.pool.snapshot_queries import TRIED_MAX
from node.model import times
from node.model.classes import SchedulingClass
from node.model.spans import Span

_EPISODES_MAX = 500
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
class Demand:
    """Runs that are wanted: as policies see them, and as the search for seats does.

    Without ``seeking`` it is a single run. ``horizon`` (µs) is that of planning.
    """

    candidate: Candidate
    seeking: Seeking | None = None
    horizon: int = 0

    @property
    def slots(self) -> Sequence[int]:
        """Return the nominal starts of its runs."""
        return (self.candidate.next_run_at,) if self.seeking is None else self.seeking.case.slots

    def only(self, slots: Sequence[int], seats: Sequence[int] | None = None) -> Demand:
        """Return what is left if only these slots, and these of its seats, are wanted."""
        if self.seeking is None:
            return self
        case, known = self.seeking.case, self.candidate
        duration = case.pool_task.terms.duration
        begins: int | None = slots[0]
        if case.closed.spans:
            begins = case.closed.first_open(windows_of(slots, case.recurrence, duration), duration)
        case = replace(
            case, slots=slots, begins=begins, empty=case.empty if seats is None else seats
        )
        candidate = candidate_of(case, self.horizon, known.needs, known.moves)
        return replace(self, candidate=candidate, seeking=replace(self.seeking, case=case))

    def passed_slots(self, now: int) -> list[int]:
        """Return the slots whose runs can no longer start."""
        return [slot for slot in self.slots if slot + self.candidate.slip < now]


@dataclass(frozen=True, slots=True)
class FleetBooking:
    """Posted runs with their candidate, the instant of booking, and the runs they displaced."""

    runs: tuple[PostedRun, ...]
    candidate: Candidate
    at: int
    displaced: tuple[PostedRun, ...] = ()
    slots: frozenset[str] = frozenset()
    """The slots that the episode had reserved by then."""
    slots_of_displaced: Mapping[str, int] = field(default_factory=dict)
    """By displaced run of the pool, its nominal start."""

    @property
    def run(self) -> PostedRun:
        """Return the first run."""
        return self.runs[0]

    def after_slot(self, name: str) -> bool:
        """Return whether the slot was reserved before this booking."""
        return name in self.slots


@dataclass(frozen=True, slots=True)
class Placement:
    """A posted run of a pool: the demand that it meets, its nominal start, and its seats."""

    run: PostedRun
    demand: Demand
    slot: int
    seats: tuple[int, ...] = ()


@dataclass(frozen=True)
class Situation:
    """The bookings and demands that are there when a rehearsal begins.

    ``demands`` have the instant from which each is known. ``closed`` is by node and class when
    others than this lead leave no time. ``placed`` are booked runs of the pool, ``posted`` those of
    other tasks of this lead.
    """

    begins: int
    demands: Sequence[tuple[int, Demand]] = ()
    placed: Sequence[Placement] = ()
    posted: Sequence[PostedRun] = ()
    closed: Mapping[tuple[str, SchedulingClass], Sequence[Span]] = field(default_factory=dict)
    charges: Sequence[Charge] = ()
    reservations: Sequence[ReservationView] = ()
    moved: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    spent: Mapping[str, int] = field(default_factory=dict)
    state: RememberedState = field(default_factory=RememberedState)


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
        situation: Situation,
        with_blocked: bool = False,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create a fleet; ``rng`` serves the episodes. Campaigns are visible once created.

        With ``with_blocked``, runs that found no time take part in the episodes between their
        tries, as those of a lead do where policies mind them. Once ``is_enough()``, no more
        episodes are held.
        """
        self._situation = situation
        self._is_enough = is_enough
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
        self._time = NodeTime(situation.closed)
        self.ledger = Ledger()
        self.now = self.begins = situation.begins
        self._numbers = count(1)
        self._coming: list[tuple[int, int, int, DemandStream | Demand]] = []
        self._waiting: dict[str, Demand] = {}
        self._runs: dict[str, PostedRun] = {}
        self._placed: dict[str, Placement] = {}
        self.placements: dict[str, Placement] = {}
        self._state = situation.state
        self._tries: dict[str, tuple[int, int]] = {}
        self._before: dict[UUID, dict[int, str]] = {}
        self.missed: list[Demand] = []
        for number, stream in enumerate(streams):
            self._announce(stream, number, 0)
        for number, (known_at, demand) in enumerate(situation.demands, len(streams)):
            heapq.heappush(self._coming, (known_at, number, 0, demand))
        for run in situation.posted:
            self._occupy(run)
        for placed in situation.placed:
            self._occupy(placed.run)
            self._placed[placed.run.run] = self.placements[placed.run.run] = placed

    def _occupy(self, run: PostedRun) -> None:
        self._runs[run.run] = run
        for name in run.nodes:
            self._time.take(name, run)

    def _announce(self, stream: DemandStream, number: int, turn: int) -> None:
        if stream.count is None or turn < stream.count:
            due = self.begins + stream.first + turn * stream.every
            known_at = (
                due - stream.known_for if stream.known_for else due - due % BUCKET - self._horizon
            )
            known_at = max(known_at, self.begins + stream.asked_at)
            heapq.heappush(self._coming, (known_at, number, turn, stream))

    def play(self, until: int, watch: Watcher) -> Iterator[int]:
        """Play until an instant from the beginning; yield the time after each step."""
        while self.now < self.begins + until and not self._is_enough():
            self._arrive()
            self._forget()
            self._run_episodes(watch)
            self.now += self._step
            yield self.now - self.begins

    def looked_until(self, until: int) -> int:
        """Return the instant up to which everything was tried; at most ``until``."""
        if not self._is_enough():
            return until
        untried = [
            it.candidate.next_run_at
            for name, it in self._waiting.items()
            if name not in self._tries
        ]
        coming = [
            it.candidate.next_run_at if isinstance(it, Demand) else known_at
            for known_at, _, _, it in self._coming
        ]
        return min([until, *untried, *coming])

    def give_back(self) -> None:
        """Have all booked runs of the pool that have not begun planned again."""
        for placed in [it for it in self._placed.values() if it.run.start > self.now]:
            self._undo(placed.run)

    def _arrive(self) -> None:
        """Add the runs that are known by now to the waiting ones."""
        while self._coming and self._coming[0][0] <= self.now:
            known_at, number, turn, wanted = heapq.heappop(self._coming)
            if isinstance(wanted, Demand):
                self._wait(wanted)
                continue
            due = self.begins + wanted.first + turn * wanted.every
            name = f"{wanted.name} {times.format_instant(due)}"
            candidate = Candidate(
                task=name,
                campaign=wanted.campaign,
                next_run_at=due,
                duration=wanted.length,
                nodes=self._names,
                slip=wanted.slip,
                added_at=self.begins + number,
                priority=wanted.priority,
                k=wanted.k,
                k_min=wanted.k,
                spare=len(self._names),
                together=wanted.together,
                waits_since=max(known_at, self.begins),
            )
            self._wait(Demand(candidate))
            self._announce(wanted, number, turn + 1)

    def _wait(self, demand: Demand) -> None:
        """Let a demand wait; with what waits already of the same term."""
        name = demand.candidate.task
        known = self._waiting.get(name)
        if known is not None and known.seeking is not None and demand.seeking is not None:
            slots = sorted({*known.slots, *demand.slots})
            demand = demand.only(
                slots, sorted({*known.seeking.case.empty, *demand.seeking.case.empty})
            )
        self._waiting[name] = demand

    def _forget(self) -> None:
        """Drop runs that have ended and waiting ones that can no longer start."""
        for name, run in list(self._runs.items()):
            if run.end <= self.now:
                self._drop(run)
            elif run.start <= self.now and not run.running:
                self._runs[name] = replace(run, running=True)
        for name, demand in list(self._waiting.items()):
            passed = demand.passed_slots(self.now)
            if not passed:
                continue
            self.missed.append(demand.only(passed))
            left = [slot for slot in demand.slots if slot not in passed]
            if left:
                self._waiting[name] = demand.only(left)
            else:
                del self._waiting[name]
                self._tries.pop(name, None)

    def _run_episodes(self, watch: Watcher) -> None:
        """Run episodes until every waiting run has been considered."""
        for _ in range(_EPISODES_MAX):
            due = [
                it.candidate
                for name, it in self._waiting.items()
                if self._retry_at(name) <= self.now
            ]
            candidates = _nearest_hours(due) if self._situation.demands else due
            if not candidates or self._is_enough():
                return
            tried = {it.task for it in candidates}
            later = len(due) - len(tried)
            if self._with_blocked:
                last = max(it.next_run_at for it in candidates) // BUCKET
                blocked = (
                    it.candidate
                    for name, it in self._waiting.items()
                    if self._retry_at(name) > self.now
                )
                candidates += [
                    replace(it, blocked=True)
                    for it in blocked
                    if not self._situation.demands or it.next_run_at // BUCKET <= last
                ]
            held = self._episode(candidates)
            for name in held.outcome.refused.keys() & tried:
                refusals = held.outcome.refused[name]
                tries = self._tries.get(name, (0, 0))[0] + 1
                pause = min(self._pause_max, PAUSE_FIRST << min(tries - 1, 20))
                self._tries[name] = tries, max(self.now + max(pause, 1), refusals[0].until or 0)
            held.returned = [it for it in self._runs.values() if it.task in held.outcome.returned]
            for run in held.returned:
                self._undo(run)
                self._tries[run.task] = 0, self.now + PAUSE_OF_GIVERS
            if held.returned:
                self._try_again(held.returned)
            watch(held)
            if not held.outcome.unreached and not later and not held.returned:
                return

    def _try_again(self, returned: Sequence[PostedRun]) -> None:
        """Have runs that found no time tried at once where time was given back."""
        for name, demand in self._waiting.items():
            tries, at = self._tries.get(name, (0, 0))
            if tries and any(
                demand.candidate.next_run_at < run.end and run.start < demand.candidate.over_at
                for run in returned
            ):
                self._tries[name] = tries, min(at, self.now)

    def _retry_at(self, name: str) -> int:
        """Return the instant of the next try, after a pause that grows as the lead's does."""
        return self._tries.get(name, (0, 0))[1]

    def _view(self, candidates: Sequence[Candidate]) -> View:
        ahead = self.now + NOTICE
        first: dict[str, int] = {}
        for name in self._placed:
            run = self._runs[name]
            first[run.task] = min(run.start, first.get(run.task, run.start))
        campaigns = {it.name: it for it in self._campaigns if it.created_at <= self.now}
        made = self.ledger.read(self.now - LEDGER_LOOKBACK)
        budgeted = any(it.budget for it in campaigns.values())
        return View(
            now=self.now,
            horizon=self._horizon,
            pool=PoolView("fleet", self._names),
            nodes=self._nodes,
            campaigns=campaigns,
            candidates=candidates,
            runs=list(self._runs.values()),
            ledger=[*self._situation.charges, *made],
            reservations=self._situation.reservations,
            state=self._state,
            workers=TRIED_MAX,
            returnable=[task for task in reversed(first) if first[task] >= ahead],
            moved=self._situation.moved,
            spent=spent_with(
                self._situation.spent, self.ledger.read(0) if budgeted else (), campaigns
            ),
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
                episode.record_placement(ask, _as_one(booking), (), _spans_of(booking))
        outcome = episode.outcome()
        self._state = state_to_keep(outcome.state, self.now)
        return HeldEpisode(view, outcome, bookings)

    def _answer(self, ask: Ask) -> FleetBooking | None:
        """Book nodes that a lead would find, and displace what is in the way there."""
        demand = self._with_given_seats(self._waiting[ask.candidate.task])
        may_yield = self._runs_that_may_yield(ask, ask.displacing) if ask.displacing else []
        window = self.now, ask.candidate.over_at
        named = ask.nodes if demand.seeking is None else (*ask.nodes, *demand.seeking.fixed)
        asked = [n for n in named if not self._refusals or self._rng.random() >= self._refusals]
        free = self._time.free(asked, ask.candidate.scheduling_class, window)
        displacing = free.without(may_yield) if may_yield else free
        found = find_seats(ask, free, displacing, may_yield, demand.seeking)
        return None if found is None else self._book(ask, demand, found, may_yield)

    def _with_given_seats(self, demand: Demand) -> Demand:
        """Return a demand with the nodes that got seats of its task before."""
        seeking = demand.seeking
        if seeking is None:
            return demand
        before = {**seeking.case.before, **self._before.get(seeking.case.pool_task.id, {})}
        return replace(demand, seeking=replace(seeking, case=replace(seeking.case, before=before)))

    def _runs_that_may_yield(self, ask: Ask, displacing: Displacing) -> list[PostedRun]:
        """Return the posted runs that may be displaced, the first to go first."""
        if displacing.runs is not None:
            posted = [self._runs[name] for name in displacing.runs if name in self._runs]
        else:
            posted = [it for it in self._runs.values() if it.priority < displacing.priority]
            posted.sort(key=lambda it: it.priority)
        return [it for it in posted if not it.running and not set(it.nodes).isdisjoint(ask.nodes)]

    def _book(
        self, ask: Ask, demand: Demand, found: SeatSearchResult, may_yield: Sequence[PostedRun]
    ) -> FleetBooking:
        """Post the runs of the seats that were found: one on all nodes, or one on each."""
        candidate, seeking = ask.candidate, demand.seeking
        fixed = () if seeking is None else tuple(seeking.fixed)
        groups = (
            [found.seats] if not candidate.apart else [{n: it} for n, it in found.seats.items()]
        )
        placements = [
            placed for group in groups for placed in self._placements(demand, group, found, fixed)
        ]
        runs = tuple(placed.run for placed in placements)
        displaced = [run for run in may_yield if any(_meet(run, each) for each in runs)]
        slots = {
            run.run: self._placed[run.run].slot for run in displaced if run.run in self._placed
        }
        for run in displaced:
            self._undo(run)
        name = candidate.task
        del self._waiting[name]
        self._tries.pop(name, None)
        for placed in placements:
            self._occupy(placed.run)
            self._placed[placed.run.run] = self.placements[placed.run.run] = placed
            self.ledger.charge(placed.run, self._weight(placed.run))
        if seeking is not None:
            self._before.setdefault(seeking.case.pool_task.id, {}).update(found.seats)
        self._wait_for_the_rest(demand, found, placements)
        gone = tuple(displaced)
        return FleetBooking(runs, candidate, self.now, gone, slots_of_displaced=slots)

    def _placements(
        self,
        demand: Demand,
        group: Mapping[int, str],
        found: SeatSearchResult,
        fixed: tuple[str, ...],
    ) -> list[Placement]:
        candidate = demand.candidate
        starts = [found.starts[name] for name in group.values()]
        length = candidate.spans[0][1] - candidate.spans[0][0]
        if demand.seeking is not None:
            length = demand.seeking.case.pool_task.terms.duration
        several = demand.seeking is not None
        task = f"{candidate.task} {min(group)}" if several else candidate.task
        placements = []
        slots = list(demand.slots)
        for start in sorted({each for its in starts for each in its}):
            slot = max((it for it in slots if it <= start), default=slots[0])
            run = PostedRun(
                run=str(UUID(int=next(self._numbers))),
                task=task,
                campaign=candidate.campaign,
                nodes=(*group.values(), *fixed),
                start=start,
                end=start + length,
                scheduling_class=candidate.scheduling_class,
                priority=candidate.priority,
                needs=candidate.needs,
            )
            placements.append(Placement(run, demand, slot, tuple(group)))
        return placements

    def _wait_for_the_rest(
        self, demand: Demand, found: SeatSearchResult, placements: Sequence[Placement]
    ) -> None:
        """Let seats that were not filled wait on; runs that found no time there are missed."""
        if demand.seeking is None:
            return
        empty = [n for n in demand.seeking.case.empty if n not in found.seats]
        if empty:
            self._wait(demand.only(demand.slots, empty))
            self._tries[demand.candidate.task] = 1, self.now + PAUSE_FIRST
        for number in found.seats:
            had = {placed.slot for placed in placements if number in placed.seats}
            lost = [slot for slot in demand.slots if slot not in had]
            if lost:
                self.missed.append(demand.only(lost, [number]))

    def _weight(self, run: PostedRun) -> int:
        if run.scheduling_class is SchedulingClass.BACKGROUND:
            return 0
        if run.scheduling_class is SchedulingClass.NORMAL:
            return WEIGHT // max(1, min((node.lanes for node in self._nodes.values()), default=1))
        return WEIGHT

    def _undo(self, run: PostedRun) -> None:
        """Reverse a booking: the run waits again, if it is one of the pool."""
        placed = self._placed.get(run.run)
        self._drop(run)
        self.ledger.charge(run, -self._weight(run))
        if placed is not None:
            del self.placements[run.run]
            self._wait(placed.demand.only([placed.slot], placed.seats))

    def _drop(self, run: PostedRun) -> None:
        """Forget a posted run."""
        del self._runs[run.run]
        self._placed.pop(run.run, None)
        for name in run.nodes:
            self._time.leave(name, run)


def _nearest_hours(due: Sequence[Candidate]) -> list[Candidate]:
    """Return those of the nearest hours, as few hours as one episode can try."""
    by_hour: dict[int, list[Candidate]] = {}
    for candidate in due:
        by_hour.setdefault(candidate.next_run_at // BUCKET, []).append(candidate)
    chosen: list[Candidate] = []
    for _, several in sorted(by_hour.items()):
        if chosen and len(chosen) + len(several) > TRIED_MAX:
            break
        chosen += several
    return chosen


def _meet(one: PostedRun, other: PostedRun) -> bool:
    """Return whether two runs are on one node at one time."""
    together = one.start < other.end and other.start < one.end
    return together and not set(one.nodes).isdisjoint(other.nodes)


def _as_one(booking: FleetBooking) -> PostedRun:
    """Return the first run of a booking on all its nodes, as it counts for the policies."""
    nodes = dict.fromkeys(name for run in booking.runs for name in run.nodes)
    first = min(booking.runs, key=lambda run: run.start)
    end = first.end
    if booking.candidate.apart and len(booking.candidate.spans) == 1:
        end = max(run.end for run in booking.runs)
    return replace(first, task=booking.candidate.task, nodes=tuple(nodes), end=end)


def _spans_of(booking: FleetBooking) -> list[Span]:
    """Return the spans of the runs of a term, on the node that begins first."""
    if len(booking.candidate.spans) == 1:
        return []
    by_node: dict[str, list[Span]] = {}
    for run in booking.runs:
        by_node.setdefault(run.nodes[0], []).append((run.start, run.end))
    return min(by_node.values())
