"""``parley campaign``, ``pool`` and ``node set``, against a real node."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from node.model import times
from node.model.gaps import Gap
from node.model.policysets import SETS
from node.model.reasons import told
from node.model.recurrence import SlotRange
from node.model.times import format_instant
from node.store import gaps as gaps_store
from tests.support.booking import HOUR
from tests.support.clocks import START
from tests.support.served_nodes import Asker, Command


@pytest.mark.nightly
async def test_campaigns_from_the_command_line(ask: Command) -> None:
    """A campaign is added with all options, shown, edited, listed and removed."""
    added = await ask(
        "campaign", "add", "ops", "--weight", "2.5", "--level", "urgent", "--target", "30%",
        "--fairshare", "25%+", "--limit", "runs=10,50", "--limit", "due_runs=7",
        "--quota", "mbps=1000", "--preemptor", "--seats-max", "9", "--owner", "the lab",
    )  # fmt: skip
    created = json.loads(added.out)
    assert (created["weight"], created["level"], created["target"]["share"]) == (2.5, "urgent", 0.3)
    assert created["fairshare"] == {"part": 0.25, "kind": "floor"}
    assert created["limits"]["runs"] == {"soft": 10, "hard": 50}
    assert created["limits"]["due_runs"] == {"soft": 7, "hard": 7}
    assert (created["quotas"], created["preemptor"], created["preemptee"]) == (
        {"mbps": 1000},
        True,
        False,
    )
    edited = await ask("campaign", "edit", "ops", "--borrow", "4", "--lend", "50%", "-o", "json")
    bounds = {"seats": None, "share": 0.3, "borrow": 4, "lend": 0.5}
    assert json.loads(edited.out)["target"] == bounds
    shown = await ask("campaign", "show", "ops", "-o", "table")
    assert "30 %, borrows 4, lends 50 % of it" in shown.out
    edited = await ask("campaign", "edit", "ops", "--clear", "borrow", "--lend", "0%", "-o", "json")
    assert json.loads(edited.out)["target"] == {**bounds, "borrow": None, "lend": 0}
    given = ("--budget", "200", "--budget-until", "2099-12-31T00:00:00Z")
    edited = await ask("campaign", "edit", "ops", *given, "-o", "json")
    budget = json.loads(edited.out)["budget"]
    assert (budget["seat_hours"], budget["until"]) == (200, "2099-12-31T00:00:00Z")
    assert "200 seat-hours until 2099" in (await ask("campaign", "show", "ops", "-o", "table")).out
    edited = await ask("campaign", "edit", "ops", "--budget", "250", "-o", "json")
    assert json.loads(edited.out)["budget"] == {**budget, "seat_hours": 250}
    assert (await ask("campaign", "add", "x", "--budget", "1")).code == 2
    edited = await ask("campaign", "edit", "ops", "--level", "3", "--clear", "target", "-o", "json")
    assert (json.loads(edited.out)["level"], json.loads(edited.out)["target"]) == (3, None)
    words = " ".join((await ask("campaign", "show", "ops", "-o", "table")).out.split())
    assert "limits runs soft 10, hard 50; due_runs soft 7, hard 7" in words
    assert "by weight 71.4 % promised now 0 % " in words
    listed = await ask("campaign", "list", "-o", "table")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["campaign", "default", "ops"]
    assert (await ask("campaign", "remove", "ops")).code == 0
    assert (await ask("campaign", "show", "ops")).code == 6
    empty = await ask("campaign", "usage", "-o", "table")
    assert empty.out == "Nothing was charged in these hours.\n"


async def test_errors_have_a_remedy(ask: Command) -> None:
    """The node's sentence and remedy are printed on standard error, with its exit code."""
    refused = await ask("task", "create", "idle", "--campaign", "obs")
    assert refused.code == 2
    assert "✗ /campaign: there is no campaign obs on this node" in refused.err
    assert "make it: parley campaign add obs" in refused.err
    assert (await ask("campaign", "remove", "default")).code == 3
    assert (await ask("campaign", "edit", "default")).code == 2


@pytest.mark.nightly
async def test_a_promise_beyond_the_pool_is_refused(ask: Command) -> None:
    """A pool that keeps promises refuses more than it has; fewer seats can be promised."""
    await ask("pool", "add", "all", "--match", "{}", "--set", "gridserver-sla")
    refused = await ask("campaign", "add", "ops", "--target", "20")
    text = "✗ /target/seats: ops is promised 20 seats, and pool all has 1\n  lower its target"
    assert (refused.code, text in refused.err) == (2, True)
    assert (await ask("campaign", "show", "ops")).code == 6
    assert (await ask("campaign", "add", "ops", "--target", "1")).code == 0
    refused = await ask("campaign", "edit", "ops", "--target", "2")
    assert (refused.code, "ops is promised 2 seats" in refused.err) == (2, True)
    assert (await ask("campaign", "edit", "ops", "--description", "kept")).code == 0


