"""Axis 2 in an episode: each hour's seats allotted once, then counted down as runs are placed.

A share is an amount of seat-µs per campaign and hour, fixed when the first candidate asks for that
hour; so the order of candidates within an episode changes who is served first, not how much each
may get. In the first round a campaign gets its own allotment only. What is left after it goes to
whoever still wants it, as an idle seat helps nobody. The urgent are admitted above all shares. A
run may exceed the allotment it begins in, since runs are not cut.

The rules differ in how they allot an hour and in the order of serving, and are wrapped by
``ahead_sharing.py`` where hours further ahead must be kept for campaigns that may still come. What
was allotted is never taken back here: giving seats back and displacing are rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, groupby

from lead.policy.ahead_sharing import NEAR_TIME, AheadSharing, Parts
from lead.policy.campaign_grouping import CampaignGrouping, CampaignLines, tiers_by_weight
from lead.policy.contested import ContestRules, Contests
from lead.policy.episode_figures import Board
from lead.policy.placement_requests import AllocationRound
from lead.policy.promised_seats import PromisedSeats
from lead.policy.seats import CampaignStake, FreeSeats
from lead.policy.share import (
    creation,
    levels,
    promised,
    recent_work,
    start_counts,
    urgent,
    usage,
)
from lead.policy.share.weight_tree import Branch, Tiers
from lead.policy.throttle.full_time import FullTime, find_window_refusal
from lead.policy.verdict import Axis, PolicyRefusal, RefusalRule
from lead.policy.view import (
    BUCKET,
    SUSPENDED,
    URGENT,
    CampaignView,
    Candidate,
    Charge,
    Exact,
    FairshareKind,
    RememberedState,
)
from node.model.times import to_the_second

FULL = RefusalRule(
    Axis.SHARE,
    "no-seats",
    "all {seats:seat} of the hour from {hour} on are taken by {holders}",
)
_LISTED_MAX = 3
"""Maximum number of campaigns to list as holders of an hour."""
ONLY_IF_IDLE = RefusalRule(
    Axis.SHARE, "no-share", "{campaign} has no share and gets only what others leave"
)

Allotted = Sequence[tuple[str, int]]
Allot = Callable[[int], Allotted]
"""By the beginning of an hour: what each campaign may add there (seat-µs), in serving order."""


class _OfHours:
    """A rule that divides hours, and closes no instant."""

    @staticmethod
    def full_times(candidate: Candidate) -> Sequence[FullTime]:
        """Return nothing: shares of hours bind no instant."""
        del candidate
        return ()


class Unlimited(_OfHours):
    """A rule without limits; campaigns without a share take part after the first round only."""

    def __init__(
        self,
        serving: Sequence[str],
        contests: Contests,
        without: frozenset[str] = frozenset(),
    ) -> None:
        """Serve campaigns in this order; those in ``without`` have no share."""
        self.serving = serving
        self.contests = contests
        self._without = without

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal in the first round if its campaign has no share."""
        if turn is not AllocationRound.FIRST or candidate.campaign not in self._without:
            return None
        return ONLY_IF_IDLE.refuse(campaign=candidate.campaign)

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state unchanged."""
        return state


class Divided(_OfHours):
    """A rule that gives each campaign its allotment and, after the first round, what is left."""

    def __init__(
        self,
        board: Board,
        serving: Sequence[str],
        allotted: Allot,
        contests: Contests,
        newcomers: Mapping[str, Charge] | None = None,
    ) -> None:
        """Divide each hour on first use with ``allotted``."""
        self.serving = serving
        self.contests = contests
        self._board = board
        self._allotted = allotted
        self._most: dict[int, Mapping[str, int]] = {}
        self._newcomers = newcomers
        self._full_refusals: dict[int, tuple[int, PolicyRefusal]] = {}

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if its campaign holds its allotment, or in round two if no seat is free.

        Where others want the time of a candidate, its turn has come, whatever its campaign has of
        other time. The urgent are always admitted: if no seat is free, other runs may be displaced
        for them. What is reserved for a campaign comes on top of what is shared.
        """
        if self._board.view.campaigns[candidate.campaign].level >= URGENT:
            return None
        hour = self._board.hour_of(candidate)
        by_campaign = self._board.allocations.get(hour, {})
        if by_campaign.get(candidate.campaign, 0) < self._board.reserved_for(candidate, hour):
            return None
        contested = self.contests.is_contested(candidate)
        if turn is not AllocationRound.FIRST or contested:
            total, seats = sum(by_campaign.values()), self._board.capacity(hour)
            if total < seats or (contested and self.contests.may_gain(candidate)):
                return None
            return self._full_hour_refusal(hour, total, seats)
        most = self._most.get(hour)
        if most is None:
            most = {name: by_campaign.get(name, 0) + added for name, added in self._allotted(hour)}
            self._most[hour] = most
        ideal, allocated = most.get(candidate.campaign, 0), by_campaign.get(candidate.campaign, 0)
        if allocated < ideal or not self._board.seats_taken(candidate, candidate.k):
            return None
        return usage.SHARE_USED.refuse(
            campaign=candidate.campaign,
            allocated=allocated / BUCKET,
            ideal=ideal / BUCKET,
            hour=to_the_second(hour),
        )

    def _full_hour_refusal(self, hour: int, taken: int, seats: int) -> PolicyRefusal:
        """Return the refusal for a full hour; the text stays the same until more is taken."""
        known = self._full_refusals.get(hour)
        if known is None or known[0] != taken:
            by_campaign = self._board.allocations.get(hour, {})
            # Do not list campaigns with a negligible part as holders of an hour.
            names = [name for name in by_campaign if _in_seats(by_campaign[name]) != "0"]
            holders = sorted(names, key=lambda name: (-by_campaign[name], name))
            parts = [f"{name} ({_in_seats(by_campaign[name])})" for name in holders[:_LISTED_MAX]]
            if len(holders) > _LISTED_MAX:
                parts.append(f"{len(holders) - _LISTED_MAX} others")
            refusal = FULL.refuse(
                seats=seats / BUCKET,
                hour=to_the_second(hour),
                holders=", ".join(parts) or "no campaign: they are reserved or on absent nodes",
            )
            known = self._full_refusals[hour] = taken, refusal
        return known[1]

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state with the usage that newcomers began with."""
        return state if self._newcomers is None else replace(state, newcomers=self._newcomers)


def _in_seats(amount: int) -> str:
    """Format an amount in seats of an hour, with at most two decimal places."""
    return f"{amount / BUCKET:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Unshared:
    """No shares; campaigns are served in the order of their creation."""

    def for_episode(self, board: Board) -> Unlimited:
        """Return this rule with the figures of one episode."""
        campaigns = board.view.campaigns.values()
        stakes = [CampaignStake(it.name, created_at=it.created_at) for it in campaigns]
        serving = [stake.name for stake in creation.sorted_by_creation(stakes)]
        return Unlimited(serving, Contests(board, ContestRules(lambda _: (), serving)))


@dataclass(frozen=True, slots=True)
class ByStartCounts:
    """No shares of time: the order divides starts, and contested starts are given back alike."""

    def for_episode(self, board: Board) -> Unlimited:
        """Return this rule with the figures of one episode."""
        serving = Unshared().for_episode(board).serving
        dividing = {
            name: it.queue
            for name, it in board.view.campaigns.items()
            if SUSPENDED < it.level < URGENT
        }
        frequencies = start_counts.frequencies(dividing)
        branches = [Branch(name, part) for name, part in frequencies.items() if part > 0]
        return Unlimited(
            serving,
            Contests(
                board,
                ContestRules(lambda _: [branches], serving, takes_turns=False, by_starts=True),
            ),
        )


@dataclass(frozen=True, slots=True)
class ByRecentWorkShare:
    """Campaigns in the order of their standing; a weight of 0 is not a share.

    Time later than ``near`` is divided among all campaigns by weight (``ahead_sharing.py``).
    """

    half_life: int = recent_work.HALF_LIFE
    near: int = NEAR_TIME

    def for_episode(self, board: Board) -> AheadSharing:
        """Return this rule with the figures of one episode."""
        view = board.view
        recent = recent_work.recent_of(view.ledger, board.planned_to, self.half_life)
        shares = board.weights_lately(usage.WINDOW)
        serving = recent_work.sorted_by_standing(recent_work.standings(recent, shares))
        without = frozenset(name for name, share in shares.items() if share <= 0)

        def tiers_at(hour: int) -> Tiers:
            return tiers_by_weight(board.campaigns_at(hour), CampaignGrouping.NONE)

        used = {name: int(seats * self.half_life) for name, seats in recent.items()}
        contests = Contests(board, ContestRules(tiers_at, serving, used=used))
        unlimited = Unlimited(serving, contests, without)

        def parts(hour: int, seats: int) -> Mapping[str, int]:
            return usage.ideals(seats, _stakes_of_all(board, hour))

        return AheadSharing(unlimited, board, self.near, parts)


@dataclass(frozen=True, slots=True)
class ByFairshare:
    """No shares of the near hours; later hours are divided by fairshare.

    Each gets its target or floor and as much of the rest as any other, but no more than a ceiling.
    """

    near: int = NEAR_TIME

    def for_episode(self, board: Board) -> AheadSharing:
        """Return this rule with the figures of one episode."""
        stakes = _stakes_of_all(board, board.view.now)
        campaigns = [board.view.campaigns[stake.name] for stake in stakes]
        targets = {it.name: Fraction(0) if _is_bound(it) else _fairshare_of(it) for it in campaigns}
        rest = max(Fraction(0), 1 - sum(targets.values())) / max(1, len(campaigns))
        entitled = {
            it.name: min(rest, _fairshare_of(it)) if _is_bound(it) else targets[it.name] + rest
            for it in campaigns
        }

        def parts(_hour: int, seats: int) -> Mapping[str, int]:
            return {name: int(seats * part) for name, part in entitled.items()}

        serving = Unshared().for_episode(board).serving
        branches = [Branch(name, Fraction(part)) for name, part in entitled.items() if part > 0]
        unlimited = Unlimited(
            serving, Contests(board, ContestRules(lambda _: [branches], serving, takes_turns=False))
        )
        return AheadSharing(unlimited, board, self.near, parts)


def _fairshare_of(campaign: CampaignView) -> Fraction:
    return Fraction(campaign.fairshare.part if campaign.fairshare else 0)


def _is_bound(campaign: CampaignView) -> bool:
    return campaign.fairshare is not None and campaign.fairshare.kind is FairshareKind.CEILING


@dataclass(frozen=True, slots=True)
class ByCreation:
    """The oldest campaign gets all it can use; with ``serial``, level by level."""

    serial: bool = False

    def for_episode(self, board: Board) -> Divided:
        """Return this rule with the figures of one episode."""
        queue = creation.sorted_by_creation(_active_stakes(board))
        if self.serial:
            queue.sort(key=lambda stake: -stake.level)

        def allotted(hour: int) -> Allotted:
            stakes, seats = board.stakes(hour), _free_seats(board, hour)
            if self.serial:
                return levels.allot(
                    stakes, seats, lambda _, level, free: creation.allot(level, free)
                )
            return creation.allot(stakes, seats)

        serving = [stake.name for stake in queue]
        contests = Contests(board, ContestRules(lambda _: (), serving))
        return Divided(board, serving, allotted, contests)


@dataclass(frozen=True, slots=True)
class ByUsage:
    """Shares by weight, served by usage within ``window`` µs; urgent campaigns before all others.

    With ``serial``, level by level. Where campaigns count together, ``entitled`` compares usage
    with what each is entitled to instead of its weight alone. Time later than ``near`` is divided
    among all campaigns in the same way (``ahead_sharing.py``).
    """

    window: int = usage.WINDOW
    together: CampaignGrouping = CampaignGrouping.NONE
    serial: bool = False
    entitled: bool = False
    near: int = NEAR_TIME

    def for_episode(self, board: Board) -> AheadSharing:
        """Return this rule with the figures of one episode."""
        lately = board.campaigns_lately(self.window)
        working = _active_stakes(board, lately)
        lines = CampaignLines(lately, self.together, working)
        at_work = lines.with_group_weights(working)
        newcomers = _newcomer_usage(board, lines.entitlements(at_work), self.window)

        def serving_order_at(at: int) -> list[CampaignStake]:
            """Return the serving order by what each will have used when an hour begins."""
            used = _usage(board, self.window, newcomers, at)
            stakes = [replace(stake, usage=used.get(stake.name, 0)) for stake in at_work]
            entitled = lines.entitlements(stakes) if self.entitled else None
            in_order = usage.serving_order(stakes, entitled)
            in_order.sort(
                key=lambda it: (-it.level if self.serial or it.urgent else 0, _urgent_key(it))
            )
            return in_order

        latest = max(board.view.now, board.planned_to - BUCKET)
        ordered = serving_order_at(latest)

        def allotted(hour: int) -> Allotted:
            at = max(board.view.now, hour)
            order = ordered if at == latest else serving_order_at(at)
            place = {stake.name: number for number, stake in enumerate(order)}
            grain = board.grains.get(hour) or BUCKET
            lines = CampaignLines(board.campaigns_at(hour), self.together, working)

            def inner(
                seats: int, stakes: list[CampaignStake], free: FreeSeats
            ) -> list[tuple[str, int]]:
                in_order = sorted(stakes, key=lambda stake: place[stake.name])
                return usage.allot(in_order, lines.ideals(seats, stakes, grain), free, grain)

            stakes = [it for it in lines.with_group_weights(board.stakes(hour)) if it.name in place]
            seats = _free_seats(board, hour)
            first, others = urgent.serve(stakes, seats)
            if self.serial:
                return [*first, *levels.allot(others, seats, inner)]
            rest = urgent.left_to_share(board.capacity(hour), stakes, first)
            return [*first, *inner(rest, others, seats)]

        serving = [stake.name for stake in ordered]

        def tiers_at(hour: int) -> Tiers:
            return tiers_by_weight(board.campaigns_at(hour), self.together, serial=self.serial)

        urgent_first = [stake.name for stake in ordered if stake.urgent]
        used = {stake.name: stake.usage for stake in ordered}
        contests = Contests(board, ContestRules(tiers_at, serving, urgent_first, used))
        divided = Divided(board, serving, allotted, contests, newcomers)
        return AheadSharing(divided, board, self.near, self._parts(board))

    def _parts(self, board: Board) -> Parts:
        """Return the parts of all campaigns, as if each of them wanted all it can get."""

        def parts(hour: int, seats: int) -> Mapping[str, int]:
            stakes = _stakes_of_all(board, hour)
            lines = CampaignLines(board.campaigns_at(hour), self.together, stakes)
            weighted = lines.with_group_weights(stakes)
            if not self.serial:
                return lines.ideals(seats, weighted, 1)
            all_parts: dict[str, int] = {}
            for _, level in groupby(sorted(weighted, key=_level_key), key=_level_key):
                all_parts |= lines.ideals(seats - sum(all_parts.values()), list(level), 1)
            return all_parts

        return parts


def _level_key(stake: CampaignStake) -> int:
    return -stake.level


def _urgent_key(stake: CampaignStake) -> int:
    """Return the key that orders the urgent by creation and leaves the others as they are."""
    return stake.created_at if stake.urgent else 0


@dataclass(frozen=True, slots=True)
class ByPromise:
    """Groups with targets; what they leave is lent out in the same proportion.

    Time later than ``near`` is divided among all groups in the same way (``ahead_sharing.py``).
    """

    window: int = usage.WINDOW
    near: int = NEAR_TIME

    def for_episode(self, board: Board) -> PromiseSharing:
        """Return this rule with the figures of one episode."""
        active = _active_stakes(board)
        used = _usage(board, self.window, {})
        groups = board.groups
        promises = {
            name: it.target
            for name, it in board.view.campaigns.items()
            if it.target is not None and it.level != SUSPENDED
        }
        by_group: dict[str, int] = dict.fromkeys(promises, 0)
        for stake in active:
            if (group := groups.get(stake.name)) is not None:
                by_group[group] += used.get(stake.name, 0)
        order = sorted(promises, key=lambda name: by_group[name])
        place = {name: number for number, name in enumerate(order)}
        stakes = [stake for stake in active if stake.name in groups]
        stakes.sort(key=lambda it: (place[groups[it.name]], used.get(it.name, 0), it.created_at))
        serving = {stake.name: number for number, stake in enumerate(stakes)}

        def allotted(hour: int) -> Allotted:
            members: dict[str, list[CampaignStake]] = {name: [] for name in order}
            for stake in board.stakes(hour):
                if stake.name in serving:
                    members[groups[stake.name]].append(stake)
            demand = _demand_within_bounds(board, hour, promises, members)
            settlement = promised.settlement_of(
                board.capacity(hour), promises, demand, order, BUCKET
            )
            allotted: list[tuple[str, int]] = []
            for name, stakes_of_group in members.items():
                stakes_of_group.sort(key=lambda stake: serving[stake.name])
                allocated = sum(stake.allocated for stake in stakes_of_group)
                seats = FreeSeats(max(0, settlement.total[name] - allocated))
                allotted += promised.allot_within_group(stakes_of_group, seats, BUCKET)
            return allotted

        # What is lent follows the same proportion, so the sum of both does, too.
        groups_known = [CampaignStake(name, weight=promise) for name, promise in promises.items()]

        def parts(_hour: int, seats: int) -> Mapping[str, int]:
            return usage.ideals(seats, groups_known)

        tiers = _tiers_by_promise(groups, promises)
        divided = Divided(
            board,
            list(serving),
            allotted,
            Contests(board, ContestRules(lambda _: tiers, list(serving), used=used)),
        )
        members = {name: group for name, group in groups.items() if group in promises}
        return PromiseSharing(
            AheadSharing(divided, board, self.near, parts, members),
            groups,
            promises,
            PromisedSeats(board, promises),
        )


def _tiers_by_promise(groups: Mapping[str, str], promises: Mapping[str, Exact]) -> Tiers:
    """Return the tree in which groups divide by promise, and the campaigns of one alike."""
    return [
        [
            Branch(name, promise, tuple(Branch(it, 1) for it in groups if groups[it] == name))
            for name, promise in promises.items()
            if promise
        ]
    ]


class PromiseSharing:
    """Promised seats; campaigns outside all groups are refused."""

    def __init__(
        self,
        divided: AheadSharing,
        groups: Mapping[str, str],
        promises: Mapping[str, promised.Promise],
        seats: PromisedSeats,
    ) -> None:
        """Wrap the division; ``groups`` maps each campaign in a group to that group."""
        self.serving = divided.serving
        self.contests = divided.contests
        self._divided = divided
        self._groups = groups
        self._promises = promises
        self._seats = seats

    def full_times(self, candidate: Candidate) -> Sequence[FullTime]:
        """Return when its group, or what another one lends, permits no run of it."""
        return self._seats.full_times(candidate)

    def find_refusal(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if its campaign belongs to no group or has no seats left.

        Seats that are promised count at each instant, and so do the bounds of what is borrowed and
        lent. Only what is lent is divided by the hour, and all of it if more is promised than there
        is.
        """
        group = self._groups.get(candidate.campaign)
        refusal = promised.find_promise_refusal(candidate.campaign, group, self._promises)
        if refusal is not None:
            return refusal
        refusal = find_window_refusal(candidate, self.full_times(candidate))
        if refusal is None and self._seats.is_enough:
            if self._seats.is_within(candidate):
                return None
            refusal = self._seats.find_refusal(candidate)
        return refusal or self._divided.find_refusal(candidate, turn)

    def updated_state(self, state: RememberedState) -> RememberedState:
        """Return the state unchanged."""
        return state


