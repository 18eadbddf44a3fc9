"""Axis 1 in an episode: lists made beforehand, or changed by what becomes of those on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import count

from lead.policy.contracts import EpisodeOrder, Order
from lead.policy.episode_figures import Board
from lead.policy.fill import backfill, reservations
from lead.policy.gaps import GapAttempt
from lead.policy.order import deadline_first, passes, queues, weighted
from lead.policy.share import decayed_windows, recent_work, start_counts
from lead.policy.timetable import PlacementRequest, free_for, free_from
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import Candidate, Exact, QueueState, RememberedState
from node.model import times
from node.model.classes import SchedulingClass
from node.model.spans import normalise

_BY_NEXT_RUN: Callable[[Candidate], tuple[int, int]] = lambda it: (it.next_run_at, it.added_at)  # noqa: E731


class FixedOrder:
    """A list that was made beforehand, whatever becomes of those on it."""

    follows = False

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        """In this order."""
        self._left = iter(candidates)

    def take(self) -> Candidate | None:
        """The next of the list."""
        return next(self._left, None)

    def started(self, candidate: Candidate) -> None:
        """Changes nothing."""

    def stuck(self, candidate: Candidate) -> None:
        """Changes nothing."""

    def held(self) -> Mapping[str, PolicyRefusal]:
        """Nobody is held."""
        return {}

    def remember(self, state: RememberedState) -> RememberedState:
        """Nothing is remembered."""
        return state


@dataclass(frozen=True, slots=True)
class NextRun:
    """Whose next run is due first; of equals the older task."""

    def begin(self, board: Board, serving: Sequence[str]) -> FixedOrder:
        """For one episode."""
        del serving
        return FixedOrder(sorted(board.candidates, key=_BY_NEXT_RUN))


@dataclass(frozen=True, slots=True)
class ByCampaign:
    """Campaign by campaign as the share axis serves them, or one task of each in turn."""

    in_turn: bool = False

    def begin(self, board: Board, serving: Sequence[str]) -> FixedOrder:
        """For one episode."""
        return FixedOrder(by_campaign(board.candidates, serving, in_turn=self.in_turn))


def by_campaign(
    candidates: Iterable[Candidate], serving: Sequence[str], *, in_turn: bool
) -> list[Candidate]:
    """Candidates by the places of their campaigns, each campaign's by next run."""
    place = {name: number for number, name in enumerate(serving)}
    last = len(place)
    listed = sorted(candidates, key=_BY_NEXT_RUN)
    if not in_turn:
        return sorted(listed, key=lambda it: place.get(it.campaign, last))
    before: dict[str, Iterator[int]] = {name: count() for name in {it.campaign for it in listed}}
    turns = [(next(before[it.campaign]), place.get(it.campaign, last)) for it in listed]
    order = sorted(range(len(listed)), key=turns.__getitem__)
    return [listed[number] for number in order]


@dataclass(frozen=True, slots=True)
class Weighted:
    """By one number per task; fairshare only where it weighs anything.

    ``relative``: how far below its fairshare counts as a part of that. With ``longest``, of equals
    the longest comes first: short runs fit into the pieces that long ones leave, and not the other
    way round.
    """

    weights: weighted.Weights = weighted.WAITING_ONLY
    windows: decayed_windows.DecayWindows = field(default_factory=decayed_windows.DecayWindows)
    targets: Mapping[str, float] = field(default_factory=dict)
    classes: Mapping[str, float] = field(default_factory=dict)
    duration_min: int = 0
    relative: bool = False
    longest: bool = False

    def begin(self, board: Board, serving: Sequence[str]) -> FixedOrder:
        """For one episode."""
        del serving
        view = board.view
        fairshare: dict[str, float] = {}
        if "fairshare" in self.weights.terms:
            used = board.with_parents(decayed_windows.usages(view.ledger, view.now, self.windows))
            wanted = {name: campaign.fairshare for name, campaign in view.campaigns.items()}
            deltas = decayed_windows.deltas(wanted, used, relative=self.relative)
            fairshare = {name: float(delta) for name, delta in deltas.items()}
        standing = weighted.WeightingContext(
            view.now,
            view.campaigns,
            fairshare,
            view.state,
            self.classes,
            self.duration_min,
            self.targets,
            self.longest,
        )
        return _by_name(board, weighted.order(board.candidates, self.weights, standing))


