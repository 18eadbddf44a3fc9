"""Axis 5 in an episode: what is refused although there is room.

A limit is about one of two things. Some count what a campaign has *at an instant*: seats, runs,
nodes, resources. A run that slips may get out of the way of these, so besides a yes or no they give
the time that is full, and a run is refused only if its whole window lies in it. The others count a
sum: booked time, deliveries, bytes of a period, what is considered at all. They only say yes or no
here.

Each class below is one kind of limit and counts what is booked and what this episode has placed,
with everything up the line of campaigns. Soft limits bind in all rounds but the last, hard ones
always. Limits that no campaign has cost nothing. The same limits bind bookings once more when they
are committed (``lead/exchange/campaign_limits.py``): an episode may be wrong, a booking not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lead.policy.episode_figures import Board, PeakUse
from lead.policy.limit_counting import (
    DELIVERED,
    DELIVERED_PERCENT,
    CountedRun,
    HourlySum,
    RunDemand,
    bounded_at_once,
    bounded_over_time,
    full_at_once,
    hourly_sums,
    lineage_of,
    sum_limits,
)
from lead.policy.placement_requests import AllocationRound
from lead.policy.share import decayed_windows
from lead.policy.throttle import active_limits, delivered_cap, due_limits, quota
from lead.policy.throttle.full_time import FullTime, find_window_refusal
from lead.policy.verdict import PolicyRefusal
from lead.policy.view import CampaignView, Candidate, Needs, PostedRun, RememberedState
from node.model.classes import SchedulingClass, blockers
from node.model.seat_weights import SEAT
from node.model.spans import Span

DUE = "due_"
"""The prefix of limits on what is considered at all: ``due_runs``, ``due_nodes``."""

Check = Callable[[Candidate, AllocationRound], PolicyRefusal | None]


@dataclass(frozen=True, slots=True)
class LimitRules:
    """The limits of campaigns, which apply in all sets.

    The maximum number of seats that a campaign may hold at once; quotas, what it may use of each
    counted resource, and what the pool has; quotas of bytes within a period, and budgets of
    seat-time; limits on what is active, what is considered at all, and what is delivered within the
    fairshare windows (``windows``).
    """

    windows: decayed_windows.DecayWindows = field(default_factory=decayed_windows.DecayWindows)

    def for_episode(self, board: Board) -> LimitThrottling:
        """Return this rule with the figures of one episode."""
        return LimitThrottling(self, board)


class LimitThrottling:
    """All limits that apply, checked one after the other."""

    def __init__(self, rules: LimitRules, board: Board) -> None:
        """Prepare the checks; limits that no campaign has cost nothing."""
        campaigns = board.view.campaigns.values()
        self._checks: list[Check] = []
        self._bookings: _Bookings | None = None
        self._sums: _HourlySums | None = None
        self._due: _DueLimits | None = None
        if any(map(bounded_at_once, campaigns)):
            self._bookings = _Bookings(board, rules.windows)
        if any(it.quotas for it in campaigns):
            self._checks.append(_PoolCapacity(board).find_refusal)
        if any(map(bounded_over_time, campaigns)):
            self._sums = _HourlySums(board)
            self._checks.append(self._sums.find_refusal)
        if any(it.limits for it in campaigns):
            self._due = _DueLimits(board)
        if self._bookings is not None:
            self._checks.append(self._bookings.find_refusal)

    def find_excluded(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Return, by task, the refusals of candidates beyond the limits on due tasks."""
        return self._due.find_excluded(candidates) if self._due else {}

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return the first limit that the candidate would exceed, however far its runs slip."""
        refusal = find_window_refusal(candidate, self.full_times(candidate, turn))
        checked = (check(candidate, turn) for check in self._checks)
        return refusal or next((each for each in checked if each is not None), None)

    def full_times(self, candidate: Candidate, turn: AllocationRound) -> Sequence[FullTime]:
        """Return the time in which a run of the candidate would exceed a limit at some instant."""
        return () if self._bookings is None else self._bookings.full_times(candidate, turn)

    def record_run(self, candidate: Candidate, run: PostedRun) -> None:
        """Count a posted run."""
        if self._sums is not None:
            self._sums.record_run(candidate, run)
        if self._bookings is not None:
            self._bookings.record_run(candidate, run)

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with the instants since when considered tasks age."""
        return state if self._due is None else self._due.updated_state(state)


def _level_of(turn: AllocationRound) -> active_limits.LimitLevel:
    if turn is AllocationRound.THIRD:
        return active_limits.LimitLevel.HARD
    return active_limits.LimitLevel.SOFT


