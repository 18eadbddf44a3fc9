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
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import accumulate

from lead.policy.episode_figures import Board, PeakUse
from lead.policy.placement_requests import AllocationRound
from lead.policy.share import decayed_windows
from lead.policy.throttle import active_limits, delivered_cap, due_limits, quota
from lead.policy.throttle.byte_quota import MovedBytes
from lead.policy.throttle.full_time import FullTime, full_times
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import BUCKET, Candidate, PostedRun, RememberedState
from node.model.classes import blockers
from node.model.spans import Span, at_least, normalise, subtract

SEATS_MAX = RefusalRule(
    Axis.THROTTLE,
    "seats",
    "{campaign} would hold {wanted} seats at once, of at most {most}",
)

DUE = "due_"
"""The prefix of limits on what is considered at all: ``due_runs``, ``due_nodes``."""
DELIVERED_PERCENT = "delivered_percent"
DELIVERED = "delivered"
"""Limits on what is delivered within the fairshare windows: in percent, or in seat-µs."""


Check = Callable[[Candidate, AllocationRound], PolicyRefusal | None]

_AT_ONCE = (SEATS_MAX, quota.QUOTA, active_limits.OVER)
"""Rules about what a campaign has at an instant: a run that slips may keep to them."""


@dataclass(frozen=True, slots=True)
class LimitRules:
    """The limits of campaigns, which apply in all sets.

    The maximum number of seats that a campaign may hold at once; quotas, what it may use of each
    counted resource, and what the pool has; quotas of bytes within a period; limits on what is
    active, what is considered at all, and what is delivered within the fairshare windows
    (``windows``).
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
        self._seats: _SeatsMax | None = None
        self._limits: _Limits | None = None
        self._bytes: _ByteQuotas | None = None
        self._quotas: _Quotas | None = None
        self._full: dict[Hashable, list[FullTime]] = {}
        self._board = board
        if any(it.seats_max is not None for it in campaigns):
            self._seats = _SeatsMax(board)
            self._checks.append(self._seats.find_refusal)
        if any(it.quotas for it in campaigns):
            self._quotas = _Quotas(board)
            self._checks += [self._quotas.find_refusal, self._quotas.find_pool_refusal]
        if any(it.byte_quota for it in campaigns):
            self._bytes = _ByteQuotas(board)
            self._checks.append(self._bytes.find_refusal)
        if any(it.limits for it in campaigns):
            self._limits = _Limits(board, rules.windows)
            self._checks += [self._limits.find_refusal, self._limits.find_time_refusal]

    def find_excluded(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Return, by task, the refusals of candidates beyond the limits on due tasks."""
        return self._limits.find_excluded(candidates) if self._limits else {}

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return the first limit that the candidate would exceed, however far its runs slip."""
        for check in self._checks:
            refusal = check(candidate, turn)
            if refusal is not None and refusal.rule in _AT_ONCE:
                refusal = _find_window_refusal(candidate, self.full_times(candidate, turn), refusal)
            if refusal is not None:
                return refusal
        return None

    def full_times(self, candidate: Candidate, turn: AllocationRound) -> Sequence[FullTime]:
        """Return the time in which a run of the candidate would exceed a limit at some instant."""
        if not self._checks:
            return ()
        level, board = _level_of(turn), self._board
        needs = tuple(sorted(candidate.needs.items(), key=str))
        kind = candidate.campaign, candidate.k, candidate.apart, candidate.scheduling_class
        key = kind, needs, level, tuple(board.asked)
        found = self._full.get(key)
        if found is None:
            found = []
            if self._seats is not None:
                found += self._seats.full_times(candidate)
            if self._quotas is not None:
                found += self._quotas.full_times(candidate)
            if self._limits is not None:
                found += self._limits.full_times(candidate, level)
            self._full[key] = found
        return found

    def record_run(self, candidate: Candidate, run: PostedRun) -> None:
        """Count a posted run."""
        self._full.clear()
        if self._seats is not None:
            self._seats.record_run(run)
        if self._bytes is not None:
            self._bytes.record_run(candidate, run)
        if self._limits is not None:
            self._limits.record_run(candidate, run)

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with the instants since when considered tasks age."""
        return state if self._limits is None else self._limits.updated_state(state)


def _level_of(turn: AllocationRound) -> active_limits.LimitLevel:
    if turn is AllocationRound.THIRD:
        return active_limits.LimitLevel.HARD
    return active_limits.LimitLevel.SOFT


