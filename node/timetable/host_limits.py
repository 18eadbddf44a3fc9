"""Applies the owner's limits where this node's time is offered, and where it is booked.

What a hold needs of a task comes with it from the database. A proposal names the task only, so how
it stands is looked up, and kept in memory. While no rule bounds the time of tasks, neither costs a
query.

A hold locks what leads use of the quotas that it touches before it looks at them. The use is then
counted by triggers of the database, in the same transaction, and given back by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from node.core import Core
from node.model import times
from node.model.host_limits.caps import CapAccount, rate_text
from node.model.host_limits.closed import LimitedTime
from node.model.host_limits.opening import closed_spans
from node.model.host_limits.quotas import (
    Account,
    PeriodQuota,
    RunAmounts,
    UseCount,
    UseKey,
    full_spans,
    loaded_spans,
    use_key,
)
from node.model.host_limits.rules import Rule, rank_under
from node.model.host_limits.standing import LimitStanding
from node.model.ranks import OWN
from node.model.spans import Span
from node.model.times import to_the_second
from node.model.wire.participants import ProposalRequest, RunRequest
from node.sharing.host_limits import RATE, LimitKeeper
from node.store import host_limits
from node.store.bookings import Wanted
from node.store.database import Connection

_AT_ONCE = "at-once"
_LOOK_AHEAD = 8 * times.DAY
"""Time after what is asked about in which the next opening of a rule is looked for."""


@dataclass(frozen=True)
class LimitedRequest:
    """A lead's request with the priority and the rank as which it counts here.

    ``closed`` is the time that limits close to it.
    """

    lead: str
    request: ProposalRequest
    closed: Sequence[LimitedTime] = ()
    rank: int = OWN


@dataclass(frozen=True)
class _Limited:
    """The runs of one task: the rule, if it bounds their time, and what they count for.

    ``holder`` is the lead, or the user of a task that this node leads. ``accounts`` are the holder
    under the rule, and the targets under the caps.
    """

    holder: str
    rule: Rule | None
    accounts: tuple[Account, ...]
    run_bytes: int
    rates: tuple[CapAccount, ...] = ()
    """The networks of its targets, where the rate of a cap bounds what they get."""

    @property
    def binds(self) -> bool:
        """Return whether anything bounds its runs."""
        return bool(self.accounts or self.rates or self.rule)

    def amounts(self, duration: int) -> RunAmounts:
        """Return the amounts of a run of this duration (µs)."""
        return RunAmounts(duration, self.run_bytes)


_Uses = dict[tuple[str, str, str, int], list[tuple[int, int]]]
"""By name, holder, quantity, and length of a period: when periods begin, and what is used."""


class LimitEnforcer:
    """Knows what the limits of this host leave to a request for time."""

    def __init__(self, core: Core, keeper: LimitKeeper) -> None:
        """``keeper`` has the limits, and how tasks stand with them."""
        self._identity = core.identity
        self._horizon = core.settings.horizon
        self._keeper = keeper

    def counted_priority(self, priority: int, standing: LimitStanding) -> int:
        """Return the priority as which that of another node's task counts here."""
        return self._keeper.counted_priority(priority, standing.rule)

    def rank(self, lead: str, standing: LimitStanding) -> int:
        """Return the rank that the runs of another node's task have here.

        A task that is only planned has no rule yet: it is taken for one of the highest rank.
        """
        if standing == LimitStanding():
            return self._keeper.highest_rank(lead)
        return rank_under(self._keeper.limits.rule(standing.rule))

    async def limited(
        self, connection: Connection, requests: Sequence[tuple[str, ProposalRequest]], now: int
    ) -> list[LimitedRequest]:
        """Return for each lead's request how it counts here, and the time that is closed to it."""
        foreign = {request.task for lead, request in requests if lead != self._identity}
        if not foreign:
            return [LimitedRequest(lead, request) for lead, request in requests]
        standings = await self._keeper.standings(connection, sorted(foreign))
        reach = now, now + self._horizon
        bounds = [
            None if lead == self._identity else self._limits_of(lead, standings.get(request.task))
            for lead, request in requests
        ]
        uses = await self._uses(connection, bounds, reach)
        limited: list[LimitedRequest] = []
        reached: list[LimitedTime] = []
        for (lead, request), bound in zip(requests, bounds, strict=True):
            if bound is None:
                limited.append(LimitedRequest(lead, request))
                continue
            standing = standings.get(request.task, LimitStanding())
            counted = self.counted_priority(request.priority, standing)
            closed = (
                await self._closed(connection, bound, request.duration, uses, reach)
                if standing.refusal is None
                else [LimitedTime(*reach, standing.rule, standing.refusal)]
            )
            if counted != request.priority:
                request = request.model_copy(update={"priority": counted})  # noqa: PLW2901
            limited.append(LimitedRequest(lead, request, closed, self.rank(lead, standing)))
            reached += [each for each in closed if _concerns(each, request.windows)]
        await self._keeper.tell_reached(connection, reached)
        return limited

    @staticmethod
    async def _uses(
        connection: Connection, bounds: Iterable[_Limited | None], reach: Span
    ) -> _Uses:
        """Return what is used of the quotas that bound some requests."""
        asked = {
            (account.name, account.holder)
            for bound in bounds
            if bound is not None
            for account in bound.accounts
        }
        uses: _Uses = defaultdict(list)
        if asked:
            for key, used in (await host_limits.use_between(connection, asked, *reach)).items():
                uses[key[:4]].append((key.begins_at, used))
        return uses

    def _limits_of(self, holder: str, standing: LimitStanding | None) -> _Limited:
        """Return what bounds the runs of a task of another node, or of a user."""
        known = standing or LimitStanding()
        rule = self._keeper.limits.rule(known.rule)
        bounding = rule if rule is not None and rule.bounds_time else None
        accounts = self._keeper.accounts(holder, known)
        rates = tuple(each for each in known.caps if each.rate and self._bps(each.name) is not None)
        return _Limited(holder, bounding, accounts, known.run_bytes or 0, rates)

    async def closed_to_user(
        self, connection: Connection, standing: LimitStanding, duration: int, now: int
    ) -> list[LimitedTime]:
        """Return the time that is closed to runs of a user's task, each of this duration (µs)."""
        reach = now, now + self._horizon
        if standing.refusal is not None:
            return [LimitedTime(*reach, standing.rule, standing.refusal)]
        bound = self._limits_of(standing.user or "", standing)
        uses = await self._uses(connection, [bound], reach)
        return await self._closed(connection, bound, duration, uses, reach)

    async def beyond_user(
        self,
        connection: Connection,
        chosen: Sequence[tuple[LimitStanding, Sequence[RunRequest]]],
    ) -> dict[UUID, LimitedTime]:
        """Return, by run, what refuses chosen runs of users' tasks, in their order.

        Other decisions about these users wait until the end of the transaction.
        """
        refused: dict[UUID, LimitedTime] = {}
        bounded: list[tuple[_Limited, Sequence[RunRequest]]] = []
        for standing, runs in chosen:
            if standing.refusal is not None:
                closed = [
                    LimitedTime(it.starts_at, it.ends_at, standing.rule, standing.refusal)
                    for it in runs
                ]
                refused |= dict(zip((it.run for it in runs), closed, strict=True))
            else:
                bounded.append((self._limits_of(standing.user or "", standing), runs))
        refused |= await self._beyond(connection, bounded)
        await self._keeper.tell_reached(connection, refused.values())
        return refused

    async def refusal_of_edit(
        self, connection: Connection, lead: str, task: UUID, standing: LimitStanding
    ) -> LimitedTime | None:
        """Return what has no room for the booked runs of an edited task that keeps its spec.

        They will count for the rule and the caps under which the edit brings it.
        """
        bound = self._limits_of(lead, standing)
        known = (await self._keeper.standings(connection, [task])).get(task)
        if not bound.binds or known is None:
            return None
        if (known.rule, known.caps, known.run_bytes) == (
            standing.rule,
            standing.caps,
            standing.run_bytes,
        ):
            return None
        runs = await host_limits.moving(connection, task)
        refused = await self._beyond(connection, [(_without(bound, known), runs)])
        return next(iter(refused.values()), None)

    def _bps(self, cap: str) -> int | None:
        """Return the rate that a cap allows (b/s), None if it bounds none by now."""
        known = self._keeper.limits.cap(cap)
        return None if known is None else known.bps

    async def _beyond(
        self, connection: Connection, bounded: Sequence[tuple[_Limited, Sequence[RunRequest]]]
    ) -> dict[UUID, LimitedTime]:
        """Lock and read what is used, and return by run what the limits do not admit."""
        booking = _BookedUse(connection, bounded, self._bps)
        await booking.read()
        return {
            run.run: refusal
            for limited, runs in bounded
            for run in sorted(runs, key=lambda run: run.starts_at)
            if (refusal := booking.refusal(limited, run)) is not None
        }

    async def _closed(
        self, connection: Connection, limited: _Limited, duration: int, uses: _Uses, reach: Span
    ) -> list[LimitedTime]:
        closed = list(_used_up(limited, duration, uses))
        if limited.rates:
            asked = [(it.name, it.network) for it in limited.rates]
            loads = await host_limits.rates(connection, asked, *reach)
            for it in limited.rates:
                closed += _too_fast(it, self._bps(it.name), loads[it.name, it.network])
        if limited.rule is not None:
            closed += _outside(limited.rule, reach)
            closed += await self._full(connection, limited.rule, limited.holder, reach)
        return closed

    async def _full(
        self, connection: Connection, rule: Rule, holder: str, reach: Span
    ) -> list[LimitedTime]:
        if rule.at_once_max is None:
            return []
        spans = await host_limits.at_once(connection, rule.name, holder, *reach)
        return [_at_once(rule, span) for span in full_spans(spans, rule.at_once_max)]

    async def admitted(
        self, connection: Connection, wanted: Wanted
    ) -> tuple[Wanted, dict[UUID, LimitedTime]]:
        """Leave out the runs that the limits do not admit; return these by run, with the reason.

        Other holds of the same leads and users wait until the transaction ends.
        """
        limited = {
            hold.exchange: bounds
            for hold, task, _ in wanted
            if (holder := task.limit.user if task.led_here else hold.lead) is not None
            and (bounds := self._limits_of(holder, task.limit)).binds
        }
        bounded = [
            (limited[hold.exchange], runs)
            for hold, _, runs in wanted
            if runs and hold.exchange in limited
        ]
        if not bounded:
            return wanted, {}
        refused = await self._beyond(connection, bounded)
        await self._keeper.tell_reached(connection, refused.values())
        return [
            (hold, task, [run for run in runs if run.run not in refused])
            for hold, task, runs in wanted
        ], refused


