"""Meshes over HTTP: their tasks, what they delivered, and why the rest is missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.times import format_instant
from node.operation.metrics import registry_of
from node.store import meshes
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.query_plans import reads_of
from tests.support.served_nodes import Asker, asker

_RUN = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, reason,
    freed, created_at, changed_at
)
VALUES (
    gen_random_uuid(), $1, $2, $3::integer, 'background', 0, $2,
    $2::timestamptz + interval '1 second', $4::run_state, $5, $6, $7, $7
)
"""
_MANY = """
WITH made AS (
    INSERT INTO task (
        id, lead, test, spec, scheduling_class, duration, participants, reference, created_at
    )
    SELECT
        gen_random_uuid(), node.identity, 'idle', '{}', 'background', interval '1 s', '[]',
        jsonb_build_object('mesh', 'lab', 'key', 'x/a/n' || number), $2::timestamptz
    FROM node, generate_series(1, $1::integer) AS number
    WHERE node.is_self
    RETURNING id
)
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, created_at,
    changed_at
)
SELECT
    gen_random_uuid(), made.id, due.slot, 1, 'background', 0, due.slot,
    due.slot + interval '1 s', 'finished', due.slot, due.slot
FROM made, generate_series(1, 5) AS hour,
    LATERAL (SELECT $2::timestamptz + hour * interval '1 hour') AS due (slot)
"""
_SOME_CHANGED = """
INSERT INTO mesh_recount (task_id, hour)
SELECT task_id, date_bin('1 hour', slot, 'epoch') FROM run ORDER BY task_id, slot LIMIT 260
"""
OPEN = ("waiting", "booked", "running")
OWN_READS = {
    *("task_mesh", "task_pkey", "run_slot_once", "run_of_task", "run_open_slot"),
    *("mesh_day_mesh", "mesh_day_key", "mesh_day_task", "mesh_day_last"),
}
"""The indexes through which a page of a mesh is read."""
MISSING = ("failed", "missed", "unplaced", "displaced", "cancelled")


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node to query, with a token."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client


async def _task(a: Asker, key: str, mesh: str = "lab", **reference: Any) -> UUID:
    document = {
        "test": {"type": "idle"},
        "schedule": {"repeat": "PT1H"},
        "reference": {"mesh": mesh, "key": key, **reference},
    }
    status, answer = await a.ask("POST", "/v1/tasks", document)
    assert status == 201, answer
    return UUID(answer["id"])


async def _run(
    a: Asker, task: UUID, hour: int, state: str, attempt: int = 1, reason: str = "because",
    *, freed: bool = False, changed: int | None = None,
) -> None:  # fmt: skip
    """Insert a run of a task whose slot is ``hour`` hours after the start."""
    slot = START + hour * times.HOUR
    changed = slot + times.MINUTE if changed is None else changed
    await a.rows(_RUN, task, slot, attempt, state, reason, freed, changed)


async def _every(a: Asker, path: str, limit: int) -> list[dict[str, Any]]:
    """Return all items of a list, fetched page by page."""
    items: list[dict[str, Any]] = []
    cursor = ""
    while True:
        status, page = await a.ask("GET", f"{path}?limit={limit}{cursor}")
        assert status == 200, page
        items += page["items"]
        if page["next"] is None:
            return items
        cursor = f"&cursor={page['next']}"


