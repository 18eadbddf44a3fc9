"""Rules of the owner's limits: who may have what measured from this host.

Rules are tried in their order, and the first one that fits a task decides. A rule fits if each of
its conditions on the task is met; then the rest of the rule says how much the task may have. If
none fits, the task is refused, with the reason of the rule that comes closest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from node.model.classes import SchedulingClass
from node.model.host_limits.caps import Cap, rate_text, run_rate
from node.model.host_limits.closed import Opening
from node.model.host_limits.quotas import PeriodQuota, Quantity, RunAmounts
from node.model.lead_shares import LeadShares
from node.model.predicates import AllOf, Attributes, Condition, Predicate, format_value
from node.model.principals import FOLLOWER, OUTSIDE, Principal
from node.model.ranks import OWN, PEER
from node.model.reason import Reason
from node.model.reasons import (
    budget_needs_priority,
    class_not_of_rule,
    context_not_of_rule,
    limit_refuses,
    no_rule_for_asker,
    priority_above_rule,
    priority_without_rule,
    run_exceeds_quota,
    run_moves_at,
    run_occupies_host,
    run_sends_at,
    spec_field_misfits,
    spec_not_within_rule,
    target_not_of_rule,
    test_not_of_rule,
    test_tells_of_host,
    unknown_bytes_of_run,
)
from node.model.targets import PRIVATE, IpAddress, Network, is_private, literal, reached_addresses
from node.model.times import duration_text
from node.model.wire.tasks import PRIORITY_MAX


@dataclass(frozen=True)
class User:
    """The user of this host that asks: the label of their token, and the address of origin.

    ``campaign`` is that of the task. Each is None if it is not known. ``bound`` are those with the
    role ``run``, clients of the pScheduler interface, and ``parley-follow``: the rules for targets
    hold for them, and no priority above 0 is theirs (but for the meshes that the owner follows),
    unless a rule says otherwise.
    """

    token: str | None
    campaign: str | None = None
    address: str | None = None
    bound: bool = False

    @classmethod
    def of(cls, caller: Principal, campaign: str | None, address: str | None = None) -> User:
        """Return the user that a caller is."""
        return cls(caller.label, campaign, address, caller.bound is not None)

    @property
    def is_client(self) -> bool:
        """Return whether the user is known by address alone."""
        return self.token is not None and self.token.startswith(OUTSIDE)


@dataclass(frozen=True)
class Asker:
    """The node that asks: its identity, and the attributes of its card.

    A lead from outside is also the ``user`` that its address is when it asks as a client.
    """

    identity: str
    attributes: Attributes
    user: User | None = None


@dataclass(frozen=True)
class TargetSet:
    """The hosts that tasks under a rule may measure without their taking part.

    ``names`` are the words of the file. ``public`` and ``private`` are all addresses of that kind;
    a target that is written as a name counts as public, since others are refused once it is
    looked up.
    """

    names: tuple[str, ...]
    networks: tuple[Network, ...] = ()
    public: bool = False
    private: bool = False

    @property
    def excepted_networks(self) -> tuple[Network, ...]:
        """Return the networks that it names, and with ``private`` every private one."""
        return (*self.networks, *(PRIVATE if self.private else ()))

    def has(self, host: str) -> bool:
        """Return whether a target is among these; also the IPv4 addresses to which it leads."""
        address = literal(host.partition("%")[0])
        if address is None:
            return self.public
        outer, *inner = reached_addresses(address)
        return all(map(self._has, inner or [outer]))

    def _has(self, address: IpAddress) -> bool:
        if any(address in network for network in self.networks):
            return True
        return self.private if is_private(address) else self.public


@dataclass(frozen=True)
class TaskFacts:
    """The facts of a task that rules are about.

    ``spec`` is the complete spec, with its defaults. ``duration`` is how long a run occupies this
    host (µs), ``context`` where on this host it measures, or None. ``bytes`` is the payload that a
    run is expected to move here, None if that is unknown; ``mbps`` the rate that its test states,
    or 0. ``targets`` are the hosts of the spec that take no part. ``inward`` is what the results
    tell of this host itself, if they do; ``inquires`` whether they answer there what the spec asks.
    ``budgeted`` is whether a budget bounds how many runs give way, as the highest priority would.
    """

    test: str
    scheduling_class: SchedulingClass
    spec: Mapping[str, Any]
    duration: int
    context: str | None = None
    bytes: int | None = None
    targets: tuple[str, ...] = ()
    mbps: int = 0
    inward: str | None = None
    inquires: bool = False
    budgeted: bool = False

    @property
    def rate(self) -> int:
        """Return the rate of a run (b/s)."""
        return run_rate(self.bytes or 0, self.duration, self.mbps)


@dataclass(frozen=True)
class Who:
    """A group of nodes, of users, or of both.

    Nodes are listed by key, matched by their cards, or all ``others`` that no group names. Users
    are listed by token, by the campaigns for which they ask, by networks of origin, or are all
    ``users`` that no group names. Before these come ``clients``: the unnamed users who are known by
    address alone. A lead from outside is none of them.
    """

    name: str
    keys: frozenset[str] = frozenset()
    match: Predicate | None = None
    others: bool = False
    tokens: frozenset[str] = frozenset()
    campaigns: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()
    users: bool = False
    clients: bool = False

    def names(self, asker: Asker) -> bool:
        """Return whether this group names the node, by its key or its attributes, or as a user."""
        if asker.identity in self.keys:
            return True
        if asker.user is not None and self.names_user(asker.user):
            return True
        return self.match is not None and self.match.met_by(asker.attributes)

    def has_unnamed(self, asker: Asker) -> bool:
        """Return whether a node belongs to this group if no group names it."""
        return self.others or (asker.user is not None and self.users)

    def names_user(self, user: User) -> bool:
        """Return whether this group names a user, by token, campaign, or network."""
        if user.token in self.tokens or user.campaign in self.campaigns:
            return True
        address = None if user.address is None else literal(user.address.partition("%")[0])
        inside = () if address is None else reached_addresses(address)
        return any(each in network for each in inside for network in self.networks)

    @property
    def has_users(self) -> bool:
        """Return whether users can belong to it."""
        return bool(self.tokens or self.campaigns or self.networks or self.users)

    @property
    def has_nodes(self) -> bool:
        """Return whether nodes can belong to it."""
        return bool(self.keys or self.match is not None or self.others)


@dataclass(frozen=True)
class Rule:
    """A rule; None means that it has no such condition, or sets no such limit.

    ``spec`` has the predicates over the fields of the spec. ``duration_max`` is in microseconds.
    ``tasks_max`` counts the open tasks of one node or user under this rule, ``at_once_max`` their
    runs at any instant, ``quotas`` what they have in periods. Runs take place within the
    ``openings``; without any at all times. ``rank`` is theirs beside the runs of the host's own
    tasks. ``retry`` says whether slots whose runs came to nothing are booked again.
    """

    name: str
    who: tuple[str, ...]
    tests: frozenset[str] | None = None
    classes: frozenset[SchedulingClass] | None = None
    spec: Predicate | None = None
    contexts: frozenset[str] | None = None
    targets: TargetSet | None = None
    duration_max: int | None = None
    priority_max: int | None = None
    tasks_max: int | None = None
    at_once_max: int | None = None
    quotas: tuple[PeriodQuota, ...] = ()
    openings: tuple[Opening, ...] = ()
    rank: int = PEER
    retry: bool = True

    @property
    def bounds_time(self) -> bool:
        """Return whether it matters when runs take place, and what was booked before."""
        return bool(self.openings or self.quotas) or self.at_once_max is not None

    def what_in_words(self) -> str:
        """Describe which tasks it fits: ``throughput; exclusive; duration <= "PT60S"``."""
        parts = [
            _joined_words(self.tests) if self.tests is not None else "all tests",
            _joined_words(self.classes) if self.classes is not None else None,
            None if self.spec is None else self.spec.in_words(),
            None if self.contexts is None else f"from {_joined_words(self.contexts)}",
            None if self.targets is None else f"to {_joined_words(self.targets.names)}",
            None
            if self.duration_max is None
            else f"runs of at most {duration_text(self.duration_max)}",
        ]
        return "; ".join(part for part in parts if part is not None)

    def most_in_words(self) -> str:
        """Describe how much each may have: ``priority 10; 20 open tasks``; or nothing."""
        parts = []
        if self.priority_max is not None:
            parts.append(f"priority {self.priority_max}")
        if self.rank == OWN:
            parts.append("ranks with the host's own tasks")
        if not self.retry:
            parts.append("nothing is tried again")
        if self.tasks_max is not None:
            parts.append(f"{self.tasks_max} open tasks")
        if self.at_once_max is not None:
            parts.append(f"{self.at_once_max} runs at once")
        parts += [quota.in_words() for quota in self.quotas]
        parts += [
            f"{duration_text(each.duration)} from {each.cron!r} {each.timezone or 'UTC'}"
            for each in self.openings
        ]
        return "; ".join(parts)


@dataclass(frozen=True)
class LimitRefusal:
    """A refusal of a task: the rule that comes closest, and the field that it is about.

    ``rule`` is None if no rule is for the node that asks. ``pointer`` is a place in the document of
    the task; ``allowed`` is what the rule would allow there, if that can be said.
    """

    rule: str | None
    pointer: str
    detail: Reason
    allowed: str | None = None

    @property
    def reason(self) -> Reason:
        """Return the reason: ``limit 'lab': the spec's duration is "PT2M"; at most …``."""
        return limit_refuses(self.rule, self.detail, self.allowed)


