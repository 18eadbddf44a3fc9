"""Applies the owner's limits where this node's time is offered, and where it is booked.

What a hold needs of a task comes with it from the database. A proposal names the task only, so how
it stands is looked up, and kept in memory. While no rule bounds the time of tasks, neither costs a
query.

A hold locks what leads use of the quotas that it touches before it looks at them. The use is then
counted by triggers of the database, in the same transaction, and given back by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from node.core import Core
from node.model import times
from node.model.host_limits.closed import LimitedTime
from node.model.host_limits.opening import closed_spans
from node.model.host_limits.quotas import RunAmounts, UseCount, UseKey, full_spans, use_key
from node.model.host_limits.rules import Rule
from node.model.spans import Span
from node.model.times import to_the_second
from node.model.wire.participants import ProposalRequest, RunRequest
from node.sharing.host_limits import LimitKeeper
from node.store import host_limits
from node.store.bookings import Wanted
from node.store.database import Connection
from node.store.host_limits import LimitStanding

LimitedRequest = tuple[str, ProposalRequest, Sequence[LimitedTime]]
"""A lead, its request with the priority as which it counts here, and what limits close to it."""

_AT_ONCE = "at-once"
_LOOK_AHEAD = 8 * times.DAY
"""Time after what is asked about in which the next opening of a rule is looked for."""


@dataclass(frozen=True)
class _Limited:
    """A lead's runs of one task, and the rule that bounds their time."""

    lead: str
    rule: Rule
    amounts: RunAmounts


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

    async def limited(
        self, connection: Connection, requests: Sequence[tuple[str, ProposalRequest]], now: int
    ) -> list[LimitedRequest]:
        """Return for each lead's request how it counts here, and the time that is closed to it."""
        foreign = {request.task for lead, request in requests if lead != self._identity}
        if not foreign:
            return [(lead, request, ()) for lead, request in requests]
        standings = await self._keeper.standings(connection, sorted(foreign))
        reach = now, now + self._horizon
        uses = await self._uses(connection, requests, standings, reach)
        limited: list[LimitedRequest] = []
        for lead, request in requests:
            standing = standings.get(request.task, LimitStanding())
            if lead == self._identity:
                limited.append((lead, request, ()))
                continue
            counted = self.counted_priority(request.priority, standing)
            closed = await self._closed(connection, lead, request, standing, uses, reach)
            if counted != request.priority:
                request = request.model_copy(update={"priority": counted})  # noqa: PLW2901
            limited.append((lead, request, closed))
        return limited

    async def _uses(
        self,
        connection: Connection,
        requests: Sequence[tuple[str, ProposalRequest]],
        standings: Mapping[UUID, LimitStanding],
        reach: Span,
    ) -> dict[UseKey, int]:
        """Return what these leads use of the quotas of their rules."""
        asked = {
            (rule.name, lead)
            for lead, request in requests
            if lead != self._identity
            and request.task in standings
            and (rule := self._rule(standings[request.task])) is not None
            and rule.quotas
        }
        return await host_limits.use_between(connection, asked, *reach) if asked else {}

    def _rule(self, standing: LimitStanding) -> Rule | None:
        """Return the rule that admits a task, if it bounds when and how much."""
        rule = self._keeper.limits.rule(standing.rule)
        return rule if rule is not None and rule.bounds_time else None

    async def _closed(
        self,
        connection: Connection,
        lead: str,
        request: ProposalRequest,
        standing: LimitStanding,
        uses: Mapping[UseKey, int],
        reach: Span,
    ) -> list[LimitedTime]:
        if standing.refusal is not None:
            return [LimitedTime(*reach, standing.rule, standing.refusal)]
        rule = self._rule(standing)
        if rule is None:
            return []
        amounts = RunAmounts(request.duration, standing.run_bytes or 0)
        return [
            *_outside(rule, reach),
            *_used_up(_Limited(lead, rule, amounts), uses),
            *(await self._full(connection, rule, lead, reach)),
        ]

    async def _full(
        self, connection: Connection, rule: Rule, lead: str, reach: Span
    ) -> list[LimitedTime]:
        if rule.at_once_max is None:
            return []
        spans = await host_limits.at_once(connection, rule.name, lead, *reach)
        return [_at_once(rule, span) for span in full_spans(spans, rule.at_once_max)]

    async def admitted(
        self, connection: Connection, wanted: Wanted
    ) -> tuple[Wanted, dict[UUID, LimitedTime]]:
        """Leave out the runs that the limits do not admit; return these by run, with the reason.

        Other holds of the same leads wait until the transaction ends.
        """
        limited = {
            hold.exchange: _Limited(hold.lead, rule, RunAmounts(0, task.limit.run_bytes or 0))
            for hold, task, _ in wanted
            if not task.led_here and (rule := self._rule(task.limit)) is not None
        }
        if not any(runs and hold.exchange in limited for hold, _, runs in wanted):
            return wanted, {}
        booking = _BookedUse(connection, limited, wanted)
        await booking.read()
        refused = {
            run.run: refusal
            for hold, _, runs in wanted
            if hold.exchange in limited
            for run in sorted(runs, key=lambda run: run.starts_at)
            if (refusal := booking.refusal(limited[hold.exchange], run)) is not None
        }
        return [
            (hold, task, [run for run in runs if run.run not in refused])
            for hold, task, runs in wanted
        ], refused


