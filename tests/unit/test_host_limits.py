"""The limits of a host: what a file may say, and which rule decides on a task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import InvalidDocument
from node.model.host_limits.caps import Cap, CapAccount, group_accounts
from node.model.host_limits.document import DEFAULT, EVERYTHING, known_limits, parse_limits
from node.model.host_limits.quotas import PeriodQuota, Quantity
from node.model.host_limits.rules import (
    Asker,
    HostLimits,
    LimitRefusal,
    Rule,
    TaskFacts,
    User,
    Who,
    counted_priority,
)
from node.model.predicates import parse
from node.model.ranks import PEER
from node.model.wire.tasks import PRIORITY_MAX
from node.plugins import registry
from node.plugins.contracts import Inward
from tests.support.limits import NOTHING

B, C = (f"ed25519:{letter * 42}A" for letter in "BC")
LAB = f"""
version = 1

[who.lab]
keys = ["{B}"]
match = {{ country = "DE", address = {{ in-network = "192.0.2.0/24" }} }}

[who.strangers]
others = true

[[rule]]
name = "throughput"
who = ["lab"]
tests = ["throughput"]
spec = {{ duration = {{ "<=" = "PT60S" }}, protocol = "tcp" }}

[[rule]]
name = "small things"
who = ["lab", "strangers"]
class = ["background", "normal"]
duration_max = "PT5M"
priority_max = 10
most.tasks = 3
"""
TASK = TaskFacts(
    "throughput",
    SchedulingClass.EXCLUSIVE,
    {"duration": "PT30S", "protocol": "tcp", "rate": None},
    40 * times.SECOND,
)
PING = TaskFacts("rtt", SchedulingClass.BACKGROUND, {"count": 5}, 6 * times.SECOND)


def _asker(identity: str = B, **attributes: Any) -> Asker:
    return Asker(identity, attributes)


def _refused(limits: HostLimits, asker: Asker, task: TaskFacts) -> LimitRefusal:
    verdict = limits.judge(asker, task)
    assert isinstance(verdict, LimitRefusal)
    return verdict


def _allowed(limits: HostLimits, asker: Asker, task: TaskFacts) -> str:
    verdict = limits.judge(asker, task)
    assert isinstance(verdict, Rule)
    return verdict.name


def test_the_first_rule_that_fits_decides() -> None:
    """A task of the lab is under the first rule that fits it, strangers have only the other one."""
    limits = parse_limits(LAB)
    assert _allowed(limits, _asker(), TASK) == "throughput"
    assert _allowed(limits, _asker(), PING) == "small things"
    assert _allowed(limits, _asker(C), PING) == "small things"
    assert _allowed(limits, _asker(C, country="DE", address="192.0.2.7"), TASK) == "throughput"
    assert _refused(limits, _asker(C, country="DE", address="198.51.100.7"), TASK).rule


def test_a_refusal_names_the_field_of_the_closest_rule() -> None:
    """A lab's task that is too long is told what the rule for throughput allows, and where."""
    limits = parse_limits(LAB)
    spec = {**TASK.spec, "duration": "PT2M"}
    refusal = _refused(limits, _asker(), replace(TASK, spec=spec, duration=130 * times.SECOND))
    assert (refusal.rule, refusal.pointer) == ("throughput", "/test/spec/duration")
    assert refusal.allowed == 'duration <= "PT60S"'
    assert refusal.reason == (
        'limit \'throughput\': the spec\'s duration is "PT2M"; allowed: duration <= "PT60S"'
    )


OUTSIDE = """
version = 1

[who.lab]
match = { address = { in-network = "192.0.2.0/24" } }
[who.guests]
campaigns = ["guests"]
networks = ["198.51.100.0/24"]
tokens = ["pscheduler:203.0.113.7"]
[who.nodes]
others = true
[who.users]
users = true
"""


