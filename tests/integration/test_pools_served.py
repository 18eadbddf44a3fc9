"""Pools and node attributes over HTTP: which nodes belong to a pool, which do not, and why."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from node.model import policysets, times
from node.model.predicates import Value
from node.model.wire.nodes import NodeCard
from node.store import nodes
from node.trust.keys import NodeKey
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Asker, asker, know, served


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node that knows two others in other countries."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        await _others(client)
        yield client


async def _others(a: Asker) -> None:
    attributes_by_name: dict[str, dict[str, Value]] = {
        "b": {"country": "FR", "cpu_mbps": 100},
        "c": {"country": "DE", "cpu_mbps": 5000, "tool:iperf3": True},
    }
    async with a.node.database.transaction() as connection:
        for name, attributes in attributes_by_name.items():
            key, url = NodeKey.generate().identity, f"http://{name}:8642"
            card = NodeCard(identity=key, name=name, url=url, address=name, attributes=attributes)
            await nodes.keep(connection, card, a.node.clock.now())
    await a.node.directory.refresh()


async def _refused(a: Asker, method: str, path: str, document: Any) -> list[tuple[str, str]]:
    """Return the faults of a document that is refused."""
    status, problem = await a.ask(method, path, document)
    assert status == 422, problem
    return [(fault["pointer"], fault["detail"]) for fault in problem["errors"]]


async def test_a_pool_says_who_belongs_to_it(a: Asker) -> None:
    """A pool lists its members, and of each other node the condition that it fails."""
    match = {"country": "DE", "cpu_mbps": {">=": 1000}}
    document = {"name": "fast", "match": match, "policy": {"set": "gridserver-usage"}}
    status, pool = await a.ask("POST", "/v1/pools", document)
    assert (status, pool["nodes"], pool["lead"], pool["choice"]) == (201, ["c"], "a", "sticky")
    reasons = {other["node"]: other["reason"] for other in pool["others"]}
    assert reasons["b"] == (
        'its country is "FR", not country = "DE"; its cpu_mbps is 100, not cpu_mbps >= 1000'
    )
    assert reasons["a"].startswith("it has no country")
    assert (await a.ask("GET", "/v1/pools/fast"))[1] == pool
    assert (await a.ask("POST", "/v1/pools", document))[0] == 201
    status, _ = await a.ask("POST", "/v1/pools", {**document, "choice": "rotating"})
    assert status == 409


async def test_a_pool_that_nobody_meets_is_refused(a: Asker) -> None:
    """A pool without members is refused with the number of nodes and the existing values."""
    document = {"name": "far", "match": {"country": "NL"}}
    [(pointer, detail)] = await _refused(a, "POST", "/v1/pools", document)
    assert pointer == "/match/country"
    assert detail == (
        'matches none of the 3 nodes known here: country = "NL" fails a, b, c; '
        'country is "DE", "FR"'
    )


async def test_policies_are_chosen_by_name(a: Asker) -> None:
    """Unknown policy sets and axes are refused with similar names; edits take effect at once."""
    pool = {"name": "all", "match": {}}
    assert (await a.ask("POST", "/v1/pools", pool))[0] == 201
    patch: dict[str, Any] = {"policy": {"set": "maui-prioritty"}}
    [(pointer, detail)] = await _refused(a, "PATCH", "/v1/pools/all", patch)
    assert (pointer, "did you mean maui-priority" in detail) == ("/policy/set", True)
    patch = {"policy": {"set": "maui-fifo", "overrides": {"order": {"rule": "next-rum"}}}}
    [(pointer, detail)] = await _refused(a, "PATCH", "/v1/pools/all", patch)
    assert pointer == "/policy/overrides/order/rule"
    assert "there is no rule 'next-rum'; did you mean next-run" in detail
    faults = await _refused(a, "PATCH", "/v1/pools/all", {"policy": {"overrides": {"taste": {}}}})
    assert faults[0][0].startswith("/policy/overrides/taste")
    patch = {"policy": {"set": "maui-fifo", "overrides": {"order": {"rule": "next-run"}}}}
    status, edited = await a.ask("PATCH", "/v1/pools/all", patch)
    meant = {"set": "priority", "options": {"flags": True, "slots": 1, "patience": "PT1H"}}
    assert (status, edited["policy"], edited["revision"]) == (200, patch["policy"] | meant, 2)
    assert edited["nodes"] == ["a", "b", "c"]


async def test_options_belong_to_their_set(a: Asker) -> None:
    """Options are merged until another set is named; a wrong one is refused with similar names."""
    await a.ask("POST", "/v1/pools", {"name": "all", "match": {}, "policy": {"set": "shares"}})

    async def policy(**patch: Any) -> Any:
        return (await a.ask("PATCH", "/v1/pools/all", {"policy": patch}))[1]["policy"]

    await policy(options={"serial": True})
    changed = await policy(options={"failures_max": 2})
    assert changed["options"] == {"serial": True, "failures_max": 2}
    assert (await policy(options={"serial": None}))["options"] == {"failures_max": 2}
    assert (await policy(set="turns"))["options"] == {}
    assert (await policy(set="gridserver-urgent", options={"serial": True})) == {
        "set": "shares",
        "options": {"urgent": 10, "serial": True},
        "overrides": {},
    }
    wrong = {"policy": {"set": "shares", "options": {"serials": True}}}
    [(pointer, detail)] = await _refused(a, "PATCH", "/v1/pools/all", wrong)
    assert (pointer, "did you mean serial?" in detail) == ("/policy/options/serials", True)


async def test_an_earlier_program_has_stored_an_alias(a: Asker) -> None:
    """A pool whose row has a former name is what the name stands for."""
    await a.ask("POST", "/v1/pools", {"name": "all", "match": {}})
    await a.rows("UPDATE pool SET policy_set = 'boinc-edf' RETURNING 1")
    _, pool = await a.ask("GET", "/v1/pools/all")
    assert pool["policy"] == {"set": "long-term", "options": {"deadlines": True}, "overrides": {}}


async def test_edits_of_pools_are_guarded(a: Asker) -> None:
    """An edit replaces the whole match; a stale revision and another lead are refused."""
    await a.ask("POST", "/v1/pools", {"name": "x", "match": {"country": "DE"}})
    _, edited = await a.ask("PATCH", "/v1/pools/x", {"match": {"cpu_mbps": 100}})
    assert (edited["match"], edited["nodes"]) == ({"cpu_mbps": 100}, ["b"])
    assert (await a.ask("PATCH", "/v1/pools/x", {"revision": 1, "choice": "rotating"}))[0] == 409
    [(pointer, _)] = await _refused(a, "PATCH", "/v1/pools/x", {"name": "y"})
    assert pointer == "/name"
    [(pointer, detail)] = await _refused(
        a, "POST", "/v1/pools", {"name": "z", "match": {}, "lead": "b"}
    )
    assert (pointer, "made at the node that plans it" in detail) == ("/lead", True)
    [(pointer, _)] = await _refused(
        a, "POST", "/v1/pools", {"name": "z", "match": {"a": {">": "b"}}}
    )
    assert pointer == "/match/a/>"
    assert (await a.ask("DELETE", "/v1/pools/x"))[0] == 204
    for method in ("GET", "DELETE"):
        assert (await a.ask(method, "/v1/pools/x"))[0] == 404


async def test_attributes_are_set_and_taken_back(a: Asker) -> None:
    """Attributes are set and removed, survive a restart, and tools are reported automatically."""
    patch = {"attributes": {"country": "NL", "cpu_mbps": 2.5}}
    status, node = await a.ask("PATCH", "/v1/nodes/a", patch)
    assert (status, node["attributes"]["country"], node["lanes"]) == (200, "NL", 8)
    assert node["attributes"]["tool:iperf3"] is True
    assert (await a.ask("GET", "/v1/nodes/self"))[1]["attributes"] == node["attributes"]
    _, node = await a.ask("PATCH", "/v1/nodes/self", {"attributes": {"country": None}})
    assert "country" not in node["attributes"]
    async with a.node.database.transaction() as connection:
        await a.node.own_card.write(connection)
        assert await nodes.attributes_set_by_hand(connection) == {"cpu_mbps": 2.5}


@pytest.mark.parametrize(
    ("attributes", "pointer"),
    [
        ({"tool:ping": False}, "/attributes/tool:ping"),
        ({"lanes": 3}, "/attributes/lanes"),
        ({"Country": "NL"}, "/attributes/Country"),
        ({"country": ["NL"]}, "/attributes/country"),
        ({f"n{number}": 1 for number in range(100)}, "/attributes"),
    ],
)
@pytest.mark.mostly_nightly
async def test_wrong_attributes_are_refused(a: Asker, attributes: Any, pointer: str) -> None:
    """Attributes that are reserved, badly named or typed, or too many are refused."""
    faults = await _refused(a, "PATCH", "/v1/nodes/a", {"attributes": attributes})
    assert faults[0][0].startswith(pointer)


async def test_a_node_of_a_pool_that_is_down_is_named(a: Asker) -> None:
    """A pool warns of a member that does not answer, since when and with which error."""
    await a.ask("POST", "/v1/pools", {"name": "all", "match": {}})
    down = "UPDATE node SET unreachable_since = $1, last_error = 'refused' WHERE name = 'b'"
    await a.rows(down, START)
    await a.node.directory.refresh()
    _, pool = await a.ask("GET", "/v1/pools/all")
    assert pool["warnings"] == ["b has not answered since 2026-12-01T00:00:00Z: refused"]


async def test_another_node_says_itself_what_it_is(a: Asker) -> None:
    """The attributes of another host cannot be set."""
    status, problem = await a.ask("PATCH", "/v1/nodes/b", {"attributes": {"country": "NL"}})
    assert (status, "b itself sets its attributes" in problem["detail"]) == (403, True)
    assert (await a.ask("PATCH", "/v1/nodes/no", {"attributes": {}}))[0] == 404


async def test_nodes_can_be_asked_for_by_predicate(a: Asker) -> None:
    """Nodes can be listed by a predicate in the language of pools; a wrong one has a pointer."""
    match = quote(json.dumps({"any": [{"country": "FR"}, {"name": "a"}]}))
    _, page = await a.ask("GET", f"/v1/nodes?match={match}")
    assert [node["name"] for node in page["items"]] == ["a", "b"]
    for wrong, pointer in (("{", "?match"), ('{"a":{"<":"x"}}', "?match/a/<")):
        status, problem = await a.ask("GET", f"/v1/nodes?match={quote(wrong)}")
        assert (status, problem["errors"][0]["pointer"]) == (422, pointer)


async def test_others_learn_what_a_node_says(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A node's attributes arrive with its card, and again with each check of the peer monitor."""
    async with (
        asker("a", await new_database(), clock, tmp_path) as a,
        served("b", await new_database(), clock, tmp_path) as b,
    ):
        await know(a.node, b)
        await know(b, a.node)
        await b.own_card.set({"country": "DE"})
        await a.node.peer_monitor.run_once()
        _, page = await a.ask("GET", "/v1/nodes")
        [other] = [node for node in page["items"] if node["name"] == "b"]
        assert other["attributes"]["country"] == "DE"
        await b.own_card.set({"country": None})
        await a.node.peer_monitor.run_once()
        await a.node.directory.refresh()
        known = a.node.directory.find("b")
        assert known is not None
        assert "country" not in known.attributes
        for moved, address in (("a", "127.0.0.1"), ("192.0.2.7", "192.0.2.7")):
            b.own_card.current = b.card.model_copy(update={"address": moved})
            await a.node.peer_monitor.run_once()
            [row] = await a.rows("SELECT address, last_error FROM node WHERE name = 'b'")
            assert row["address"] == address
            assert (row["last_error"] is None) is (address == moved)