class _Bookings:
    """The bookings of campaigns and of those above; open candidates count at ideal times."""

    def __init__(self, board: Board, windows: decayed_windows.DecayWindows) -> None:
        view = board.view
        self._board = board
        self._runs: dict[str, list[CountedRun]] = {}
        self._full: dict[Hashable, list[FullTime]] = {}
        self._over: dict[Hashable, PolicyRefusal | None] = {}
        capped = any(
            not it.limits.keys().isdisjoint((DELIVERED, DELIVERED_PERCENT))
            for it in view.campaigns.values()
        )
        self._delivered = delivered_cap.Delivered.from_ledger(
            view.ledger if capped else (), view.now, windows, board.lineage
        )
        for run in view.runs:
            if run.end > view.now:
                self._add(self._counted_run(run))

    def full_times(self, candidate: Candidate, turn: AllocationRound) -> Sequence[FullTime]:
        """Return when another run of the candidate would exceed a limit at some instant."""
        level, needs = _level_of(turn), tuple(sorted(candidate.needs.items(), key=str))
        key = self._kind(candidate), needs, level
        if key not in self._full:
            demand = self._demand(candidate)
            self._full[key] = [
                full
                for holder, runs in self._beside(candidate)
                for full in full_at_once(holder, demand, runs, level)
            ]
        return self._full[key]

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if a limit on booked time, or on deliveries, would be exceeded."""
        level, whole = _level_of(turn), sum(end - start for start, end in candidate.spans)
        key = self._kind(candidate), whole, level
        if key not in self._over:
            demand = replace(self._demand(candidate), duration=whole)
            refusals = (
                each.find_refusal(each.own)
                for holder, runs in self._beside(candidate)
                for each in sum_limits(
                    holder, demand, runs, level, self._delivered, self._board.view.now
                )
            )
            self._over[key] = next((each for each in refusals if each is not None), None)
        return self._over[key]

    def _kind(self, candidate: Candidate) -> Hashable:
        """Return what candidates have in common whose runs count alike beside the open ones."""
        kind = candidate.campaign, candidate.k, candidate.apart, candidate.scheduling_class
        return *kind, tuple(self._board.asked)

    def record_run(self, candidate: Candidate, run: PostedRun) -> None:
        """Count a posted run, on each of its nodes if these have runs of their own."""
        self._full.clear()
        self._over.clear()
        counted = self._counted_run(run)
        self._add(replace(counted, runs=counted.nodes) if candidate.apart else counted)

    def _add(self, run: CountedRun) -> None:
        for holder in self._board.lineage(run.campaign):
            self._runs.setdefault(holder, []).append(run)

    def _beside(self, candidate: Candidate) -> Iterator[tuple[CampaignView, Sequence[CountedRun]]]:
        """Yield a candidate's campaign and those above it that have limits, each with its runs."""
        board = self._board
        for holder in lineage_of(candidate.campaign, board.view.campaigns):
            if bounded_at_once(holder):
                waiting = (
                    self._demand(it).over(span)
                    for it in board.asked.values()
                    if holder.name in board.lineage(it.campaign)
                    for span in it.spans
                )
                yield holder, [*self._runs.get(holder.name, ()), *waiting]

    def _counted_run(self, run: PostedRun) -> CountedRun:
        nodes = len(run.nodes)
        needs = {name: self._amount(name, run.needs, run.nodes) for name in run.needs}
        seats = self._seats(run.scheduling_class, nodes)
        return CountedRun(run.campaign, run.start, run.end, nodes, seats, needs)

    def _demand(self, candidate: Candidate) -> RunDemand:
        return RunDemand(
            candidate.campaign,
            candidate.duration,
            candidate.k,
            self._seats(candidate.scheduling_class, candidate.k),
            {name: amount_wanted(self._board, candidate, name) for name in candidate.needs},
            runs=candidate.k if candidate.apart else 1,
        )

    def _seats(self, scheduling_class: SchedulingClass, nodes: int) -> int:
        """Return the seats on so many nodes, in thousandths."""
        return self._board.seat_time(scheduling_class, SEAT * nodes)

    def _amount(self, resource: str, needs: Needs, names: Sequence[str]) -> int:
        """Return how much of a resource a run takes on all its nodes together."""
        amount, nodes = needs[resource], self._board.view.nodes
        if amount is not None:
            return amount * len(names)
        return sum(nodes[name].resources.get(resource, 0) for name in names if name in nodes)


def amount_wanted(board: Board, candidate: Candidate, resource: str) -> int:
    """Return the amount wanted; "all of it" counts as if the richest nodes were chosen."""
    amount = candidate.needs[resource]
    if amount is not None:
        return amount * candidate.k
    nodes = board.usable_nodes(candidate.nodes)
    richest = sorted((it.resources.get(resource, 0) for it in nodes), reverse=True)
    return sum(richest[: candidate.k])


