"""Axis 1 in an episode: fixed lists, and orders that change with the outcome of each candidate.

An order hands out each candidate once with ``take`` and hears what became of it. A fixed list does
not depend on that, so its driver may ask for several runs at a time. Queues with moving priorities
do: a start raises everyone else that contends, and a candidate that is stuck blocks whatever lies
below its gap. With them the driver must answer before it gets the next candidate, which is what
``awaits_outcomes`` says.

Orders that look ahead (deadlines, backfill) rearrange the list of another order and leave its
bookkeeping to it. No order looks at whether a campaign has a share or a node has time, and none
drops a candidate: those it never handed out are named by ``reasons_to_wait``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import count

from lead.policy.contracts import EpisodeOrder, Order
from lead.policy.episode_figures import Board
from lead.policy.feasible.start_by import ForecastRun, Supply, forecast
from lead.policy.fill import backfill, reservations
from lead.policy.gaps import GapAttempt
from lead.policy.order import deadline_first, passes, queues, weighted
from lead.policy.share import decayed_windows, recent_work, start_counts, usage
from lead.policy.timetable import PlacementRequest, Timetable, free_times
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import Candidate, Exact, QueueState, RememberedState
from node.model.classes import SchedulingClass
from node.model.spans import Span, normalise

_BY_NEXT_RUN: Callable[[Candidate], tuple[int, int]] = lambda it: (it.next_run_at, it.added_at)  # noqa: E731


class FixedOrder:
    """An order that is fixed in advance, whatever becomes of the candidates."""

    awaits_outcomes = False

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._left = iter(candidates)

    def take(self) -> Candidate | None:
        """Return the next candidate of the list."""
        return next(self._left, None)

    def record_start(self, candidate: Candidate) -> None:
        """Do nothing: a fixed order does not change."""

    def record_stuck(self, candidate: Candidate) -> None:
        """Do nothing: a fixed order does not change."""

    def reasons_to_wait(self) -> Mapping[str, PolicyRefusal]:
        """Return nothing: nobody is blocked."""
        return {}

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state unchanged."""
        return state


@dataclass(frozen=True, slots=True)
class NextRun:
    """Tasks by next run; of equals, the older one first."""

    def for_episode(self, board: Board, serving: Sequence[str]) -> FixedOrder:
        """Return this rule with the figures of one episode."""
        del serving
        return FixedOrder(sorted(board.candidates, key=_BY_NEXT_RUN))


@dataclass(frozen=True, slots=True)
class ByCampaign:
    """Campaign by campaign in the serving order of the share axis, or one task of each in turn."""

    in_turn: bool = False

    def for_episode(self, board: Board, serving: Sequence[str]) -> FixedOrder:
        """Return this rule with the figures of one episode."""
        return FixedOrder(sorted_by_campaign(board.candidates, serving, in_turn=self.in_turn))


def sorted_by_campaign(
    candidates: Iterable[Candidate], serving: Sequence[str], *, in_turn: bool
) -> list[Candidate]:
    """Sort candidates by the places of their campaigns, within a campaign by next run."""
    place = {name: number for number, name in enumerate(serving)}
    last = len(place)
    in_order = sorted(candidates, key=_BY_NEXT_RUN)
    if not in_turn:
        return sorted(in_order, key=lambda it: place.get(it.campaign, last))
    counters: dict[str, Iterator[int]] = {
        name: count() for name in {it.campaign for it in in_order}
    }
    turns = [(next(counters[it.campaign]), place.get(it.campaign, last)) for it in in_order]
    order = sorted(range(len(in_order)), key=turns.__getitem__)
    return [in_order[number] for number in order]