Verdict = Rule | LimitRefusal
"""The rule that allows a task, or why it is refused."""


@dataclass(frozen=True)
class HostLimits:
    """The limits of a host: groups of nodes, rules in their order, and caps of targets.

    ``shares`` are those of leads in its time; without any lead nothing is restricted.
    ``resources`` are the numbers of the counted resources that the host keeps, by name.
    """

    who: Mapping[str, Who]
    rules: tuple[Rule, ...]
    caps: tuple[Cap, ...] = ()
    shares: LeadShares = field(default_factory=lambda: LeadShares({}, 1))
    resources: Mapping[str, int] = field(default_factory=dict)

    def groups_of(self, asker: Asker) -> frozenset[str]:
        """Return the groups that a node belongs to: those that name it, or else the others."""
        named = {name for name, group in self.who.items() if group.names(asker)}
        others = {name for name, group in self.who.items() if group.has_unnamed(asker)}
        return frozenset(named or others)

    def groups_of_user(self, user: User) -> frozenset[str]:
        """Return the groups of users that a user belongs to; none bound users in no group."""
        named = {name for name, group in self.who.items() if group.names_user(user)}
        if not named and user.is_client:
            named = {name for name, group in self.who.items() if group.clients}
        return frozenset(named or (name for name, group in self.who.items() if group.users))

    @property
    def bounds_users(self) -> bool:
        """Return whether users of this host have limits."""
        return self.bounds_tokens or self.bounds_clients

    @property
    def bounds_clients(self) -> bool:
        """Return whether there are limits for users who are known by address alone."""
        return any(group.clients or group.users for group in self.who.values())

    @property
    def bounds_tokens(self) -> bool:
        """Return whether users with a token have limits."""
        return any(group.has_users for group in self.who.values())

    def judge_user(self, user: User, task: TaskFacts, priority: int) -> Verdict | None:
        """Return the first rule that fits, or why none does; None if the user is not limited."""
        groups = self.groups_of_user(user)
        if groups:
            return self._verdict_of_rules(groups, task, priority, user)
        if user.bound and user.token != FOLLOWER:
            if priority > 0:
                return LimitRefusal(None, "/priority", priority_without_rule(priority), "at most 0")
            if task.budgeted:
                return _budget_refusal(None)
        return next(_inquiry_misfits(None, task, user), None)

    def judge(self, asker: Asker, task: TaskFacts) -> Verdict:
        """Return the first rule that fits, or why none does; or which cap no run of it fits."""
        groups = self.groups_of(asker)
        verdict = self._target_cap_refusal(task) or self._verdict_of_rules(groups, task)
        if isinstance(verdict, LimitRefusal):
            return verdict
        return self._group_cap_refusal(groups, task) or verdict

    def _group_cap_refusal(self, groups: frozenset[str], task: TaskFacts) -> LimitRefusal | None:
        """Return the cap of these groups that not even one run of a task fits."""
        for cap in self.caps:
            if not cap.bounds(groups, task.scheduling_class):
                continue
            if cap.bps is not None and task.rate > cap.bps:
                detail = run_moves_at(rate_text(task.rate))
                allowed = f"at most {rate_text(cap.bps)}"
                return LimitRefusal(cap.name, "/test/spec", detail, allowed)
            if (large := _quota_misfit(cap.name, cap.quotas, task)) is not None:
                return large
        return None

    def _target_cap_refusal(self, task: TaskFacts) -> LimitRefusal | None:
        for cap in self.caps:
            for host in task.targets:
                if cap.bps is not None and task.rate > cap.bps and cap.applies_to(host):
                    detail = run_sends_at(rate_text(task.rate), host)
                    allowed = f"at most {rate_text(cap.bps)}"
                    return LimitRefusal(cap.name, "/test/spec", detail, allowed)
        return None

    def _verdict_of_rules(
        self,
        groups: frozenset[str],
        task: TaskFacts,
        priority: int = 0,
        user: User | None = None,
    ) -> Verdict:
        closest: list[LimitRefusal] | None = None
        for rule in self.rules:
            if groups.isdisjoint(rule.who):
                continue
            misfits = list(_misfits(rule, task))
            if user is None:
                misfits += _inward_misfits(rule, task, "another node")
            else:
                misfits += _priority_misfits(rule, task, priority)
                misfits += _inquiry_misfits(rule, task, user)
            if not misfits:
                return rule
            if closest is None or _distance(misfits) < _distance(closest):
                closest = misfits
        if closest is None:
            who = "this node" if user is None else "this user"
            return LimitRefusal(None, "", no_rule_for_asker(who))
        return closest[0]

    def rule(self, name: str | None) -> Rule | None:
        """Return the rule of this name, if there is one."""
        return next((rule for rule in self.rules if rule.name == name), None)

    @property
    def names(self) -> list[str]:
        """Return the names of all rules and caps."""
        return [*(rule.name for rule in self.rules), *(cap.name for cap in self.caps)]

    @property
    def quotas(self) -> set[tuple[str, PeriodQuota]]:
        """Return the quotas of all rules and caps, each with its name."""
        named = [(each.name, each.quotas) for each in self.rules]
        named += [(each.name, each.quotas) for each in self.caps]
        return {(name, quota) for name, quotas in named for quota in quotas}

    def cap(self, name: str) -> Cap | None:
        """Return the cap of this name, if there is one."""
        return next((cap for cap in self.caps if cap.name == name), None)