@pytest.mark.parametrize(
    ("address", "campaign", "groups"),
    [
        ("192.0.2.7", None, {"lab"}),
        ("192.0.2.7", "guests", {"lab", "guests"}),
        ("198.51.100.7", None, {"guests"}),
        ("203.0.113.7", None, {"guests"}),
        ("203.0.113.8", None, {"nodes", "users"}),
    ],
)
def test_a_lead_from_outside_is_a_node_and_a_user(
    address: str, campaign: str | None, groups: set[str]
) -> None:
    """It belongs to the groups of nodes and of users that name it, or to those of all others."""
    label = f"pscheduler:{address}"
    asker = Asker(label, {"address": address}, User(label, campaign, address))
    assert parse_limits(OUTSIDE).groups_of(asker) == groups


@pytest.mark.parametrize(
    ("changes", "pointer", "allowed"),
    [
        ({"test": "idle"}, "/test/type", "rtt"),
        ({"scheduling_class": SchedulingClass.EXCLUSIVE}, "/test/type", "background"),
        ({"spec": {"count": 50}}, "/test/spec/count", "count < 10"),
        ({"spec": {}}, "/test/spec/count", "count < 10"),
        ({"context": "interface:eth0"}, "/contexts", "interface:eth1"),
        ({"duration": times.HOUR}, "/test/spec", "at most 1 min"),
    ],
)
def test_each_condition_has_its_place(changes: Any, pointer: str, allowed: str) -> None:
    """Whichever condition a task does not meet, the refusal points at it, with what is allowed."""
    rule = Rule(
        "r",
        ("all",),
        tests=frozenset({"rtt"}),
        classes=frozenset({SchedulingClass.BACKGROUND}),
        spec=parse({"count": {"<": 10}}),
        contexts=frozenset({"interface:eth1"}),
        duration_max=times.MINUTE,
    )
    limits = HostLimits({"all": Who("all", others=True)}, (rule,))
    task = replace(PING, context="interface:eth1")
    assert limits.judge(_asker(), task) is rule
    refusal = _refused(limits, _asker(), replace(task, **changes))
    assert (refusal.rule, refusal.pointer, refusal.allowed) == ("r", pointer, allowed)


@pytest.mark.parametrize(
    ("most", "task", "detail"),
    [
        ('time = "PT1M/P1D"', replace(PING, duration=2 * times.MINUTE), "one run takes 2 min"),
        ('bytes = "1M/P1D"', replace(PING, bytes=2_000_000), "one run takes 2 MB"),
        ('bytes = "1M/P1D"', PING, "it is not known how much a rtt run of this spec moves"),
    ],
)
def test_a_run_that_exceeds_a_quota_alone_does_not_fit(
    most: str, task: TaskFacts, detail: str
) -> None:
    """A task of which not even one run is within a quota is refused when it is introduced."""
    text = f'{NOTHING}[who.a]\nothers = true\n[[rule]]\nname = "r"\nwho = ["a"]\nmost.{most}'
    refusal = _refused(parse_limits(text), _asker(), task)
    assert (refusal.pointer, refusal.detail) == ("/test/spec", detail)


TO = """
version = 1

[who.all]
others = true

[targets.own]
networks = ["192.0.2.0/24", "2001:db8::/32"]

[[rule]]
name = "r"
who = ["all"]
to = [{to}]
"""


@pytest.mark.parametrize(
    ("to", "targets", "fits"),
    [
        (["participants"], [], True),
        (["participants"], ["8.8.8.8"], False),
        (["own"], ["192.0.2.7"], True),
        (["own"], ["192.0.2.7", "192.0.3.7"], False),
        (["own"], ["0xc0000207"], True),
        (["own"], ["::ffff:192.0.2.7"], True),
        (["own"], ["2001:db8::1"], True),
        (["own"], ["own.example"], False),
        (["public"], ["any.example"], True),
        (["public"], ["8.8.8.8"], True),
        (["public"], ["10.0.0.1"], False),
        (["public"], ["2002:a00:1::"], False),
        (["public", "private"], ["10.0.0.1", "8.8.8.8"], True),
        (["private"], ["8.8.8.8"], False),
    ],
)
def test_targets_are_named(to: list[str], targets: list[str], fits: bool) -> None:  # noqa: FBT001
    """A rule that names targets fits a task all of whose targets are among these."""
    limits = parse_limits(TO.replace("{to}", ", ".join(f'"{each}"' for each in to)))
    verdict = limits.judge(_asker(), replace(PING, targets=tuple(targets)))
    assert isinstance(verdict, Rule) == fits
    if isinstance(verdict, LimitRefusal):
        assert (verdict.pointer, verdict.allowed) == ("/test/spec", ", ".join(sorted(to)))
        assert verdict.detail == f"{targets[-1]} is not among its targets"