@dataclass(frozen=True, slots=True)
class Weighted:
    """Tasks by a weighted priority; fairshare is computed only if it has a weight.

    With ``relative``, a campaign's distance below its fairshare counts as a part of that fairshare.
    With ``longest``, the longest of equal tasks comes first: short runs fit into the gaps that long
    ones leave, but not vice versa.
    """

    weights: weighted.Weights = weighted.WAITING_ONLY
    windows: decayed_windows.DecayWindows = field(default_factory=decayed_windows.DecayWindows)
    targets: Mapping[str, float] = field(default_factory=dict)
    classes: Mapping[str, float] = field(default_factory=dict)
    duration_min: int = 0
    relative: bool = False
    longest: bool = False

    def for_episode(self, board: Board, serving: Sequence[str]) -> FixedOrder:
        """Return this rule with the figures of one episode."""
        del serving
        view = board.view
        fairshare: dict[str, float] = {}
        if "fairshare" in self.weights.terms:
            used = board.totals_with_descendants(
                decayed_windows.usages(view.ledger, view.now, self.windows)
            )
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
        return _order_of_names(
            board, weighted.tasks_in_order(board.candidates, self.weights, standing)
        )


@dataclass(frozen=True, slots=True)
class ByRecentWorkOrder:
    """Campaigns in turn by recent work, where each choice counts as work done.

    With ``deadlines``, tasks that would otherwise start too late go first, by their latest start.
    """

    deadlines: bool = False
    half_life: int = recent_work.HALF_LIFE

    def for_episode(self, board: Board, serving: Sequence[str]) -> FixedOrder:
        """Return this rule with the figures of one episode."""
        del serving
        recent, shares = _recent_work_and_shares(board, self.half_life)
        seats = max(1, len(board.usable_nodes(board.view.pool.nodes)))
        if self.deadlines:
            late_tasks = deadline_first.late_tasks(
                forecast_in_turns(board, board.candidates, self.half_life)
            )
            turns = recent_work.RecentWorkSelector(recent, shares, seats, self.half_life)
            return _order_of_names(
                board, deadline_first.tasks_in_order(board.candidates, late_tasks, turns)
            )
        # Hour by hour: a task chosen for a full hour would count against its campaign in
        # the next one, and most against the campaigns that had least.
        hours: dict[int, dict[str, list[recent_work.WorkItem]]] = {}
        for it in sorted(board.candidates, key=_BY_NEXT_RUN):
            work = recent_work.WorkItem(it.task, it.campaign, it.duration, it.k)
            hours.setdefault(board.hour_of(it), {}).setdefault(it.campaign, []).append(work)
        # The duration of runs is known, so a choice counts as that and not as an hour.
        wanted = sum(it.k for it in board.candidates)
        chosen: list[str] = []
        for hour in sorted(hours):
            turns = recent_work.RecentWorkSelector(recent, shares, seats, self.half_life)
            chosen += [it.task for it in recent_work.choose(hours[hour], turns, wanted)]
        return _order_of_names(board, chosen)


