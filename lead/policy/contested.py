"""Time that several campaigns want: whose turn it is, and what is given back to those who come.

Candidates whose windows overlap, within the hour in which they are counted, contend for the same
time. The *contested time* of such a group is where the time that one campaign wants overlaps that
of another: a campaign wants the time from the first to the last of its windows, and of its booked
runs there. What a campaign holds elsewhere does not count, nor what it had before others came.

Turns are taken run by run (``share/weight_tree.py``), so each campaign has its part of contested
time from the first minute on. Who asks first gets what nobody else wants yet. When another campaign
comes and finds no time, seats of which no run begins soon are given back to it, until nobody is a
whole run from what it is due. Each candidate has this once, so nothing moves back and forth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import TypeVar

from lead.policy.episode_figures import Board
from lead.policy.share.weight_tree import Standing, Tiers, dues, in_turn
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import BUCKET, Candidate, PostedRun
from node.model import times
from node.model.classes import blockers
from node.model.spans import Span
from node.model.times import to_the_second

NOTICE = 10 * times.SECOND
"""Runs that start sooner are not given back (µs): their nodes may be about to start them."""

GIVEN_BACK = RefusalRule(
    Axis.SHARE,
    "given-back",
    "given back to {campaign}, which is due {due} seat-hours of what was contested from {since} to "
    "{to} and had {held}; {whose} had {theirs} and is due {due_theirs}",
)

_Item = TypeVar("_Item")


def evenly_spread(items: Sequence[_Item]) -> list[_Item]:
    """Return the items in an order whose beginnings, of any length, are spread over all of them.

    The first and the last item come last.
    """
    bits = max(0, len(items) - 1).bit_length()
    first, *others = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [items[number] for number in (*others, first) if number < len(items)]


@dataclass(frozen=True, slots=True)
class Account:
    """The amounts that each campaign holds, wants, and is due of some contested time."""

    span: Span
    held: Mapping[str, int]
    demand: Mapping[str, int]
    due: Mapping[str, Fraction]
    tiers: Tiers
    """By which it is divided."""


@dataclass(frozen=True, slots=True)
class _Seat:
    """A seat that may be given back, with its runs in contested time and what they take of it."""

    task: str
    whose: str
    runs: Sequence[PostedRun]
    amount: int


@dataclass(slots=True)
class Contest:
    """Candidates of an hour that contend for time; without ``span`` only one campaign wants it."""

    hour: int
    candidates: list[Candidate]
    windows: list[Span]
    span: Span | None = None
    hulls: dict[str, Span] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContestRules:
    """The rules by which contested time is divided.

    ``tiers_at(hour)`` returns the tiers of an hour, since weights may change with time; campaigns
    in none take no part. Of equals, whoever is first in ``serving`` comes first, and the ``urgent``
    before all. What campaigns have ``used`` lately evens out what rounding gave and took. Without
    ``takes_turns`` candidates keep the order of their set, and only what is given back follows the
    tiers. With ``by_starts``, starts are divided and not their time.
    """

    tiers_at: Callable[[int], Tiers]
    serving: Sequence[str]
    urgent: Sequence[str] = ()
    used: Mapping[str, int] = field(default_factory=dict)
    takes_turns: bool = True
    by_starts: bool = False


class Contests:
    """The contests of an episode."""

    def __init__(self, board: Board, rules: ContestRules) -> None:
        """Divide what is contested on this board by these rules."""
        self._board = board
        self._rules = rules
        self._place = {name: number for number, name in enumerate(rules.serving)}
        self._urgent = {name: number for number, name in enumerate(rules.urgent)}
        self._tiers: dict[int, Tiers] = {}
        present = self._tiers_at(board.view.now // BUCKET * BUCKET)
        self._members = {it for branches in present for each in branches for it in each.campaigns()}
        self._gains: dict[tuple[int, str], bool] = {}

    def _tiers_at(self, hour: int) -> Tiers:
        if hour not in self._tiers:
            self._tiers[hour] = self._rules.tiers_at(hour)
        return self._tiers[hour]

    def size(self, candidate: Candidate) -> int:
        """Return what a candidate takes of what is divided: seat-µs, or starts."""
        if self._rules.by_starts:
            return len(candidate.spans)
        return self._board.seats_taken(candidate, candidate.k)

    @cached_property
    def _contests(self) -> list[Contest]:
        """Return the groups of candidates that contend, by the time at which they begin."""
        hours: dict[int, list[tuple[Span, Candidate]]] = {}
        for it in self._board.candidates:
            if it.campaign in self._members:
                hours.setdefault(self._board.hour_of(it), []).append((self._window(it), it))
        contests: list[Contest] = []
        for hour in sorted(hours):
            end = 0
            for window, candidate in sorted(hours[hour], key=lambda it: it[0][0]):
                if window[0] >= end:
                    contests.append(Contest(hour, [], []))
                contests[-1].candidates.append(candidate)
                contests[-1].windows.append(window)
                end = max(end, window[1])
        for contest in contests:
            self._delimit(contest)
        return contests

    def _window(self, candidate: Candidate) -> Span:
        """Return where the runs of its hour may lie, and at least the first one."""
        start, end = candidate.spans[0]
        to = max(end + candidate.slip, self._board.hour_of(candidate) + BUCKET)
        return max(start, self._board.view.now), min(candidate.over_at, to)

    def _delimit(self, contest: Contest) -> None:
        """Find out which campaigns want the time of a contest, and where they overlap."""
        whole = contest.windows[0][0], max(end for _, end in contest.windows)
        wanted = zip((it.campaign for it in contest.candidates), contest.windows, strict=True)
        runs = (
            (it.campaign, (max(it.start, whole[0]), min(it.end, whole[1])))
            for it in self._board.overlapping_runs(whole)
            if it.campaign in self._members
        )
        for name, (start, end) in chain(wanted, runs):
            known = contest.hulls.get(name, (start, end))
            contest.hulls[name] = min(known[0], start), max(known[1], end)
        if len(contest.hulls) > 1:
            start = sorted(start for start, _ in contest.hulls.values())[1]
            end = sorted(end for _, end in contest.hulls.values())[-2]
            contest.span = (start, end) if start < end else None

    @cached_property
    def _contest_of(self) -> dict[str, Contest]:
        return {it.task: contest for contest in self._contests for it in contest.candidates}

    def _held(self, span: Span) -> Counter[str]:
        """Return what each campaign holds of a span."""
        held = Counter[str]()
        for run in self._board.overlapping_runs(span):
            if run.campaign in self._members:
                held[run.campaign] += self._amount(run, span)
        return held

    def _amount(self, run: PostedRun, span: Span) -> int:
        """Return what a run takes of a span."""
        if self._rules.by_starts:
            return int(span[0] <= run.start < span[1])
        time = min(run.end, span[1]) - max(run.start, span[0])
        nodes = len(self._board.pool_nodes_of(run))
        return self._board.seat_time(run.scheduling_class, max(0, time) * nodes)

    def account(self, contest: Contest, span: Span) -> Account:
        """Return who holds, wants, and is due what of a span of contested time."""
        held = self._held(span)
        demand = Counter(held)
        placed = {run.task for run in self._board.placed}
        for it, window in zip(contest.candidates, contest.windows, strict=True):
            if it.task not in placed and _overlap(window, span):
                demand[it.campaign] += self.size(it)
        tiers = self._tiers_at(contest.hour)
        return Account(span, held, demand, dues(tiers, held.total(), demand), tiers)

    def in_turn(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return candidates in turn, contest by contest; each campaign's own keep their order."""
        if not self._rules.takes_turns:
            return list(candidates)
        groups: dict[int, list[Candidate]] = {}
        alone: list[Candidate] = []
        for it in candidates:
            contest = self._contest_of.get(it.task)
            if contest is None:
                alone.append(it)
            else:
                groups.setdefault(id(contest), []).append(it)
        urgent = [it for it in alone if it.campaign in self._urgent]
        urgent.sort(key=lambda it: self._urgent[it.campaign])
        ordered = list(urgent)
        for contest in self._contests:
            group = groups.get(id(contest), [])
            held = Counter[str]() if contest.span is None else self._held(contest.span)
            standing = Standing(held, self._lacks(contest), self._place)
            tiers = self._tiers_at(contest.hour)
            ordered += in_turn(tiers, group, standing, self.size)
        return [*ordered, *(it for it in alone if it.campaign not in self._urgent)]

    def _lacks(self, contest: Contest) -> dict[str, float]:
        """Return by how much those who contend used less than their part of what all used."""
        lacks: dict[str, float] = {}
        for branches in self._tiers_at(contest.hour):
            names = {it for branch in branches for it in branch.campaigns()}
            used = {name: self._rules.used.get(name, 0) for name in contest.hulls if name in names}
            total = sum(used.values())
            due = dues([branches], total, dict.fromkeys(used, total))
            lacks |= {name: float(due[name] - amount) for name, amount in used.items()}
        return lacks

    def accounts_of(self, campaign: str) -> list[Account]:
        """Return the accounts of contested time that a campaign wants, the soonest first."""
        return [
            self.account(contest, contest.span)
            for contest in self._contests
            if contest.span is not None and campaign in contest.hulls
        ]

    @property
    def by_starts(self) -> bool:
        """True if starts are divided and not their time."""
        return self._rules.by_starts

    def amounts_in(self, span: Span) -> list[tuple[Span, str, int]]:
        """Return the runs in a span, by their ends: when, whose, and what they take of it."""
        runs = [run for run in self._board.overlapping_runs(span) if run.campaign in self._members]
        amounts = [((it.start, it.end), it.campaign, self._amount(it, span)) for it in runs]
        return sorted(amounts, key=lambda it: (it[0][1], it[1]))

    def is_contested(self, candidate: Candidate) -> bool:
        """Return whether other campaigns want the time of a candidate."""
        contest = self._contest_of.get(candidate.task)
        return contest is not None and contest.span is not None

    def may_gain(self, candidate: Candidate) -> bool:
        """Return whether seats may be given back for a candidate, as of when the episode began."""
        contest = self._contest_of.get(candidate.task)
        if contest is None or contest.span is None or not self._board.view.returnable:
            return False
        key = id(contest), candidate.campaign
        if key not in self._gains:
            account, name = self.account(contest, contest.span), candidate.campaign
            self._gains[key] = account.held[name] < account.due[name]
        return self._gains[key]

    def seats_to_return(
        self, candidates: Iterable[Candidate]
    ) -> tuple[Mapping[str, PolicyRefusal], frozenset[str]]:
        """Return the seats to give back to candidates that found no time, by task, and to whom.

        A candidate for which seats were given back before has no more of them.
        """
        if not self._board.view.returnable:
            return {}, frozenset()
        waiting: dict[tuple[int, str], list[Candidate]] = {}
        favoured = frozenset(self._board.view.state.favoured)
        for it in candidates:
            if self.is_contested(it) and it.task not in favoured:
                waiting.setdefault((id(self._contest_of[it.task]), it.campaign), []).append(it)
        returned: dict[str, PolicyRefusal] = {}
        gaining: set[str] = set()
        for (_, campaign), mine in waiting.items():
            contest = self._contest_of[mine[0].task]
            span = _intersection(contest.span or (0, 0), contest.hulls[campaign])
            if span[0] < span[1]:
                giving = _Giving(self, contest, span, campaign, returned)
                gaining.update(it.task for it in mine if giving.give(it))
        return returned, frozenset(gaining)

    @cached_property
    def _runs_of_seats(self) -> dict[str, list[PostedRun]]:
        """Return the runs of the seats that may be given back, the youngest seat first."""
        view = self._board.view
        runs: dict[str, list[PostedRun]] = {task: [] for task in view.returnable}
        for run in view.runs:
            if run.task in runs:
                runs[run.task].append(run)
        soonest = view.now + NOTICE
        return {
            task: of_task
            for task, of_task in runs.items()
            if of_task and min(it.start for it in of_task) >= soonest
        }

    def seats_in(self, span: Span, but: str, without: Iterable[str]) -> dict[str, list[_Seat]]:
        """Return by holder the seats to give back in a span, in order; none of campaign ``but``."""
        seats: dict[str, list[_Seat]] = {}
        left_out = frozenset(without)
        for task, runs in self._runs_of_seats.items():
            whose = runs[0].campaign
            here = [run for run in runs if _overlap((run.start, run.end), span)]
            amount = sum(self._amount(run, span) for run in here)
            if amount and whose != but and whose in self._members and task not in left_out:
                seats.setdefault(whose, []).append(_Seat(task, whose, here, amount))
        for of_holder in seats.values():
            of_holder.sort(key=lambda it: it.runs[0].start)
        return seats

    def window_of(self, candidate: Candidate) -> Span:
        """Return where a candidate's runs may lie."""
        return self._window(candidate)


