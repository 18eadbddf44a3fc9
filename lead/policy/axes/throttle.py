"""Axis 5 in an episode: what is refused though there is room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate

from lead.policy.episode_figures import Board
from lead.policy.placement_requests import AllocationRound
from lead.policy.share import decayed_windows
from lead.policy.throttle import active_limits, delivered_cap, due_limits, quota
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import BUCKET, Candidate, PostedRun, RememberedState
from node.model.classes import blockers
from node.model.spans import Span

SEATS_MAX = RefusalRule(
    Axis.THROTTLE,
    "seats",
    "{campaign} would hold {wanted} seats at once, of at most {most}",
)

DUE = "due_"
"""Limits of this beginning are of what is considered at all: ``due_runs``, ``due_nodes``."""
DELIVERED_PERCENT = "delivered_percent"
DELIVERED = "delivered"
"""Limits of what is delivered within the fairshare windows: in percent, or in seat-µs."""


Check = Callable[[Candidate, AllocationRound], PolicyRefusal | None]


@dataclass(frozen=True, slots=True)
class LimitRules:
    """Which kinds of limits hold.

    ``seats``: the most seats that a campaign may hold at once. ``quotas``: what it may use of each
    counted resource, and what the pool has. ``limits``: what is under way, what is considered at
    all, and what is delivered within the fairshare windows.
    """

    seats: bool = False
    quotas: bool = False
    limits: bool = False
    windows: decayed_windows.DecayWindows = field(default_factory=decayed_windows.DecayWindows)

    def begin(self, board: Board) -> LimitThrottling:
        """For one episode."""
        return LimitThrottling(self, board)


class LimitThrottling:
    """All limits that hold, one after the other."""

    def __init__(self, rules: LimitRules, board: Board) -> None:
        """Those that no campaign has cost nothing."""
        campaigns = board.view.campaigns.values()
        self._checks: list[Check] = []
        self._seats: _SeatsMax | None = None
        self._limits: _Limits | None = None
        if rules.seats and any(it.seats_max is not None for it in campaigns):
            self._seats = _SeatsMax(board)
            self._checks.append(self._seats.admit)
        if rules.quotas and any(it.quotas for it in campaigns):
            self._checks.append(_Quotas(board).admit)
        if rules.limits and any(it.limits for it in campaigns):
            self._limits = _Limits(board, rules.windows)
            self._checks.append(self._limits.admit)

    def considered(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """By task, those beyond the limits of what is considered at all."""
        return self._limits.considered(candidates) if self._limits else {}

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """The first limit that it would exceed."""
        for check in self._checks:
            if (no := check(candidate, turn)) is not None:
                return no
        return None

    def placed(self, candidate: Candidate, run: PostedRun) -> None:
        """It counts from now on."""
        if self._seats is not None:
            self._seats.placed(run)
        if self._limits is not None:
            self._limits.placed(candidate, run)

    def remember(self, state: RememberedState) -> RememberedState:
        """Since when each considered task ages."""
        return state if self._limits is None else self._limits.remember(state)


class _SeatsMax:
    """What campaigns hold at once; counted in lanes, of which so many are a seat.

    What is booked is known by campaign and hour: only that of the hours of a run is looked at.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._held: dict[tuple[str, int], list[tuple[Span, int]]] = {}
        for run in board.view.runs:
            self.placed(run)

    def placed(self, run: PostedRun) -> None:
        """It counts from now on."""
        lanes = self._board.weighed(run.scheduling_class, self._board.lanes * len(run.nodes))
        if lanes and self._most(run.campaign) is not None:
            for hour in range(run.start // BUCKET * BUCKET, run.end, BUCKET):
                held = self._held.setdefault((run.campaign, hour), [])
                held.append(((run.start, run.end), lanes))

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """The most that is held at any instant of the ideal time of each run, that included."""
        del turn
        most, lanes = self._most(candidate.campaign), self._board.lanes
        own = self._board.weighed(candidate.scheduling_class, lanes * candidate.k)
        if most is None or not own:
            return None
        for span in candidate.spans:
            wanted = self._peak(candidate.campaign, span) + own
            if wanted > most * lanes:
                return SEATS_MAX.says_no(
                    campaign=candidate.campaign, wanted=wanted / lanes, most=most
                )
        return None

    def _most(self, campaign: str) -> int | None:
        known = self._board.view.campaigns.get(campaign)
        return None if known is None else known.seats_max

    def _peak(self, campaign: str, span: Span) -> int:
        """The most lanes that a campaign holds at some instant of a span."""
        changes = []
        for (start, end), lanes in self._beside(campaign, span):
            if start < span[1] and span[0] < end:
                changes += [(max(start, span[0]), lanes), (end, -lanes)]
        # What ends at an instant is over when something else begins.
        return max(accumulate(change for _, change in sorted(changes)), default=0)

    def _beside(self, campaign: str, span: Span) -> Iterator[tuple[Span, int]]:
        """What is booked or asked for in the hours of a span, each once."""
        first = span[0] // BUCKET * BUCKET
        for hour in range(first, span[1], BUCKET):
            for held in self._held.get((campaign, hour), ()):
                if hour == first or held[0][0] >= hour:
                    yield held
        for asked in self._board.asked.values():
            if asked.campaign == campaign:
                lanes = self._board.weighed(asked.scheduling_class, self._board.lanes * asked.k)
                yield from ((each, lanes) for each in asked.spans)


class _Quotas:
    """What runs take of the pool's nodes; what they take elsewhere is not the pool's to divide."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._members = frozenset(board.view.pool.nodes)
        self._most: dict[tuple[int, str], list[int]] = {}
        usable = board.usable(board.view.pool.nodes)
        told = Counter(name for node in usable for name in node.resources)
        # What a pool has is known only where all of its nodes say what they have.
        self._capacity = {
            name: sum(node.resources[name] for node in usable)
            for name, count in told.items()
            if count == len(usable)
        }

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """What overlaps the ideal time of each run, that included, within quota and capacity."""
        del turn
        campaign = self._board.view.campaigns[candidate.campaign]
        if not campaign.quotas or not candidate.needs:
            return None
        wanted = {name: self._wanted(candidate, name) for name in candidate.needs}
        for span in candidate.spans:
            own, every = self._in_use(candidate, span)
            free = {name: (every.get(name, 0), most) for name, most in self._capacity.items()}
            no = quota.admit(candidate.campaign, wanted, campaign.quotas, own, free)
            if no is not None:
                return no
        return None

    def _in_use(self, candidate: Candidate, span: Span) -> tuple[dict[str, int], dict[str, int]]:
        """What its campaign uses at some time in a span, and what all do that may run beside it.

        Others do not lessen what there is for it: on their nodes it comes after them.
        """
        apart = blockers(candidate.scheduling_class)
        own: dict[str, int] = {}
        every: dict[str, int] = {}
        nodes = self._board.view.nodes
        for run in self._board.overlapping(span):
            for resource, amount in run.needs.items():
                members = [nodes[name] for name in run.nodes if name in self._members]
                used = sum(
                    node.resources.get(resource, 0) if amount is None else amount
                    for node in members
                )
                if run.scheduling_class not in apart:
                    every[resource] = every.get(resource, 0) + used
                if run.campaign == candidate.campaign:
                    own[resource] = own.get(resource, 0) + used
        return own, every

    def _wanted(self, candidate: Candidate, resource: str) -> int:
        """Where all of it is wanted, as if the nodes with most of it were chosen."""
        amount = candidate.needs[resource]
        if amount is not None:
            return amount * candidate.k
        key = id(candidate.nodes), resource
        if key not in self._most:
            nodes = self._board.usable(candidate.nodes)
            self._most[key] = sorted((it.resources.get(resource, 0) for it in nodes), reverse=True)
        return sum(self._most[key][: candidate.k])


class _Limits:
    def __init__(self, board: Board, windows: decayed_windows.DecayWindows) -> None:
        view = board.view
        self._board = board
        self._under_way = active_limits.ActiveBookings(view.runs, view.campaigns, view.now)
        self._capped = frozenset(
            name
            for name, campaign in view.campaigns.items()
            if not campaign.limits.keys().isdisjoint((DELIVERED, DELIVERED_PERCENT))
        )
        self._used: dict[str, Fraction] = {}
        self._delivered = Fraction(0)
        if self._capped:
            own, every = decayed_windows.in_windows(view.ledger, view.now, windows)
            decay = windows.decay
            self._used = board.with_parents(
                {name: decayed_windows.decayed_sum(it, decay) for name, it in own.items()}
            )
            self._delivered = decayed_windows.decayed_sum(every, decay)
        self._ageing = dict(view.state.eligible_since)

    def considered(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Those beyond the limits of their campaigns; the others age."""
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
                    it.task, tuple(self._board.line(it.campaign)), active_limits.request_of(it)
                )
                for it in candidates
            ]
            _, refused = due_limits.considered(due, limits)
            taken = (it.task for it in candidates if it.task not in refused)
            self._ageing = due_limits.ageing_since(view.state.eligible_since, taken, view.now)
        return refused

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Whether it stays within the limits of its campaign and of all above it."""
        level = (
            active_limits.LimitLevel.SOFT
            if turn is AllocationRound.FIRST
            else active_limits.LimitLevel.HARD
        )
        request = active_limits.request_of(candidate)
        for span in candidate.spans:
            holders = self._under_way.holders(candidate.campaign, span)
            no = active_limits.within_limits(request, holders, level)
            if no is not None or not holders:
                return no
        return self._within_caps(candidate, level)

    def _within_caps(
        self, candidate: Candidate, level: active_limits.LimitLevel
    ) -> PolicyRefusal | None:
        if not self._capped:
            return None
        request = Fraction(self._board.seats_taken(candidate, candidate.k))
        for name in self._board.line(candidate.campaign):
            if name not in self._capped:
                continue
            limits, used = (
                self._board.view.campaigns[name].limits,
                self._used.get(name, Fraction(0)),
            )
            percent = limits.get(DELIVERED_PERCENT)
            if percent and (cap := active_limits.limit_at(percent, level)) is not None:
                no = delivered_cap.within_part(
                    name, used, request, self._delivered, Fraction(cap, 100)
                )
                if no is not None:
                    return no
            amount = limits.get(DELIVERED)
            if amount and (cap := active_limits.limit_at(amount, level)) is not None:
                return delivered_cap.within_amount(name, used, request, Fraction(cap))
        return None

    def placed(self, candidate: Candidate, run: PostedRun) -> None:
        """It counts from now on."""
        self._under_way.add(run, apart=candidate.apart)

    def remember(self, state: RememberedState) -> RememberedState:
        """Since when each considered task ages."""
        return replace(state, eligible_since=self._ageing)