def _demand(stakes: Iterable[CampaignStake]) -> int:
    return sum(stake.demand or 0 for stake in stakes)


def _demand_within_bounds(
    board: Board,
    hour: int,
    promises: Mapping[str, promised.Promise],
    members: Mapping[str, Sequence[CampaignStake]],
) -> dict[str, int]:
    """Return the demand of each group: no more than it may borrow, no less than it keeps."""
    demand = {}
    for name, target in promised.targets(board.capacity(hour), promises, BUCKET).items():
        group, wanted = board.view.campaigns[name], _demand(members[name])
        if group.borrow is not None:
            wanted = min(wanted, target + group.borrow * BUCKET)
        demand[name] = max(wanted, target - int(target * group.lend))
    return demand


def _active_stakes(
    board: Board, campaigns: Mapping[str, CampaignView] | None = None
) -> list[CampaignStake]:
    """Return the stakes of campaigns that hold or want anything in any hour.

    ``campaigns`` are those of the board, perhaps with other weights.
    """
    names = {name for amounts in board.allocations.values() for name in amounts}
    names.update(name for amounts in board.waiting_demand.values() for name in amounts)
    return [
        CampaignStake(name, it.weight, it.level, created_at=it.created_at)
        for name, it in (campaigns or board.view.campaigns).items()
        if name in names and it.level != SUSPENDED
    ]