OF_USERS = """
version = 1

[who.students]
tokens = ["alice"]
campaigns = ["course"]
networks = ["198.51.100.0/24"]

[who.guests]
users = true

[[rule]]
name = "course"
who = ["students"]
tests = ["rtt"]
priority_max = 5
"""


@pytest.mark.parametrize(
    ("user", "groups"),
    [
        (User("alice"), {"students"}),
        (User("bob", "course"), {"students"}),
        (User("bob", "default", "198.51.100.7"), {"students"}),
        (User("bob", "default", "::ffff:198.51.100.7"), {"students"}),
        (User("bob", "default", "203.0.113.7"), {"guests"}),
        (User(None), {"guests"}),
    ],
)
def test_users_are_in_groups(user: User, groups: set[str]) -> None:
    """A user is named by token, campaign, or address of origin, or is one of the others."""
    limits = parse_limits(OF_USERS)
    assert limits.groups_of_user(user) == groups
    assert isinstance(limits.judge_user(user, PING, 0), Rule) == ("students" in groups)
    assert _refused(limits, _asker(), PING).rule is None


def test_users_are_limited() -> None:
    """A rule for a user also bounds the priority; a user in no group is not limited."""
    limits = parse_limits(OF_USERS)
    refusal = limits.judge_user(User("alice"), PING, 6)
    assert isinstance(refusal, LimitRefusal)
    assert (refusal.pointer, refusal.allowed) == ("/priority", "at most 5")
    unbound = parse_limits(OF_USERS.replace("[who.guests]\nusers = true\n", ""))
    assert unbound.judge_user(User("bob"), TASK, 1000) is None
    assert not parse_limits(LAB).bounds_users


def test_a_budget_of_displacements_is_no_way_around_the_priority() -> None:
    """Users whose priorities are bounded bound no displacements, and others do."""
    limits = parse_limits(OF_USERS)
    budgeted = replace(PING, budgeted=True)
    refusal = limits.judge_user(User("alice"), budgeted, 0)
    assert isinstance(refusal, LimitRefusal)
    assert refusal.pointer == "/schedule/displacement_budget"
    unbound = parse_limits(OF_USERS.replace("priority_max = 5\n", ""))
    assert isinstance(unbound.judge_user(User("alice"), budgeted, 0), Rule)
    free = parse_limits(LAB)
    assert free.judge_user(User("bob"), budgeted, 0) is None
    bound = free.judge_user(User("bob", bound=True), budgeted, 0)
    assert isinstance(bound, LimitRefusal)
    assert bound.pointer == "/schedule/displacement_budget"


def test_without_a_rule_nothing_is_allowed() -> None:
    """A node for which there is no rule is told so."""
    assert _refused(parse_limits(NOTHING), _asker(), PING).rule is None