async def test_what_there_is_to_compare_with(a: Asker, clock: ManualClock) -> None:
    """A mesh lists for each key the open tasks, else the newest one; other tasks are excluded."""
    first = await _task(a, "x/a/b")
    await a.ask("DELETE", f"/v1/tasks/{first}")
    assert [t["state"] for t in await _every(a, "/v1/meshes/lab/tasks", 1)] == ["cancelled"]
    clock._now += times.SECOND
    second = await _task(a, "x/a/b")
    third = await _task(a, "x/b/a", moments={"start": "@PT1H"})
    await _task(a, "x/a/b", "other")
    for reference in (None, 5, ["mesh"], {"mesh": "lab"}, {"mesh": "lab", "key": "k" * 401}):
        document = {"test": {"type": "idle"}, "reference": reference}
        assert (await a.ask("POST", "/v1/tasks", document))[0] == 201
    for limit in (1, 2, 500):
        listed = await _every(a, "/v1/meshes/lab/tasks", limit)
        assert [(t["key"], UUID(t["id"])) for t in listed] == [("x/a/b", second), ("x/b/a", third)]
    listed = await _every(a, "/v1/meshes/lab/tasks", 500)
    assert listed[1]["reference"]["moments"] == {"start": "@PT1H"}
    assert (listed[0]["test"], listed[0]["participants"]) == ("idle", ["a"])
    _, page = await a.ask("GET", "/v1/meshes")
    assert [(mesh["name"], mesh["tasks"]) for mesh in page["items"]] == [
        ("lab", {"active": 2, "cancelled": 1}),
        ("other", {"active": 1}),
    ]
    assert page["items"][0]["campaigns"] == ["default"]
    assert (await a.ask("GET", "/v1/meshes/none/tasks"))[1]["items"] == []


async def test_a_removed_mesh_is_listed_only_if_asked_for(a: Asker) -> None:
    """A mesh without open tasks is listed only on request, until it gets a new task."""
    gone = [await _task(a, key, "gone") for key in ("x", "y")]
    await _task(a, "x", "stays")
    removed = "/v1/meshes?removed=true&limit=1"
    expected = [("gone", {"active": 2}), ("stays", {"active": 1})]
    for number in (0, 1):
        await a.ask("DELETE", f"/v1/tasks/{gone[number]}")
        expected[0] = ("gone", [{"active": 1, "cancelled": 1}, {"cancelled": 2}][number])
        meshes_listed = await _every(a, "/v1/meshes", 1)
        assert [(mesh["name"], mesh["tasks"]) for mesh in meshes_listed] == expected[number:]
    first = (await a.ask("GET", removed))[1]["items"]
    assert [(mesh["name"], mesh["tasks"]) for mesh in first] == expected[:1]
    assert (await a.ask("GET", "/v1/meshes/gone"))[0] == 200
    await _task(a, "x", "gone")
    assert [mesh["name"] for mesh in await _every(a, "/v1/meshes", 1)] == ["gone", "stays"]


async def test_an_edit_that_is_done_would_change_nothing(a: Asker) -> None:
    """A dry run of an applied edit changes nothing, so that a client can detect a lost answer."""
    task = await _task(a, "x/a/b")
    patch = {"schedule": {"repeat": "PT2H"}, "priority": 4}
    assert (await a.ask("PATCH", f"/v1/tasks/{task}", {**patch, "revision": 1}))[0] == 200
    assert (await a.ask("PATCH", f"/v1/tasks/{task}", {**patch, "revision": 1}))[0] == 409
    _, task_document = await a.ask("GET", f"/v1/tasks/{task}")
    again = {**patch, "revision": task_document["revision"]}
    _, edited = await a.ask("PATCH", f"/v1/tasks/{task}?dry_run=true", again)
    for name in ("test", "schedule", "tools", "priority", "campaign", "reference"):
        assert edited[name] == task_document[name]