class _Giving:
    """Gives seats back to the candidates of one campaign."""

    def __init__(
        self,
        contests: Contests,
        contest: Contest,
        span: Span,
        campaign: str,
        returned: dict[str, PolicyRefusal],
    ) -> None:
        """Write what is given back into ``returned``, which has what others were given already."""
        self._contests = contests
        self._campaign = campaign
        self._returned = returned
        self._account = account = contests.account(contest, span)
        self._above = {name: amount - account.due[name] for name, amount in account.held.items()}
        self._above.setdefault(campaign, -account.due[campaign])
        self._left = account.demand[campaign] - account.held[campaign]
        self._seats = contests.seats_in(span, campaign, returned)
        self._spread = {name: evenly_spread(seats) for name, seats in self._seats.items()}
        self._hopeless: set[tuple[object, ...]] = set()

    def give(self, candidate: Candidate) -> bool:
        """Give back what a candidate takes, if its campaign is due as much; return whether any."""
        window, usable = self._contests.window_of(candidate), frozenset(candidate.nodes)
        kind = window, usable, candidate.scheduling_class, candidate.priority
        wanted = self._contests.size(candidate)
        given = 0
        while given < wanted and kind not in self._hopeless:
            seat = self._next_seat(candidate, window, usable)
            if seat is None:
                self._hopeless.add(kind)
                break
            self._record(seat)
            given += seat.amount
        return given > 0

    def _next_seat(
        self, candidate: Candidate, window: Span, usable: frozenset[str]
    ) -> _Seat | None:
        """Return the next seat of whoever is furthest above its due, if giving it back is fair."""
        # Several nodes at one instant are free only if seats side by side are given back.
        by_holder = self._seats if candidate.least > 1 else self._spread
        conflicting = blockers(candidate.scheduling_class)
        for whose in sorted(by_holder, key=lambda name: -self._above[name]):
            for seat in by_holder[whose]:
                if (
                    seat.task not in self._returned
                    and self._is_fair(seat)
                    and any(
                        _overlap((run.start, run.end), window)
                        and run.scheduling_class in conflicting
                        and run.priority <= candidate.priority
                        and not usable.isdisjoint(run.nodes)
                        for run in seat.runs
                    )
                ):
                    return seat
        return None

    def _is_fair(self, seat: _Seat) -> bool:
        """Return whether both are nearer to their dues, and one was off by a run, or by the seat.

        Whole runs come no nearer to dues that differ by less: nothing moves back and forth.
        """
        amount, gain = seat.amount, min(seat.amount, self._left)
        theirs, own = self._above[seat.whose], self._above[self._campaign]
        nearer = amount * amount - 2 * theirs * amount + gain * gain + 2 * own * gain < 0
        return gain > 0 and nearer and (theirs >= amount or -own >= gain)

    def _record(self, seat: _Seat) -> None:
        gain = min(seat.amount, self._left)
        account, own, whose = self._account, self._campaign, seat.whose
        self._returned[seat.task] = GIVEN_BACK.refuse(
            campaign=own,
            whose=whose,
            due=float(account.due[own]) / BUCKET,
            held=account.held[own] / BUCKET,
            due_theirs=float(account.due[whose]) / BUCKET,
            theirs=account.held[whose] / BUCKET,
            since=to_the_second(account.span[0]),
            to=to_the_second(account.span[1]),
        )
        self._above[whose] -= seat.amount
        self._above[own] += gain
        self._left -= gain


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _intersection(one: Span, other: Span) -> Span:
    return max(one[0], other[0]), min(one[1], other[1])