@pytest.mark.nightly
async def test_an_older_promise_beyond_the_pool_is_told(ask: Command) -> None:
    """Wherever campaign or pool are shown, they warn of a promise that the pool cannot keep."""
    created = await ask("campaign", "add", "ops", "--target", "20")
    await ask("pool", "add", "all", "--match", "{}", "--set", "gridserver-sla")
    warning = "ops is promised 20 seats, and pool all has 1; lower its target, or widen the pool"
    assert created.code == 0
    assert json.loads((await ask("campaign", "show", "ops")).out)["warnings"] == [warning]
    assert json.loads((await ask("pool", "show", "all")).out)["warnings"] == [warning]
    assert "20 seats for sure" not in (await ask("campaign", "list", "-o", "table")).out
    assert f"! ops: {warning}" in (await ask("campaign", "list", "-o", "table")).err
    assert f"! all: {warning}" in (await ask("pool", "list", "-o", "table")).err
    mended = json.loads((await ask("campaign", "edit", "ops", "--target", "1")).out)
    assert mended["warnings"] == []


async def test_a_quota_of_what_nobody_counts(ask: Command) -> None:
    """A quota of an unknown resource is refused, because it would limit nothing."""
    refused = await ask("campaign", "add", "ops", "--quota", "mbsp=1000")
    text = "✗ /quotas/mbsp: would limit nothing: no test needs mbsp\n  did you mean mbps?"
    assert (refused.code, text in refused.err) == (2, True)
    assert (await ask("campaign", "show", "ops")).code == 6


async def test_nodes_are_named_or_chosen_and_not_both(ask: Command) -> None:
    """Named participants together with a pool are refused."""
    both = await ask("task", "create", "idle", "--pool", "all", "-k", "1", "--participant", "a")
    assert (both.code, "remove one of the two" in both.err) == (2, True)
    none = await ask("task", "create", "idle", "--pool", "all")
    assert (none.code, "number of nodes of the pool is missing: add -k 3" in none.err) == (2, True)


async def test_counting_back_explains_the_task_and_not_a_run(ask: Command) -> None:
    """@-1 means the newest task, even if its runs are newer."""
    created = json.loads((await ask("task", "create", "idle", "--repeat", "1h", "--no-wait")).out)
    explained = json.loads((await ask("explain", "@-1")).out)
    assert (explained["task"], explained["run"]) == (created["id"], None)


@pytest.mark.nightly
async def test_a_slot_in_a_gap_is_listed_and_explained(ask: Command, a: Asker) -> None:
    """The list has the range as one line, and each instant in it has the same explanation."""
    created = json.loads((await ask("task", "create", "idle", "--repeat", "1h", "--no-wait")).out)
    slots = SlotRange(START, START + 9 * times.HOUR, 10)
    gap = Gap(UUID(created["id"]), slots, told("it was late"))
    async with a.node.database.transaction() as connection:
        await gaps_store.keep_gaps(connection, [gap], START)
    words = "10 slots from 2026-12-01T00:00:00Z to 2026-12-01T09:00:00Z: it was late"
    listed = json.loads((await ask("run", "list", "--task", "@-1", "--state", "unplaced")).out)
    assert [(run["reason"], run["slots"]) for run in listed] == [(words, 10)]
    slot = ("--slot", "2026-12-01T04:00:00Z")
    explained = json.loads((await ask("explain", "@-1", *slot)).out)
    assert explained["sentence"] == f"unplaced: {words}"
    shown = await ask("run", "show", listed[0]["id"], "-o", "table")
    assert "slots 10 to 2026-12-01" in " ".join(shown.out.split())
    assert (await ask("explain", "@-1", "--slot", "2026-12-02T04:00:00Z")).code == 6


async def test_a_pool_that_has_become_empty_is_to_be_widened(ask: Command) -> None:
    """A request to an empty pool is refused with the advice to widen the pool."""
    assert (await ask("node", "set", "tier=edge")).code == 0
    assert (await ask("pool", "add", "solo", "--match", "tier=edge")).code == 0
    assert (await ask("node", "unset", "tier")).code == 0
    ended = await ask("node", "unset", "tier")
    assert (ended.code, "tier was not set: " in ended.err) == (0, True)
    refused = await ask("task", "create", "idle", "--pool", "solo", "-k", "1")
    assert "is more than pool solo has: 0 nodes\n  widen the pool" in refused.err