def counted_priority(priority: int, rule: Rule | None, highest: int) -> int:
    """Return the priority as which that of another node's task counts here.

    ``highest`` applies where the rule sets no maximum. The owner can always use a higher one.
    """
    most = highest if rule is None or rule.priority_max is None else rule.priority_max
    return min(priority, most, PRIORITY_MAX - 1)


def rank_under(rule: Rule | None) -> int:
    """Return the rank of the runs of another node's task under a rule."""
    return PEER if rule is None else rule.rank


def _distance(misfits: Sequence[LimitRefusal]) -> tuple[int, bool]:
    """Return how far a task is from a rule: one for another kind of tests is farther away."""
    return len(misfits), any(each.pointer == "/test/type" for each in misfits)


def _misfits(rule: Rule, task: TaskFacts) -> Iterator[LimitRefusal]:
    """Yield why a rule does not fit a task."""
    if rule.tests is not None and task.test not in rule.tests:
        detail = test_not_of_rule(task.test)
        yield LimitRefusal(rule.name, "/test/type", detail, _joined_words(rule.tests))
    if rule.classes is not None and task.scheduling_class not in rule.classes:
        detail = class_not_of_rule(task.test, task.scheduling_class)
        yield LimitRefusal(rule.name, "/test/type", detail, _joined_words(rule.classes))
    if rule.spec is not None:
        yield from _spec_misfits(rule.name, rule.spec, task.spec)
    if rule.contexts is not None and task.context not in rule.contexts:
        detail = context_not_of_rule(task.context)
        yield LimitRefusal(rule.name, "/contexts", detail, _joined_words(rule.contexts))
    if rule.duration_max is not None and task.duration > rule.duration_max:
        allowed = f"at most {duration_text(rule.duration_max)}"
        yield LimitRefusal(rule.name, "/test/spec", run_occupies_host(task.duration), allowed)
    yield from _target_misfits(rule, task)
    yield from _quota_misfits(rule, task)