class _BookedUse:
    """The use of quotas, and the runs at once, as a transaction books one run after another."""

    def __init__(
        self,
        connection: Connection,
        bounded: Sequence[tuple[_Limited, Sequence[RunRequest]]],
        bps: Callable[[str], int | None],
    ) -> None:
        self._bps = bps
        self._loads: dict[tuple[str, str], list[tuple[int, int, int]]] = {}
        self._connection = connection
        self._runs = [(limited, run) for limited, runs in bounded for run in runs]
        self._count = UseCount({})
        self._closed: dict[str, list[LimitedTime]] = {}
        self._at_once: dict[tuple[str, str], list[Span]] = {}

    async def read(self) -> None:
        """Lock and read what is used already."""
        if not self._runs:
            return
        reach = min(it.starts_at for _, it in self._runs), max(it.ends_at for _, it in self._runs)
        keys = {
            use_key(account, quota, run.starts_at)
            for it, run in self._runs
            for account in it.accounts
            for quota in account.quotas
        }
        pairs = {
            (rule.name, it.holder): rule for it, _ in self._runs if (rule := it.rule) is not None
        }
        for (name, holder), rule in pairs.items():
            self._closed[name] = list(_outside(rule, reach))
            if rule.at_once_max is not None:
                keys.add(UseKey(name, holder, _AT_ONCE, 0, 0))
        rated = {(rate.name, rate.network) for it, _ in self._runs for rate in it.rates}
        keys |= {UseKey(*each, RATE, 0, 0) for each in rated}
        self._count = UseCount(await host_limits.claim_use(self._connection, keys))
        if rated:
            self._loads = await host_limits.rates(self._connection, rated, *reach)
        for (name, holder), rule in pairs.items():
            if rule.at_once_max is not None:
                spans = await host_limits.at_once(self._connection, name, holder, *reach)
                self._at_once[name, holder] = spans

    def refusal(self, limited: _Limited, run: RunRequest) -> LimitedTime | None:
        """Return what refuses a run; or None, and count it."""
        span = run.starts_at, run.ends_at
        if limited.rule is not None:
            refusal = self._refused_by_rule(limited.rule, limited.holder, span)
            if refusal is not None:
                return refusal
        if (too_fast := self._refused_by_rates(limited.rates, span)) is not None:
            return too_fast
        amounts = limited.amounts(run.ends_at - run.starts_at)
        exceeded = self._count.admit(limited.accounts, run.starts_at, amounts)
        if exceeded is not None:
            account, quota, used = exceeded
            return _exceeded(account, quota, used, quota.begin(run.starts_at))
        for it in limited.rates:
            self._loads[it.name, it.network].append((*span, it.rate))
        if limited.rule is not None and limited.rule.at_once_max is not None:
            self._at_once[limited.rule.name, limited.holder].append(span)
        return None

    def _refused_by_rates(self, accounts: Sequence[CapAccount], span: Span) -> LimitedTime | None:
        """Return where its targets would get too much at one time."""
        for each in accounts:
            loads = self._loads[each.name, each.network]
            meanwhile = [load for load in loads if _overlap(load[:2], span)]
            for closed in _too_fast(each, self._bps(each.name), meanwhile):
                if _overlap((closed.starts_at, closed.ends_at), span):
                    return closed
        return None

    def _refused_by_rule(self, rule: Rule, holder: str, span: Span) -> LimitedTime | None:
        """Return why a rule has no run in a span: its times, or its runs at once."""
        for closed in self._closed[rule.name]:
            if closed.starts_at < span[1] and span[0] < closed.ends_at:
                return closed
        if rule.at_once_max is None:
            return None
        meanwhile = [
            it for it in self._at_once[rule.name, holder] if it[0] < span[1] and span[0] < it[1]
        ]
        for full in full_spans(meanwhile, rule.at_once_max):
            if full[0] < span[1] and span[0] < full[1]:
                return _at_once(rule, full)
        return None