async def test_what_was_delivered_and_why_not(a: Asker, clock: ManualClock) -> None:
    """Delivery is counted by slot, causes are grouped without times, freed slots are not due."""
    first, second = await _task(a, "x/a/b"), await _task(a, "x/b/a")
    clock._now = START + 12 * times.HOUR
    await _run(a, first, 1, "finished")
    await _run(a, first, 2, "failed")
    await _run(a, first, 2, "finished", attempt=2)
    busy = "b: no PT{}S free: busy with an exclusive idle run until 2026-12-01T0{}:00:00Z, 3 times"
    for hour in (3, 4):
        await _run(a, first, hour, "unplaced", reason=busy.format(hour, hour))
    await _run(a, first, 5, "cancelled", freed=True, changed=START)
    await _run(a, first, 6, "waiting")
    await _run(a, first, 13, "booked")
    await _run(a, second, 1, "missed", reason="b-12: the node was restarted during the run")
    status, mesh = await a.ask("GET", "/v1/meshes/lab")
    assert status == 200
    delivery = mesh["delivery"]
    assert (delivery["due"], delivery["delivered"], delivery["open"]) == (5, 2, 1)
    assert [(c["count"], c["state"], c["cause"]) for c in delivery["causes"]] == [
        (2, "unplaced", "b: no … free: busy with an exclusive idle run until …, … times"),
        (1, "missed", "b-12: the node was restarted during the run"),
    ]
    assert delivery["causes"][0]["example"] == busy.format(4, 4)
    pairs = await _every(a, "/v1/meshes/lab/pairs", 1)
    assert [(p["key"], p["source"], p["dest"], p["due"], p["delivered"]) for p in pairs] == [
        ("x/a/b", "a", "b", 4, 2),
        ("x/b/a", "b", "a", 1, 0),
    ]
    assert pairs[1]["causes"][0]["state"] == "missed"
    span = (
        f"from={format_instant(START + 2 * times.HOUR)}&to={format_instant(START + 4 * times.HOUR)}"
    )
    _, mesh = await a.ask("GET", f"/v1/meshes/lab?{span}")
    assert (mesh["delivery"]["due"], mesh["delivery"]["delivered"]) == (2, 1)


async def test_metrics_have_what_was_due_and_delivered(a: Asker, clock: ManualClock) -> None:
    """The metrics of a mesh are those of the last day, and at most a minute old."""
    task = await _task(a, "x/a/b")
    for hour, state in enumerate(("finished", "finished", "missed"), 1):
        await _run(a, task, hour, state)
    clock.advance(5 * times.HOUR)
    assert await _figures(a) == {"due": 3.0, "delivered": 2.0}
    await _run(a, task, 4, "finished")
    assert await _figures(a) == {"due": 3.0, "delivered": 2.0}
    clock.advance(times.MINUTE)
    assert await _figures(a) == {"due": 4.0, "delivered": 3.0}


async def _figures(a: Asker) -> dict[str, float]:
    registry = await registry_of(a.node)
    names = ("due", "delivered")
    found = {n: registry.get_sample_value(f"parley_mesh_{n}_runs", {"mesh": "lab"}) for n in names}
    return {name: value for name, value in found.items() if value is not None}


async def test_a_task_that_ended_owes_nothing_more(a: Asker, clock: ManualClock) -> None:
    """A cancelled task owes its slots before the end only: three of these were never planned."""
    task = await _task(a, "x/a/b")
    clock._now = START + 3 * times.HOUR
    await _run(a, task, 1, "finished")
    await a.ask("DELETE", f"/v1/tasks/{task}")
    await _run(a, task, 4, "cancelled", changed=clock.now())
    clock._now = START + 6 * times.HOUR
    _, mesh = await a.ask("GET", "/v1/meshes/lab")
    assert (mesh["delivery"]["due"], mesh["delivery"]["delivered"]) == (4, 1)
    [pair] = await _every(a, "/v1/meshes/lab/pairs", 50)
    assert (pair["state"], pair["due"]) == ("cancelled", 4)
    clock._now = START + 40 * times.HOUR
    assert await _every(a, "/v1/meshes/lab/pairs", 50) == []