def _target_misfits(rule: Rule, task: TaskFacts) -> Iterator[LimitRefusal]:
    """Yield the first host that a rule does not let be measured."""
    if rule.targets is None:
        return
    for host in task.targets:
        if not rule.targets.has(host):
            allowed = _joined_words(rule.targets.names)
            yield LimitRefusal(rule.name, "/test/spec", target_not_of_rule(host), allowed)
            return


def _inward_misfits(rule: Rule | None, task: TaskFacts, whom: str) -> Iterator[LimitRefusal]:
    """Yield why somebody is not told of this host, unless a rule names the test."""
    named = rule is not None and rule.tests is not None and task.test in rule.tests
    if task.inward is not None and not named:
        detail = test_tells_of_host(task.test, whom, task.inward)
        name = None if rule is None else rule.name
        yield LimitRefusal(name, "/test/spec", detail, "under a rule that names the test")


def _inquiry_misfits(rule: Rule | None, task: TaskFacts, user: User) -> Iterator[LimitRefusal]:
    """Yield why a bound user does not inquire of this host what its spec says."""
    if user.bound and task.inquires:
        yield from _inward_misfits(rule, task, "this user")


def _budget_refusal(rule: str | None) -> LimitRefusal:
    """Return why a task of a user whose priorities are bounded has no budget of displacements."""
    allowed = "under a rule without priority_max"
    return LimitRefusal(rule, "/schedule/displacement_budget", budget_needs_priority(), allowed)