def _find_window_refusal(
    candidate: Candidate, full: Sequence[FullTime], refusal: PolicyRefusal
) -> PolicyRefusal | None:
    """Return a refusal if some run finds no time within its slip outside the ``full`` time.

    It is that of the time that takes most of the run's window; ``refusal`` if there is none.
    """
    taken = normalise([(each.start, each.end) for each in full])
    if not taken:
        return refusal
    for start, end in candidate.spans:
        window = start, end + candidate.slip
        if not at_least(subtract([window], taken), end - start):
            longest = max(
                full, key=lambda each: min(each.end, window[1]) - max(each.start, window[0])
            )
            return longest.refusal(*window)
    return None


class _SeatsMax:
    """The maximum number of seats at once, counted in lanes (``lanes`` of them are a seat).

    Bookings are kept by campaign and hour, so only those in the hours of a run are examined.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self._held: dict[tuple[str, int], list[tuple[Span, int]]] = {}
        for run in board.view.runs:
            self.record_run(run)

    def record_run(self, run: PostedRun) -> None:
        """Count a posted run."""
        lanes = self._board.seat_time(run.scheduling_class, self._board.lanes * len(run.nodes))
        if lanes and self._seats_max_of(run.campaign) is not None:
            for hour in range(run.start // BUCKET * BUCKET, run.end, BUCKET):
                bookings = self._held.setdefault((run.campaign, hour), [])
                bookings.append(((run.start, run.end), lanes))

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if the peak within any run's ideal time is too high.

        The peak includes the candidate itself.
        """
        del turn
        most, lanes = self._seats_max_of(candidate.campaign), self._board.lanes
        own_lanes = self._board.seat_time(candidate.scheduling_class, lanes * candidate.k)
        if most is None or not own_lanes:
            return None
        for span in candidate.spans:
            wanted = self._peak(candidate.campaign, span) + own_lanes
            if wanted > most * lanes:
                return SEATS_MAX.refuse(
                    campaign=candidate.campaign, wanted=wanted / lanes, most=most
                )
        return None

    def full_times(self, candidate: Candidate) -> list[FullTime]:
        """Return when another run of the candidate would exceed the maximum."""
        most, lanes = self._seats_max_of(candidate.campaign), self._board.lanes
        own = self._board.seat_time(candidate.scheduling_class, lanes * candidate.k)
        if most is None or not own:
            return []
        booked = (
            (*span, amount)
            for (campaign, hour), bookings in self._held.items()
            if campaign == candidate.campaign
            for span, amount in bookings
            if span[0] // BUCKET * BUCKET == hour
        )
        uses = [
            *booked,
            *((*span, amount) for span, amount in self._open_lanes(candidate.campaign)),
        ]
        return full_times(
            uses,
            own,
            most * lanes,
            lambda wanted: SEATS_MAX.refuse(
                campaign=candidate.campaign, wanted=wanted / lanes, most=most
            ),
        )

    def _seats_max_of(self, campaign: str) -> int | None:
        view = self._board.view.campaigns.get(campaign)
        return None if view is None else view.seats_max

    def _peak(self, campaign: str, span: Span) -> int:
        """Return the maximum number of lanes that a campaign holds at some instant of a span."""
        changes = []
        for (start, end), lanes in self._lanes_beside(campaign, span):
            if start < span[1] and span[0] < end:
                changes += [(max(start, span[0]), lanes), (end, -lanes)]
        # At equal instants, ends (negative) sort before beginnings.
        return max(accumulate(change for _, change in sorted(changes)), default=0)

    def _lanes_beside(self, campaign: str, span: Span) -> Iterator[tuple[Span, int]]:
        """Yield what is booked or open in the hours of a span, each once."""
        first = span[0] // BUCKET * BUCKET
        for hour in range(first, span[1], BUCKET):
            for booking in self._held.get((campaign, hour), ()):
                if hour == first or booking[0][0] >= hour:
                    yield booking
        yield from self._open_lanes(campaign)

    def _open_lanes(self, campaign: str) -> Iterator[tuple[Span, int]]:
        """Yield what is open."""
        for candidate in self._board.asked.values():
            if candidate.campaign == campaign:
                lanes = self._board.seat_time(
                    candidate.scheduling_class, self._board.lanes * candidate.k
                )
                yield from ((each, lanes) for each in candidate.spans)