@dataclass(frozen=True, slots=True)
class ByRecentWorkOrder:
    """Campaigns take turns by what each has had of late, as if each choice were work done.

    With ``deadlines``, what would otherwise start too late goes first, by the last instant at which
    it may start.
    """

    deadlines: bool = False
    half_life: int = recent_work.HALF_LIFE

    def begin(self, board: Board, serving: Sequence[str]) -> FixedOrder:
        """For one episode."""
        del serving
        if self.deadlines:
            supply = _supply(board, self.half_life)
            return _by_name(board, deadline_first.order(board.candidates, supply))
        recent, shares = _recent(board, self.half_life)
        # Hour by hour: what of an hour that is full is chosen in vain would count against its
        # campaign in the next one, and most against those who had least.
        hours: dict[int, dict[str, list[recent_work.WorkItem]]] = {}
        for it in sorted(board.candidates, key=_BY_NEXT_RUN):
            work = recent_work.WorkItem(it.task, it.campaign, it.duration, it.k)
            hours.setdefault(board.bucket(it), {}).setdefault(it.campaign, []).append(work)
        # How long runs take is known, so what is chosen counts as that and not as an hour.
        seats = max(1, len(board.usable(board.view.pool.nodes)))
        wanted = sum(it.k for it in board.candidates)
        chosen: list[str] = []
        for hour in sorted(hours):
            turns = recent_work.RecentWorkSelector(recent, shares, seats, self.half_life)
            chosen += [it.task for it in recent_work.choose(hours[hour], turns, wanted)]
        return _by_name(board, chosen)


def _recent(board: Board, half_life: int) -> tuple[dict[str, float], dict[str, float]]:
    """What each campaign has had of late, and the shares."""
    view = board.view
    shares = {name: float(campaign.weight) for name, campaign in view.campaigns.items()}
    return recent_work.recent_of(view.ledger, board.planned_to, half_life), shares


def _supply(board: Board, half_life: int) -> deadline_first.Supply:
    """When the pool's nodes become free, and how its campaigns stand."""
    nodes = board.usable(board.view.pool.nodes)
    taken = board.booked[SchedulingClass.EXCLUSIVE]
    busy = {node.name: taken.get(node.name, ()) for node in nodes}
    free_at = list(free_from(busy, board.view.now).values())
    recent, shares = _recent(board, half_life)
    return deadline_first.Supply(free_at, shares, recent, half_life)


def _by_name(board: Board, tasks: Iterable[str]) -> FixedOrder:
    known = {it.task: it for it in board.candidates}
    return FixedOrder(known[task] for task in tasks)


@dataclass(frozen=True, slots=True)
class LateFirst:
    """Each campaign's places stay as they are; what would start too late goes first in these.

    Late is what a forecast says in which campaigns take turns by recent work. It looks at what is
    due within ``ahead``: what comes later has other chances. Late tasks do not pass those of other
    campaigns: where there is too much to do, those are late whose campaign had most already.
    """

    others: Order = field(default_factory=Weighted)
    half_life: int = recent_work.HALF_LIFE
    ahead: int = times.HOUR

    def begin(self, board: Board, serving: Sequence[str]) -> FixedOrder:
        """For one episode."""
        until = board.view.now + self.ahead
        soon = [it for it in board.candidates if it.next_run_at < until]
        moved = deadline_first.moved(soon, _supply(board, self.half_life))
        listed = list(iter(self.others.begin(board, serving).take, None))
        if not moved:
            return FixedOrder(listed)
        known = {it.task: it for it in soon}
        ahead: dict[str, deque[Candidate]] = {}
        for task in moved:
            ahead.setdefault(known[task].campaign, deque()).append(known[task])
        late = set(moved)
        for it in listed:
            if it.campaign in ahead and it.task not in late:
                ahead[it.campaign].append(it)
        return FixedOrder(
            ahead[it.campaign].popleft() if it.campaign in ahead else it for it in listed
        )