def _priority_misfits(rule: Rule, task: TaskFacts, priority: int) -> Iterator[LimitRefusal]:
    """Yield why a user's task has a priority that a rule does not allow."""
    if rule.priority_max is not None and task.budgeted:
        yield _budget_refusal(rule.name)
    if rule.priority_max is not None and priority > rule.priority_max:
        allowed = f"at most {rule.priority_max}"
        yield LimitRefusal(rule.name, "/priority", priority_above_rule(priority), allowed)


def _quota_misfits(rule: Rule, task: TaskFacts) -> Iterator[LimitRefusal]:
    """Yield why not even one run fits into a quota."""
    for quota in rule.quotas:
        if quota.quantity is Quantity.BYTES and task.bytes is None:
            detail = unknown_bytes_of_run(task.test)
            yield LimitRefusal(rule.name, "/test/spec", detail, quota.in_words())
        elif (large := _quota_misfit(rule.name, (quota,), task)) is not None:
            yield large


def _quota_misfit(
    limit: str, quotas: Sequence[PeriodQuota], task: TaskFacts
) -> LimitRefusal | None:
    """Return why not even one run fits one of these quotas; what is not known counts as nothing."""
    amounts = RunAmounts(task.duration, task.bytes or 0)
    for quota in quotas:
        if quota.exceeded(0, amount := amounts.of(quota.quantity)):
            detail = run_exceeds_quota(quota.text_of(amount))
            return LimitRefusal(limit, "/test/spec", detail, quota.in_words())
    return None


def _spec_misfits(
    rule: str, predicate: Predicate, spec: Mapping[str, Any]
) -> Iterator[LimitRefusal]:
    """Yield the conditions on fields of the spec that are not met, each at its field."""
    attributes = {name: value for name, value in spec.items() if _is_scalar(value)}
    for part in predicate.parts if isinstance(predicate, AllOf) else (predicate,):
        if part.met_by(attributes):
            continue
        if not isinstance(part, Condition):
            yield LimitRefusal(rule, "/test/spec", spec_not_within_rule(), part.in_words())
            continue
        field = part.attribute
        value = attributes.get(field)
        detail = spec_field_misfits(field, None if value is None else format_value(value))
        yield LimitRefusal(rule, f"/test/spec/{field}", detail, part.in_words())


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | float | bool)


def _joined_words(words: frozenset[str] | Sequence[str]) -> str:
    return ", ".join(sorted(words)) or "nothing"
