"""Axis 2 in an episode: each hour's seats allotted once, then counted down as runs are placed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, groupby

from lead.policy.ahead_sharing import NEAR_TIME, AheadSharing, Parts
from lead.policy.campaign_grouping import CampaignGrouping, CampaignLines
from lead.policy.episode_figures import Board
from lead.policy.placement_requests import AllocationRound
from lead.policy.promised_seats import PromisedSeats
from lead.policy.seats import CampaignStake, FreeSeats
from lead.policy.share import (
    creation,
    levels,
    promised,
    recent_work,
    urgent,
    usage,
)
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


class Unlimited:
    """A rule without limits; campaigns without a share take part after the first round only."""

    def __init__(self, serving: Sequence[str], without: frozenset[str] = frozenset()) -> None:
        """Serve campaigns in this order; those in ``without`` have no share."""
        self.serving = serving
        self._without = without

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal in the first round if its campaign has no share."""
        if turn is not AllocationRound.FIRST or candidate.campaign not in self._without:
            return None
        return ONLY_IF_IDLE.refuse(campaign=candidate.campaign)

    def returned(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Return nothing: no campaign holds too much."""
        del candidates
        return {}

    def remember(self, state: RememberedState) -> RememberedState:
        """Return the state unchanged."""
        return state


class Divided:
    """A rule that gives each campaign its allotment and, after the first round, what is left."""

    def __init__(
        self,
        board: Board,
        serving: Sequence[str],
        allot: Allot,
        newcomers: Mapping[str, Charge] | None = None,
    ) -> None:
        """Divide each hour on first use with ``allot``."""
        self.serving = serving
        self._board = board
        self._allot = allot
        self._most: dict[int, Mapping[str, int]] = {}
        self._newcomers = newcomers
        self._full_refusals: dict[int, tuple[int, PolicyRefusal]] = {}

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if its campaign holds its allotment, or in round two if no seat is free.

        The urgent are always admitted: if no seat is free, other runs may be displaced for them.
        What is reserved for a campaign comes on top of what is shared.
        """
        if self._board.view.campaigns[candidate.campaign].level >= URGENT:
            return None
        hour = self._board.bucket(candidate)
        by_campaign = self._board.allocated.get(hour, {})
        if by_campaign.get(candidate.campaign, 0) < self._board.reserved_for(candidate, hour):
            return None
        if turn is not AllocationRound.FIRST:
            total, seats = sum(by_campaign.values()), self._board.capacity(hour)
            return None if total < seats else self._full(hour, total, seats)
        most = self._most.get(hour)
        if most is None:
            most = {name: by_campaign.get(name, 0) + added for name, added in self._allot(hour)}
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

    def _full(self, hour: int, taken: int, seats: int) -> PolicyRefusal:
        """Return the refusal for a full hour; the text stays the same until more is taken."""
        known = self._full_refusals.get(hour)
        if known is None or known[0] != taken:
            by_campaign = self._board.allocated.get(hour, {})
            # Do not list campaigns with a negligible part as holders of an hour.
            names = [name for name in by_campaign if _written(by_campaign[name]) != "0"]
            holders = sorted(names, key=lambda name: (-by_campaign[name], name))
            parts = [f"{name} ({_written(by_campaign[name])})" for name in holders[:_LISTED_MAX]]
            if len(holders) > _LISTED_MAX:
                parts.append(f"{len(holders) - _LISTED_MAX} others")
            refusal = FULL.refuse(
                seats=seats / BUCKET,
                hour=to_the_second(hour),
                holders=", ".join(parts) or "no campaign: they are reserved or on absent nodes",
            )
            known = self._full_refusals[hour] = taken, refusal
        return known[1]

    def returned(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Return nothing: what was allotted is not taken back."""
        del candidates
        return {}

    def remember(self, state: RememberedState) -> RememberedState:
        """Return the state with the usage that newcomers began with."""
        return state if self._newcomers is None else replace(state, newcomers=self._newcomers)


def _written(amount: int) -> str:
    """Format an amount in seats of an hour, with at most two decimal places."""
    return f"{amount / BUCKET:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Unshared:
    """No shares; campaigns are served in the order of their creation."""

    def begin(self, board: Board) -> Unlimited:
        """Start an episode."""
        campaigns = board.view.campaigns.values()
        stakes = [CampaignStake(it.name, created_at=it.created_at) for it in campaigns]
        return Unlimited([stake.name for stake in creation.queue(stakes)])


@dataclass(frozen=True, slots=True)
class ByRecentWorkShare:
    """Campaigns in the order of their standing; a weight of 0 is not a share.

    Time later than ``near`` is divided among all campaigns by weight (``ahead_sharing.py``).
    """

    half_life: int = recent_work.HALF_LIFE
    near: int = NEAR_TIME

    def begin(self, board: Board) -> AheadSharing:
        """Start an episode."""
        view = board.view
        recent = recent_work.recent_of(view.ledger, board.planned_to, self.half_life)
        shares = {name: float(campaign.weight) for name, campaign in view.campaigns.items()}
        serving = recent_work.by_standing(recent_work.standings(recent, shares))
        without = frozenset(name for name, share in shares.items() if share <= 0)
        unlimited, stakes = Unlimited(serving, without), _known(board)

        def parts(seats: int) -> Mapping[str, int]:
            return usage.ideals(seats, stakes)

        return AheadSharing(unlimited, board, self.near, parts)


@dataclass(frozen=True, slots=True)
class ByFairshare:
    """No shares of the near hours; later hours are divided by fairshare.

    Each gets its target or floor and as much of the rest as any other, but no more than a ceiling.
    """

    near: int = NEAR_TIME

    def begin(self, board: Board) -> AheadSharing:
        """Start an episode."""
        campaigns = [board.view.campaigns[stake.name] for stake in _known(board)]
        targets = {it.name: Fraction(0) if _is_bound(it) else _fairshare_of(it) for it in campaigns}
        rest = max(Fraction(0), 1 - sum(targets.values())) / max(1, len(campaigns))
        entitled = {
            it.name: min(rest, _fairshare_of(it)) if _is_bound(it) else targets[it.name] + rest
            for it in campaigns
        }

        def parts(seats: int) -> Mapping[str, int]:
            return {name: int(seats * part) for name, part in entitled.items()}

        return AheadSharing(Unshared().begin(board), board, self.near, parts)


def _fairshare_of(campaign: CampaignView) -> Fraction:
    return Fraction(campaign.fairshare.part if campaign.fairshare else 0)


def _is_bound(campaign: CampaignView) -> bool:
    return campaign.fairshare is not None and campaign.fairshare.kind is FairshareKind.CEILING


@dataclass(frozen=True, slots=True)
class ByCreation:
    """The oldest campaign gets all it can use; with ``serial``, level by level."""

    serial: bool = False

    def begin(self, board: Board) -> Divided:
        """Start an episode."""
        queue = creation.queue(_at_work(board))
        if self.serial:
            queue.sort(key=lambda stake: -stake.level)

        def allot(hour: int) -> Allotted:
            stakes, seats = board.stakes(hour), _free(board, hour)
            if self.serial:
                return levels.allot(
                    stakes, seats, lambda _, level, free: creation.allot(level, free)
                )
            return creation.allot(stakes, seats)

        return Divided(board, [stake.name for stake in queue], allot)


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

    def begin(self, board: Board) -> AheadSharing:
        """Start an episode."""
        working = _at_work(board)
        lines = CampaignLines(board, self.together, working)
        at_work = lines.weighted(working)
        newcomers = _newcomers(board, lines.entitlements(at_work), self.window)

        def served(at: int) -> list[CampaignStake]:
            """Return the serving order by what each will have used when an hour begins."""
            used = _used(board, self.window, newcomers, at)
            stakes = [replace(stake, usage=used.get(stake.name, 0)) for stake in at_work]
            entitled = lines.entitlements(stakes) if self.entitled else None
            in_order = usage.serving_order(stakes, entitled)
            in_order.sort(
                key=lambda it: (-it.level if self.serial or it.urgent else 0, _queued(it))
            )
            return in_order

        latest = max(board.view.now, board.planned_to - BUCKET)
        ordered = served(latest)

        def allot(hour: int) -> Allotted:
            at = max(board.view.now, hour)
            order = ordered if at == latest else served(at)
            place = {stake.name: number for number, stake in enumerate(order)}
            grain = board.grains.get(hour) or BUCKET

            def inner(
                seats: int, stakes: list[CampaignStake], free: FreeSeats
            ) -> list[tuple[str, int]]:
                in_order = sorted(stakes, key=lambda stake: place[stake.name])
                ideals = lines.ideals(seats, stakes, grain)
                # A campaign that gets all it wants does not show what the others should have had.
                short = {it.name for it in stakes if ideals[it.name] < (it.demand or 0)}
                parts = lines.ideals(seats, stakes, 1)
                lacks = usage.behind([it for it in order if it.name in short], parts)
                return usage.allot(in_order, usage.caught_up(ideals, lacks, grain), free, grain)

            stakes = [it for it in lines.weighted(board.stakes(hour)) if it.name in place]
            seats = _free(board, hour)
            first, others = urgent.serve(stakes, seats)
            if self.serial:
                return [*first, *levels.allot(others, seats, inner)]
            rest = urgent.left_to_share(board.capacity(hour), stakes, first)
            return [*first, *inner(rest, others, seats)]

        divided = Divided(board, [stake.name for stake in ordered], allot, newcomers)
        return AheadSharing(divided, board, self.near, self._parts(board))

    def _parts(self, board: Board) -> Parts:
        """Return the parts of all campaigns, as if each of them wanted all it can get."""
        stakes = _known(board)
        lines = CampaignLines(board, self.together, stakes)
        weighted = lines.weighted(stakes)

        def parts(seats: int) -> Mapping[str, int]:
            if not self.serial:
                return lines.ideals(seats, weighted, 1)
            all_parts: dict[str, int] = {}
            for _, level in groupby(sorted(weighted, key=_level_first), key=_level_first):
                all_parts |= lines.ideals(seats - sum(all_parts.values()), list(level), 1)
            return all_parts

        return parts


def _level_first(stake: CampaignStake) -> int:
    return -stake.level


def _queued(stake: CampaignStake) -> int:
    """Return the key that orders the urgent by creation and leaves the others as they are."""
    return stake.created_at if stake.urgent else 0


@dataclass(frozen=True, slots=True)
class ByPromise:
    """Groups with targets; what they leave is lent out in the same proportion.

    Time later than ``near`` is divided among all groups in the same way (``ahead_sharing.py``).
    """

    window: int = usage.WINDOW
    near: int = NEAR_TIME

    def begin(self, board: Board) -> PromiseSharing:
        """Start an episode."""
        active = _at_work(board)
        used = _used(board, self.window, {})
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

        def allot(hour: int) -> Allotted:
            members: dict[str, list[CampaignStake]] = {name: [] for name in order}
            for stake in board.stakes(hour):
                if stake.name in serving:
                    members[groups[stake.name]].append(stake)
            demand = {name: _demand(stakes_of_group) for name, stakes_of_group in members.items()}
            settlement = promised.settle(board.capacity(hour), promises, demand, order, BUCKET)
            allotted: list[tuple[str, int]] = []
            for name, stakes_of_group in members.items():
                stakes_of_group.sort(key=lambda stake: serving[stake.name])
                allocated = sum(stake.allocated for stake in stakes_of_group)
                seats = FreeSeats(max(0, settlement.total[name] - allocated))
                allotted += promised.inside(stakes_of_group, seats, BUCKET)
            return allotted

        # What is lent follows the same proportion, so the sum of both does, too.
        groups_known = [CampaignStake(name, weight=promise) for name, promise in promises.items()]

        def parts(seats: int) -> Mapping[str, int]:
            return usage.ideals(seats, groups_known)

        divided = Divided(board, list(serving), allot)
        members = {name: group for name, group in groups.items() if group in promises}
        return PromiseSharing(
            AheadSharing(divided, board, self.near, parts, members),
            groups,
            promises,
            PromisedSeats(board, promises),
        )


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
        self._divided = divided
        self._groups = groups
        self._promises = promises
        self._seats = seats

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Return a refusal if its campaign belongs to no group or has no seats left.

        Seats that are promised count at each instant. Only what is lent is divided by the hour,
        and all of it if more is promised than there is.
        """
        group = self._groups.get(candidate.campaign)
        refusal = promised.admit(candidate.campaign, group, self._promises)
        if refusal is not None:
            return refusal
        if self._seats.is_enough:
            if self._seats.is_within(candidate):
                return None
            refusal = self._seats.kept_from(candidate)
        return refusal or self._divided.admit(candidate, turn)

    def returned(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Return what groups above their part give back."""
        return self._divided.returned(candidates)

    def remember(self, state: RememberedState) -> RememberedState:
        """Return the state unchanged."""
        return state


def _demand(stakes: Iterable[CampaignStake]) -> int:
    return sum(stake.demand or 0 for stake in stakes)


def _at_work(board: Board) -> list[CampaignStake]:
    """Return the stakes of campaigns that hold or want anything in any hour."""
    names = {name for amounts in board.allocated.values() for name in amounts}
    names.update(name for amounts in board.waiting.values() for name in amounts)
    return [
        CampaignStake(name, it.weight, it.level, created_at=it.created_at)
        for name, it in board.view.campaigns.items()
        if name in names and it.level != SUSPENDED
    ]


def _known(board: Board) -> list[CampaignStake]:
    """Return the stakes of campaigns that may ask at any time, with the maximum of each per hour.

    Urgent campaigns are left out: other runs are displaced for them.
    """
    return [
        CampaignStake(
            it.name,
            it.weight,
            it.level,
            most=None if it.seats_max is None else it.seats_max * BUCKET,
        )
        for it in board.view.campaigns.values()
        if SUSPENDED < it.level < URGENT
    ]


def _free(board: Board, hour: int) -> FreeSeats:
    return FreeSeats(max(0, board.capacity(hour) - sum(board.allocated.get(hour, {}).values())))


def _used(
    board: Board, window: int, newcomers: Mapping[str, Charge], until: int | None = None
) -> dict[str, int]:
    until = board.view.now if until is None else until
    return usage.used_within(chain(board.view.ledger, newcomers.values()), until, window)


def _newcomers(board: Board, entitled: Mapping[str, Exact], window: int) -> dict[str, Charge]:
    """Return the usage young campaigns began with: as remembered, or their current share."""
    view = board.view
    begin = view.now - window
    charges = {name: it for name, it in view.state.newcomers.items() if it.end > begin}
    seats = len(board.usable(view.pool.nodes))
    total = sum(entitled.values())
    for name, weight in entitled.items():
        created = view.campaigns[name].created_at
        if name not in charges and begin < created <= view.now and total:
            charges[name] = usage.newcomer(name, Fraction(seats) * weight / total, created, window)
    return charges