class MovingPriorities:
    """Queues and tasks whose priorities move; a task that is stuck stays so for the episode."""

    follows = True

    def __init__(self, board: Board) -> None:
        """With the priorities that are remembered."""
        self._campaigns = board.view.campaigns
        state = board.view.state
        self._starts = state.starts
        self._passes = dict(state.passes)
        self._fresh: dict[str, list[passes.ReadyTask]] = {}
        self._stuck: dict[str, list[passes.ReadyTask]] = {}
        self._known: dict[str, Candidate] = {}
        self._submitted: dict[str, int] = {}
        for number, it in enumerate(sorted(board.candidates, key=lambda it: it.added_at)):
            self._known[it.task] = it
            self._submitted[it.task] = number
            waiting = passes.ReadyTask(it.task, number, self._passes.get(it.task, 0))
            self._fresh.setdefault(it.campaign, []).append(waiting)
        for waiting_of in self._fresh.values():
            waiting_of.sort(key=passes.key, reverse=True)
        self._queues: dict[str, QueueState] = {
            name: state.queues.get(name) or QueueState(campaign.queue.floor)
            for name, campaign in self._campaigns.items()
        }
        self._turn: GapAttempt[GapAttempt[str]] | None = None
        self._tried: GapAttempt[str] | None = None
        self._held: dict[str, PolicyRefusal] = {}

    def take(self) -> Candidate | None:
        """The first task of the first queue that is not held and not known to be stuck."""
        contenders = [
            queues.Contender(
                name,
                self._queues[name].priority,
                self._campaigns[name].queue.gap,
                self._queues[name].started,
            )
            for name in self._contending()
        ]
        self._held = {}
        turn = queues.turn(contenders, self._first_of)
        self._tried = turn.found
        if turn.found is None or turn.found.entry is None:
            for name, no in queues.held(turn).items():
                self._hold(name, no)
            return None
        return self._known[turn.found.entry.name]

    def _contending(self) -> list[str]:
        return [name for name in self._queues if self._fresh.get(name) or self._stuck.get(name)]

    def _first_of(self, campaign: str) -> GapAttempt[str] | None:
        stuck = self._stuck.get(campaign, [])
        in_order = merge(stuck, reversed(self._fresh.get(campaign, [])), key=passes.key)
        known = {one.task for one in stuck}
        tried = passes.choose(
            in_order,
            lambda task: None if task in known else task,
            self._campaigns[campaign].queue.passes,
        )
        if tried.entry is not None:
            return tried
        if (no := passes.held_reasons(tried)) is not None:
            self._hold(campaign, no)
        return None

    def _hold(self, campaign: str, no: PolicyRefusal) -> None:
        for one in self._fresh.get(campaign, ()):
            self._held[one.task] = no

    def started(self, candidate: Candidate) -> None:
        """Whoever contends gains, the queue of the candidate pays, those it passed move up."""
        name = candidate.campaign
        contending = {each: self._queues[each].priority for each in self._contending()}
        rules = {each: self._campaigns[each].queue for each in contending}
        moved: Mapping[str, Exact] = start_counts.after_start(name, contending, rules)
        for each, priority in moved.items():
            started = self._starts if each == name else self._queues[each].started
            self._queues[each] = QueueState(priority, started)
        self._starts += 1
        self._remove(candidate)
        self._passes.pop(candidate.task, None)
        if self._tried is None:
            return
        passed = set(passes.passed(self._tried, self._submitted))
        if passed:
            stuck = self._stuck[name]
            self._stuck[name] = sorted(
                (replace(one, passes=one.passes + (one.task in passed)) for one in stuck),
                key=passes.key,
            )
            for task in passed:
                self._passes[task] = self._passes.get(task, 0) + 1

    def stuck(self, candidate: Candidate) -> None:
        """It is passed by others from now on, as far as its gap lets them."""
        stuck = self._stuck.setdefault(candidate.campaign, [])
        stuck.append(self._remove(candidate))
        stuck.sort(key=passes.key)

    def _remove(self, candidate: Candidate) -> passes.ReadyTask:
        """Out of those not tried, or of those stuck, where it is tried again after all."""
        for waiting in (self._fresh, self._stuck):
            some = waiting.get(candidate.campaign, [])
            # Of those not tried it is nearly always the last: they are kept the other way round.
            for at in range(len(some) - 1, -1, -1):
                if some[at].task == candidate.task:
                    return some.pop(at)
        msg = f"{candidate.task} does not wait"
        raise ValueError(msg)

    def held(self) -> Mapping[str, PolicyRefusal]:
        """Those that had to wait when nobody else was left."""
        return self._held

    def remember(self, state: RememberedState) -> RememberedState:
        """Priorities and passes as they are now."""
        return replace(state, queues=self._queues, passes=self._passes, starts=self._starts)