class _Quotas:
    """Quotas on the resources of the pool's nodes; usage elsewhere does not count."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._members = frozenset(board.view.pool.nodes)
        self._seats_max_of: dict[tuple[int, str], list[int]] = {}
        usable = board.usable_nodes(board.view.pool.nodes)
        count_by_name = Counter(name for node in usable for name in node.resources)
        # The pool's amount of a resource is known only if all of its nodes state theirs.
        self._capacity = {
            name: sum(node.resources[name] for node in usable)
            for name, count in count_by_name.items()
            if count == len(usable)
        }

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if its campaign would use too much at the ideal time of a run."""
        del turn
        for wanted, by_campaign, _ in self._at_ideal_times(candidate):
            quotas = self._board.view.campaigns[candidate.campaign].quotas
            refusal = quota.find_quota_refusal(candidate.campaign, wanted, quotas, by_campaign, {})
            if refusal is not None:
                return refusal
        return None

    def find_pool_refusal(
        self, candidate: Candidate, turn: AllocationRound
    ) -> PolicyRefusal | None:
        """Return a refusal if the pool would have too little at the ideal time of a run."""
        del turn
        for wanted, _, by_all in self._at_ideal_times(candidate):
            free = {name: (by_all.get(name, 0), most) for name, most in self._capacity.items()}
            refusal = quota.find_quota_refusal(candidate.campaign, wanted, {}, {}, free)
            if refusal is not None:
                return refusal
        return None

    def _at_ideal_times(
        self, candidate: Candidate
    ) -> Iterator[tuple[dict[str, int], dict[str, int], dict[str, int]]]:
        """Yield for each run what it wants, what its campaign uses, and what all use then."""
        if self._board.view.campaigns[candidate.campaign].quotas and candidate.needs:
            wanted = {name: self._amount_wanted(candidate, name) for name in candidate.needs}
            for span in candidate.spans:
                yield wanted, *self._peak_usage(candidate, span)

    def full_times(self, candidate: Candidate) -> Iterator[FullTime]:
        """Yield when another run of the candidate would exceed a quota of its campaign."""
        quotas = self._board.view.campaigns[candidate.campaign].quotas
        for resource in quotas.keys() & candidate.needs.keys():
            own, most = self._amount_wanted(candidate, resource), quotas[resource]
            uses = [
                (run.start, run.end, self._amount_used(run, resource))
                for run in (*self._board.view.runs, *self._board.placed)
                if run.campaign == candidate.campaign and resource in run.needs
            ]
            yield from full_times(
                uses, own, most, partial(_quota_refusal, candidate.campaign, resource, own, most)
            )

    def _amount_used(self, run: PostedRun, resource: str) -> int:
        """Return how much of a resource a run takes of the pool's nodes."""
        nodes, amount = self._board.view.nodes, run.needs[resource]
        members = [nodes[name] for name in run.nodes if name in self._members]
        return sum(
            node.resources.get(resource, 0) if amount is None else amount for node in members
        )

    def _peak_usage(
        self, candidate: Candidate, span: Span
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return the most that its campaign uses at an instant of a span, and all concurrent runs.

        Runs that cannot overlap the candidate do not reduce what it has: on their nodes it comes
        after them.
        """
        excluded = blockers(candidate.scheduling_class)
        by_campaign, by_all = PeakUse(span), PeakUse(span)
        for run in self._board.overlapping(span):
            for resource in run.needs:
                used = self._amount_used(run, resource)
                if run.scheduling_class not in excluded:
                    by_all.add(resource, (run.start, run.end), used)
                if run.campaign == candidate.campaign:
                    by_campaign.add(resource, (run.start, run.end), used)
        return by_campaign.peaks(), by_all.peaks()

    def _amount_wanted(self, candidate: Candidate, resource: str) -> int:
        """Return the amount wanted; "all of it" counts as if the richest nodes were chosen."""
        amount = candidate.needs[resource]
        if amount is not None:
            return amount * candidate.k
        key = id(candidate.nodes), resource
        if key not in self._seats_max_of:
            nodes = self._board.usable_nodes(candidate.nodes)
            self._seats_max_of[key] = sorted(
                (it.resources.get(resource, 0) for it in nodes), reverse=True
            )
        return sum(self._seats_max_of[key][: candidate.k])


def _quota_refusal(campaign: str, resource: str, own: int, most: int, wanted: int) -> PolicyRefusal:
    return quota.QUOTA.refuse(
        campaign=campaign, resource=resource, used=wanted - own, wanted=own, quota=most
    )


class _ByteQuotas:
    """Quotas of bytes: what all runs of a term move on its nodes, wherever these are."""

    def __init__(self, board: Board) -> None:
        self._board = board
        view = board.view
        self._moved: dict[str, MovedBytes] = {}
        for name, campaign in view.campaigns.items():
            if campaign.byte_quota is not None:
                hours: Counter[int] = Counter()
                for mover, amounts in view.moved.items():
                    if name in board.lineage(mover):
                        hours.update(amounts)
                self._moved[name] = MovedBytes(name, campaign.byte_quota, hours)

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if a quota does not permit all its runs, beside those being placed."""
        del turn
        own = None if candidate.moves is None else candidate.moves * candidate.k
        for holder in self._holders(candidate.campaign):
            moved = holder.copy()
            for asked in self._board.asked.values():
                if holder in self._holders(asked.campaign):
                    _count(moved, asked, asked.k)
            for start, _ in candidate.spans:
                if (refusal := moved.find_refusal(start, own)) is not None:
                    return refusal
                moved.add(start, own or 0)
        return None

    def record_run(self, candidate: Candidate, run: PostedRun) -> None:
        """Count all runs of a candidate on the nodes of the posted one."""
        for holder in self._holders(candidate.campaign):
            _count(holder, candidate, len(run.nodes))

    def _holders(self, campaign: str) -> list[MovedBytes]:
        return [self._moved[name] for name in self._board.lineage(campaign) if name in self._moved]


def _count(moved: MovedBytes, candidate: Candidate, nodes: int) -> None:
    for start, _ in candidate.spans:
        moved.add(start, (candidate.moves or 0) * nodes)


def _limit_refusal(
    holder: str, kind: str, most: int, level: active_limits.LimitLevel, wanted: int
) -> PolicyRefusal:
    return active_limits.refusal_over(holder, kind, wanted, most, level)


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
        ledger = view.ledger if self._capped else ()
        self._delivered = delivered_cap.Delivered.from_ledger(
            ledger, view.now, windows, board.lineage
        )
        self._ageing = dict(view.state.eligible_since)

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

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if its campaign or an ancestor would have too much at an instant."""
        return self._find_refusal_of(
            candidate, _level_of(turn), active_limits.AT_ONCE, candidate.spans
        )

    def find_time_refusal(
        self, candidate: Candidate, turn: AllocationRound
    ) -> PolicyRefusal | None:
        """Return a refusal if a limit on booked time, or on deliveries, would be exceeded."""
        level, kinds = _level_of(turn), (active_limits.SEAT_TIME, active_limits.TIME)
        refusal = self._find_refusal_of(candidate, level, kinds, candidate.spans[:1])
        return refusal or self._find_cap_refusal(candidate, level)

    def _find_refusal_of(
        self,
        candidate: Candidate,
        level: active_limits.LimitLevel,
        kinds: Collection[str],
        spans: Sequence[Span],
    ) -> PolicyRefusal | None:
        """Return a refusal if a limit of one of these kinds would be exceeded in these spans."""
        request = active_limits.request_of(candidate)
        for span in spans:
            holders = self._under_way.holders(candidate.campaign, span)
            some = (
                replace(it, limits={kind: it.limits[kind] for kind in it.limits if kind in kinds})
                for it in holders
            )
            refusal = active_limits.find_limit_refusal(request, some, level)
            if refusal is not None or not holders:
                return refusal
        return None

    def full_times(
        self, candidate: Candidate, level: active_limits.LimitLevel
    ) -> Iterator[FullTime]:
        """Yield when another run of the candidate would exceed a limit at some instant."""
        request = active_limits.request_of(candidate)
        campaigns = self._board.view.campaigns
        for name in self._board.lineage(candidate.campaign):
            booked = self._under_way.booked_runs(name)
            for kind, limit in campaigns[name].limits.items():
                most = active_limits.limit_at(limit, level)
                if kind in active_limits.AT_ONCE and most is not None:
                    alone = kind == active_limits.RUNS
                    uses = [(start, end, 1 if alone else nodes) for start, end, nodes in booked]
                    refuse = partial(_limit_refusal, name, kind, most, level)
                    yield from full_times(uses, request[kind], most, refuse)

    def _find_cap_refusal(
        self, candidate: Candidate, level: active_limits.LimitLevel
    ) -> PolicyRefusal | None:
        if not self._capped:
            return None
        request = Fraction(self._board.seats_taken(candidate, candidate.k))
        for name in self._board.lineage(candidate.campaign):
            if name not in self._capped:
                continue
            limits, used = (
                self._board.view.campaigns[name].limits,
                self._delivered.amount_of(name),
            )
            percent = limits.get(DELIVERED_PERCENT)
            if percent and (cap := active_limits.limit_at(percent, level)) is not None:
                refusal = delivered_cap.find_part_refusal(
                    name, used, request, self._delivered.total, Fraction(cap, 100)
                )
                if refusal is not None:
                    return refusal
            amount = limits.get(DELIVERED)
            if amount and (cap := active_limits.limit_at(amount, level)) is not None:
                return delivered_cap.find_amount_refusal(name, used, request, Fraction(cap))
        return None

    def record_run(self, candidate: Candidate, run: PostedRun) -> None:
        """Count a posted run."""
        self._under_way.add(run, apart=candidate.apart)

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with the instants since when considered tasks age."""
        return replace(state, eligible_since=self._ageing)
