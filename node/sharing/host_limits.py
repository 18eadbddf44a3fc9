"""The limits that the owner of this host has set: read from their file, and applied to tasks.

They are read at the start and whenever the owner asks for it (SIGHUP). A file with a fault changes
nothing: the limits that were read before stay in force, and the log, an event, and ``/v1/limits``
say why.

A task is judged once, when it is created, introduced, or edited, and again when the limits change.
The result, its standing, is stored with it: the rule that admits it, or why none does, the bytes
that a run is expected to move, and the caps for whose targets it counts. Holds use the standing and
judge nothing; proposals, too, but for tasks that are only planned yet. A task that no rule admits
any more stays, and gets no time until a rule admits it again; what is booked stays booked.

Whoever counts open tasks locks the count first, in the order of its keys, so that two new tasks
cannot both take the last place. Time, bytes, and rates of runs are counted elsewhere
(``quota_use.py``).
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote
from uuid import UUID

import structlog

from node.execution.catalog import Capabilities
from node.execution.targets import mere_targets, reported_content
from node.model import times
from node.model.audit import AuditOutcome
from node.model.classes import SchedulingClass
from node.model.errors import HostError, InvalidDocument, LimitUsedUp, NotFound, reason_of
from node.model.host_limits.caps import (
    ALL,
    Cap,
    CapAccount,
    accounts_of,
    group_accounts,
    rate_text,
    run_rate,
)
from node.model.host_limits.closed import LimitedTime
from node.model.host_limits.document import (
    DEFAULT,
    FILE_BYTES_MAX,
    known_limits,
    parse_limits,
)
from node.model.host_limits.quotas import (
    Account,
    PeriodQuota,
    RunAmounts,
    UseKey,
    loaded_spans,
    use_key,
)
from node.model.host_limits.rules import (
    Asker,
    HostLimits,
    LimitRefusal,
    Rule,
    TaskFacts,
    User,
    Verdict,
    counted_priority,
)
from node.model.host_limits.standing import LimitStanding
from node.model.lead_shares import LeadShares
from node.model.outside_leads import outside_address
from node.model.ranks import PEER
from node.model.reason import Reason
from node.model.reasons import cap_reached, limit_of_tasks_reached
from node.model.spans import Span
from node.model.targets import Network
from node.model.task_terms import TaskTerms, terms_of
from node.model.wire.campaigns import DEFAULT as DEFAULT_CAMPAIGN
from node.model.wire.host_limits import (
    GrantedLimits,
    GrantedRule,
    QuotaLeft,
    ShownLimits,
    TaskRoom,
)
from node.model.wire.participants import Introduction
from node.peers.directory import Directory
from node.plugins import registry
from node.plugins.contracts import Inward, Test
from node.runtime.settings import DEFAULT_LIMITS
from node.runtime.threads import aside
from node.store import audit, host_limits, resources, shares, tasks
from node.store.core import Core
from node.store.database import Connection, Notice
from node.store.host_limits import ReachedPeriod
from node.store.notices import notify
from node.store.tasks import StoredTask

_PAGE = 500
_CACHED_MAX = 50_000
_BEFORE_ALL = UUID(int=0)
_TASKS = "tasks"

RATE = "bps"
"""The quantity of the lock under which rates are counted."""

TASKS_RETRY_S = 60
"""Seconds after which one who has as many open tasks here as they may is to ask again."""

log = structlog.get_logger()


@dataclass(frozen=True)
class LoadedLimits:
    """Limits with their text, the file they are from (None: the default), and when it was read."""

    limits: HostLimits
    text: str
    file: Path | None
    loaded_at: int

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class Judgement:
    """The verdict on a task of another node.

    ``run_bytes`` is what a run of it is expected to move here, ``caps`` has the targets for which
    it counts.
    """

    verdict: Verdict
    run_bytes: int | None
    caps: tuple[CapAccount, ...]

    @property
    def refusal(self) -> LimitRefusal | None:
        """Return why the task is refused; None if it is not."""
        return self.verdict if isinstance(self.verdict, LimitRefusal) else None

    @property
    def rule(self) -> Rule | None:
        """Return the rule that admits the task; None if it is refused."""
        return None if isinstance(self.verdict, LimitRefusal) else self.verdict

    @property
    def standing(self) -> LimitStanding:
        """The standing to store with the task: rule or refusal, bytes, and caps."""
        if isinstance(self.verdict, LimitRefusal):
            return LimitStanding(None, self.verdict.reason, self.run_bytes, self.caps)
        return LimitStanding(self.verdict.name, None, self.run_bytes, self.caps)


class TargetsOfUsers(Protocol):
    """The rules for targets, as they bind users."""

    def refusal_of_user(
        self,
        test: Test,
        spec: Any,
        tools: Sequence[str],
        addresses: Mapping[str, str],
        rule: str | None,
    ) -> Reason | None:
        """Return why a user's task is refused; None if it is not."""
        ...


