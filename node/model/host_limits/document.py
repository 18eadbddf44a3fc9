"""The file of the owner's limits: TOML that is read into :class:`HostLimits`.

A file looks like this::

    version = 1

    [who.lab]
    keys = ["ed25519:…"]                 # nodes by their keys, as parley node list shows them
    match = { country = "DE" }           # or by their cards, with the predicates of pools

    [who.strangers]
    others = true                        # all known nodes that no other group names

    [[rule]]
    name = "throughput of the lab"
    who = ["lab"]
    tests = ["throughput"]
    spec = { duration = { "<=" = "PT60S" } }
    when = { cron = "0 22 * * *", for = "PT8H", timezone = "Europe/Berlin" }
    most = { runs_at_once = 2, runs = "24/P1D", time = "PT10M/P1D", bytes = "50G/P1D", tasks = 20 }
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError

from node.model import times
from node.model.classes import SchedulingClass
from node.model.contexts import ContextWord
from node.model.errors import FieldFault, InvalidDocument
from node.model.host_limits.caps import Cap
from node.model.host_limits.closed import Opening
from node.model.host_limits.quotas import PeriodQuota, Quantity, parse_quota
from node.model.host_limits.rules import HostLimits, Rule, TargetSet, Who
from node.model.lead_shares import OTHERS, LeadShares
from node.model.predicates import Predicate, conditions, parse
from node.model.ranks import OWN, PEER
from node.model.resources import NUMBER_MAX, RESOURCE
from node.model.similar import suggestion
from node.model.targets import Network
from node.model.toml import parse_toml
from node.model.wire.fields import FROM_OUTSIDE, Count, Document, Duration, Name
from node.model.wire.nodes import Identity
from node.model.wire.shares import LEADS_MAX, Share
from node.model.wire.tasks import PRIORITY_MAX
from node.model.wire.validation import faults_of

FILE_BYTES_MAX: Final = 1_000_000
"""Maximum length of a file of limits."""

DEFAULT: Final = """\
# What other nodes may have of a host whose owner has written no limits.
version = 1

[who.others]
others = true

[[rule]]                               # one minute of each hour for each node
name = "exclusive runs"
who = ["others"]
class = ["exclusive"]
priority_max = 0
most = { time = "PT1M/PT1H", tasks = 100 }

[[rule]]                               # normal runs overlap each other, and no exclusive ones
name = "normal runs"
who = ["others"]
class = ["normal"]
priority_max = 0
most = { runs_at_once = 10, time = "PT10M/PT1H", bytes = "6G/P1D", tasks = 100 }

[[rule]]
name = "background runs"
who = ["others"]
class = ["background", "background-multi"]
priority_max = 0
most = { runs_at_once = 10, bytes = "6G/P1D", tasks = 100 }

[[cap]]                                # all these nodes together: many keys have no more than three
name = "exclusive runs of all others"
who = ["others"]
class = ["exclusive"]
time = "PT3M/PT1H"
bytes = "600G/P1D"                     # as far as it is known beforehand what a run moves
tasks = 300

[[cap]]
name = "exclusive runs of each other"
who = ["others"]
class = ["exclusive"]
each = true
bytes = "200G/P1D"

[[cap]]
name = "normal runs of all others"
who = ["others"]
class = ["normal"]
time = "PT30M/PT1H"
bytes = "20G/P1D"
tasks = 300

[[cap]]                                # they overlap exclusive runs of the host's own tasks
name = "background runs of all others"
who = ["others"]
class = ["background", "background-multi"]
bytes = "20G/P1D"
bps = 10_000_000
tasks = 300

[[cap]]
name = "background runs of each other"
who = ["others"]
class = ["background", "background-multi"]
each = true
bps = 3_000_000

[who.clients]                          # of pScheduler, where its façade is open to them
clients = true

[[rule]]
name = "clients of pScheduler"
who = ["clients"]
priority_max = 0
most = { tasks = 100 }

[[cap]]                                # to one target that takes no part, all other nodes together
name = "targets"
runs = "360/PT1H"
bps = 1_000_000
"""
"""The limits that apply where there is no file; docs/reference/limits.md has them, too."""

EVERYTHING: Final = """\
# All known nodes have the same owner, as in a lab: they may have what all bounds allow.
version = 1

[who.others]
others = true

[[rule]]                               # these tell of a host under rules that name them only
name = "tests of the host itself"
who = ["others"]
tests = ["dns", "interface", "trace"]

