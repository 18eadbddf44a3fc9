"""Posted tasks: their schedules, their private values, their hosts, and the forms of parameters."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.model.naming import NodeIndex
from node.model.times import DAY, HOUR, MINUTE, SECOND
from node.pscheduler import documents, hosts, posted, times
from node.pscheduler.app import ROUTES
from node.pscheduler.parameters import Parameters
from node.pscheduler.refusals import Refusal
from node.pscheduler.routing import RouteTable
from node.store.nodes import KnownNode
from tests.support.clocks import START

IDLE = {"type": "idle", "spec": {"duration": "PT1S"}}


def scheduled(**terms: Any) -> dict[str, Any]:
    """Return our schedule for one of pScheduler, without what is not set."""
    read = posted.read({"test": IDLE, "schedule": terms}, START)
    return {name: value for name, value in read.schedule if value} | {"slip": read.schedule.slip}


def test_a_schedule_leaves_nothing_to_our_defaults() -> None:
    """A task without a start starts soon, in whole seconds; a single run within half a minute."""
    soon = START + 5 * SECOND
    assert scheduled(repeat="PT1H", sliprand=True) == {"start": soon, "repeat": HOUR, "slip": 0}
    assert scheduled(start="PT1M") == {"start": START + MINUTE, "slip": 0}
    assert scheduled(slip="PT0S") == {"start": soon, "slip": 0}
    assert scheduled(sliprand=True) == {"start": START + 2 * SECOND, "slip": 30 * SECOND}
    assert scheduled(slip="PT5M") == {"start": START + 2 * SECOND, "slip": 5 * MINUTE}


@pytest.mark.parametrize(
    ("start", "offset"),
    [("PT10M", 10 * MINUTE), ("@PT1H", HOUR), ("@P1D", DAY), ("2026-11-22T08:00:00Z", None)],
)
def test_the_forms_of_a_start(start: str, offset: int | None) -> None:
    """A start is an instant, a time from now, or the next multiple of a duration."""
    made = scheduled(start=start, repeat="PT1H")["start"]
    if offset is None:
        assert made == times.parse_instant(start)
    elif start.startswith("@"):
        assert START < made <= START + offset
        assert made % offset == 0
    else:
        assert made == START + offset


def test_a_single_run_starts_before_its_end() -> None:
    """An end without repetition cuts the slip, since our single runs have no end."""
    made = scheduled(start="PT1H", until="PT61M", slip="PT5M")
    assert made == {"start": START + HOUR, "slip": MINUTE}
    made = scheduled(repeat="PT1H", until="P1D", slip="PT5M", sliprand=True)
    made.pop("start")
    assert made == {
        "repeat": HOUR,
        "until": START + DAY,
        "slip": 5 * MINUTE,
        "slip_random": True,
    }


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"until": "2020-01-01T00:00:00Z"}, "until"),
        ({"repeat": "PT0S"}, "repeat"),
        ({"repeat": "PT1H", "repeat-cron": "0 * * * *"}, "repeat-cron"),
        ({"max-runs": 0}, "max-runs"),
        ({"max-runs": True}, "max-runs"),
        ({"slip": 5}, "slip"),
        ({"start": "soon"}, "start"),
        ({"start": "@PT0S"}, "start"),
        ({"schema": 3}, "Schema version 3 is not supported (highest is 2)"),
        ({"weekly": True}, "weekly"),
    ],
)
def test_wrong_schedules_are_refused(terms: dict[str, Any], said: str) -> None:
    """The sentence of a refusal names the member."""
    with pytest.raises(Refusal) as refused:
        scheduled(**terms)
    assert refused.value.status == 400
    assert said in refused.value.text


def test_comments_and_private_values() -> None:
    """Comments are dropped at any depth, and private values are null for who lacks the key."""
    task = {
        "#": "a comment",
        "test": IDLE,
        "schedule": {"#slip": "PT1S"},
        "archives": [{"archiver": "bitbucket", "data": {"_token": "t", "#": 1}}],
        "_key": "k",
    }
    read = posted.read(task, START)
    assert "#" not in posted.as_text(read.document)
    shown, secret = posted.texts_of(read.document)
    assert '"_token":null' in shown
    assert '"_key":null' in shown
    assert secret is not None
    assert '"_token":"t"' in secret
    assert posted.texts_of({"a": 1}) == ('{"a":1}', None)


@pytest.mark.parametrize(
    ("word", "host"),
    [
        ("a.example", "a.example"),
        ("a.example:8443", "a.example"),
        ("192.0.2.7:443", "192.0.2.7"),
        ("::1", "::1"),
        ("[::1]:8443", "::1"),
        ("[2001:db8::7]", "2001:db8::7"),
    ],
)
def test_hosts_with_ports(word: str, host: str) -> None:
    """The host is read whether a port follows or not."""
    assert hosts.without_port(word) == host


def test_participants_are_nodes_by_name() -> None:
    """The first participant is this node by whatever name; others are known here, and distinct."""
    a, b = _known("a", "192.0.2.1", is_self=True), _known("b", "192.0.2.2")
    own, known = hosts.own_words(a, ["a.example"]), NodeIndex([a, b])
    assert hosts.participant_names([None], own, a, known) == ("a",)
    assert hosts.participant_names(["a.behind.nat:8443", "192.0.2.2"], own, a, known) == ("a", "b")
    for named, status in [
        (["b"], 400),
        (["a", "A.example"], 400),
        (["a", "127.0.0.1:8443"], 400),
        (["a", "c.example"], 422),
    ]:
        with pytest.raises(Refusal) as refused:
            hosts.participant_names(named, own, a, known)
        assert refused.value.status == status


def _known(name: str, address: str, *, is_self: bool = False) -> KnownNode:
    return KnownNode(
        identity=f"ed25519:{name}",
        name=name,
        url=None,
        address=address,
        is_self=is_self,
        added_at=START,
        seen_at=None,
        unreachable_since=None,
        last_error=None,
        busy_until=None,
        shortfall=None,
        attributes={},
        lanes=8,
    )


@pytest.mark.parametrize("value", ["", "True", "true", "1", "yes", '"true"'])
def test_forms_of_true(value: str) -> None:
    """The command line writes Python's True, the agent writes JSON."""
    assert Parameters({"detail": value}).flag("detail")
    assert not Parameters({"detail": value}).flag("expanded")
    assert not Parameters({"detail": "false"}).flag("detail")