class LimitKeeper:
    """Keeps the limits of this host, and judges the tasks of other nodes by them."""

    def __init__(
        self,
        core: Core,
        directory: Directory,
        capabilities: Capabilities,
        given: str | None = None,
        targets: TargetsOfUsers | None = None,
    ) -> None:
        """Read the limits; ``given`` is their text if they are not in a file.

        ``targets`` judges those of users who are bound by the rules for targets.

        :raises HostError: the file cannot be read, or has a fault; says where.
        """
        self._core = core
        self._database = core.database
        self._clock = core.clock
        self._identity = core.identity
        self._settings = core.settings
        self._directory = directory
        self._capabilities = capabilities
        self._given = given
        self._targets = targets
        self._standings: dict[str, LimitStanding] = {}
        self._reached: set[ReachedPeriod] = set()  # of which an event was sent
        self._reading = asyncio.Lock()
        self._fault: str | None = None
        self._fault_at: int | None = None
        self._loaded = self._read_limits()

    @property
    def limits(self) -> HostLimits:
        """The limits in force."""
        return self._loaded.limits

    async def reload(self) -> None:
        """Read the file again, and judge the open tasks by what it says now.

        If the file has a fault, the limits stay as they are.
        """
        async with self._reading:
            try:
                loaded = await aside(self._read_limits, "read the limits")
            except HostError as error:
                self._fault, self._fault_at = error.detail, self._clock.now()
                log.warning("the limits stay as they were", fault=error.detail)
                path = str(self._settings.limits)
                await self._record_state("broken", path, AuditOutcome.FAILED, error.code)
                return
            self._fault = self._fault_at = None
            self._loaded = loaded
            log.info("limits loaded", file=str(loaded.file or "default"), digest=loaded.digest)
            await self.apply()
            await self.record_loaded()

    async def apply(self) -> None:
        """Judge all open tasks by the limits as they are, and count by them."""
        await self._judge_all()
        wanted = self.limits.quotas

        async def count_by(connection: Connection) -> None:
            if await host_limits.quotas(connection) != wanted:
                await host_limits.replace_quotas(connection, wanted, self._clock.now())
            if await resources.numbers(connection) != self.limits.resources:
                await resources.replace(connection, self.limits.resources)

        await self._database.settle(count_by)
        await self._set_shares(self.limits.shares)

    async def _set_shares(self, given: LeadShares) -> None:
        """Store the shares of leads; leads that were refused may ask again if they changed."""
        now = self._clock.now()
        async with self._database.transaction() as connection:
            if await shares.shares(connection) != given:
                await shares.replace(connection, given)
                await notify(connection, "freed", now, str(now + self._settings.horizon))

    async def _judge_all(self) -> None:
        after = _BEFORE_ALL
        while True:
            async with self._database.transaction() as connection:
                page = await host_limits.open_tasks_to_judge(
                    connection, after, _PAGE, of_users=self.limits.bounds_users
                )
                if page:
                    known = await tasks.fetch_all(connection, page)
                    judged = {(it.id, it.terms.revision): self.standing(it) for it in known}
                    await host_limits.keep_verdicts(connection, judged)
            self._standings.clear()
            if len(page) < _PAGE:
                return
            after = page[-1]

    async def quotas_left(self, holder: str, standing: LimitStanding) -> list[QuotaLeft]:
        """Return what holder and targets have left now of the quotas that this task counts for."""
        return await self._quotas_left_of(self.accounts(holder, standing))

    async def require_room(
        self, connection: Connection, task: StoredTask, standing: LimitStanding
    ) -> None:
        """Check that the user of a new or edited task may have one more open task under its rule.

        Other new tasks of this user under the rule wait until the transaction ends.

        :raises LimitUsedUp: they have as many as the rule allows.
        """
        if (rule := self._task_count_rule(task, standing)) is None:
            return
        user = task.limit_user or ""
        await host_limits.lock_use(connection, [UseKey(rule.name, user, _TASKS, 0, 0)])
        if (reason := await self.task_count_refusal(connection, task, standing)) is not None:
            raise LimitUsedUp(reason, TASKS_RETRY_S, rule.tasks_max)

    async def task_count_refusal(
        self,
        connection: Connection,
        task: StoredTask,
        standing: LimitStanding,
        instead_of: UUID | None = None,
        beside: int = 0,
    ) -> Reason | None:
        """Return why the user of a task may have no further open task under its rule, or None.

        With ``instead_of``, the task is an edit of that one, which does not count beside it. So
        many others as ``beside`` count as created.
        """
        rule, user = self._task_count_rule(task, standing), task.limit_user
        if rule is None or rule.tasks_max is None or user is None:
            return None
        but = task.id if instead_of is None else instead_of
        count = await tasks.count_open_for(connection, user, rule.name, but) + beside
        if count < rule.tasks_max:
            return None
        why = limit_of_tasks_reached(rule.name, user, count, rule.tasks_max)
        return why.at(self._settings.name)

    def counts_tasks_of(self, user: User) -> bool:
        """Return whether a rule bounds how many open tasks a user may have."""
        groups = self.limits.groups_of_user(user)
        bounding = (rule.who for rule in self.limits.rules if rule.tasks_max is not None)
        return not all(map(groups.isdisjoint, bounding))

    def _task_count_rule(self, task: StoredTask, standing: LimitStanding) -> Rule | None:
        """Return the rule that bounds the open tasks of the user of this task, or None."""
        rule = self.limits.rule(standing.rule)
        bounds = rule is not None and rule.tasks_max is not None and task.limit_user is not None
        return rule if bounds else None

    async def _quotas_left_of(self, accounts: Sequence[Account]) -> list[QuotaLeft]:
        now = self._clock.now()
        uses = await self._current_uses(accounts, now)
        return [
            _quota_left(account, quota, uses, now)
            for account in accounts
            for quota in account.quotas
        ]

    async def _current_uses(self, accounts: Sequence[Account], now: int) -> dict[UseKey, int]:
        asked = {(account.name, account.holder) for account in accounts}
        if not asked:
            return {}
        async with self._database.connection() as connection:
            return await host_limits.use_between(connection, asked, now, now + 1)

    def accounts(self, holder: str, standing: LimitStanding) -> tuple[Account, ...]:
        """Return for what the runs of a task count: under a rule, and under caps.

        ``holder`` is its lead, or the user of a task that this node leads.
        """
        rule = self.limits.rule(standing.rule)
        accounts = [] if rule is None else [Account(rule.name, holder, rule.quotas)]
        for name, network, _ in standing.caps:
            if (cap := self.limits.cap(name)) is not None:
                accounts.append(Account(name, network, cap.quotas))
        return tuple(account for account in accounts if account.quotas)

    async def granted(self, identity: str) -> GrantedLimits:
        """Return the limits for a node, and what it has left of them."""
        [granted] = await self.granted_to({self._settings.name: identity})
        return granted

    async def granted_to(self, nodes: Mapping[str, str]) -> list[GrantedLimits]:
        """Return the limits for each of these nodes, and what it has left of them.

        ``nodes`` has the identities by the names under which they are answered.
        """
        rules = {identity: self._rules_for(identity) for identity in nodes.values()}
        accounts = [
            Account(rule.name, identity, rule.quotas)
            for identity, several in rules.items()
            for rule in several
        ]
        now = self._clock.now()
        uses = await self._current_uses(accounts, now)

        def left(identity: str, rule: Rule) -> Iterator[QuotaLeft]:
            account = Account(rule.name, identity, rule.quotas)
            return (_quota_left(account, quota, uses, now) for quota in rule.quotas)

        return [
            GrantedLimits(
                node=name,
                rules=tuple(
                    GrantedRule(
                        rule=rule.name,
                        what=rule.what_in_words(),
                        most=rule.most_in_words(),
                        left=tuple(left(identity, rule)),
                    )
                    for rule in rules[identity]
                ),
                caps=tuple(cap.in_words() for cap in self._caps_for(identity)),
            )
            for name, identity in nodes.items()
        ]

    def _rules_for(self, identity: str) -> list[Rule]:
        groups = self.limits.groups_of(self._asker(identity))
        return [rule for rule in self.limits.rules if not groups.isdisjoint(rule.who)]

    def _caps_for(self, identity: str) -> list[Cap]:
        groups = self.limits.groups_of(self._asker(identity))
        return [cap for cap in self.limits.caps if not cap.who or not groups.isdisjoint(cap.who)]

    async def rooms_of_caps(
        self,
        connection: Connection,
        accounts: Iterable[CapAccount],
        counted: dict[CapAccount, int],
    ) -> list[TaskRoom]:
        """Return the bounds that caps of groups set to open tasks.

        ``counted`` has what this transaction has counted so far; what it lacks is counted.
        """
        rooms: list[TaskRoom] = []
        for account in accounts:
            most = self._tasks_max(account)
            if most is None:
                continue
            if account not in counted:
                counted[account] = await tasks.count_open_capped(connection, account)
            holder = "" if account.network == ALL else account.network
            rooms.append(
                TaskRoom(
                    kind="cap", name=account.name, holder=holder, used=counted[account], most=most
                )
            )
        return rooms

    async def lock_caps(self, connection: Connection, accounts: Iterable[CapAccount]) -> None:
        """Lock the number of open tasks of these accounts until the transaction ends."""
        bounded = {it for it in accounts if self._tasks_max(it) is not None}
        if keys := [UseKey(it.name, it.network, _TASKS, 0, 0) for it in bounded]:
            await host_limits.lock_use(connection, keys)

    def _tasks_max(self, account: CapAccount) -> int | None:
        cap = self.limits.cap(account.name)
        return None if cap is None else cap.tasks_max

    def judge(self, lead: str, introduction: Introduction, test: Test, spec: Any) -> Judgement:
        """Judge a task of another node; ``spec`` is that of its test, parsed."""
        return self.judge_terms(lead, terms_of(introduction), introduction.participant, test, spec)

    @property
    def counts_named_targets(self) -> bool:
        """True if any cap counts the targets that tasks of other nodes name."""
        return any(not cap.who for cap in self.limits.caps)

    async def count_named_targets(
        self, addresses: Sequence[str], span: Span, amounts: RunAmounts, mbps: int
    ) -> Reason | None:
        """Count a run that is about to begin, for targets that its task names without an address.

        Returns None; or counts nothing, and returns why a cap has no room for it.
        """
        caps = {cap.name: cap for cap in self.limits.caps}
        start = span[0]
        counted: dict[UseKey, tuple[int, int]] = {}
        refusals: dict[UseKey, Reason] = {}
        rate = run_rate(amounts.bytes, amounts.time, mbps)
        accounts = accounts_of(caps.values(), addresses, rate)
        for name, network, _ in accounts:
            for quota in caps[name].quotas:
                key = use_key(Account(name, network, ()), quota, start)
                counted[key] = amounts.of(quota.quantity), quota.most
                refusals[key] = cap_reached(name, quota.in_words(), network)
        rated = {(it.name, it.network): it.rate for it in accounts if it.rate}
        if not counted and not rated:
            return None
        try:
            async with self._database.transaction() as connection:
                if counted:
                    await _count(connection, counted, refusals)
                if rated:
                    await _count_rates(connection, rated, caps, span)
        except LimitUsedUp as error:
            return error.reason
        return None

    def counted_priority(self, priority: int, rule: str | None) -> int:
        """Return the priority as which that of another node's task counts under a rule."""
        highest = self._settings.peer_priority_max
        return counted_priority(priority, self.limits.rule(rule), highest)

    def highest_rank(self, identity: str) -> int:
        """Return the highest rank that a run of a node can have here."""
        groups = self.limits.groups_of(self._asker(identity))
        ranks = (rule.rank for rule in self.limits.rules if not groups.isdisjoint(rule.who))
        return max(ranks, default=PEER)

    async def standings(
        self, connection: Connection, wanted: Sequence[UUID]
    ) -> dict[UUID, LimitStanding]:
        """Return how tasks stand; those that are not known here are left out."""
        known = {task: it for task in wanted if (it := self._standings.get(str(task)))}
        if missing := [task for task in wanted if task not in known]:
            read = await host_limits.standings(connection, missing)
            known |= read
            if len(self._standings) > _CACHED_MAX:
                self._standings.clear()
            self._standings |= {str(task): it for task, it in read.items()}
        return known

    def on_notice(self, notice: Notice) -> None:
        """Drop from the caches whatever a notification says has changed, or may have changed."""
        if notice.kind == "task":
            self._standings.pop(notice.id, None)
        elif notice.kind == "limit":
            if len(self._reached) > _CACHED_MAX:
                self._reached.clear()
            begins_at, ends_at = map(times.parse_instant, notice.words[1:])
            self._reached.add((unquote(notice.id), begins_at, ends_at))
        elif notice.kind in {"limits", "wake", "disconnected"}:
            self._standings.clear()

    async def for_people(self) -> ShownLimits:
        """Return the limits for people."""
        loaded = self._loaded
        async with self._database.connection() as connection:
            refused = await host_limits.count_refused(connection)
            kept = await resources.states(connection, self._clock.now())
        return ShownLimits(
            file=None if loaded.file is None else str(loaded.file),
            digest=loaded.digest,
            loaded_at=loaded.loaded_at,
            fault=self._fault,
            fault_at=self._fault_at,
            refused_tasks=refused,
            text=loaded.text,
            resources=tuple(kept),
        )

    def _read_limits(self) -> LoadedLimits:
        """Return the limits in the file; the default if there is no file at the usual place.

        :raises HostError: the file cannot be read, or has a fault.
        """
        path, now = self._settings.limits, self._clock.now()
        if self._given is not None:
            return LoadedLimits(parse_limits(self._given), self._given, None, now)
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            if path == DEFAULT_LIMITS:
                return LoadedLimits(parse_limits(DEFAULT), DEFAULT, None, now)
            msg = f"there is no file {path}; write the limits there, or unset PARLEY_LIMITS"
            raise HostError(msg) from None
        except (OSError, UnicodeError) as error:
            raise HostError(f"{path} cannot be read: {reason_of(error)}") from error
        try:
            fields = registry.spec_fields(self._capabilities.tests)
            return LoadedLimits(known_limits(text, fields), text, path, now)
        except InvalidDocument as error:
            msg = f"{path}: {error.detail}; see parley limits check {path}"
            raise HostError(msg) from error

    async def note_reached(self, connection: Connection, refused: Iterable[LimitedTime]) -> None:
        """Send an event for each limit that refused something for the first time in its period.

        Runs at once have no period: theirs is the hour.
        """
        periods = {
            _reached_period(each.rule, each) for each in refused if each.reached and each.rule
        }
        if not (periods := periods - self._reached):
            return
        for rule, begins_at, ends_at in await host_limits.mark_reached(
            connection, periods, self._clock.now()
        ):
            span = times.format_instant(begins_at), times.format_instant(ends_at)
            await notify(connection, "limit", quote(rule, safe=""), "reached", *span)
            entry = self._core.own_entry("limit_reached", rule, AuditOutcome.REFUSED)
            await audit.keep(connection, [entry])

    async def record_loaded(self) -> None:
        """Tell, and record, that the limits in force have been read."""
        await self._record_state("loaded", self._loaded.digest, AuditOutcome.DONE)

    async def _record_state(
        self, state: str, thing: str, outcome: AuditOutcome, problem: str | None = None
    ) -> None:
        entry = self._core.own_entry(f"limits_{state}", thing, outcome, problem)
        async with self._database.transaction() as connection:
            await notify(connection, "limits", self._settings.name, state)
            await audit.keep(connection, [entry])

    def standing(self, task: StoredTask) -> LimitStanding:
        """Return how a task stands with the limits: that of another node, or of a user here."""
        terms, led_here = task.terms, task.lead == self._identity
        bounds = self.limits.bounds_users or task.limit_bound
        if led_here and not (task.limit_user and bounds):
            return LimitStanding(user=task.limit_user)
        if task.participant is None and not led_here:
            return LimitStanding()  # it keeps resources only, and is asked for nothing else
        try:
            test = self._capabilities.test(terms.test)
            spec = self._capabilities.spec(test, terms.spec)
        except InvalidDocument as error:  # another version of the program has accepted it
            return LimitStanding(refusal=error.detail, user=task.limit_user)
        if led_here:
            return self._standing_of_user(task, test, spec)
        return self.judge_terms(task.lead, terms, task.participant, test, spec).standing

    def standing_if_introduced(self, lead: str, introduction: Introduction) -> LimitStanding:
        """Return how a task of another node would stand with the limits if it was introduced."""
        if introduction.participant is None:
            return LimitStanding()
        if introduction.participant >= len(introduction.participants):
            return LimitStanding(refusal=f"there is no participant {introduction.participant}")
        try:
            test = self._capabilities.test(introduction.test)
            spec = self._capabilities.spec(test, introduction.spec)
        except InvalidDocument as error:
            return LimitStanding(refusal=error.detail)
        return self.judge(lead, introduction, test, spec).standing

    def judge_terms(
        self, lead: str, terms: TaskTerms, place: int | None, test: Test, spec: Any
    ) -> Judgement:
        """Judge a task of these terms, in which this host has this place, or only leads."""
        facts = self._facts(terms, place, test, spec)
        asker = self._asker(lead, terms.campaign)
        groups = self.limits.groups_of(asker)
        of_groups = group_accounts(
            self.limits.caps, groups, lead, facts.scheduling_class, facts.rate
        )
        of_targets = accounts_of(self.limits.caps, facts.targets, facts.rate)
        caps = tuple(sorted({*of_targets, *of_groups}))
        return Judgement(self.limits.judge(asker, facts), facts.bytes, caps)

    def _standing_of_user(self, task: StoredTask, test: Test, spec: Any) -> LimitStanding:
        terms = task.terms
        campaign = terms.campaign or DEFAULT_CAMPAIGN
        user = User(task.limit_user, campaign, task.limit_address, task.limit_bound)
        facts = self._facts(terms, task.participant, test, spec)
        match self._user_verdict(user, terms, facts, test, spec):
            case None:
                return LimitStanding(user=task.limit_user)
            case LimitRefusal() as refusal:
                words = refusal.reason
                return LimitStanding(refusal=words, run_bytes=facts.bytes, user=task.limit_user)
            case rule:
                return LimitStanding(rule.name, None, facts.bytes, user=task.limit_user)

    def _user_verdict(
        self, user: User, terms: TaskTerms, facts: TaskFacts, test: Test, spec: Any
    ) -> Verdict | None:
        verdict = self.limits.judge_user(user, facts, terms.priority)
        if isinstance(verdict, LimitRefusal) or not user.bound or self._targets is None:
            return verdict
        rule = None if verdict is None else verdict.name
        refusal = self._targets.refusal_of_user(test, spec, terms.tools, terms.addresses, rule)
        return verdict if refusal is None else LimitRefusal(rule, "/test/spec", refusal)

    def excepted_networks(self, rule: str | None) -> tuple[Network, ...]:
        """Return the networks that a rule of this name lets users measure."""
        found = self.limits.rule(rule)
        return () if found is None or found.targets is None else found.targets.excepted_networks

    def judge_user(self, user: User, task: StoredTask) -> Verdict | None:
        """Judge a task that a user asks this node to lead; None if they are not limited."""
        terms = task.terms
        test = self._capabilities.test(terms.test)
        spec = self._capabilities.spec(test, terms.spec)
        facts = self._facts(terms, task.participant, test, spec)
        return self._user_verdict(user, terms, facts, test, spec)

    def _facts(self, terms: TaskTerms, place: int | None, test: Test, spec: Any) -> TaskFacts:
        context = None if place is None else terms.participants[place].context
        inward = test.inward(spec) if isinstance(test, Inward) else None
        return TaskFacts(
            test=terms.test,
            scheduling_class=SchedulingClass(terms.scheduling_class),
            spec=spec.model_dump(mode="json"),
            duration=terms.duration,
            context=context,
            bytes=test.expected_bytes(spec, self._mbps()),
            targets=tuple(terms.addresses.get(host, host) for host in mere_targets(test, spec)),
            mbps=test.needs(spec).get("mbps") or 0,
            inward=inward,
            inquires=inward is not None and reported_content(test, spec) is not None,
            budgeted=terms.schedule.displacement_budget is not None,
        )

    def _mbps(self) -> int | None:
        """Return the rate that the card of this node states (whole Mb/s)."""
        stated = self._directory.self.attributes.get("mbps")
        return stated if isinstance(stated, int) and not isinstance(stated, bool) else None

    def is_named(self, identity: str) -> bool:
        """Return whether a group of the limits names a node, other than as one of the others."""
        asker = self._asker(identity)
        return any(group.names(asker) for group in self.limits.who.values())

    def _asker(self, identity: str, campaign: str | None = None) -> Asker:
        if (address := outside_address(identity)) is not None:
            user = User(identity, campaign or DEFAULT_CAMPAIGN, address)
            return Asker(identity, {"address": address}, user)
        try:
            known = self._directory.by_identity(identity)
        except NotFound:  # it was removed a moment ago
            return Asker(identity, {})
        return Asker(identity, {**known.facts, "address": known.address})