async def test_a_tool_installed_later_is_noticed(a: Asker) -> None:
    """A change of the installed tools is detected."""
    a.node.capabilities._which = lambda _program: None
    await a.node.own_card.look_again()
    _, card = await a.ask("GET", "/v1/nodes/self")
    assert card["attributes"]["tool:iperf3"] is False
    [row] = await a.rows("SELECT attributes FROM node WHERE is_self")
    assert row[0] == card["attributes"]


async def test_the_sets_are_listed_with_what_they_are_good_for(a: Asker) -> None:
    """All policy sets are listed, the recommended one first and marked as such."""
    status, page = await a.ask("GET", "/v1/policysets")
    assert status == 200
    items = page["items"]
    assert [policy_set["name"] for policy_set in items] == list(policysets.SETS)
    assert [policy_set["name"] for policy_set in items if policy_set["recommended"]] == [
        policysets.DEFAULT
    ]
    good_for = {policy_set["name"]: policy_set["good_for"] for policy_set in items}
    assert good_for["promised"].startswith("promised")
    by_name = {policy_set["name"]: policy_set for policy_set in items}
    assert {"take_back", "failures_max"} < by_name["promised"]["options"].keys()
    assert by_name["promised"]["aliases"] == [
        {"name": "gridserver-sla", "options": {}},
        {"name": "gridserver-sla-preempt", "options": {"take_back": True}},
    ]
    assert sum(len(policy_set["aliases"]) for policy_set in items) == len(policysets.ALIASES)