class _BookedUse:
    """The use of quotas, and the runs at once, as a transaction books one run after another."""

    def __init__(
        self, connection: Connection, limited: Mapping[UUID, _Limited], wanted: Wanted
    ) -> None:
        self._connection = connection
        self._runs = [
            (limited[hold.exchange], run)
            for hold, _, runs in wanted
            if hold.exchange in limited
            for run in runs
        ]
        self._count = UseCount({})
        self._closed: dict[str, list[LimitedTime]] = {}
        self._at_once: dict[tuple[str, str], list[Span]] = {}

    async def read(self) -> None:
        """Lock and read what is used already."""
        reach = min(it.starts_at for _, it in self._runs), max(it.ends_at for _, it in self._runs)
        for each in {it.rule.name: it.rule for it, _ in self._runs}.values():
            self._closed[each.name] = list(_outside(each, reach))
        keys = {
            use_key(it.rule.name, it.lead, quota, run.starts_at)
            for it, run in self._runs
            for quota in it.rule.quotas
        }
        pairs: dict[tuple[str, str], list[RunRequest]] = {}
        for it, run in self._runs:
            if it.rule.at_once_max is not None:
                keys.add(UseKey(it.rule.name, it.lead, _AT_ONCE, 0, 0))
                pairs.setdefault((it.rule.name, it.lead), []).append(run)
        self._count = UseCount(await host_limits.claim_use(self._connection, keys))
        for (rule, lead), runs in pairs.items():
            since = min(run.starts_at for run in runs)
            until = max(run.ends_at for run in runs)
            spans = await host_limits.at_once(self._connection, rule, lead, since, until)
            self._at_once[rule, lead] = spans

    def refusal(self, limited: _Limited, run: RunRequest) -> LimitedTime | None:
        """Return what refuses a run; or None, and count it."""
        rule, span = limited.rule, (run.starts_at, run.ends_at)
        for closed in self._closed[rule.name]:
            if closed.starts_at < span[1] and span[0] < closed.ends_at:
                return closed
        spans = self._at_once.get((rule.name, limited.lead))
        if spans is not None and rule.at_once_max is not None:
            meanwhile = [it for it in spans if it[0] < span[1] and span[0] < it[1]]
            full = full_spans(meanwhile, rule.at_once_max)
            if any(start < span[1] and span[0] < end for start, end in full):
                return _at_once(rule, full[0])
        amounts = RunAmounts(run.ends_at - run.starts_at, limited.amounts.bytes)
        exceeded = self._count.admit(rule.name, limited.lead, rule.quotas, run.starts_at, amounts)
        if exceeded is not None:
            quota, used = exceeded
            begin = quota.begin(run.starts_at)
            return _limited_time(rule, (begin, begin + quota.period), quota.used_up(used, begin))
        if spans is not None:
            spans.append(span)
        return None


def _outside(rule: Rule, reach: Span) -> Iterator[LimitedTime]:
    """Yield the time of a reach that is outside the times of a rule."""
    if not rule.openings:
        return
    since, until = reach
    for span in closed_spans(rule.openings, since, until + _LOOK_AHEAD):
        if span[0] >= until:
            return
        opens = f"open again from {to_the_second(span[1])}"
        yield _limited_time(rule, span, f"it admits no runs at this time; {opens}")


def _used_up(limited: _Limited, uses: Mapping[UseKey, int]) -> Iterator[LimitedTime]:
    """Yield the periods in which one more run would exceed a quota."""
    for quota in limited.rule.quotas:
        of_quota = (limited.rule.name, limited.lead, quota.quantity, quota.period)
        for key, used in uses.items():
            if key[:4] == of_quota and used + limited.amounts.of(quota.quantity) > quota.most:
                span = key.begins_at, key.begins_at + quota.period
                yield _limited_time(limited.rule, span, quota.used_up(used, key.begins_at))


def _at_once(rule: Rule, span: Span) -> LimitedTime:
    most = f"{rule.at_once_max} of {rule.at_once_max} runs at once"
    return _limited_time(rule, span, f"{most}, free again from {to_the_second(span[1])}")


def _limited_time(rule: Rule, span: Span, why: str) -> LimitedTime:
    return LimitedTime(*span, rule.name, f"limit '{rule.name}': {why}")