def _reached_period(rule: str, reached: LimitedTime) -> ReachedPeriod:
    """Return the period in which a limit was reached; for runs at once the hour."""
    begin, end = reached.starts_at, reached.ends_at
    if begin % times.HOUR or end % times.HOUR:
        begin = begin // times.HOUR * times.HOUR
        end = begin + times.HOUR
    return rule, begin, end


def _quota_left(
    account: Account, quota: PeriodQuota, uses: Mapping[UseKey, int], now: int
) -> QuotaLeft:
    used = uses.get(use_key(account, quota, now), 0)
    return QuotaLeft(
        name=account.name,
        quota=quota.in_words(),
        used=quota.text_of(used),
        left=quota.text_of(max(0, quota.most - used)),
        free_at=quota.begin(now) + quota.period,
    )


async def _count_rates(
    connection: Connection,
    rated: Mapping[tuple[str, str], int],
    caps: Mapping[str, Cap],
    span: Span,
) -> None:
    """Count these rates of a run (b/s), by cap and network, for the time of the run.

    :raises LimitUsedUp: one would be too high; the transaction must be rolled back.
    """
    await host_limits.lock_use(connection, [UseKey(*it, RATE, 0, 0) for it in rated])
    loads = await host_limits.rates(connection, rated, *span)
    for (name, network), rate in rated.items():
        bps = caps[name].bps or 0
        cut = [(max(it[0], span[0]), min(it[1], span[1]), it[2]) for it in loads[name, network]]
        if loaded_spans(cut, bps - rate + 1):
            raise LimitUsedUp(cap_reached(name, f"{rate_text(bps)} at one time", network))
    await host_limits.keep_rates(connection, rated, *span)


async def _count(
    connection: Connection,
    counted: Mapping[UseKey, tuple[int, int]],
    refusals: Mapping[UseKey, Reason],
) -> None:
    """Count under all of these keys.

    :raises LimitUsedUp: one has no room; the transaction must be rolled back.
    """
    done = await host_limits.count_use(connection, counted)
    exceeded = next((refusals[key] for key in sorted(counted) if key not in done), None)
    if exceeded is not None:
        raise LimitUsedUp(exceeded)