def test_texts_may_be_json() -> None:
    """A text in quotes is what is in the quotes."""
    assert Parameters({"task": '"0f0f"'}).text("task") == "0f0f"
    assert Parameters({"task": '"'}).text("task") == '"'
    for unwritable in (r'"\ud800"', r'"\u0000"'):
        with pytest.raises(Refusal, match="cannot be stored"):
            Parameters({"key": unwritable}).text("key")


def test_doubled_slashes_and_methods() -> None:
    """A path is found by its words; another method is refused with those that are allowed."""
    table = RouteTable(ROUTES)
    route, words = table.find("GET", ["tests", "rtt", "spec"])
    assert (route.path, words) == ("/tests/{name}/spec", {"name": "rtt"})
    for method, path, status in [("POST", ["api"], 405), ("GET", ["nothing"], 404)]:
        with pytest.raises(Refusal) as refused:
            table.find(method, path)
        assert refused.value.status == status


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


def test_a_long_list_in_a_long_list_is_not_compared_for_ever() -> None:
    """Two lists of thousands, which are compared each with each, are refused in the end."""
    whole, part = {"reference": [1] * 15_000 + [2]}, {"reference": [2] * 4_000}
    with pytest.raises(Refusal) as refused:
        documents.contains(whole, part, iter(range(documents.COMPARISONS_MAX)))
    assert refused.value.status == 400


@given(JSON)
@pytest.mark.nightly
def test_a_document_contains_itself(value: Any) -> None:
    """Containment is reflexive, and what was posted is told unchanged but for private members."""
    assert documents.contains(value, value, iter(range(10_000)))
    assert posted.without_comments(
        posted.without_private_members(value)
    ) == posted.without_private_members(posted.without_comments(value))