async def test_any_lives_are_counted_once(a: Asker, clock: ManualClock) -> None:
    """A slot with several attempts counts once: by its result, else by its last attempt."""
    rng = Random(5)
    expected: Counter[tuple[str, str]] = Counter()
    for key in ("x/a/b", "x/a/c", "y/c/a"):
        task = await _task(a, key)
        for hour in range(1, 24):
            states = [rng.choice(["finished", *OPEN, *MISSING]) for _ in range(rng.randint(0, 4))]
            for number, state in enumerate(states, 1):
                await _run(a, task, hour, state, number)
            if states:
                last = "finished" if "finished" in states else states[-1]
                expected[key, last] += 1
    clock._now = START + 24 * times.HOUR
    pairs = await _every(a, "/v1/meshes/lab/pairs", 2)
    for pair in pairs:
        by_state = {state: count for (key, state), count in expected.items() if key == pair["key"]}
        assert pair["delivered"] == by_state.get("finished", 0)
        assert pair["open"] == sum(by_state.get(state, 0) for state in OPEN)
        assert pair["due"] == sum(by_state.values()) - pair["open"]
        assert {c["state"]: c["count"] for c in pair["causes"]} == {
            state: count for state, count in by_state.items() if state in MISSING
        }
    _, mesh = await a.ask("GET", "/v1/meshes/lab")
    for figure in ("due", "delivered", "open"):
        assert mesh["delivery"][figure] == sum(pair[figure] for pair in pairs)


async def test_a_pair_has_its_latest_result_and_thresholds(a: Asker, clock: ManualClock) -> None:
    """A pair has the figures of its latest result, of all its tasks, and the file's thresholds."""
    thresholds = {"idle_ms": {"fair": 100, "bad": 200}}
    before = await _task(a, "x/a/b", thresholds=5)
    await _run(a, before, 1, "finished")
    await a.ask("DELETE", f"/v1/tasks/{before}")
    clock._now += times.SECOND
    task = await _task(a, "x/a/b", thresholds=thresholds)
    await _task(a, "x/b/a", thresholds={"idle_ms": {"fair": 1, "bad": 1}})
    await _task(a, "x/c/a", thresholds={"idle_ms": 7})
    for hour, state in enumerate(("finished", "finished", "failed"), 2):
        await _run(a, task, hour, state)
    await a.rows(
        "UPDATE run SET summary = $1, result = jsonb_build_object('participants', 1, "
        "'duration_ms', 1000 * extract(HOUR FROM slot)) WHERE state = 'finished'",
        "idled",
    )
    clock._now = START + 9 * times.HOUR
    for order in ("key", "worst"):
        _, page = await a.ask("GET", f"/v1/meshes/lab/pairs?order={order}")
        pair, *others = page["items"]
        assert pair["thresholds"] == {"idle_ms": {"fair": 100, "bad": 200}}
        assert all(other["thresholds"] == {} for other in others)  # of a wrong form
        ended = START + 3 * times.HOUR + times.SECOND
        assert times.parse_instant(pair["latest"]["ends_at"]) == ended
        hour = times.to_datetime(START + 3 * times.HOUR).hour
        assert [(m["name"], m["value"]) for m in pair["latest"]["metrics"]] == [
            ("idle_ms", 1000 * hour)
        ]
        assert [other["latest"] for other in others] == [None] * (2 if order == "key" else 0)


