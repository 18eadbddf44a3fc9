"""The schedule of a node over HTTP: page by page, however many runs it has."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from node.cli.schedule import read_span
from node.client.users import UserClient
from node.model import times
from node.model.errors import InvalidDocument
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.reservations import document
from tests.support.served_nodes import Asker, asker

RUNS = 1203
_TASK = """
    INSERT INTO task (
        id, lead, test, spec, scheduling_class, duration, participants, participant, schedule,
        created_at
    )
    SELECT
        gen_random_uuid(), node.identity, 'idle', '{}', 'background-multi', interval '1 s',
        '[{"node": "x", "name": "a", "url": null, "address": "192.0.2.1"}]', 0, '{}', $1
    FROM node WHERE node.is_self
"""
_RUNS = """
    INSERT INTO run (
        id, task_id, slot, attempt, participant, scheduling_class, priority, starts_at, ends_at,
        lane, state, reason, finished_at, created_at, changed_at
    )
    SELECT
        gen_random_uuid(), task.id, at + n * interval '1 us', 1, 0, 'background-multi', 0, at,
        at + interval '1 s', int8range(NULL, NULL), 'failed', 'because', at, at, at
    FROM
        task,
        -- Three at once, so that a page ends between runs with the same start.
        (
            SELECT n, $1::timestamptz + n / 3 * interval '5 s' FROM generate_series(0, $2 - 1) AS n
        ) AS due (n, at)