async def test_an_empty_seat_has_a_reason_before_any_node_was_sought(a: Asker) -> None:
    """The task and its seats say that the search is in progress."""
    await a.ask("POST", "/v1/pools", {"name": "all", "match": {}})
    document = {
        "test": {"type": "idle", "spec": {"duration": "PT1M"}},
        "participants": {"pool": "all", "k": 1},
        "schedule": {"repeat": "PT1H"},
    }
    status, task = await a.ask("POST", "/v1/tasks", document)
    assert status == 201, task
    await a.rows(
        "INSERT INTO term (pool_task, starts_at, ends_at, over_at, seats, try_at) "
        "VALUES ($1, $2, $3, $3, 1, $2)",
        task["id"],
        START,
        START + times.HOUR,
    )
    why = "the search for nodes is in progress"
    assert (await a.ask("GET", f"/v1/tasks/{task['id']}"))[1]["seats"]["reason"] == why
    _, seats = await a.ask("GET", f"/v1/tasks/{task['id']}/seats")
    assert [seat["reason"] for seat in seats["items"]] == [why]


async def test_a_plan_of_other_policies_is_served(a: Asker) -> None:
    """The plan has both policies, an alias as what it stands for; a wrong option is refused."""
    await a.ask("POST", "/v1/pools", {"name": "all", "match": {}})
    wanted = {"policy": {"set": "gridserver-serial-usage"}, "hours": 2}
    status, plan = await a.ask("POST", "/v1/pools/all/policy-plan", wanted)
    assert (status, plan["pool"], plan["booked"]) == (200, "all", 0)
    assert plan["before"]["policy"]["set"] == policysets.DEFAULT
    after = plan["after"]["policy"]
    assert (after["set"], after["options"]) == ("shares", {"serial": True})
    assert plan["after"]["looked_until"] == plan["until"]
    assert (await a.ask("GET", "/v1/pools/all"))[1]["revision"] == 1
    wrong = {"policy": {"set": "shares", "options": {"window": "soon"}}}
    [(pointer, _)] = await _refused(a, "POST", "/v1/pools/all/policy-plan", wrong)
    assert pointer == "/policy/options/window"