async def test_a_page_of_pairs_does_not_count_the_mesh(
    a: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of pairs does not count the mesh; one of its tasks proves that the mesh exists."""
    await _task(a, "x/a/b")

    async def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(meshes, "find_all", fail)
    assert [pair["key"] for pair in await _every(a, "/v1/meshes/lab/pairs", 1)] == ["x/a/b"]
    for name in ("la", "No", "none"):
        assert (await a.ask("GET", f"/v1/meshes/{name}/pairs"))[0] == 404


@pytest.mark.nightly
async def test_a_page_of_a_large_mesh_reads_what_is_its_own(a: Asker) -> None:
    """A page of a large mesh reads only its own rows, through the indexes."""
    await a.rows(_MANY, 600, START)
    # What earlier tests left in the database has no part in what is read.
    await a.rows("VACUUM (ANALYZE) task, run, mesh_day")
    until = START + times.DAY
    queries: dict[str, tuple[Any, ...]] = {
        "mesh_keys": ("lab", "x/a/n15", 50, None),
        "mesh_tasks": ("lab", "x/a/n15", START, UUID(int=0), 50, None),
        "mesh_outcomes_of": ("lab", START, until, "x/a/n500", "x/a/n549", None),
        "latest_of_keys": ("lab", [f"x/a/n{number}" for number in range(500, 550)], until, None),
    }

    async def read_little() -> None:
        for name, arguments in queries.items():
            asked = f"EXPLAIN (ANALYZE, FORMAT JSON) {meshes._SQL[name]}"
            [(explained,)] = await a.rows(asked, *arguments)
            plan = json.loads(explained)[0]["Plan"]
            reads = list(reads_of(plan))
            assert {table for table, _ in reads} <= OWN_READS, (name, plan)
            assert max(rows for _, rows in reads) <= 300, (name, plan)

    await read_little()
    await _sum_up(a)
    await a.rows("VACUUM (ANALYZE) mesh_day")
    await a.rows(_SOME_CHANGED)
    await read_little()
    await _sum_up(a)
    await read_little()


async def _sum_up(a: Asker) -> None:
    """Sum up all that has changed, also while the node itself does so and has the lock."""
    while await a.rows("SELECT FROM mesh_recount LIMIT 1"):
        await meshes.sum_up_all(a.node.database)


async def test_of_no_time_nothing_is_counted(a: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mesh can be queried with an empty period without reading its runs."""
    await _task(a, "x/a/b")

    async def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(meshes, "outcomes", fail)
    now = format_instant(a.node.clock.now())
    status, mesh = await a.ask("GET", f"/v1/meshes/lab?from={now}&to={now}")
    assert (status, mesh["tasks"], mesh["delivery"]["due"]) == (200, {"active": 1}, 0)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/meshes/none", 404),
        ("/v1/meshes/none/pairs", 404),
        ("/v1/meshes/No", 404),
        ("/v1/meshes/lab?since=1", 422),
        ("/v1/meshes/lab?from=someday", 422),
        ("/v1/meshes/lab/tasks?cursor=x", 422),
        ("/v1/meshes/lab/tasks?cursor=1_00000000-0000-0000-0000-000000000000_%00", 422),
        ("/v1/meshes/lab/pairs?cursor=%00", 422),
        ("/v1/meshes/lab/pairs?limit=501", 422),
    ],
)
@pytest.mark.mostly_nightly
async def test_what_cannot_be_answered(a: Asker, path: str, status: int) -> None:
    """Invalid requests are refused with a problem document."""
    answer_status, problem = await a.ask("GET", path)
    assert (answer_status, problem["status"]) == (status, status)


async def test_what_is_delivered_may_be_bad(a: Asker, clock: ManualClock) -> None:
    """A run to which nothing came back is delivered and bad, one by one and summed up."""
    task = await _task(a, "x/a/b")
    for hour, judgement in ((1, "good"), (2, "no-answer"), (3, "bad"), (4, "no-answer")):
        await _run(a, task, hour, "finished", reason=judgement)
    await a.rows(
        "UPDATE run SET judgement = reason, judgement_code = 'all-lost', result = '{}', "
        "judgement_reason = 'all packets were lost', reason = NULL RETURNING id"
    )
    clock.move_to(START + 5 * times.HOUR)
    for _ in range(2):
        [pair] = await _every(a, "/v1/meshes/lab/pairs", 10)
        assert (pair["due"], pair["delivered"], pair["bad"]) == (4, 4, 3)
        assert pair["outcome"] == {
            "judgement": "no-answer",
            "code": "all-lost",
            "reason": "all packets were lost",
        }
        assert not pair["latest"]["stale"]
        [worst] = (await a.ask("GET", "/v1/meshes/lab/pairs?order=worst"))[1]["items"]
        assert worst["bad"] == 3
        assert await _letters(a) == ["n"]
        assert await _with_outcome(a, "no-answer") == [str(task)]
        assert await _with_outcome(a, "good,fair,stale") == []
        await meshes.sum_up_all(a.node.database)
    clock.move_to(START + 7 * times.HOUR)
    [pair] = await _every(a, "/v1/meshes/lab/pairs", 10)
    assert (pair["outcome"]["judgement"], pair["outcome"]["code"]) == ("stale", "too-old")
    assert pair["latest"]["stale"]
    shown = (await a.ask("GET", f"/v1/tasks/{task}"))[1]
    assert shown["outcome"]["judgement"] == "stale"
    assert shown["judgements"] == {"good": 1, "no-answer": 2, "bad": 1}
    assert await _letters(a) == ["s"]
    assert await _with_outcome(a, "stale") == [str(task)]
    await a.rows("UPDATE task SET state = 'refused', reason = 'b says no' RETURNING id")
    [pair] = await _every(a, "/v1/meshes/lab/pairs", 10)
    assert (pair["outcome"]["judgement"], pair["outcome"]["reason"]) == ("not-planned", "b says no")
    assert await _letters(a) == ["r"]