"""


@pytest.fixture
async def node(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Asker]:
    """Serve a node with many runs."""
    async with asker("a", await new_database(), clock, tmp_path) as a:
        await a.rows(_TASK, START)
        await a.rows(_RUNS, START, RUNS)
        yield a


async def test_no_answer_has_more_than_a_page(node: Asker) -> None:
    """An answer has at most 500 runs, and the cursor of the next ones; the first has all else."""
    await node.ask("POST", "/v1/reservations", document())
    path = "/v1/schedule?from=2026-12-01T00:00:00Z&to=2026-12-02T00:00:00Z"
    status, answer = await node.ask("GET", path)
    assert (status, len(answer["items"]), answer["complete"]) == (200, 500, False)
    assert len(answer["reserved"]) == 1
    seen = [item["run"] for item in answer["items"]]
    while answer["next"] is not None:
        _, answer = await node.ask("GET", f"{path}&cursor={answer['next']}")
        assert (len(answer["items"]) <= 500, answer["reserved"]) == (True, [])
        seen += [item["run"] for item in answer["items"]]
    assert answer["complete"]
    assert (len(seen), len(set(seen))) == (RUNS, RUNS)
    _, few = await node.ask("GET", f"{path}&limit=7")
    assert [item["run"] for item in few["items"]] == seen[:7]
    for wrong in ("limit=501", "limit=0", "cursor=x"):
        assert (await node.ask("GET", f"{path}&{wrong}"))[0] == 422


@pytest.mark.nightly
async def test_the_client_reads_all_pages(node: Asker) -> None:
    """The client of users and the command have the whole span in the order of starts."""
    async with UserClient(node.node.settings.public_url, "secret", node.node.clock) as client:
        span = await client.schedule(START, START + times.DAY)
        assert (len(span.entries), span.complete) == (RUNS, True)
        starts = [entry.starts_at for entry in span.entries]
        assert starts == sorted(starts)
        shown = await read_span(client, START, START + times.DAY)
        assert [entry["run"] for entry in shown.entries] == [str(it.run) for it in span.entries]
        assert shown.complete
        default = await client.schedule()
        assert (default.starts_at, len(default.entries)) == (START - times.HOUR, RUNS)
        with pytest.raises(InvalidDocument):
            await client.schedule(-1)


async def test_a_long_run_reaches_into_a_later_span(node: Asker, clock: ManualClock) -> None:
    """A span has the run that began days before it, in all its forms, and in lists of runs."""
    await node.rows(
        "UPDATE run SET ends_at = starts_at + interval '3 d' "
        "WHERE id = (SELECT id FROM run ORDER BY id LIMIT 1)"
    )
    [(long,)] = await node.rows(
        "SELECT id::text FROM run WHERE ends_at > starts_at + interval '1 h'"
    )
    span = "from=2026-12-03T00:00:00Z&to=2026-12-03T01:00:00Z"
    for path in (f"/v1/schedule?{span}", f"/v1/runs?{span}", f"/v1/runs?{span}&order=asc"):
        _, answer = await node.ask("GET", path)
        assert [item.get("run", item.get("id")) for item in answer["items"]] == [long], path
    _, answer = await node.ask("GET", f"/v1/schedule?{span}&resolution=PT1H")
    assert [each["runs"] for each in answer["buckets"]] == [{"failed": 1}]
    clock.move_to(START + 3 * times.DAY)
    _, answer = await node.ask("GET", f"/v1/schedule?{span}&as_of=2026-12-02T12:00:00Z")
    assert [item["run"] for item in answer["items"]] == [long]


async def test_a_resolution_sums_up_the_runs(node: Asker) -> None:
    """Pieces have the number of the runs that overlap them by state, and the share they occupy."""
    path = "/v1/schedule?from=2026-12-01T00:00:00Z&to=2026-12-02T00:00:00Z"
    _, whole = await node.ask("GET", f"{path}&resolution=P1D")
    (day,) = whole["buckets"]
    assert (day["runs"], day["busy"], whole["items"]) == ({"failed": RUNS}, 0.0046, [])
    _, cut = await node.ask("GET", f"{path}&resolution=PT5M")
    # Three runs of a second each 5 s: 60 times a third of each piece of 5 min is busy.
    assert {each["busy"] for each in cut["buckets"][:-1]} == {0.2}
    assert sum(each["runs"]["failed"] for each in cut["buckets"]) == RUNS
    _, none = await node.ask("GET", f"{path}&resolution=PT5M&class=exclusive,normal")
    assert none["buckets"] == []
    # Of runs between other nodes, which are led here, only those nodes have less time.
    await node.rows("UPDATE run SET participant = NULL")
    shares = {}
    for name in ("", "&participant=a", "&participant=z"):
        _, answer = await node.ask("GET", f"{path}&resolution=P1D{name}")
        shares[name] = [(each["runs"]["failed"], each["busy"]) for each in answer["buckets"]]
    assert shares == {"": [(RUNS, 0.0)], "&participant=a": [(RUNS, 0.0046)], "&participant=z": []}
    for wrong in ("PT1S", "PT0.1S", "P1M", "5"):
        assert (await node.ask("GET", f"{path}&resolution={wrong}"))[0] == 422


async def test_lists_answer_what_is_asked_for(node: Asker) -> None:
    """Items have the named fields only, and runs are found by their ids."""
    path = "/v1/schedule?from=2026-12-01T00:00:00Z&to=2026-12-02T00:00:00Z&limit=3"
    _, few = await node.ask("GET", f"{path}&class=background-multi&fields=run,state")
    assert [sorted(item) for item in few["items"]] == [["run", "state"]] * 3
    assert few["next"] is not None
    _, none = await node.ask("GET", f"{path}&class=exclusive")
    assert none["items"] == []
    ids = [item["run"] for item in few["items"]]
    unknown = "00000000-0000-4000-8000-000000000000"
    _, named = await node.ask("GET", f"/v1/runs?id={','.join([*ids, unknown])}&fields=id,state")
    assert {item["id"]: item["state"] for item in named["items"]} == dict.fromkeys(ids, "failed")
    _, tasks = await node.ask("GET", "/v1/tasks?fields=id")
    assert [list(task) for task in tasks["items"]] == [["id"]]
    for wrong in ("/v1/runs?fields=colour", f"/v1/runs?id={ids[0]}&state=failed", "/v1/runs?id=x"):
        assert (await node.ask("GET", wrong))[0] == 422