def _stakes_of_all(board: Board, hour: int) -> list[CampaignStake]:
    """Return the stakes in an hour of campaigns that may ask at any time, with their maxima.

    Urgent campaigns are left out: other runs are displaced for them.
    """
    return [
        CampaignStake(
            it.name,
            it.weight,
            it.level,
            most=None if it.seats_max is None else it.seats_max * BUCKET,
        )
        for it in board.campaigns_at(hour).values()
        if SUSPENDED < it.level < URGENT
    ]


def _free_seats(board: Board, hour: int) -> FreeSeats:
    return FreeSeats(max(0, board.capacity(hour) - sum(board.allocations.get(hour, {}).values())))


def _usage(
    board: Board, window: int, newcomers: Mapping[str, Charge], until: int | None = None
) -> dict[str, int]:
    until = board.view.now if until is None else until
    return usage.usage_within(chain(board.view.ledger, newcomers.values()), until, window)


def _newcomer_usage(board: Board, entitled: Mapping[str, Exact], window: int) -> dict[str, Charge]:
    """Return the usage young campaigns began with: as remembered, or their current share."""
    view = board.view
    begin = view.now - window
    charges = {name: it for name, it in view.state.newcomers.items() if it.end > begin}
    seats = len(board.usable_nodes(view.pool.nodes))
    total = sum(entitled.values())
    for name, weight in entitled.items():
        created = view.campaigns[name].created_at
        if name not in charges and begin < created <= view.now and total:
            charges[name] = usage.newcomer_charge(
                name, Fraction(seats) * weight / total, created, window
            )
    return charges
