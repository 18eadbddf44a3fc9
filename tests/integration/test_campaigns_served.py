"""Campaigns over HTTP: created, edited, removed, and refused with a pointer and a remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from node.model import times
from node.model.times import format_instant
from node.store.database import PostgresDatabase
from node.store.queries import PostgresConnection
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Asker, asker

_CHARGE = """
INSERT INTO charge (
    campaign_id, run_id, participant, node, starts_at, ends_at, weight, cause, made_at
)
SELECT
    id, gen_random_uuid(), 0, 'ed25519:x', $2::timestamptz, $2 + interval '1 hour', $3, 'booked', $2
FROM campaign WHERE name = $1
"""
_CAMPAIGN = """
INSERT INTO campaign (
    name, parent_id, parent_depth, target_seats, target_share, created_at, changed_at
)
SELECT $1, parent.id, parent.depth, $3, $4, now(), now()
FROM (VALUES ($2::text)) AS wanted (parent)
LEFT JOIN campaign AS parent ON parent.name = wanted.parent
"""
IDLE = {"type": "idle", "spec": {"duration": "PT1M", "class": "exclusive"}}


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node to query, with a token."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client


async def _add(a: Asker, name: str, **settings: Any) -> dict[str, Any]:
    status, answer = await a.ask("POST", "/v1/campaigns", {"name": name, **settings})
    assert status == 201, answer
    return dict(answer)


async def _refused(a: Asker, method: str, path: str, document: Any) -> list[tuple[str, str]]:
    """Return the faults of a document that is refused."""
    status, problem = await a.ask(method, path, document)
    assert status == 422, problem
    return [(fault["pointer"], fault["detail"]) for fault in problem["errors"]]


async def test_a_campaign_is_kept_as_posted(a: Asker) -> None:
    """A campaign has all posted fields, with numbers exactly as they were written."""
    fields = {
        "weight": 0.1,
        "level": "urgent",
        "priority": -3,
        "preemptor": True,
        "preemptee": True,
        "seats_max": 7,
        "target": {"seats": None, "share": 0.25, "borrow": 3, "lend": 0.5},
        "budget": {
            "seat_hours": 200,
            "since": "2026-11-01T00:00:00Z",
            "until": "2026-12-31T00:00:00Z",
        },
        "fairshare": {"part": 0.5, "kind": "floor"},
        "limits": {"runs": {"soft": 2, "hard": 5}, "seat_seconds": {"soft": None, "hard": 100}},
        "quotas": {"mbps": 1000},
        "owner": "the lab",
        "contact": "lab@a.example",
        "description": "measures",
    }
    campaign = await _add(a, "ops", **fields)
    assert {name: campaign[name] for name in fields} == fields
    assert (campaign["revision"], campaign["state"], campaign["tasks"]) == (1, "active", {})
    assert (await a.ask("GET", "/v1/campaigns/ops"))[1] == campaign
    _, counted = await a.ask("GET", "/v1/campaigns/ops?budgets=true")
    told = [(it["what"], it["soft"], it["hard"], it["used"]) for it in counted["budgets"]]
    limited = [("runs", 2, 5, 0), ("seat_seconds", None, 100, 0)]
    others = [("seats_max", None, 7, 0), ("mbps", None, 1000, 0), ("seat_hours", None, 200, 0)]
    assert told == [*limited, *others]
    [weight] = await a.rows("SELECT weight::text FROM campaign WHERE name = 'ops'")
    assert weight[0] == "0.100000"


async def test_a_quota_that_is_kept_may_stay(a: Asker) -> None:
    """An existing quota of a resource that no test uses stays until it is removed."""
    await _add(a, "ops", quotas={"mbps": 1000})
    await a.rows("UPDATE campaign SET quotas = '{\"disk\": 1}' WHERE name = 'ops'")
    status, edited = await a.ask("PATCH", "/v1/campaigns/ops", {"weight": 2})
    assert (status, edited["quotas"]) == (200, {"disk": 1})
    status, problem = await a.ask("PATCH", "/v1/campaigns/ops", {"quotas": {"cpu": 1}})
    assert (status, problem["errors"][0]["pointer"]) == (422, "/quotas/cpu")
    status, edited = await a.ask("PATCH", "/v1/campaigns/ops", {"quotas": {"disk": None}})
    assert (status, edited["quotas"]) == (200, {})


async def test_more_than_all_is_no_limit(a: Asker) -> None:
    """A limit of more than 100 percent is refused with its field."""
    limits = {"delivered_percent": {"soft": 10, "hard": 150}}
    [(pointer, detail)] = await _refused(
        a, "POST", "/v1/campaigns", {"name": "x", "limits": limits}
    )
    assert (pointer, "at most 100" in detail) == ("/limits", True)


async def test_the_same_again_is_harmless(a: Asker) -> None:
    """A repeated POST creates one campaign; a different one of the same name is refused."""
    first = await _add(a, "ops", weight=2)
    assert await _add(a, "ops", weight=2) == first
    status, problem = await a.ask("POST", "/v1/campaigns", {"name": "ops", "weight": 3})
    assert (status, problem["detail"].partition(";")[0]) == (409, "there is another campaign ops")


async def test_the_default_campaign_stays(a: Asker) -> None:
    """The default campaign cannot be removed or closed, only edited."""
    status, problem = await a.ask("DELETE", "/v1/campaigns/default")
    assert status == 409
    assert "tasks that name no campaign belong to it" in problem["detail"]
    [(pointer, _)] = await _refused(a, "PATCH", "/v1/campaigns/default", {"state": "closed"})
    assert pointer == "/state"
    status, edited = await a.ask("PATCH", "/v1/campaigns/default", {"weight": 4})
    assert (status, edited["weight"], edited["revision"]) == (200, 4, 2)


async def test_edits_are_merged_and_guarded(a: Asker) -> None:
    """Null restores a default, maps are merged, and a stale revision is refused."""
    target = {"seats": 5, "borrow": 2}
    await _add(a, "ops", owner="x", limits={"runs": {"hard": 3}}, target=target)
    patch = {"owner": None, "limits": {"nodes": {"soft": 1}}, "target": {"share": 0.5}}
    status, edited = await a.ask("PATCH", "/v1/campaigns/ops", patch)
    promised = {"seats": None, "share": 0.5, "borrow": 2, "lend": None}
    assert (status, edited["owner"], edited["target"]) == (200, None, promised)
    assert edited["limits"] == {
        "runs": {"soft": None, "hard": 3},
        "nodes": {"soft": 1, "hard": None},
    }
    status, problem = await a.ask("PATCH", "/v1/campaigns/ops", {"revision": 1, "weight": 2})
    assert (status, "it is at revision 2" in problem["detail"]) == (409, True)
    [(pointer, detail)] = await _refused(a, "PATCH", "/v1/campaigns/ops", {"name": "opsy"})
    assert (pointer, detail.partition(";")[0]) == ("/name", "cannot be changed")
    assert (await a.ask("PATCH", "/v1/campaigns/no", {"weight": 2}))[0] == 404


async def test_lists_have_cursors(a: Asker) -> None:
    """Campaigns are listed page by page in the order of their names."""
    for name in ("ops", "lab", "zeta"):
        await _add(a, name)
    names: list[list[str]] = []
    cursor: str | None = ""
    while cursor is not None:
        _, page = await a.ask("GET", f"/v1/campaigns?limit=3&cursor={cursor}")
        names.append([campaign["name"] for campaign in page["items"]])
        cursor = page["next"]
    assert names == [["default", "lab", "ops"], ["zeta"]]


async def test_parents_never_go_in_circles(a: Asker) -> None:
    """A parent that is unknown, a descendant or too deep is refused with the reason."""
    await _add(a, "one")
    await _add(a, "two", parent="one")
    await _add(a, "three", parent="two")
    [(pointer, detail)] = await _refused(a, "PATCH", "/v1/campaigns/one", {"parent": "three"})
    assert (pointer, "one → three → two → one" in detail) == ("/parent", True)
    [(pointer, detail)] = await _refused(a, "PATCH", "/v1/campaigns/one", {"parent": "one"})
    assert (pointer, "one → one" in detail) == ("/parent", True)
    [(pointer, detail)] = await _refused(
        a, "POST", "/v1/campaigns", {"name": "x", "parent": "onee"}
    )
    assert (pointer, "did you mean one" in detail) == ("/parent", True)
    for number in range(4, 9):
        parent = "three" if number == 4 else f"g{number - 1}"
        await _add(a, f"g{number}", parent=parent)
    [(pointer, detail)] = await _refused(a, "POST", "/v1/campaigns", {"name": "g9", "parent": "g8"})
    assert (pointer, "9 generations, of at most 8" in detail) == ("/parent", True)
    await _add(a, "zero")
    [(pointer, _)] = await _refused(a, "PATCH", "/v1/campaigns/one", {"parent": "zero"})
    assert pointer == "/parent"


async def test_the_database_holds_it_too(rolled_back: PostgresConnection) -> None:
    """The database itself refuses circles of parents and mixed kinds of promises."""
    for name, parent in (("one", None), ("two", "one"), ("three", "two")):
        await rolled_back.execute(_CAMPAIGN, name, parent, None, None)
    circle = """
    UPDATE campaign SET parent_id = below.id, parent_depth = below.depth FROM campaign AS below
    WHERE campaign.name = 'one' AND below.name = 'three'
    """
    with pytest.raises(asyncpg.CheckViolationError, match="campaign_depth"):
        async with rolled_back.transaction():
            await rolled_back.execute(circle)
    await rolled_back.execute(_CAMPAIGN, "seats", None, 5, None)
    await rolled_back.execute(_CAMPAIGN, "more", None, 7, None)
    with pytest.raises(asyncpg.ExclusionViolationError, match="campaign_targets_alike"):
        async with rolled_back.transaction():
            await rolled_back.execute(_CAMPAIGN, "share", None, None, 0.5)


async def test_depths_follow_the_parents(rolled_back: PostgresConnection) -> None:
    """The descendants of a campaign follow it to a new parent."""
    for name, parent in (("one", None), ("two", "one"), ("three", "two"), ("top", None)):
        await rolled_back.execute(_CAMPAIGN, name, parent, None, None)
    move = """
    UPDATE campaign SET parent_id = top.id, parent_depth = top.depth FROM campaign AS top
    WHERE campaign.name = 'one' AND top.name = 'top'
    """
    await rolled_back.execute(move)
    rows = await rolled_back.fetch("SELECT name, depth FROM campaign WHERE name <> 'default'")
    assert {row[0]: row[1] for row in rows} == {"top": 1, "one": 2, "two": 3, "three": 4}


async def test_promises_are_of_one_kind(a: Asker) -> None:
    """All promises are seats or all are shares: a refusal names those of the other kind."""
    await _add(a, "ops", target={"seats": 5})
    document = {"name": "lab", "target": {"share": 0.5}}
    [(pointer, detail)] = await _refused(a, "POST", "/v1/campaigns", document)
    other = "cannot stand beside promises of another kind: "
    remedy = "promise a number of seats here too, or remove "
    command = "parley campaign edit ops --clear target"
    reason = f"{other}ops is promised a number of seats; {remedy}that target: {command}"
    assert (pointer, detail) == ("/target/share", reason)
    await _add(a, "net", target={"seats": 1})
    [(_, detail)] = await _refused(a, "POST", "/v1/campaigns", document)
    assert (
        "net and ops are promised numbers of seats; promise a number of seats here too, " in detail
    )
    assert "or remove those targets: parley campaign edit net --clear target, …" in detail
    for target in ({}, {"seats": 1, "share": 0.5}, {"share": 1.5}, {"seats": 0}):
        document = {"name": "lab", "target": target}
        [(pointer, detail)] = await _refused(a, "POST", "/v1/campaigns", document)
        assert (pointer.split("/")[1], bool(detail)) == ("target", True)


async def test_a_weight_of_nothing_needs_a_meaning(a: Asker) -> None:
    """A weight of 0 is refused unless the policies of a pool give it a meaning."""
    [(pointer, detail)] = await _refused(a, "POST", "/v1/campaigns", {"name": "x", "weight": 0})
    assert (pointer, "suspend it with level 0" in detail) == ("/weight", True)
    pool = {"name": "here", "match": {"name": "a"}, "policy": {"set": "boinc-wrr"}}
    assert (await a.ask("POST", "/v1/pools", pool))[0] == 201
    await _add(a, "x", weight=0)
    patch = {"policy": {"set": "campaign-default"}}
    [(pointer, detail)] = await _refused(a, "PATCH", "/v1/pools/here", patch)
    assert (pointer, "divides by weight, and x has weight 0" in detail) == ("/policy/set", True)
    [(pointer, _)] = await _refused(a, "POST", "/v1/campaigns", {"name": "y", "weight": -1})
    assert pointer == "/weight"


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        ({"name": "Ops"}, "/name"),
        ({"name": "ops", "level": 10}, "/level"),
        ({"name": "ops", "weight": 1e-9}, "/weight"),
        ({"name": "ops", "weight": "3"}, "/weight"),
        ({"name": "ops", "limits": {"engines": {"hard": 1}}}, "/limits/engines"),
        ({"name": "ops", "limits": {"runs": {"soft": 3, "hard": 2}}}, "/limits/runs"),
        ({"name": "ops", "fairshare": {"part": 2}}, "/fairshare/part"),
        ({"name": "ops", "queue": {"floor": 5, "ceiling": 1}}, "/queue"),
        ({"name": "ops", "colour": "red"}, "/colour"),
    ],
)
@pytest.mark.mostly_nightly
async def test_wrong_fields_have_pointers(a: Asker, document: Any, pointer: str) -> None:
    """Every invalid field is named by a pointer."""
    faults = await _refused(a, "POST", "/v1/campaigns", document)
    assert all(field.startswith(pointer) for field, _ in faults)


async def test_tasks_belong_to_campaigns(a: Asker) -> None:
    """An unknown campaign is refused with similar names; without one the default is used."""
    await _add(a, "operations")
    document = {"test": IDLE, "campaign": "operation"}
    [(pointer, detail)] = await _refused(a, "POST", "/v1/tasks", document)
    assert pointer == "/campaign"
    assert detail == (
        "there is no campaign operation on this node (make it: parley campaign add operation); "
        "did you mean operations?"
    )
    _, task = await a.ask("POST", "/v1/tasks", {"test": IDLE})
    assert task["campaign"] == "default"
    _, task = await a.ask("POST", "/v1/tasks", {"test": IDLE, "campaign": "operations"})
    assert task["campaign"] == "operations"
    _, shown = await a.ask("GET", "/v1/campaigns/operations")
    assert shown["tasks"] == {"active": 1}


async def test_a_used_campaign_is_closed_and_not_removed(a: Asker) -> None:
    """A campaign in use cannot be removed; closed, it takes no new tasks but allows edits."""
    await _add(a, "ops")
    await _add(a, "ops-lab", parent="ops")
    status, problem = await a.ask("DELETE", "/v1/campaigns/ops")
    assert (status, "ops-lab is below ops;" in problem["detail"]) == (409, True)
    await _add(a, "s3", parent="ops")
    _, problem = await a.ask("DELETE", "/v1/campaigns/ops")
    assert "ops-lab and s3 are below ops; give them another parent first" in problem["detail"]
    for name in ("ops-lab", "s3"):
        assert (await a.ask("DELETE", f"/v1/campaigns/{name}"))[0] == 204
    _, task = await a.ask("POST", "/v1/tasks", {"test": IDLE, "campaign": "ops"})
    status, problem = await a.ask("DELETE", "/v1/campaigns/ops")
    assert (status, "1 task of ops" in problem["detail"]) == (409, True)
    assert (await a.ask("PATCH", "/v1/campaigns/ops", {"state": "closed"}))[0] == 200
    [(pointer, detail)] = await _refused(a, "POST", "/v1/tasks", {"test": IDLE, "campaign": "ops"})
    assert (pointer, "closed and takes no new tasks" in detail) == ("/campaign", True)
    status, edited = await a.ask("PATCH", f"/v1/tasks/{task['id']}", {"priority": 3})
    assert (status, edited["campaign"], edited["priority"]) == (200, "ops", 3)


async def test_shares_promised_and_delivered(a: Asker) -> None:
    """A campaign's share is promised by weight, and delivered by its charges and descendants'."""
    await _add(a, "ops", weight=3)
    await _add(a, "ops-lab", parent="ops")
    await _add(a, "idle")
    hour = START - START % times.HOUR
    for name, at, weight in (
        ("default", hour, 1000),
        ("ops-lab", hour, 2000),
        ("ops", hour - times.HOUR, 1000),
        ("ops", hour + times.HOUR, 500),
        ("ops", hour - 30 * times.HOUR, 9000),
    ):
        await a.rows(_CHARGE, name, at, weight)
    _, page = await a.ask("GET", "/v1/campaigns")
    used = {campaign["name"]: campaign["used"] for campaign in page["items"]}
    promised = {name: shares["promised"] for name, shares in used.items()}
    assert promised == {"default": 0.25, "ops": 0.75, "ops-lab": 0.75, "idle": 0}
    by_weight = {name: shares["by_weight"] for name, shares in used.items()}
    assert by_weight == {"default": 0.2, "ops": 0.6, "ops-lab": 0.6, "idle": 0.2}
    delivered = {name: shares["delivered"] for name, shares in used.items()}
    assert delivered == {"default": 0.25, "ops": 0.75, "ops-lab": 0.5, "idle": 0}
    assert (used["ops"]["booked"], used["ops"]["booked_seat_seconds"]) == (1, 1800)
    assert used["ops"]["delivered_seat_seconds"] == 3 * 3600


async def test_usage_by_hours(a: Asker) -> None:
    """Usage is listed hour by hour, page by page, for all campaigns or for one."""
    await _add(a, "ops")
    hour = START - START % times.HOUR
    for name, at, weight in (
        ("default", hour, 1000),
        ("ops", hour, 3000),
        ("ops", hour + times.HOUR, 500),
    ):
        await a.rows(_CHARGE, name, at, weight)
    hours: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        _, page = await a.ask("GET", f"/v1/usage?limit=2{cursor}")
        hours += page["items"]
        cursor = None if page["next"] is None else f"&cursor={page['next']}"
    assert [(entry["campaign"], entry["seat_seconds"], entry["share"]) for entry in hours] == [
        ("default", 3600, 0.25),
        ("ops", 10800, 0.75),
        ("ops", 1800, 1),
    ]
    since = format_instant(hour + times.HOUR)
    _, page = await a.ask("GET", f"/v1/campaigns/ops/usage?since={since}")
    assert page["items"] == [hours[2]]
    assert (await a.ask("GET", "/v1/usage?cursor=x"))[0] == 422
    assert (await a.ask("GET", "/v1/campaigns/no/usage"))[0] == 404


async def test_looking_up_a_campaign_computes_no_usage(
    a: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking up a name computes no usage; an unknown name is answered with similar ones."""
    await _add(a, "ops")

    async def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(a.node.usage, "all", fail)
    assert (await a.ask("GET", "/v1/campaigns/ops/usage"))[0] == 200
    for path in ("/v1/campaigns/op", "/v1/campaigns/op/usage"):
        status, problem = await a.ask("GET", path)
        assert (status, "did you mean ops" in problem["detail"]) == (404, True)


async def test_old_charges_are_forgotten(a: Asker, database: PostgresDatabase) -> None:
    """Charges are deleted after a month, their hourly sums after more than a year."""
    hour = START - START % times.HOUR
    for days in (0, 31, 401):
        await a.rows(_CHARGE, "default", hour - days * times.DAY, 1000)
    await a.node.purger.purge(a.node.clock.now())
    assert len(await a.rows("SELECT FROM charge")) == 1
    assert len(await a.rows("SELECT FROM charge_hour")) == 2