@dataclass(frozen=True, slots=True)
class ByStarts:
    """Queues by dynamic priority, and within a queue tasks by how often they were passed."""

    def begin(self, board: Board, serving: Sequence[str]) -> MovingPriorities:
        """For one episode."""
        del serving
        return MovingPriorities(board)


@dataclass(frozen=True, slots=True)
class BackfillOrder:
    """In the order of ``others`` until ``depth`` slots are given; then what is chosen to fill.

    Before that, whoever is filled in might delay one that has no slot yet. ``choice`` says which of
    the runs that fit, ``worth`` what each is worth, and of those that still wait the first
    ``considered`` are looked at (0 is all).
    """

    choice: backfill.BackfillChoice = backfill.BackfillChoice.FIRST
    worth: backfill.RunWorth = backfill.RunWorth.SEATS
    considered: int = 0
    depth: int = reservations.DEPTH
    others: Order = field(default_factory=Weighted)

    def begin(self, board: Board, serving: Sequence[str]) -> Filler:
        """For one episode."""
        return Filler(self, board, self.others.begin(board, serving))


class Filler:
    """A list that is put in another order when the slots are given."""

    follows = True

    def __init__(self, rules: BackfillOrder, board: Board, others: EpisodeOrder) -> None:
        """The list as the other order has it."""
        self._rules = rules
        self._board = board
        self._others = others
        self._left = deque(iter(others.take, None))
        # What may be considered at all is counted in this order.
        board.candidates = list(self._left)
        self._filled = False

    def take(self) -> Candidate | None:
        """The next of the list."""
        if not self._filled and len(self._board.slots) >= self._rules.depth > 0:
            self._filled = True
            self._left = deque(self._fillers_first())
        return self._left.popleft() if self._left else None

    def _fillers_first(self) -> list[Candidate]:
        now = self._board.view.now
        requests = [
            PlacementRequest(it.task, it.k, it.duration, it.nodes)
            for it in self._left
            if it.next_run_at <= now
        ]
        rules = self._rules
        chosen = backfill.fill(requests, self._free(), rules.choice, rules.worth, rules.considered)
        known = {it.task: it for it in self._left}
        return [*(known.pop(task) for task in chosen), *known.values()]

    def _free(self) -> dict[str, int | None]:
        """How long each node stays free from now on: of runs, reservations and slots."""
        view = self._board.view
        taken = self._board.booked[SchedulingClass.EXCLUSIVE]
        busy = {
            node.name: list(taken.get(node.name, ()))
            for node in self._board.usable(view.pool.nodes)
        }
        for kept in (*view.reservations, *self._board.slots):
            for name in kept.nodes:
                if name in busy:
                    busy[name].append((kept.start, kept.end))
        return free_for({name: normalise(spans) for name, spans in busy.items()}, view.now)

    def started(self, candidate: Candidate) -> None:
        """Told on."""
        self._others.started(candidate)

    def stuck(self, candidate: Candidate) -> None:
        """Told on."""
        self._others.stuck(candidate)

    def held(self) -> Mapping[str, PolicyRefusal]:
        """Those that the other order holds."""
        return self._others.held()

    def remember(self, state: RememberedState) -> RememberedState:
        """What the other order remembers."""
        return self._others.remember(state)