def _recent_work_and_shares(
    board: Board, half_life: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return each campaign's recent work, and the shares."""
    recent = recent_work.recent_of(board.view.ledger, board.planned_to, half_life)
    return recent, board.weights_lately(usage.WINDOW)


def forecast_in_turns(
    board: Board,
    candidates: Sequence[Candidate],
    half_life: int,
    busy_besides: Mapping[str, Sequence[Span]] | None = None,
) -> list[ForecastRun]:
    """Return when the runs of these candidates would start if campaigns took turns.

    ``busy_besides`` has by node the time in which it is busy beside what the lead has booked.
    """
    recent, shares = _recent_work_and_shares(board, half_life)
    # A seat that was always busy is worth the integral of 2**(-t/h) over the past: h/ln 2.
    work_done = {name: seats * half_life / math.log(2) for name, seats in recent.items()}
    nodes = [node.name for node in board.usable_nodes(board.view.pool.nodes)]
    busy: Timetable = board.booked_spans[SchedulingClass.EXCLUSIVE]
    if busy_besides:
        busy = {
            name: normalise([*busy.get(name, ()), *busy_besides.get(name, ())]) for name in nodes
        }
    return forecast(candidates, Supply(nodes, busy, shares, work_done), board.view.now)


def _order_of_names(board: Board, tasks: Iterable[str]) -> FixedOrder:
    candidates = {it.task: it for it in board.candidates}
    return FixedOrder(candidates[task] for task in tasks)


@dataclass(frozen=True, slots=True)
class LateFirst:
    """The order of ``others``, where late tasks take earlier places of their campaign.

    A forecast in which campaigns take turns by recent work tells which tasks would start too late,
    now or tonight. They pass tasks that have more time, but none of other campaigns: under
    overload, the late ones are those whose campaign already had most.
    """

    others: Order = field(default_factory=Weighted)
    half_life: int = recent_work.HALF_LIFE

    def for_episode(self, board: Board, serving: Sequence[str]) -> FixedOrder:
        """Return this rule with the figures of one episode."""
        late_tasks = deadline_first.late_tasks(
            forecast_in_turns(board, board.candidates, self.half_life)
        )
        in_order = list(iter(self.others.for_episode(board, serving).take, None))
        if not late_tasks:
            return FixedOrder(in_order)
        queues: dict[str, list[Candidate]] = {}
        for it in in_order:
            queues.setdefault(it.campaign, []).append(it)
        ahead = {
            name: deadline_first.with_late_tasks_ahead(queue, late_tasks)
            for name, queue in queues.items()
        }
        return FixedOrder(next(ahead[it.campaign]) for it in in_order)


class MovingPriorities:
    """Campaigns and tasks whose priorities move; a stuck task stays stuck for the episode."""

    awaits_outcomes = True

    def __init__(self, board: Board) -> None:
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
            waiting_of.sort(key=passes.sort_key, reverse=True)
        self._queues: dict[str, QueueState] = {
            name: state.queues.get(name) or QueueState(campaign.queue.floor)
            for name, campaign in self._campaigns.items()
        }
        self._turn: GapAttempt[GapAttempt[str]] | None = None
        self._tried: GapAttempt[str] | None = None
        self._held: dict[str, PolicyRefusal] = {}
        self._held_before = state.held

    def take(self) -> Candidate | None:
        """Return the first task of the first campaign that is neither blocked nor stuck."""
        contenders = [
            queues.Contender(
                name,
                self._queues[name].priority,
                self._campaigns[name].queue.gap,
                self._queues[name].started,
            )
            for name in self._contenders()
        ]
        self._held = {}
        turn = queues.next_campaign(contenders, self._first_of)
        self._tried = turn.result
        if turn.result is None or turn.result.entry is None:
            for name, refusal in queues.reasons_to_wait(turn).items():
                self._hold(name, refusal)
            return None
        return self._known[turn.result.entry.name]

    def _contenders(self) -> list[str]:
        return [name for name in self._queues if self._fresh.get(name) or self._stuck.get(name)]

    def _first_of(self, campaign: str) -> GapAttempt[str] | None:
        stuck = self._stuck.get(campaign, [])
        in_order = merge(stuck, reversed(self._fresh.get(campaign, [])), key=passes.sort_key)
        stuck_tasks = {it.task for it in stuck}
        tried = passes.next_task(
            in_order,
            lambda task: None if task in stuck_tasks else task,
            self._campaigns[campaign].queue.passes,
        )
        if tried.entry is not None:
            return tried
        if (refusal := passes.reason_to_wait(tried)) is not None:
            self._hold(campaign, refusal)
        return None

    def _hold(self, campaign: str, refusal: PolicyRefusal) -> None:
        for waiting in self._fresh.get(campaign, ()):
            self._held[waiting.task] = refusal

    def record_start(self, candidate: Candidate) -> None:
        """Raise all that contend, charge the campaign that started, count the tasks passed.

        Each run is a start: a term with a hundred runs is charged a hundred times.
        """
        name = candidate.campaign
        priorities: Mapping[str, Exact] = {
            each: self._queues[each].priority for each in self._contenders()
        }
        rules = {each: self._campaigns[each].queue for each in priorities}
        for _ in candidate.spans:
            priorities = start_counts.priorities_after_start(name, priorities, rules)
        for each, priority in priorities.items():
            started = self._starts if each == name else self._queues[each].started
            self._queues[each] = QueueState(priority, started)
        self._starts += 1
        self._remove(candidate)
        self._passes.pop(candidate.task, None)
        if self._tried is None:
            return
        passed = set(passes.passed_tasks(self._tried, self._submitted))
        if passed:
            stuck = self._stuck[name]
            self._stuck[name] = sorted(
                (replace(it, passes=it.passes + (it.task in passed)) for it in stuck),
                key=passes.sort_key,
            )
            for task in passed:
                self._passes[task] = self._passes.get(task, 0) + 1

    def record_stuck(self, candidate: Candidate) -> None:
        """Let others pass the candidate from now on, as far as its gap permits."""
        stuck = self._stuck.setdefault(candidate.campaign, [])
        stuck.append(self._remove(candidate))
        stuck.sort(key=passes.sort_key)

    def _remove(self, candidate: Candidate) -> passes.ReadyTask:
        """Remove and return it from the tasks not yet tried, or from the stuck ones on a retry."""
        for waiting in (self._fresh, self._stuck):
            tasks = waiting.get(candidate.campaign, [])
            # Untried tasks are kept in reverse order, so it is nearly always the last.
            for at in range(len(tasks) - 1, -1, -1):
                if tasks[at].task == candidate.task:
                    return tasks.pop(at)
        msg = f"{candidate.task} is not waiting"
        raise ValueError(msg)

    def reasons_to_wait(self) -> Mapping[str, PolicyRefusal]:
        """Return the tasks that had to wait when no other was left."""
        return self._held

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with the current priorities and passes, and who only waited."""
        absent = [task for task in self._held_before if task not in self._known]
        return replace(
            state,
            queues=self._queues,
            passes=self._passes,
            starts=self._starts,
            held=(*absent, *self._held),
        )


@dataclass(frozen=True, slots=True)
class ByStarts:
    """Campaigns by moving priority, and within a campaign tasks by how often they were passed."""

    def for_episode(self, board: Board, serving: Sequence[str]) -> MovingPriorities:
        """Return this rule with the figures of one episode."""
        del serving
        return MovingPriorities(board)


@dataclass(frozen=True, slots=True)
class BackfillOrder:
    """The order of ``others`` until ``depth`` slots are reserved; then runs chosen to backfill.

    Backfilling earlier might delay a candidate that has no slot yet. ``choice`` selects among the
    runs that fit, ``worth`` values each of them, and only the first ``considered`` waiting runs are
    examined (0: all).
    """

    choice: backfill.BackfillChoice = backfill.BackfillChoice.FIRST
    worth: backfill.RunWorth = backfill.RunWorth.SEATS
    considered: int = 0
    depth: int = reservations.DEPTH
    others: Order = field(default_factory=Weighted)

    def for_episode(self, board: Board, serving: Sequence[str]) -> Filler:
        """Return this rule with the figures of one episode."""
        return Filler(self, board, self.others.for_episode(board, serving))


class Filler:
    """A list that is reordered once the slots are reserved."""

    awaits_outcomes = True

    def __init__(self, rules: BackfillOrder, board: Board, others: EpisodeOrder) -> None:
        """Take the list from the other order."""
        self._rules = rules
        self._board = board
        self._others = others
        self._left = deque(iter(others.take, None))
        # Limits on what may be considered at all count in this order.
        board.candidates = list(self._left)
        self._filled = False

    def take(self) -> Candidate | None:
        """Return the next candidate of the list."""
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
        chosen = backfill.runs_to_start(
            requests, self._free_times(), rules.choice, rules.worth, rules.considered
        )
        by_task = {it.task: it for it in self._left}
        return [*(by_task.pop(task) for task in chosen), *by_task.values()]

    def _free_times(self) -> dict[str, int | None]:
        """Return how long each node stays free (µs) of runs, reservations, and slots."""
        view = self._board.view
        busy_spans = self._board.booked_spans[SchedulingClass.EXCLUSIVE]
        busy = {
            node.name: list(busy_spans.get(node.name, ()))
            for node in self._board.usable_nodes(view.pool.nodes)
        }
        for reservation in (*view.reservations, *self._board.slots):
            for name in reservation.nodes:
                if name in busy:
                    busy[name].append((reservation.start, reservation.end))
        return free_times({name: normalise(spans) for name, spans in busy.items()}, view.now)

    def record_start(self, candidate: Candidate) -> None:
        """Pass the outcome on to the other order."""
        self._others.record_start(candidate)

    def record_stuck(self, candidate: Candidate) -> None:
        """Pass the outcome on to the other order."""
        self._others.record_stuck(candidate)

    def reasons_to_wait(self) -> Mapping[str, PolicyRefusal]:
        """Return the tasks that the other order blocks."""
        return self._others.reasons_to_wait()

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with what the other order remembers."""
        return self._others.updated_state(state)