def test_the_default_is_safe() -> None:
    """Without a file known nodes may measure, and keep the host for a minute of an hour."""
    limits = parse_limits(DEFAULT)
    assert isinstance(limits.judge(_asker(), replace(PING, bytes=500)), Rule)
    unknown = _refused(limits, _asker(), PING)
    assert unknown.detail == "it is not known how much a rtt run of this spec moves"
    fast = replace(PING, bytes=10**9)
    assert _refused(limits, _asker(), fast).rule == "background runs of all others"
    rule = limits.judge(_asker(), TASK)
    assert isinstance(rule, Rule)
    assert (counted_priority(1000, rule, 1000), rule.rank) == (0, PEER)
    refusal = _refused(limits, _asker(), replace(TASK, duration=times.DAY))
    assert (refusal.detail, refusal.allowed) == ("one run takes 1 d", "1 min per hour")
    closing = replace(TASK, scheduling_class=SchedulingClass.NORMAL, duration=times.DAY)
    refusal = _refused(limits, _asker(), closing)
    assert (refusal.rule, refusal.allowed) == ("normal runs", "10 min per hour")
    assert limits.cap("targets") == Cap(
        "targets", (PeriodQuota(Quantity.RUNS, 360, times.HOUR),), bps=10**6
    )
    without_comment = DEFAULT.partition("\n")[2]
    assert without_comment in Path("docs/reference/limits.md").read_text()
    assert isinstance(parse_limits(EVERYTHING).judge(_asker(), TASK), Rule)


def test_by_default_no_node_has_what_all_others_share() -> None:
    """One node has at most a third of each quota and rate of its group, and of its tasks."""
    limits = parse_limits(DEFAULT)
    for kind in ("exclusive", "normal", "background"):
        [rule] = [it for it in limits.rules if it.name == f"{kind} runs"]
        cap = limits.cap(f"{kind} runs of all others")
        assert cap is not None
        whole = {(it.quantity, it.period): it.most for it in cap.quotas}
        own = [cap for cap in limits.caps if cap.name == f"{kind} runs of each other"]
        for quota in (*rule.quotas, *(quota for cap in own for quota in cap.quotas)):
            assert 3 * quota.most <= whole.pop((quota.quantity, quota.period))
        assert whole == {}
        rates = [cap.bps for cap in own if cap.bps is not None]
        assert [3 * rate <= (cap.bps or 0) for rate in rates] == [True] * (cap.bps is not None)
        assert rule.tasks_max is not None
        assert cap.tasks_max is not None
        assert 3 * rule.tasks_max <= cap.tasks_max


def test_what_a_host_alone_sees() -> None:
    """Results tell of the host itself under a rule that names the test, and under no other."""
    background = SchedulingClass.BACKGROUND
    told = TaskFacts(
        "dns", background, {}, times.SECOND, bytes=1, inward="what its resolvers answer"
    )
    refusal = _refused(parse_limits(DEFAULT), _asker(), told)
    assert refusal.reason == (
        "limit 'background runs': dns of this spec would tell another node what its resolvers "
        "answer; allowed: under a rule that names the test"
    )
    assert _allowed(parse_limits(DEFAULT), _asker(), replace(told, inward=None))
    assert _allowed(parse_limits(EVERYTHING), _asker(), told) == "tests of the host itself"
    named = DEFAULT + '[[rule]]\nname = "names"\nwho = ["others"]\ntests = ["dns"]\n'
    assert _allowed(parse_limits(named), _asker(), told) == "names"
    _refused(parse_limits(named), _asker(), replace(told, test="interface"))


def test_which_tests_tell_of_a_host() -> None:
    """Answers of resolvers, names of hops, and traffic of interfaces are what a host alone sees."""
    specs: dict[str, list[tuple[dict[str, Any], bool]]] = {
        "dns": [({"name": "x.example"}, True), ({"name": "x", "server": "192.0.2.7"}, False)],
        "trace": [({"dest": "192.0.2.7", "names": True}, True), ({"dest": "192.0.2.7"}, False)],
        "interface": [({}, True)],
    }
    for name, test in registry.tests().items():
        for document, tells in specs.get(name, [(dict(test.example), False)]):
            spec = test.spec_model.model_validate(document)
            assert (isinstance(test, Inward) and test.inward(spec) is not None) is tells, name