def _without(bound: _Limited, known: LimitStanding) -> _Limited:
    """Return what bounds the runs of a task beyond that for which they count already."""
    return replace(
        bound,
        rule=None if bound.rule is None or bound.rule.name == known.rule else bound.rule,
        accounts=tuple(
            it
            for it in bound.accounts
            if it.name != known.rule
            and (it.name, it.holder) not in {(each.name, each.network) for each in known.caps}
        ),
        rates=tuple(it for it in bound.rates if it not in known.caps),
    )


def _too_fast(
    account: CapAccount, bps: int | None, loads: Sequence[tuple[int, int, int]]
) -> Iterator[LimitedTime]:
    """Yield the time in which a run to a network would exceed the rate that a cap allows."""
    if bps is None:
        return
    for starts_at, ends_at in loaded_spans(loads, bps - account.rate + 1):
        free = f"free again from {to_the_second(ends_at)}"
        sentence = f"limit '{account.name}': {rate_text(bps)} at one time used, {free}"
        yield LimitedTime(starts_at, ends_at, account.name, sentence, reached=True)


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _concerns(closed: LimitedTime, windows: Iterable[Span]) -> bool:
    return any(closed.starts_at < window[1] and window[0] < closed.ends_at for window in windows)


def _outside(rule: Rule, reach: Span) -> Iterator[LimitedTime]:
    """Yield the time of a reach that is outside the times of a rule."""
    if not rule.openings:
        return
    since, until = reach
    for span in closed_spans(rule.openings, since, until + _LOOK_AHEAD):
        if span[0] >= until:
            return
        opens = f"open again from {to_the_second(span[1])}"
        sentence = f"limit '{rule.name}': it admits no runs at this time; {opens}"
        yield LimitedTime(*span, rule.name, sentence)


def _used_up(limited: _Limited, duration: int, uses: _Uses) -> Iterator[LimitedTime]:
    """Yield the periods in which one more run of this duration (µs) would exceed a quota."""
    amounts = limited.amounts(duration)
    for account in limited.accounts:
        for quota in account.quotas:
            of_quota = (account.name, account.holder, quota.quantity, quota.period)
            for begins_at, used in uses.get(of_quota, ()):
                if used + amounts.of(quota.quantity) > quota.most:
                    yield _exceeded(account, quota, used, begins_at)


def _exceeded(account: Account, quota: PeriodQuota, used: int, begin: int) -> LimitedTime:
    """Return a period in which a quota is used up; it tells nobody which target others measure."""
    sentence = f"limit '{account.name}': {quota.used_up(used, begin)}"
    return LimitedTime(begin, begin + quota.period, account.name, sentence, reached=True)


def _at_once(rule: Rule, span: Span) -> LimitedTime:
    most = f"{rule.at_once_max} of {rule.at_once_max} runs at once"
    sentence = f"limit '{rule.name}': {most}, free again from {to_the_second(span[1])}"
    return LimitedTime(*span, rule.name, sentence, reached=True)