@pytest.mark.nightly
async def test_attributes_from_the_command_line(ask: Command) -> None:
    """Attributes are set and removed, and nodes are listed by them."""
    card = json.loads((await ask("node", "set", "country=DE", "cpu_mbps=1000")).out)
    assert (card["attributes"]["country"], card["attributes"]["cpu_mbps"]) == ("DE", 1000)
    card = json.loads((await ask("node", "unset", "cpu_mbps")).out)
    assert "cpu_mbps" not in card["attributes"]
    assert json.loads((await ask("node", "list", "--match", "country=DE")).out)[0]["name"] == "a"
    assert json.loads((await ask("node", "list", "--match", '{"country": "FR"}')).out) == []
    table = (await ask("node", "list", "-o", "table")).out
    assert "country=DE" in table


@pytest.mark.nightly
async def test_pools_from_the_command_line(ask: Command, a: Asker) -> None:
    """A pool is added by conditions, gets other policies, and shows its members and others."""
    await a.node.own_card.set({"country": "DE", "cpu_mbps": 1000})
    await a.node.directory.refresh()
    match = ("--match", "country=DE,FR", "--match", "cpu_mbps>=500")
    created = json.loads((await ask("pool", "add", "fast", *match, "--choice", "rotating")).out)
    wanted = {"country": ["DE", "FR"], "cpu_mbps": {">=": 500}}
    assert (created["match"], created["nodes"], created["choice"]) == (wanted, ["a"], "rotating")
    override = ("--override", "order=next-run", "--override", "fill.depth=2")
    said = await ask("pool", "set-policy", "fast", "maui-reservations", *override)
    assert "maui-reservations is priority with slots=4." in said.err
    changed = json.loads(said.out)
    overrides = {"order": {"rule": "next-run"}, "fill": {"depth": 2}}
    meant = {"set": "priority", "options": {"slots": 4}}
    assert changed["policy"] == meant | {"overrides": overrides}
    shown = (await ask("pool", "show", "fast", "-o", "table")).out
    assert "priority with slots=4 (fill: depth 2; order: next-run)" in shown
    changed = json.loads((await ask("pool", "set-policy", "fast", "shares", "serial=true")).out)
    assert changed["policy"] == {"set": "shares", "options": {"serial": True}, "overrides": {}}
    listed = json.loads((await ask("policy", "list")).out)
    assert [each["name"] for each in listed] == list(SETS)
    shown = (await ask("policy", "show", "maui-defer", "-o", "table")).out
    assert "maui-defer         priority with patience=PT1H" in shown
    assert "did you mean shares" in (await ask("policy", "show", "sharez")).err
    said = await ask("pool", "set-policy", "fast", "turns", "--dry-run", "-o", "table")
    assert ("before          shares with serial=true" in said.out) is True
    assert "after           turns" in said.out
    assert json.loads((await ask("pool", "show", "fast")).out)["policy"] == changed["policy"]
    assert (await ask("pool", "set-policy", "fast", "turns", "--anew")).code == 2
    await a.node.own_card.set({"cpu_mbps": None})
    await a.node.directory.refresh()
    shown = (await ask("pool", "show", "fast", "-o", "table")).out
    assert 'country in "DE", "FR" and cpu_mbps >= 500' in shown
    assert "it has no cpu_mbps, not cpu_mbps >= 500" in shown
    assert (await ask("pool", "list", "-o", "ids")).out == "fast\n"
    assert (await ask("pool", "remove", "fast")).code == 0


async def test_invalid_pools(ask: Command) -> None:
    """A pool without members, with an unknown set, or without conditions is refused."""
    nobody = await ask("pool", "add", "x", "--match", "country=NL")
    assert (nobody.code, "matches none of the 1 node known here" in nobody.err) == (2, True)
    unknown = await ask("pool", "add", "x", "--match", "{}", "--set", "maui-fiffo")
    assert (unknown.code, "did you mean maui-fifo" in unknown.err) == (2, True)
    assert (await ask("pool", "add", "x")).code == 2
    assert "shares" in (await ask("pool", "sets", "-o", "ids")).out.split()
    assert "campaign-default (recommended)" in (await ask("pool", "sets", "-o", "table")).out


@pytest.mark.nightly
async def test_a_task_is_created_only_if_it_finds_time(ask: Command) -> None:
    """A refusal for want of time says what would find it, and nothing is created."""
    start = format_instant(HOUR)
    await ask("reservation", "add", "SC26", "--kind", "demo", "--start", start, "--for", "1h")
    task = ("task", "create", "idle", "--spec-json", '{"duration": "PT1M", "class": "exclusive"}')
    refused = await ask(*task, "--start", start, "--no-wait", "--if-time")
    assert refused.code == 4
    assert "reserved for demo 'SC26'" in refused.err
    assert "what would find time: 1." in " ".join(refused.err.split())
    assert json.loads((await ask("task", "list")).out) == []
    later = format_instant(HOUR + 2 * times.HOUR)
    assert (await ask(*task, "--start", later, "--no-wait", "--if-time")).code == 0