@given(
    st.integers(-PRIORITY_MAX - 1, PRIORITY_MAX),
    st.one_of(st.none(), st.integers(-PRIORITY_MAX - 1, PRIORITY_MAX - 1)),
    st.integers(-PRIORITY_MAX - 1, PRIORITY_MAX),
)
def test_the_owner_can_always_go_first(asked: int, most: int | None, highest: int) -> None:
    """A peer's priority counts up to what its rule allows, and never as the highest there is."""
    rule = Rule("r", ("all",), priority_max=most)
    counted = counted_priority(asked, rule, highest)
    assert counted <= asked
    assert counted <= (highest if most is None else most)
    assert counted < PRIORITY_MAX


RULES = st.builds(
    Rule,
    name=st.sampled_from(["one", "two", "three"]),
    who=st.sampled_from([("lab",), ("others",), ("lab", "others")]),
    tests=st.sampled_from([None, frozenset({"rtt"}), frozenset({"rtt", "throughput"})]),
    classes=st.sampled_from([None, frozenset({SchedulingClass.BACKGROUND})]),
    duration_max=st.sampled_from([None, 10 * times.SECOND, times.MINUTE]),
)
WHO = {"lab": Who("lab", keys=frozenset({B})), "others": Who("others", others=True)}


@given(st.lists(RULES, max_size=4), RULES, st.sampled_from([B, C]), st.sampled_from([TASK, PING]))
def test_a_further_rule_at_the_end_takes_nothing_away(
    rules: list[Rule], further: Rule, identity: str, task: TaskFacts
) -> None:
    """An allowed task stays allowed by the same rule, whatever rule is added behind it."""
    before = HostLimits(WHO, tuple(rules)).judge(_asker(identity), task)
    after = HostLimits(WHO, (*rules, further)).judge(_asker(identity), task)
    if isinstance(before, Rule):
        assert after == before
    elif isinstance(after, Rule):
        assert after == further


FAULTY: list[tuple[str, str, str]] = [
    ("version = 2", "/version", "give 1 or less"),
    ("[who", "", "is not TOML"),
    ("version = 1\n[who.a]", "/who/a", "names nobody"),
    (f'version = 1\n[who.a]\nothers = true\nkeys = ["{B}"]', "/who/a/others", "leave keys"),
    ('version = 1\n[who.a]\nusers = true\ntokens = ["b"]', "/who/a/users", "leave tokens"),
    (TO.replace("{to}", '"ours"'), "/rule/0/to/0", "participants, private, public"),
    (
        TO.replace("{to}", '"own"').replace("targets.own", "targets.public"),
        "/targets/public",
        "built",
    ),
    (OF_USERS + 'rank = "own"', "/rule/0/rank", "for users of this host only"),
    ('version = 1\n[who.a]\nkeys = ["b"]', "/who/a/keys/0", "ed25519: and 43 characters"),
    ("version = 1\n[who.a]\nmatch = { X = 1 }", "/who/a/match/X", "not a valid attribute"),
    ('version = 1\n[[rule]]\nname = "r"\nwho = ["a"]', "/rule/0/who/0", "there is no [who.a]"),
    (
        'version = 1\n[who.a]\nothers = true\n[[rule]]\nname = "r"\nwho = ["a"]\nclass = "all"',
        "/rule/0/class",
        "must be a list",
    ),
    (LAB.replace('"<="', '"=<"'), "/rule/0/spec/duration/=<", "is not a comparison"),
    (
        LAB.replace('name = "small things"', 'name = "throughput"'),
        "/rule/1/name",
        "name of /rule/0",
    ),
    (LAB.replace("most.tasks", "most.task"), "/rule/1/most/task", "no such field"),
    (LAB.replace('["throughput"]', '["thruput"]'), "/rule/0/tests", "there is no test 'thruput'"),
    (LAB.replace("protocol =", "manner ="), "/rule/0/spec/manner", "has this field"),
    (
        LAB.replace('duration_max = "PT5M"', 'spec = { not = { length = { ">" = 3 } } }'),
        "/rule/1/spec/length",
        "has this field",
    ),
    (LAB.replace("most.tasks = 3", 'most.runs = "3"'), "/rule/1/most/runs", "such as 24/P1D"),
    (LAB.replace("most.tasks = 3", 'most.time = "PT1M/PT5M"'), "/rule/1/most/time", "whole hours"),
    (
        LAB.replace("most.tasks = 3", 'when = { cron = "61 * * * *", for = "PT1H" }'),
        "/rule/1/when/cron",
        "minute",
    ),
    (f"{NOTHING}[shares]\nb = 3", "/shares/b", "is not the key of a node"),
    (f"{NOTHING}[shares]\nothers = 3", "/shares", "serve nobody first"),
    (f'{NOTHING}[shares]\n"{B}" = -1', f"/shares/{B}", "give 0 or more"),
    (LAB.replace("PT5M", "5 minutes"), "/rule/1/duration_max", "is not a duration"),
]


