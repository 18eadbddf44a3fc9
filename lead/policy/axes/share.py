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
    "all {seats} seats of the hour from {hour} on are taken, by {holders}",
)
_TOLD_MAX = 3
"""Of so many campaigns it is said how much they hold."""
ONLY_IF_IDLE = RefusalRule(
    Axis.SHARE, "no-share", "{campaign} has no share, and gets only what others leave"
)

Allotted = Sequence[tuple[str, int]]
Allot = Callable[[int], Allotted]
"""By the beginning of an hour: what each campaign may add there (seat-µs), in serving order."""


class Unlimited:
    """Every campaign may add what there is, those without a share only in the second round."""

    def __init__(self, serving: Sequence[str], without: frozenset[str] = frozenset()) -> None:
        """Served in this order; some may have no share."""
        self.serving = serving
        self._without = without

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Whether its campaign has a share."""
        if turn is AllocationRound.SECOND or candidate.campaign not in self._without:
            return None
        return ONLY_IF_IDLE.says_no(campaign=candidate.campaign)

    def returned(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """Nobody has too much."""
        del candidates
        return {}

    def remember(self, state: RememberedState) -> RememberedState:
        """Nothing is remembered."""
        return state


class Divided:
    """Each campaign what it is allotted; in the second round whatever is left."""

    def __init__(
        self,
        board: Board,
        serving: Sequence[str],
        allot: Allot,
        newcomers: Mapping[str, Charge] | None = None,
    ) -> None:
        """An hour is divided when it is first asked for."""
        self.serving = serving
        self._board = board
        self._allot = allot
        self._most: dict[int, Mapping[str, int]] = {}
        self._newcomers = newcomers
        self._said: dict[int, tuple[int, PolicyRefusal]] = {}

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Whether its campaign holds less than it should there; then, whether a seat is free.

        The urgent take what they find: where no seat is free, others may have to give way to them.
        What is reserved for it is beside all that is shared.
        """
        if self._board.view.campaigns[candidate.campaign].level >= URGENT:
            return None
        hour = self._board.bucket(candidate)
        held = self._board.allocated.get(hour, {})
        if held.get(candidate.campaign, 0) < self._board.reserved_for(candidate, hour):
            return None
        if turn is AllocationRound.SECOND:
            taken, seats = sum(held.values()), self._board.capacity(hour)
            return None if taken < seats else self._full(hour, taken, seats)
        most = self._most.get(hour)
        if most is None:
            most = {name: held.get(name, 0) + added for name, added in self._allot(hour)}
            self._most[hour] = most
        ideal, allocated = most.get(candidate.campaign, 0), held.get(candidate.campaign, 0)
        if allocated < ideal or not self._board.seats_taken(candidate, candidate.k):
            return None
        return usage.SHARE_USED.says_no(
            campaign=candidate.campaign,
            allocated=allocated / BUCKET,
            ideal=ideal / BUCKET,
            hour=to_the_second(hour),
        )

    def _full(self, hour: int, taken: int, seats: int) -> PolicyRefusal:
        """Said in the same words until more is taken."""
        said = self._said.get(hour)
        if said is None or said[0] != taken:
            held = self._board.allocated.get(hour, {})
            some = [name for name in held if _written(held[name]) != "0"]
            most = sorted(some, key=lambda name: (-held[name], name))
            told = [f"{name} ({_written(held[name])})" for name in most[:_TOLD_MAX]]
            if len(most) > _TOLD_MAX:
                told.append(f"{len(most) - _TOLD_MAX} others")
            no = FULL.says_no(
                seats=seats / BUCKET,
                hour=to_the_second(hour),
                holders=", ".join(told) or "nobody: they are reserved, or of nodes that are away",
            )
            said = self._said[hour] = taken, no
        return said[1]

    def returned(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """What was allotted is not taken back."""
        del candidates
        return {}

    def remember(self, state: RememberedState) -> RememberedState:
        """The usage that newcomers began with."""
        return state if self._newcomers is None else replace(state, newcomers=self._newcomers)


def _written(amount: int) -> str:
    """In seats of an hour, with two digits at most."""
    return f"{amount / BUCKET:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Unshared:
    """No shares; campaigns are served in the order of their creation."""

    def begin(self, board: Board) -> Unlimited:
        """For one episode."""
        campaigns = board.view.campaigns.values()
        stakes = [CampaignStake(it.name, created_at=it.created_at) for it in campaigns]
        return Unlimited([stake.name for stake in creation.queue(stakes)])


@dataclass(frozen=True, slots=True)
class ByRecentWorkShare:
    """Campaigns in the order of their standing; a weight of 0 is no share.

    What begins later than ``near`` is kept for all campaigns by weight (``ahead.py``).
    """

    half_life: int = recent_work.HALF_LIFE
    near: int = NEAR_TIME

    def begin(self, board: Board) -> AheadSharing:
        """For one episode."""
        view = board.view
        recent = recent_work.recent_of(view.ledger, board.planned_to, self.half_life)
        shares = {name: float(campaign.weight) for name, campaign in view.campaigns.items()}
        serving = recent_work.by_standing(recent_work.standings(recent, shares))
        without = frozenset(name for name, share in shares.items() if share <= 0)
        unlimited, known = Unlimited(serving, without), _known(board)

        def parts(seats: int) -> Mapping[str, int]:
            return usage.ideals(seats, known)

        return AheadSharing(unlimited, board, self.near, parts)


@dataclass(frozen=True, slots=True)
class ByFairshare:
    """No shares of what is near; what is later is kept by fairshare.

    To each its target or floor and as much of the rest as to any other, and no more than a ceiling.
    """

    near: int = NEAR_TIME

    def begin(self, board: Board) -> AheadSharing:
        """For one episode."""
        known = [board.view.campaigns[stake.name] for stake in _known(board)]
        aimed = {it.name: Fraction(0) if _is_bound(it) else _fairshare_of(it) for it in known}
        rest = max(Fraction(0), 1 - sum(aimed.values())) / max(1, len(known))
        entitled = {
            it.name: min(rest, _fairshare_of(it)) if _is_bound(it) else aimed[it.name] + rest
            for it in known
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
    """Whoever came first all it can use; with ``serial``, level after level."""

    serial: bool = False

    def begin(self, board: Board) -> Divided:
        """For one episode."""
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
    """By weight, and served by what each used within ``window``; the urgent before all others.

    With ``serial``, level after level. Where campaigns count together, ``entitled`` has usage
    compared with what each is entitled to, and not with its weight alone. What begins later than
    ``near`` is kept for all campaigns, in the same way (``ahead.py``).
    """

    window: int = usage.WINDOW
    together: CampaignGrouping = CampaignGrouping.NONE
    serial: bool = False
    entitled: bool = False
    near: int = NEAR_TIME

    def begin(self, board: Board) -> AheadSharing:
        """For one episode."""
        working = _at_work(board)
        lines = CampaignLines(board, self.together, working)
        at_work = lines.weighted(working)
        newcomers = _newcomers(board, lines.entitlements(at_work), self.window)

        def served(at: int) -> list[CampaignStake]:
            """By what each will have used when an hour begins, as far as that is booked."""
            used = _used(board, self.window, newcomers, at)
            stakes = [replace(stake, usage=used.get(stake.name, 0)) for stake in at_work]
            entitled = lines.entitlements(stakes) if self.entitled else None
            found = usage.serving_order(stakes, entitled)
            found.sort(key=lambda it: (-it.level if self.serial or it.urgent else 0, _queued(it)))
            return found

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
                # Who gets all it wants is no measure of what the others should have had.
                short = {it.name for it in stakes if ideals[it.name] < (it.demand or 0)}
                parts = lines.ideals(seats, stakes, 1)
                lacks = usage.behind([it for it in order if it.name in short], parts)
                return usage.allot(in_order, usage.caught_up(ideals, lacks, grain), free, grain)

            stakes = [it for it in lines.weighted(board.stakes(hour)) if it.name in place]
            seats = _free(board, hour)
            first, others = urgent.serve(stakes, seats)
            if self.serial:
                return [*first, *levels.allot(others, seats, inner)]
            left = urgent.left_to_share(board.capacity(hour), stakes, first)
            return [*first, *inner(left, others, seats)]

        divided = Divided(board, [stake.name for stake in ordered], allot, newcomers)
        return AheadSharing(divided, board, self.near, self._parts(board))

    def _parts(self, board: Board) -> Parts:
        """What all campaigns are entitled to, as if each of them wanted all it can get."""
        known = _known(board)
        lines = CampaignLines(board, self.together, known)
        weighted = lines.weighted(known)

        def parts(seats: int) -> Mapping[str, int]:
            if not self.serial:
                return lines.ideals(seats, weighted, 1)
            found: dict[str, int] = {}
            for _, level in groupby(sorted(weighted, key=_level_first), key=_level_first):
                found |= lines.ideals(seats - sum(found.values()), list(level), 1)
            return found

        return parts


def _level_first(stake: CampaignStake) -> int:
    return -stake.level


def _queued(stake: CampaignStake) -> int:
    """The urgent are served in the order of their creation; others stay as they are."""
    return stake.created_at if stake.urgent else 0


@dataclass(frozen=True, slots=True)
class ByPromise:
    """Groups with targets; what they leave is lent by the same numbers.

    What begins later than ``near`` is kept for all groups, in the same way (``ahead.py``).
    """

    window: int = usage.WINDOW
    near: int = NEAR_TIME

    def begin(self, board: Board) -> PromiseSharing:
        """For one episode."""
        at_work = _at_work(board)
        used = _used(board, self.window, {})
        groups = board.groups
        promises = {
            name: it.target
            for name, it in board.view.campaigns.items()
            if it.target is not None and it.level != SUSPENDED
        }
        by_group: dict[str, int] = dict.fromkeys(promises, 0)
        for stake in at_work:
            if (group := groups.get(stake.name)) is not None:
                by_group[group] += used.get(stake.name, 0)
        order = sorted(promises, key=lambda name: by_group[name])
        place = {name: number for number, name in enumerate(order)}
        stakes = [stake for stake in at_work if stake.name in groups]
        stakes.sort(key=lambda it: (place[groups[it.name]], used.get(it.name, 0), it.created_at))
        serving = {stake.name: number for number, stake in enumerate(stakes)}

        def allot(hour: int) -> Allotted:
            members: dict[str, list[CampaignStake]] = {name: [] for name in order}
            for stake in board.stakes(hour):
                if stake.name in serving:
                    members[groups[stake.name]].append(stake)
            demand = {name: _demand(some) for name, some in members.items()}
            settled = promised.settle(board.capacity(hour), promises, demand, order, BUCKET)
            allotted: list[tuple[str, int]] = []
            for name, some in members.items():
                some.sort(key=lambda stake: serving[stake.name])
                held = sum(stake.allocated for stake in some)
                seats = FreeSeats(max(0, settled.total[name] - held))
                allotted += promised.inside(some, seats, BUCKET)
            return allotted

        # What is lent goes by the same numbers, so all of it together does, too.
        groups_known = [CampaignStake(name, weight=promise) for name, promise in promises.items()]

        def parts(seats: int) -> Mapping[str, int]:
            return usage.ideals(seats, groups_known)

        divided = Divided(board, list(serving), allot)
        members = {name: group for name, group in groups.items() if group in promises}
        return PromiseSharing(
            AheadSharing(divided, board, self.near, parts, members), groups, promises
        )


class PromiseSharing:
    """Promised seats; who belongs to no group is refused."""

    def __init__(
        self,
        divided: AheadSharing,
        groups: Mapping[str, str],
        promises: Mapping[str, promised.Promise],
    ) -> None:
        """``groups`` names the group of each campaign that belongs to one."""
        self.serving = divided.serving
        self._divided = divided
        self._groups = groups
        self._promises = promises

    def admit(self, candidate: Candidate, turn: AllocationRound) -> PolicyRefusal | None:
        """Whether its campaign belongs to a group, and has seats left."""
        group = self._groups.get(candidate.campaign)
        no = promised.admit(candidate.campaign, group, self._promises)
        return no or self._divided.admit(candidate, turn)

    def returned(self, candidates: Sequence[Candidate]) -> Mapping[str, PolicyRefusal]:
        """What groups above their part give back."""
        return self._divided.returned(candidates)

    def remember(self, state: RememberedState) -> RememberedState:
        """Nothing is remembered."""
        return state


def _demand(stakes: Iterable[CampaignStake]) -> int:
    return sum(stake.demand or 0 for stake in stakes)


def _at_work(board: Board) -> list[CampaignStake]:
    """Campaigns that have or want anything in any hour."""
    names = {name for amounts in board.allocated.values() for name in amounts}
    names.update(name for amounts in board.waiting.values() for name in amounts)
    return [
        CampaignStake(name, it.weight, it.level, created_at=it.created_at)
        for name, it in board.view.campaigns.items()
        if name in names and it.level != SUSPENDED
    ]


def _known(board: Board) -> list[CampaignStake]:
    """Campaigns that may want something at any time, with the most that each may hold of an hour.

    The urgent are none of them: others give way to these.
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
    board: Board, window: int, newcomers: Mapping[str, Charge], at: int | None = None
) -> dict[str, int]:
    at = board.view.now if at is None else at
    return usage.used_within(chain(board.view.ledger, newcomers.values()), at, window)


def _newcomers(board: Board, entitled: Mapping[str, Exact], window: int) -> dict[str, Charge]:
    """What young campaigns began with: known already, or their share of all as it is now."""
    view = board.view
    begin = view.now - window
    found = {name: it for name, it in view.state.newcomers.items() if it.end > begin}
    seats = len(board.usable(view.pool.nodes))
    total = sum(entitled.values())
    for name, weight in entitled.items():
        created = view.campaigns[name].created_at
        if name not in found and begin < created <= view.now and total:
            found[name] = usage.newcomer(name, Fraction(seats) * weight / total, created, window)
    return found
