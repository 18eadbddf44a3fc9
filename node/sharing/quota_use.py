"""Applies the owner's limits where this node's time is offered, and where it is booked.

Both ask the same question, what a run would still be allowed, with one difference. An offer reads
the use of quotas without a lock and returns closed time: it may be outdated by the time it is used.
A hold first locks the use that it touches, then counts its runs one after another against it, and
so decides; other holds of the same leads, users, and targets wait until the transaction ends. The
use itself is counted by triggers of the database, in the transaction that books or frees a run.

A run may count for several accounts: its lead or user under a rule, and each target under a cap.
Each account has quotas of runs, time, and bytes per period, and networks have rates (b/s) at one
time. A rule may also have opening times, and a maximum of runs at once.

What a hold needs of a task comes with it from the database. A proposal names the task only, so how
it stands is looked up, and kept in memory. While no rule bounds the time of tasks, neither costs a
query.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from uuid import UUID

from node.model import times
from node.model.host_limits.caps import CapAccount, rate_text
from node.model.host_limits.closed import LimitedTime, closed_spans
from node.model.host_limits.quotas import (
    Account,
    PeriodQuota,
    RunAmounts,
    UseCount,
    UseKey,
    full_spans,
    load_steps,
    loaded_spans,
    use_key,
)
from node.model.host_limits.rules import Rule, rank_under
from node.model.host_limits.standing import LimitStanding
from node.model.ranks import OWN
from node.model.reason import Reason
from node.model.reasons import (
    closed_by_limit,
    limit_of_rate_used,
    limit_of_runs_at_once_reached,
    not_tried_again,
    told,
)
from node.model.spans import Span
from node.model.wire.participants import (
    PERIODS_MAX,
    QUOTAS_MAX,
    HostLoad,
    HostQuota,
    ProposalRequest,
    RunRequest,
    ToldLimit,
)
from node.sharing.host_limits import RATE, LimitKeeper
from node.store import host_limits, tasks
from node.store.bookings import Wanted
from node.store.core import Core
from node.store.database import Connection

_AT_ONCE = "at-once"
_LOOK_AHEAD = 8 * times.DAY
"""Time after what is asked about in which the next opening of a rule is looked for."""


@dataclass(frozen=True)
class LimitedRequest:
    """A lead's request with the priority and the rank as which it counts here.

    ``closed`` is the time that limits close to it. ``quotas`` are the limits for which its runs
    count, None if the lead did not ask for them.
    """

    lead: str
    request: ProposalRequest
    closed: Sequence[LimitedTime] = ()
    rank: int = OWN
    quotas: tuple[ToldLimit, ...] | None = None
    taken: Sequence[Span] = ()
    """Time in which runs that may give way take too much of the resources kept here."""

    @property
    def binds(self) -> bool:
        """Return whether limits may leave it less time than another request."""
        return bool(self.closed or self.quotas or self.request.takes)


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
        """True if any rule, quota, or rate bounds these runs."""
        return bool(self.accounts or self.rates or self.rule)

    def amounts(self, duration: int) -> RunAmounts:
        """Return the time (µs) and bytes for which a run of this duration (µs) counts."""
        return RunAmounts(duration, self.run_bytes)


@dataclass(frozen=True)
class _LeftOut:
    """A task whose runs to come count for nothing, as if an edit had freed them."""

    standing: LimitStanding
    runs: Sequence[RunRequest]
    accounts: tuple[Account, ...]

    def uses(self, uses: _Uses) -> _Uses:
        """Return ``uses`` less what these runs have added to them."""
        left = dict(uses)
        for account in self.accounts:
            for quota in account.quotas:
                of_quota = (account.name, account.holder, quota.quantity, quota.period)
                own: Counter[int] = Counter()
                for run in self.runs:
                    amounts = RunAmounts(run.ends_at - run.starts_at, self.standing.run_bytes or 0)
                    own[quota.begin(run.starts_at)] += amounts.of(quota.quantity)
                left[of_quota] = [(at, used - own[at]) for at, used in uses.get(of_quota, ())]
        return left

    def spans(self, rule: str, spans: Sequence[Span]) -> list[Span]:
        """Return ``spans`` without those of these runs, if they count under ``rule``."""
        own = [(it.starts_at, it.ends_at) for it in self.runs if self.standing.rule == rule]
        return list((Counter(spans) - Counter(own)).elements())

    def loads(
        self, account: CapAccount, loads: Sequence[tuple[int, int, int]]
    ) -> list[tuple[int, int, int]]:
        """Return ``loads`` (begin, end, b/s) without those of these runs."""
        rates = [it.rate for it in self.standing.caps if it[:2] == account[:2]]
        own = [(it.starts_at, it.ends_at, rate) for it in self.runs for rate in rates]
        return list((Counter(loads) - Counter(own)).elements())


_Uses = dict[tuple[str, str, str, int], list[tuple[int, int]]]
"""By name, holder, quantity, and length of a period: when periods begin, and what is used."""


class LimitEnforcer:
    """Knows what the limits of this host leave to a request for time."""

    def __init__(self, core: Core, keeper: LimitKeeper) -> None:
        """``keeper`` has the limits, and how tasks stand with them."""
        self._identity = core.identity
        self._horizon = core.settings.horizon
        self._start_margin = core.settings.start_margin
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

    def further_attempt_refusal(self, standing: LimitStanding) -> Reason | None:
        """Return why no slot of such a task is tried again here; None if it may be."""
        rule = self._keeper.limits.rule(standing.rule)
        return None if rule is None or rule.retry else not_tried_again(rule.name)

    async def limited_requests(
        self, connection: Connection, requests: Sequence[tuple[str, ProposalRequest]], now: int
    ) -> list[LimitedRequest]:
        """Return for each lead's request how it counts here, and the time that is closed to it."""
        foreign = {request.task for lead, request in requests if lead != self._identity}
        if not foreign:
            return [_unlimited_request(lead, request) for lead, request in requests]
        standings = await self._keeper.standings(connection, sorted(foreign))
        standings |= {
            request.task: self._keeper.standing_if_introduced(lead, request.introduction)
            for lead, request in requests
            if request.introduction is not None and request.task not in standings
        }
        reach = now, now + self._horizon
        bounds = [
            None if lead == self._identity else self._limits_of(lead, standings.get(request.task))
            for lead, request in requests
        ]
        uses = await self._read_uses(connection, bounds, reach)
        limited: list[LimitedRequest] = []
        reached: list[LimitedTime] = []
        for (lead, request), bound in zip(requests, bounds, strict=True):
            if bound is None:
                limited.append(_unlimited_request(lead, request))
                continue
            standing = standings.get(request.task, LimitStanding())
            counted = self.counted_priority(request.priority, standing)
            left_out = None
            left_uses = uses
            if request.leaving_out is not None:
                left_out = await self._find_left_out(connection, lead, request.leaving_out, now)
                left_uses = uses if left_out is None else left_out.uses(uses)
            bounds_of_task = await self._bounds(
                connection, bound, request.duration, left_uses, reach, left_out
            )
            closed = (
                _closed_time(bound, bounds_of_task, reach)
                if standing.refusal is None
                else [LimitedTime(*reach, standing.rule, told(standing.refusal))]
            )
            if counted != request.priority:
                request = request.model_copy(update={"priority": counted})  # noqa: PLW2901
            rank, quotas = self.rank(lead, standing), _told_limits(bounds_of_task, request)
            limited.append(LimitedRequest(lead, request, closed, rank, quotas))
            if not request.preview:
                reached += [each for each in closed if _touches(each, request.windows)]
        await self._keeper.note_reached(connection, reached)
        return limited

    async def _find_left_out(
        self, connection: Connection, lead: str, task: UUID, now: int
    ) -> _LeftOut | None:
        """Return a task of this lead with its use; None if no such task of this lead is known."""
        known = await tasks.fetch(connection, task)
        standing = (await self._keeper.standings(connection, [task])).get(task)
        if known is None or known.lead != lead or standing is None:
            return None
        runs = await host_limits.countable_runs(connection, task)
        to_come = [run for run in runs if run.starts_at >= now + self._start_margin]
        holder = standing.user or "" if lead == self._identity else lead
        return _LeftOut(standing, to_come, self._keeper.accounts(holder, standing))

    @staticmethod
    async def _read_uses(
        connection: Connection, bounds: Iterable[_Limited | None], reach: Span
    ) -> _Uses:
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
        """Return the rule, quotas, and rates that bound the runs of a task with this standing."""
        known = standing or LimitStanding()
        rule = self._keeper.limits.rule(known.rule)
        bounding = rule if rule is not None and rule.bounds_time else None
        accounts = self._keeper.accounts(holder, known)
        rates = tuple(each for each in known.caps if each.rate and self._bps(each.name) is not None)
        return _Limited(holder, bounding, accounts, known.run_bytes or 0, rates)

    def bind(self, standing: LimitStanding) -> bool:
        """Return whether limits bound the runs of a user's task; if not, nothing has to be read."""
        bound = self._limits_of(standing.user or "", standing)
        return standing.binds_user and (standing.refusal is not None or bound.binds)

    async def left_to_user(
        self,
        connection: Connection,
        standing: LimitStanding,
        duration: int,
        now: int,
        left_out: UUID | None = None,
    ) -> tuple[list[LimitedTime], tuple[HostQuota | HostLoad, ...]]:
        """Return the time that is closed to runs of a user's task, and for which limits they count.

        ``duration`` is that of each run (µs). The runs of the task ``left_out`` do not count.
        """
        reach = now, now + self._horizon
        if standing.refusal is not None:
            return [LimitedTime(*reach, standing.rule, told(standing.refusal))], ()
        bound = self._limits_of(standing.user or "", standing)
        uses = await self._read_uses(connection, [bound], reach)
        gone = None
        if left_out is not None:
            gone = await self._find_left_out(connection, self._identity, left_out, now)
            uses = uses if gone is None else gone.uses(uses)
        bounds = await self._bounds(connection, bound, duration, uses, reach, gone)
        return _closed_time(bound, bounds, reach), tuple(bounds)

    async def refusals_of_user_runs(
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
                    LimitedTime(it.starts_at, it.ends_at, standing.rule, told(standing.refusal))
                    for it in runs
                ]
                refused |= dict(zip((it.run for it in runs), closed, strict=True))
            else:
                bounded.append((self._limits_of(standing.user or "", standing), runs))
        refused |= await self._refusals(connection, bounded)
        await self._keeper.note_reached(connection, refused.values())
        return refused

    async def refusal_of_edit(
        self, connection: Connection, lead: str, task: UUID, standing: LimitStanding
    ) -> LimitedTime | None:
        """Return the limit without room for the booked runs of an edited task; None if all fit.

        Runs that keep their spec will count for the rule and caps under which the edit brings them.
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
        runs = await host_limits.countable_runs(connection, task)
        refused = await self._refusals(connection, [(_bounds_beyond(bound, known), runs)])
        return next(iter(refused.values()), None)

    def _bps(self, cap: str) -> int | None:
        """Return the rate that a cap allows (b/s), None if it bounds none by now."""
        known = self._keeper.limits.cap(cap)
        return None if known is None else known.bps

    async def _refusals(
        self, connection: Connection, bounded: Sequence[tuple[_Limited, Sequence[RunRequest]]]
    ) -> dict[UUID, LimitedTime]:
        """Lock and read the use of quotas; return by run the limit that refuses it."""
        booking = _BookedUse(connection, bounded, self._bps)
        await booking.read()
        return {
            run.run: refusal
            for limited, runs in bounded
            for run in sorted(runs, key=lambda run: run.starts_at)
            if (refusal := booking.refusal(limited, run)) is not None
        }

    async def _bounds(
        self,
        connection: Connection,
        limited: _Limited,
        duration: int,
        uses: _Uses,
        reach: Span,
        left_out: _LeftOut | None,
    ) -> list[HostQuota | HostLoad]:
        """Return the quotas and loads of runs of this duration (µs), with their use in a reach."""
        rule, rates = limited.rule, limited.rates
        bounds: list[HostQuota | HostLoad] = list(_quota_uses(limited, duration, uses))
        if rates:
            asked = [(it.name, it.network) for it in rates]
            loads = await host_limits.rates(connection, asked, *reach)
            for it in rates:
                load = loads[it.name, it.network]
                load = load if left_out is None else left_out.loads(it, load)
                if (bps := self._bps(it.name)) is not None:
                    bounds.append(host_load(it.name, it.network, "bps", (bps, it.rate), load))
        if rule is not None and rule.at_once_max is not None:
            holder = limited.holder
            spans = await host_limits.concurrent_spans(connection, rule.name, holder, *reach)
            spans = spans if left_out is None else left_out.spans(rule.name, spans)
            most = rule.at_once_max, 1
            bounds.append(host_load(rule.name, holder, "runs", most, [(*it, 1) for it in spans]))
        return bounds

    async def admit(
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
        refused = await self._refusals(connection, bounded)
        await self._keeper.note_reached(connection, refused.values())
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
        self._closed_time: dict[str, list[LimitedTime]] = {}
        self._concurrent: dict[tuple[str, str], list[Span]] = {}

    async def read(self) -> None:
        """Lock and read the present use, so that no other transaction changes it until the end."""
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
            self._closed_time[name] = list(_spans_outside_times(rule, reach))
            if rule.at_once_max is not None:
                keys.add(UseKey(name, holder, _AT_ONCE, 0, 0))
        rated = {(rate.name, rate.network) for it, _ in self._runs for rate in it.rates}
        keys |= {UseKey(*each, RATE, 0, 0) for each in rated}
        self._count = UseCount(await host_limits.lock_use(self._connection, keys))
        if rated:
            self._loads = await host_limits.rates(self._connection, rated, *reach)
        for (name, holder), rule in pairs.items():
            if rule.at_once_max is not None:
                spans = await host_limits.concurrent_spans(self._connection, name, holder, *reach)
                self._concurrent[name, holder] = spans

    def refusal(self, limited: _Limited, run: RunRequest) -> LimitedTime | None:
        """Return the limit that refuses a run; None if none does, and then count the run."""
        span = run.starts_at, run.ends_at
        if limited.rule is not None:
            refusal = self._refusal_by_rule(limited.rule, limited.holder, span)
            if refusal is not None:
                return refusal
        if (too_fast := self._refusal_by_rates(limited.rates, span)) is not None:
            return too_fast
        amounts = limited.amounts(run.ends_at - run.starts_at)
        exceeded = self._count.admit(limited.accounts, run.starts_at, amounts)
        if exceeded is not None:
            account, quota, used = exceeded
            return _exceeded_period(account, quota, used, quota.begin(run.starts_at))
        for it in limited.rates:
            self._loads[it.name, it.network].append((*span, it.rate))
        if limited.rule is not None and limited.rule.at_once_max is not None:
            self._concurrent[limited.rule.name, limited.holder].append(span)
        return None

    def _refusal_by_rates(self, accounts: Sequence[CapAccount], span: Span) -> LimitedTime | None:
        """Return when a target of the run would get more than a cap allows; None if never."""
        for each in accounts:
            loads = self._loads[each.name, each.network]
            meanwhile = [load for load in loads if _overlap(load[:2], span)]
            for closed in _spans_over_rate(each, self._bps(each.name), meanwhile):
                if _overlap((closed.starts_at, closed.ends_at), span):
                    return closed
        return None

    def _refusal_by_rule(self, rule: Rule, holder: str, span: Span) -> LimitedTime | None:
        """Return the closed or full time of a rule that a span touches; None if there is none."""
        for closed in self._closed_time[rule.name]:
            if closed.starts_at < span[1] and span[0] < closed.ends_at:
                return closed
        if rule.at_once_max is None:
            return None
        meanwhile = [
            it for it in self._concurrent[rule.name, holder] if it[0] < span[1] and span[0] < it[1]
        ]
        for full in full_spans(meanwhile, rule.at_once_max):
            if full[0] < span[1] and span[0] < full[1]:
                return _all_runs_taken(rule, full)
        return None


def _unlimited_request(lead: str, request: ProposalRequest) -> LimitedRequest:
    return LimitedRequest(lead, request, quotas=() if request.quotas else None)


def _closed_time(
    limited: _Limited, bounds: Iterable[HostQuota | HostLoad], reach: Span
) -> list[LimitedTime]:
    """Return the time that is closed to one more run."""
    closed = [each for bound in bounds for each in bound.closed()]
    if limited.rule is not None:
        closed += _spans_outside_times(limited.rule, reach)
    return closed


def _told_limits(
    bounds: Iterable[HostQuota | HostLoad], request: ProposalRequest
) -> tuple[HostQuota | HostLoad, ...] | None:
    """Return the limits of a task for a lead that asked for them, with their use in its windows.

    Runs of one task never overlap, so loads are only for previews, of several tasks together. None
    if it did not ask, or if there is more to tell than a message may have.
    """
    if not request.quotas:
        return None
    reach = min(start for start, _ in request.windows), max(end for _, end in request.windows)
    told = tuple(
        _within(each, reach) for each in bounds if request.preview or not isinstance(each, HostLoad)
    )
    if len(told) > QUOTAS_MAX or any(len(each.used) > PERIODS_MAX for each in told):
        return None
    return told


def _within(bound: HostQuota | HostLoad, reach: Span) -> HostQuota | HostLoad:
    """Return a limit with what is used of it in this time only."""
    if isinstance(bound, HostLoad):
        loads = tuple(it for it in bound.used if _overlap(it[:2], reach))
        return bound.model_copy(update={"used": loads})
    used = tuple(it for it in bound.used if _overlap((it[0], it[0] + bound.period), reach))
    return bound.model_copy(update={"used": used})


def _quota_uses(bound: _Limited, duration: int, uses: _Uses) -> Iterator[HostQuota]:
    """Yield the quotas for which runs of this duration (µs) count, with their use."""
    amounts = bound.amounts(duration)
    for account in bound.accounts:
        for quota in account.quotas:
            of_quota = (account.name, account.holder, quota.quantity, quota.period)
            used = ((begin, amount) for begin, amount in uses.get(of_quota, ()) if amount)
            yield HostQuota.of(account, quota, amounts, tuple(sorted(used)))


def host_load(
    name: str,
    holder: str,
    load: Literal["runs", "bps", "resource"],
    most: tuple[int, int],
    loads: Iterable[tuple[int, int, int]],
) -> HostLoad:
    """Return a limit of loads; ``most`` is what there may be, and what each run takes of it."""
    # What is used is not of another program: as a document that is told it would be checked again.
    return HostLoad.model_construct(
        name=name,
        holder=holder,
        load=load,
        most=most[0],
        amount=most[1],
        used=tuple(load_steps(loads)),
    )


def _bounds_beyond(bound: _Limited, known: LimitStanding) -> _Limited:
    """Return the bounds that ``known``, by which the runs count already, does not have."""
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


def _spans_over_rate(
    account: CapAccount, bps: int | None, loads: Sequence[tuple[int, int, int]]
) -> Iterator[LimitedTime]:
    """Yield the time in which a run to a network would exceed the rate that a cap allows."""
    if bps is None:
        return
    for starts_at, ends_at in loaded_spans(loads, bps - account.rate + 1):
        why = limit_of_rate_used(account.name, rate_text(bps), ends_at)
        yield LimitedTime(starts_at, ends_at, account.name, why, reached=True)


def _overlap(one: Span, other: Span) -> bool:
    """Return whether two half-open spans share time."""
    return one[0] < other[1] and other[0] < one[1]


def _touches(closed: LimitedTime, windows: Iterable[Span]) -> bool:
    return any(closed.starts_at < window[1] and window[0] < closed.ends_at for window in windows)


def _spans_outside_times(rule: Rule, reach: Span) -> Iterator[LimitedTime]:
    if not rule.openings:
        return
    since, until = reach
    for span in closed_spans(rule.openings, since, until + _LOOK_AHEAD):
        if span[0] >= until:
            return
        yield LimitedTime(*span, rule.name, closed_by_limit(rule.name, span[1]))


def _exceeded_period(account: Account, quota: PeriodQuota, used: int, begin: int) -> LimitedTime:
    """Return a used-up period of a quota; its reason never names the targets of others."""
    why = quota.used_up(account.name, used, begin)
    return LimitedTime(begin, begin + quota.period, account.name, why, reached=True)


def _all_runs_taken(rule: Rule, span: Span) -> LimitedTime:
    why = limit_of_runs_at_once_reached(rule.name, rule.at_once_max or 0, span[1])
    return LimitedTime(*span, rule.name, why, reached=True)