FIELDS = {"throughput": frozenset({"duration", "protocol"})}


@pytest.mark.parametrize(("text", "pointer", "says"), FAULTY)
def test_a_fault_has_its_place(text: str, pointer: str, says: str) -> None:
    """A file with a fault is refused, with a pointer to the fault."""
    with pytest.raises(InvalidDocument) as refused:
        known_limits(text, FIELDS)
    faults = [fault for fault in refused.value.faults if fault.pointer == pointer]
    assert faults, refused.value.faults
    assert says in faults[0].detail


def test_fields_are_known_as_documents_write_them() -> None:
    """A rule compares the class of an idle run, whose field has another name in the program."""
    rule = '[[rule]]\nname = "r"\nwho = ["all"]\ntests = ["idle"]\nspec = { class = "background" }'
    text = f"{NOTHING}[who.all]\nothers = true\n{rule}"
    [read] = known_limits(text, registry.spec_fields(registry.tests())).rules
    assert read.spec is not None


_CAP = 'version = 1\n[who.o]\nothers = true\n[who.u]\nusers = true\n[[cap]]\nname = "c"\n'


@pytest.mark.parametrize(
    ("text", "pointer", "fault"),
    [
        ('who = ["o"]', "/cap/0", "caps nothing; give runs, time, bytes, or bps"),
        ('who = ["o"]\nbps = 1\nprefix = { v4 = 24 }', "/cap/0/prefix", "is for caps of targets"),
        ('bps = 1\nclass = ["normal"]', "/cap/0/class", "is for caps of groups (who)"),
        ("bps = 1\neach = true", "/cap/0/each", "is for caps of groups (who)"),
        ("bps = 1\ntasks = 3", "/cap/0/tasks", "is for caps of groups (who)"),
        ('who = ["x"]\nbps = 1', "/cap/0/who/0", "there is no [who.x]"),
        ('who = ["u"]\nbps = 1', "/cap/0/who/0", "has users of this host only"),
    ],
)
def test_a_cap_is_of_targets_or_of_groups(text: str, pointer: str, fault: str) -> None:
    """A cap that mixes both, or that nobody can reach, is refused with the field."""
    with pytest.raises(InvalidDocument) as refused:
        parse_limits(_CAP + text)
    assert (refused.value.faults[0].pointer, fault in refused.value.faults[0].detail) == (
        pointer,
        True,
    )


def test_a_cap_of_groups_counts_for_all_or_for_each() -> None:
    """A cap with who says for whom it counts, in words and under the account of a task."""
    text = _CAP + 'who = ["o"]\nclass = ["normal"]\nruns = "4/PT1H"\ntasks = 3\n'
    for each, account, words in ((False, "all", "all nodes together"), (True, "b", "each node")):
        [cap] = parse_limits(f"{text}each = {str(each).lower()}\n").caps
        assert cap.in_words() == f"4 runs per hour, 3 open tasks for normal runs of {words} of o"
        normal, groups = SchedulingClass.NORMAL, frozenset({"o"})
        assert [*group_accounts([cap], groups, "b", normal, 7)] == [CapAccount("c", account)]
        assert [*group_accounts([cap], groups, "b", SchedulingClass.EXCLUSIVE, 7)] == []
        assert [*group_accounts([cap], frozenset({"u"}), "b", normal, 7)] == []