[[rule]]
name = "known nodes"
who = ["others"]
"""
"""The limits of nodes that trust each other with everything."""

_BUILT_IN: Final = frozenset({"participants", "public", "private"})
"""Names of targets that need no networks: hosts that take part always are targets."""

_KEY: Final = re.compile(r"ed25519:[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]")
RuleName = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,100}$")]
_LISTED = Field(None, min_length=1, max_length=1000)


def _as_list(value: object) -> object:
    """Return a value that may be written without a list as a list of one."""
    return value if isinstance(value, list | tuple) else (value,)


QuotaTexts = Annotated[
    tuple[Annotated[str, Field(max_length=100)], ...],
    BeforeValidator(_as_list),
    Field(max_length=4),
]


class OpeningDocument(Document):
    """Recurring time in which a rule admits runs."""

    cron: Annotated[str, Field(max_length=200)]
    duration: Annotated[Duration, Field(gt=0, le=31 * times.DAY)] = Field(alias="for")
    timezone: Annotated[str, Field(max_length=100)] | None = None


class WhoDocument(Document):
    """A group of nodes or of users, ``[who.NAME]``."""

    keys: tuple[Identity, ...] = Field((), max_length=1000)
    match: dict[str, Any] | None = None
    others: bool = Field(default=False, strict=True)
    tokens: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        (), max_length=1000
    )
    campaigns: tuple[Name, ...] = Field((), max_length=1000)
    networks: Annotated[
        tuple[Annotated[str, Field(max_length=100)], ...],
        BeforeValidator(_as_list),
        Field(max_length=1000),
    ] = ()
    users: bool = Field(default=False, strict=True)
    clients: bool = Field(default=False, strict=True)


class MostDocument(Document):
    """The amounts that one node or user may have under a rule, ``[rule.most]``."""

    tasks: Count | None = None
    runs_at_once: Count | None = None
    runs: QuotaTexts = ()
    time: QuotaTexts = ()
    bytes: QuotaTexts = ()


class TargetsDocument(Document):
    """Named targets, ``[targets.NAME]``."""

    networks: Annotated[
        tuple[Annotated[str, Field(max_length=100)], ...],
        BeforeValidator(_as_list),
        Field(min_length=1, max_length=1000),
    ]


class RuleDocument(Document):
    """A rule, ``[[rule]]``."""

    name: RuleName
    who: tuple[Name, ...] = Field(min_length=1, max_length=100)
    tests: tuple[Name, ...] | None = _LISTED
    classes: tuple[SchedulingClass, ...] | None = Field(
        None, alias="class", min_length=1, max_length=4
    )
    spec: dict[str, Any] | None = None
    contexts: tuple[ContextWord, ...] | None = _LISTED
    to: tuple[Name, ...] | None = _LISTED
    duration_max: Annotated[Duration, Field(gt=0)] | None = None
    priority_max: int | None = Field(None, ge=-PRIORITY_MAX - 1, lt=PRIORITY_MAX, strict=True)
    when: Annotated[
        tuple[OpeningDocument, ...], BeforeValidator(_as_list), Field(max_length=20)
    ] = ()
    rank: Literal["own", "peer"] = "peer"
    retry: bool = Field(default=True, strict=True)
    most: MostDocument = MostDocument()


class PrefixDocument(Document):
    """The lengths of the networks in which a cap counts targets together."""

    v4: Annotated[int, Field(ge=8, le=32, strict=True)] = 32
    v6: Annotated[int, Field(ge=16, le=128, strict=True)] = 64


class CapDocument(Document):
    """A cap, ``[[cap]]``: what one target gets from this host, whoever asks.

    Or what all nodes of some groups have together.
    """

    name: RuleName
    networks: (
        Annotated[
            tuple[Annotated[str, Field(max_length=100)], ...],
            BeforeValidator(_as_list),
            Field(min_length=1, max_length=1000),
        ]
        | None
    ) = None
    prefix: PrefixDocument = PrefixDocument()
    runs: QuotaTexts = ()
    time: QuotaTexts = ()
    bytes: QuotaTexts = ()
    bps: Annotated[int, Field(gt=0, le=10**15, strict=True)] | None = None
    who: tuple[Name, ...] | None = Field(None, min_length=1, max_length=100)
    classes: tuple[SchedulingClass, ...] | None = Field(
        None, alias="class", min_length=1, max_length=4
    )
    each: bool = Field(default=False, strict=True)
    tasks: Count | None = None


class ResourceDocument(Document):
    """A counted resource of the fleet that this node keeps, ``[[resource]]``."""

    name: Annotated[str, Field(pattern=RESOURCE)]
    number: Annotated[int, Field(gt=0, le=NUMBER_MAX, strict=True)]


class LimitsDocument(Document):
    """The whole file."""

    version: Annotated[int, Field(ge=1, le=1, strict=True)]
    who: dict[Name, WhoDocument] = Field(default_factory=dict, max_length=1000)
    targets: dict[Name, TargetsDocument] = Field(default_factory=dict, max_length=1000)
    rule: tuple[RuleDocument, ...] = Field((), max_length=1000)
    cap: tuple[CapDocument, ...] = Field((), max_length=100)
    resource: tuple[ResourceDocument, ...] = Field((), max_length=100)
    shares: dict[str, Share] | None = Field(None, min_length=1, max_length=LEADS_MAX)


def parse_limits(text: str) -> HostLimits:
    """Read a file of limits.

    :raises InvalidDocument: it is not TOML, or a field is wrong; with a pointer to each fault.
    """
    if len(text) > FILE_BYTES_MAX:
        raise InvalidDocument([FieldFault("", f"is longer than {FILE_BYTES_MAX} characters")])
    try:
        raw = parse_toml(text)
    except ValueError as error:
        raise InvalidDocument([FieldFault("", f"is not TOML: {error}")]) from None
    try:
        document = LimitsDocument.model_validate(raw, context=FROM_OUTSIDE)
    except ValidationError as error:
        raise InvalidDocument(faults_of(error, LimitsDocument)) from None
    faults = list(_combination_faults(document))
    reader = _Reader(faults)
    targets = {
        name: reader.networks(each.networks, f"/targets/{name}/networks") or ()
        for name, each in document.targets.items()
    }
    limits = HostLimits(
        {name: _who(name, each, reader) for name, each in document.who.items()},
        tuple(_rule(number, each, reader, targets) for number, each in enumerate(document.rule)),
        tuple(_cap(number, each, reader) for number, each in enumerate(document.cap)),
        _shares(document.shares),
        {each.name: each.number for each in document.resource},
    )
    faults += _rank_faults(limits)
    if faults:
        raise InvalidDocument(faults)
    return limits


def _rank_faults(limits: HostLimits) -> Iterator[FieldFault]:
    """Yield the ranks of rules for users alone: they are for nodes."""
    for number, rule in enumerate(limits.rules):
        groups = [limits.who[name] for name in rule.who if name in limits.who]
        if not groups or any(group.has_nodes for group in groups):
            continue
        if rule.rank == OWN:
            fault = "is for other nodes, and this rule is for users of this host only; leave it out"
            yield FieldFault(f"/rule/{number}/rank", fault)


def _combination_faults(document: LimitsDocument) -> Iterator[FieldFault]:
    """Yield what is wrong with the parts together."""
    yield from _group_faults(document)
    yield from _name_faults(document)
    yield from _share_faults(document.shares)
    yield from _cap_faults(document)
    yield from _target_faults(document)
    named = [(f"/rule/{number}", each.who) for number, each in enumerate(document.rule)]
    named += [(f"/cap/{number}", each.who or ()) for number, each in enumerate(document.cap)]
    for pointer, groups in named:
        for place, who in enumerate(groups):
            if who not in document.who:
                fault = f"there is no [who.{who}]; {suggestion(who, sorted(document.who))}"
                yield FieldFault(f"{pointer}/who/{place}", fault)


def _cap_faults(document: LimitsDocument) -> Iterator[FieldFault]:
    """Yield what is wrong with caps: each bounds something, of targets or of groups of nodes."""
    for number, cap in enumerate(document.cap):
        pointer, of_groups = f"/cap/{number}", cap.who is not None
        if not (cap.runs or cap.time or cap.bytes or cap.bps or (of_groups and cap.tasks)):
            fault = "caps nothing; give runs, time, bytes, or bps; for groups of nodes also tasks"
            yield FieldFault(pointer, fault)
        set_fields = cap.model_fields_set
        unfit = {"networks", "prefix"} if of_groups else {"classes", "each", "tasks"}
        for field in sorted(unfit & set_fields):
            kind, other = ("of groups", "targets") if of_groups else ("of targets", "groups (who)")
            fault = f"is for caps of {other}, and this one is {kind}; leave it out"
            yield FieldFault(f"{pointer}/{'class' if field == 'classes' else field}", fault)
        for place, name in enumerate(cap.who or ()):
            group = document.who.get(name)
            if group is not None and not (group.keys or group.match is not None or group.others):
                fault = "has users of this host only, and caps are for other nodes; use a rule"
                yield FieldFault(f"{pointer}/who/{place}", fault)


def _target_faults(document: LimitsDocument) -> Iterator[FieldFault]:
    for name in document.targets:
        if name in _BUILT_IN:
            yield FieldFault(f"/targets/{name}", "is built in; give it another name")
    for number, rule in enumerate(document.rule):
        for place, name in enumerate(rule.to or ()):
            if name not in document.targets and name not in _BUILT_IN:
                hint = suggestion(name, sorted({*document.targets, *_BUILT_IN}))
                fault = f"there is no [targets.{name}]; {hint}"
                yield FieldFault(f"/rule/{number}/to/{place}", fault)


def _share_faults(shares: Mapping[str, int] | None) -> Iterator[FieldFault]:
    if shares is None:
        return
    for lead in shares:
        if lead != OTHERS and _KEY.fullmatch(lead) is None:
            fault = (
                "is not the key of a node; write ed25519:… as parley node list shows it, or "
                f"{OTHERS}"
            )
            yield FieldFault(f"/shares/{lead}", fault)
    if not sum(shares.values()) or set(shares) == {OTHERS}:
        fault = "serve nobody first; give one lead, by its key, more than 0"
        yield FieldFault("/shares", fault)


def _shares(shares: Mapping[str, int] | None) -> LeadShares:
    if shares is None:
        return LeadShares({}, 1)
    by_lead = {lead: share for lead, share in shares.items() if lead != OTHERS}
    return LeadShares(by_lead, shares.get(OTHERS, 1))


def _name_faults(document: LimitsDocument) -> Iterator[FieldFault]:
    """Yield the names that two rules or caps have: what is used is counted by name."""
    named = [(f"/rule/{number}", each.name) for number, each in enumerate(document.rule)]
    named += [(f"/cap/{number}", each.name) for number, each in enumerate(document.cap)]
    yield from _repeated_names(named)
    resources = [(f"/resource/{number}", it.name) for number, it in enumerate(document.resource)]
    yield from _repeated_names(resources)


def _repeated_names(named: Iterable[tuple[str, str]]) -> Iterator[FieldFault]:
    """Yield the second of each two that have a name; each comes with its pointer."""
    places: dict[str, str] = {}
    for pointer, name in named:
        if name in places:
            fault = f"is also the name of {places[name]}; give each its own"
            yield FieldFault(f"{pointer}/name", fault)
        places.setdefault(name, pointer)


def _group_faults(document: LimitsDocument) -> Iterator[FieldFault]:
    for name, group in document.who.items():
        of_users = group.tokens or group.campaigns or group.networks
        of_nodes = group.keys or group.match is not None or group.others
        if not (of_nodes or of_users or group.users or group.clients):
            fault = "names nobody; give keys, match, or others = true; for users tokens, "
            fault += "campaigns, networks, users = true, or clients = true"
            yield FieldFault(f"/who/{name}", fault)
        if group.users and of_users:
            fault = "are the users that no group names; leave tokens, campaigns, and networks out"
            yield FieldFault(f"/who/{name}/users", fault)
        if group.clients and (of_users or group.users or of_nodes):
            fault = "are the clients of pScheduler that no group names; leave all others out"
            yield FieldFault(f"/who/{name}/clients", fault)
        if group.others and (group.keys or group.match is not None):
            fault = "are the nodes that no group names; leave keys and match out, or others"
            yield FieldFault(f"/who/{name}/others", fault)


class _Reader:
    """Reads the parts that have a grammar of their own, and collects their faults."""

    def __init__(self, faults: list[FieldFault]) -> None:
        self._faults = faults

    def networks(self, texts: Sequence[str] | None, pointer: str) -> tuple[Network, ...] | None:
        """Return the valid networks, None if none are given; collect the faults of the others."""
        if texts is None:
            return None
        networks = []
        for number, text in enumerate(texts):
            try:
                networks.append(ip_network(text))
            except ValueError as error:
                fault = f"{error}; write a network such as 192.0.2.0/24 or 2001:db8::/32"
                self._faults.append(FieldFault(f"{pointer}/{number}", fault))
        return tuple(networks)

    def quotas(self, most: MostDocument | CapDocument, pointer: str) -> tuple[PeriodQuota, ...]:
        """Return the valid quotas, and collect the faults of the others."""
        quotas: dict[tuple[Quantity, int], PeriodQuota] = {}
        for quantity in Quantity:
            for text in getattr(most, quantity):
                try:
                    quota = parse_quota(quantity, text)
                except ValueError as error:
                    self._faults.append(FieldFault(f"{pointer}/{quantity}", str(error)))
                    continue
                if (quantity, quota.period) in quotas:
                    fault = "has two amounts for the same period; give one"
                    self._faults.append(FieldFault(f"{pointer}/{quantity}", fault))
                quotas[quantity, quota.period] = quota
        return tuple(quotas.values())

    def openings(self, when: Sequence[OpeningDocument], pointer: str) -> tuple[Opening, ...]:
        """Return the valid openings of a rule, and collect the faults of the others."""
        openings = tuple(Opening(each.cron, each.duration, each.timezone) for each in when)
        for number, opening in enumerate(openings):
            at = pointer if len(openings) == 1 else f"{pointer}/{number}"
            self._faults += [FieldFault(at + it.pointer, it.detail) for it in opening.faults()]
        return openings

    def predicate(self, document: Mapping[str, Any] | None, pointer: str) -> Predicate | None:
        """Return the predicate; None if there is none, or it has faults."""
        if document is None:
            return None
        try:
            return parse(document, pointer)
        except InvalidDocument as error:
            self._faults += error.faults
            return None


def _who(name: str, document: WhoDocument, reader: _Reader) -> Who:
    match = reader.predicate(document.match, f"/who/{name}/match")
    return Who(
        name,
        frozenset(document.keys),
        match,
        document.others,
        frozenset(document.tokens),
        frozenset(document.campaigns),
        reader.networks(document.networks, f"/who/{name}/networks") or (),
        document.users,
        document.clients,
    )


def _targets(document: RuleDocument, named: Mapping[str, tuple[Network, ...]]) -> TargetSet | None:
    """Return the targets of a rule; None if it has all."""
    if document.to is None:
        return None
    networks = [network for name in document.to for network in named.get(name, ())]
    return TargetSet(
        document.to, tuple(networks), "public" in document.to, "private" in document.to
    )


def _rule(
    number: int,
    document: RuleDocument,
    reader: _Reader,
    targets: Mapping[str, tuple[Network, ...]],
) -> Rule:
    pointer = f"/rule/{number}"
    return Rule(
        name=document.name,
        who=document.who,
        tests=_optional_set(document.tests),
        classes=_optional_set(document.classes),
        spec=reader.predicate(document.spec, f"{pointer}/spec"),
        contexts=_optional_set(document.contexts),
        targets=_targets(document, targets),
        duration_max=document.duration_max,
        priority_max=document.priority_max,
        tasks_max=document.most.tasks,
        at_once_max=document.most.runs_at_once,
        quotas=reader.quotas(document.most, f"{pointer}/most"),
        openings=reader.openings(document.when, f"{pointer}/when"),
        rank=OWN if document.rank == "own" else PEER,
        retry=document.retry,
    )


def _cap(number: int, document: CapDocument, reader: _Reader) -> Cap:
    pointer = f"/cap/{number}"
    return Cap(
        document.name,
        reader.quotas(document, pointer),
        reader.networks(document.networks, f"{pointer}/networks"),
        document.prefix.v4,
        document.prefix.v6,
        document.bps,
        document.who or (),
        _optional_set(document.classes),
        document.each,
        document.tasks,
    )


def _optional_set(words: tuple[Any, ...] | None) -> frozenset[Any] | None:
    return None if words is None else frozenset(words)


def known_limits(text: str, fields: Mapping[str, frozenset[str]]) -> HostLimits:
    """Read a file of limits, of which all words are known to this program.

    ``fields`` has by test the fields of its spec. A condition on a field that no test of its rule
    has would never be met, and its contrary always.

    :raises InvalidDocument: it has a fault, or names a test or a field that there is not.
    """
    limits = parse_limits(text)
    faults = [
        fault
        for number, rule in enumerate(limits.rules)
        for fault in _unknown_word_faults(f"/rule/{number}", rule, fields)
    ]
    if faults:
        raise InvalidDocument(faults)
    return limits


def _unknown_word_faults(
    pointer: str, rule: Rule, fields: Mapping[str, frozenset[str]]
) -> Iterator[FieldFault]:
    tests = set(fields) if rule.tests is None else rule.tests
    for test in sorted(tests - set(fields)):
        yield FieldFault(f"{pointer}/tests", f"there is no test {test!r}; see parley test list")
    every = frozenset[str]().union(*(fields[test] for test in tests & set(fields)))
    compared = () if rule.spec is None or not every else conditions(rule.spec)
    for field in dict.fromkeys(condition.attribute for condition in compared):
        if field not in every:
            fault = f"no spec of its tests has this field; they have {', '.join(sorted(every))}"
            yield FieldFault(f"{pointer}/spec/{field}", fault)