class _PoolCapacity:
    """The resources of the pool's nodes that all runs use together."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._members = frozenset(board.view.pool.nodes)
        usable = board.usable_nodes(board.view.pool.nodes)
        count_by_name = Counter(name for node in usable for name in node.resources)
        # The pool's amount of a resource is known only if all of its nodes state theirs.
        self._capacity = {
            name: sum(node.resources[name] for node in usable)
            for name, count in count_by_name.items()
            if count == len(usable)
        }

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if the pool would have too little at the ideal time of a run."""
        del turn
        board = self._board
        if not (candidate.needs and board.view.campaigns[candidate.campaign].quotas):
            return None
        wanted = {name: amount_wanted(board, candidate, name) for name in candidate.needs}
        for span in candidate.spans:
            used = self._peak_usage(candidate, span)
            free = {name: (used.get(name, 0), most) for name, most in self._capacity.items()}
            refusal = quota.find_capacity_refusal(candidate.campaign, wanted, free)
            if refusal is not None:
                return refusal
        return None

    def _peak_usage(self, candidate: Candidate, span: Span) -> dict[str, int]:
        """Return the most that all runs use of each resource at an instant of a span.

        Runs that cannot overlap the candidate do not reduce what it has: on their nodes it comes
        after them.
        """
        excluded = blockers(candidate.scheduling_class)
        used = PeakUse(span)
        for run in self._board.overlapping_runs(span):
            if run.scheduling_class not in excluded:
                for resource in run.needs:
                    used.add(resource, (run.start, run.end), self._amount_used(run, resource))
        return used.peaks()

    def _amount_used(self, run: PostedRun, resource: str) -> int:
        """Return how much of a resource a run takes of the pool's nodes."""
        nodes, amount = self._board.view.nodes, run.needs[resource]
        members = [nodes[name] for name in run.nodes if name in self._members]
        return sum(
            node.resources.get(resource, 0) if amount is None else amount for node in members
        )


class _HourlySums:
    """Quotas of bytes, and budgets: what all runs of a term take on nodes, wherever these are."""

    def __init__(self, board: Board) -> None:
        self._board = board
        view = board.view
        self._sums: dict[str, list[HourlySum]] = {}
        for each in hourly_sums(view.campaigns.values(), view.campaigns, view.moved, view.spent):
            self._sums.setdefault(each.campaign, []).append(each)

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if one does not permit all its runs, beside those being placed."""
        del turn
        for holder in self._holders(candidate.campaign):
            counted = holder.copy()
            for asked in self._board.asked.values():
                if holder in self._holders(asked.campaign):
                    self._count(counted, asked, asked.k)
            for start, end in candidate.spans:
                own = self._wanted(counted, candidate, candidate.k, end - start)
                if (refusal := counted.find_refusal(start, own)) is not None:
                    return refusal
                counted.add(start, own or 0)
        return None

    def record_run(self, candidate: Candidate, run: PostedRun) -> None:
        """Count all runs of a candidate on the nodes of the posted one."""
        for holder in self._holders(candidate.campaign):
            self._count(holder, candidate, len(run.nodes))

    def _count(self, counted: HourlySum, candidate: Candidate, nodes: int) -> None:
        for start, end in candidate.spans:
            counted.add(start, self._wanted(counted, candidate, nodes, end - start) or 0)

    def _wanted(
        self, counted: HourlySum, candidate: Candidate, nodes: int, duration: int
    ) -> int | None:
        """Return what one run takes on so many nodes; None if that is unknown."""
        moves = None if candidate.moves is None else candidate.moves * nodes
        seat_time = self._board.seat_time(candidate.scheduling_class, duration * nodes)
        return counted.wanted(moves, seat_time)

    def _holders(self, campaign: str) -> list[HourlySum]:
        return [each for name in self._board.lineage(campaign) for each in self._sums.get(name, ())]


class _DueLimits:
    """Limits on what is considered at all."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._ageing = dict(board.view.state.eligible_since)

    def find_excluded(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Return the refusals of candidates beyond their campaigns' limits; the others age."""
        view = self._board.view
        limits = {
            name: {
                kind.removeprefix(DUE): limit.hard
                for kind, limit in campaign.limits.items()
                if kind.startswith(DUE) and limit.hard is not None
            }
            for name, campaign in view.campaigns.items()
        }
        limits = {name: kinds for name, kinds in limits.items() if kinds}
        refused: Mapping[str, PolicyRefusal] = {}
        if limits:
            due = [
                due_limits.DueTask(
                    it.task, tuple(self._board.lineage(it.campaign)), active_limits.request_of(it)
                )
                for it in candidates
            ]
            _, refused = due_limits.tasks_within_limits(due, limits)
            considered_tasks = (it.task for it in candidates if it.task not in refused)
            self._ageing = due_limits.ageing_since(
                view.state.eligible_since, considered_tasks, view.now
            )
        return refused

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with the instants since when considered tasks age."""
        return replace(state, eligible_since=self._ageing)