async def test_what_a_cron_schedule_measured_grows_stale(a: Asker, clock: ManualClock) -> None:
    """The only run of a task is stale once the second slot after it has passed without another."""
    task = await _task(a, "x/a/b")
    await a.rows("UPDATE task SET schedule = $1 RETURNING id", {"cron": "0 9 * * 1-5"})
    await _run(a, task, 1, "finished")
    await a.rows(
        "UPDATE run SET judgement = 'good', result = '{}', every = interval '36 hours' RETURNING id"
    )
    for hours, judgement, letter in ((72, "good", "g"), (74, "stale", "s")):
        clock.move_to(START + hours * times.HOUR)
        [pair] = await _every(a, "/v1/meshes/lab/pairs", 10)
        assert pair["outcome"]["judgement"] == judgement
        assert pair["latest"]["stale"] == (judgement == "stale")
        assert await _letters(a) == [letter]
        assert await _with_outcome(a, judgement) == [str(task)]


async def _letters(a: Asker) -> list[str]:
    """Return the rows of the matrix of a mesh of one entry."""
    status, found = await a.ask("GET", "/v1/meshes/lab/matrix")
    assert status == 200, found
    [entry] = found["entries"]
    assert (entry["name"], entry["sources"], entry["dests"]) == ("x", ["a"], ["b"])
    return list(entry["rows"])


async def _with_outcome(a: Asker, words: str) -> list[str]:
    status, found = await a.ask("GET", f"/v1/tasks?outcome={words}")
    assert status == 200, found
    return [task["id"] for task in found["items"]]


async def test_a_slot_that_was_tried_again_is_told_once(a: Asker, clock: ManualClock) -> None:
    """Lists and sums have the last attempt, which names those before it; or all, if asked for."""
    task = await _task(a, "x/a/b")
    await _run(a, task, 1, "missed", 1, "b was down")
    await _run(a, task, 1, "failed", 2, "b restarted")
    await _run(a, task, 1, "finished", 3, "")
    await _run(a, task, 2, "failed", 1, "no route")
    await _run(a, task, 2, "cancelled", 2, "not needed")
    clock.move_to(START + 3 * times.HOUR)
    path = f"/v1/tasks/{task}/runs?order=asc&state=finished,failed,missed"
    last, alone = (await a.ask("GET", path))[1]["items"]
    told = [(each["attempt"], each["state"], each["reason"]) for each in last["attempts"]]
    assert (last["attempt"], told) == (
        3,
        [(1, "missed", "b was down"), (2, "failed", "b restarted")],
    )
    assert (alone["reason"], alone["attempts"][0]["state"]) == ("no route", "cancelled")
    assert (await a.ask("GET", f"/v1/runs/{last['id']}"))[1]["attempts"] == last["attempts"]
    assert len((await a.ask("GET", f"{path}&attempts=true"))[1]["items"]) == 4
    first = last["attempts"][0]["run"]
    for query in (f"prefix={first[:8]}", f"id={first}"):
        assert [it["id"] for it in (await a.ask("GET", f"/v1/runs?{query}"))[1]["items"]] == [first]
    span = f"from={format_instant(START)}&to={format_instant(clock.now())}"
    [sums] = (await a.ask("GET", f"/v1/schedule?{span}&resolution=PT3H"))[1]["buckets"]
    assert sums["judgements"] == {"failed": 1, "not-planned": 1, "unknown": 1}
