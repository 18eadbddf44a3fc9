"""The outbox of results: written with the outcome, delivered at least once, parked in the end."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from node.model import times
from node.model.wire.archives import ArchiveChoice, ArchivePatch, RetryRequest
from node.plugins.archivers.http import HttpDestination
from node.store import archives, runs
from node.store.database import Notice
from tests.support.archiving import IDENTITY, Office, Posted, Receiver, receiver
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S

_RESCANNING = """
SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; SET LOCAL enable_hashagg = off;
SET LOCAL enable_sort = off; SET LOCAL enable_material = off; SET LOCAL enable_memoize = off;
"""
"""Settings with which Postgres prefers plans that evaluate an inner query once for each row."""

WITH_JQ = pytest.mark.needs("jq")

DEAD = "http://127.0.0.1:9/in"
"""The discard port, on which nothing listens here."""


def refuses(status: int, **headers: str) -> Callable[[Posted], web.Response]:
    """Return a handler that answers everything alike."""
    return lambda _: web.Response(status=status, headers=headers, text="no")


async def test_a_result_is_posted_whole(a: Office, taker: Receiver) -> None:
    """The document has the run, its task, times, state, result and figures, and a key."""
    await a.archive("all", "http", {"url": taker.url})
    [run] = await a.ended()
    await a.result_delivery.run_once()
    [document] = taker.documents
    [row] = await a.rows("SELECT id FROM archive")
    assert document["key"] == f"{run}/{row[0]}"
    assert (document["schema"], document["version"]) == ("parley-result", 1)
    assert (document["run"], document["task"]) == (str(run), str(a.task))
    assert (document["state"], document["succeeded"]) == ("finished", True)
    assert document["result"] == {"participants": 1, "slept_ms": 1000.0}
    assert document["participants"][0]["name"] == "a"
    assert document["test"] == {"type": "idle", "spec": {"duration": "PT1S"}}
    assert taker.posted[0].headers["Idempotency-Key"] == document["key"]
    assert await a.states() == {"delivered": 1}


async def test_it_is_written_with_the_outcome_or_not_at_all(a: Office) -> None:
    """If the transaction that ends a run fails, there is nothing to deliver."""
    await a.archive("all", "http", {"url": DEAD})
    begun = await a.begun()
    with pytest.raises(ZeroDivisionError):
        await _ended_but_not_committed(a, begun)
    assert await a.states() == {}
    await a.end(begun)
    assert await a.states() == {"waiting": 1}


async def _ended_but_not_committed(a: Office, begun: list[UUID]) -> None:
    async with a.database.transaction() as connection:
        await connection.execute("UPDATE run SET state = 'finished' WHERE id = ANY($1)", begun)
        waiting = await connection.fetchval("SELECT count(*) FROM archiving")
        raise ZeroDivisionError(waiting)


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ("succeeded", ["finished"]),
        ("failed", ["displaced", "failed", "missed", "unplaced"]),
        ("all", ["displaced", "failed", "finished", "missed", "unplaced"]),
    ],
)
@pytest.mark.mostly_nightly
async def test_an_archive_gets_the_runs_it_wants(a: Office, wanted: str, got: list[str]) -> None:
    """An archive gets succeeded, failed (even unplaced) or all runs; never cancelled ones."""
    await a.archive("some", "http", {"url": DEAD}, runs=wanted)
    for state in ("finished", "failed", "missed", "displaced", "unplaced", "cancelled"):
        await a.ended(state=state)
    rows = await a.rows("SELECT outcome::text FROM archiving ORDER BY outcome::text")
    assert [row[0] for row in rows] == got


async def test_participants_deliver_nothing(a: Office) -> None:
    """A participant that is not the lead delivers nothing."""
    await a.archive("all", "http", {"url": DEAD}, runs="all")
    await a.execute("UPDATE task SET lead = 'ed25519:other' WHERE lead = $1", IDENTITY)
    await a.ended()
    assert await a.states() == {}


async def test_a_late_part_makes_another_edition(a: Office, taker: Receiver) -> None:
    """A failed run that finishes later is delivered again, under another key."""
    await a.archive("all", "http", {"url": taker.url}, runs="all")
    [run] = await a.ended(state="failed")
    await a.result_delivery.run_once()
    await a.end([run])
    await a.result_delivery.run_once()
    first, second = taker.documents
    assert (first["state"], second["state"]) == ("failed", "finished")
    assert second["key"] == f"{first['key']}/2"


async def test_an_outcome_that_is_none_any_more_is_not_delivered(
    a: Office, taker: Receiver
) -> None:
    """A failure that was not delivered before the run finished is never delivered."""
    await a.archive("all", "http", {"url": taker.url}, runs="all")
    [run] = await a.ended(state="failed")
    await a.end([run])
    await a.result_delivery.run_once()
    assert [document["state"] for document in taker.documents] == ["finished"]
    assert await a.states() == {"delivered": 1}


async def test_results_go_in_batches(a: Office, taker: Receiver) -> None:
    """A request has at most as many results as the archive allows, each once."""
    await a.archive("all", "http", {"url": taker.url, "batch": 40})
    ended = await a.ended(100)
    await a.result_delivery.run_once()
    assert [len(each.documents) for each in taker.posted] == [40, 40, 20]
    assert {document["run"] for document in taker.documents} == {str(run) for run in ended}
    assert len(taker.documents) == 100


@pytest.mark.parametrize("ordered", [False, True])
async def test_no_plan_of_the_server_claims_more_than_the_limit(
    a: Office, *, ordered: bool
) -> None:
    """A claim takes no more than its limit, however often the server evaluates the inner query."""
    await a.archive("all", "http", {"url": DEAD})
    await a.ended(20)
    [[destination]] = await a.rows("SELECT DISTINCT destination_id FROM archiving")
    now = a.clock.now()
    async with a.database.transaction() as connection:
        await connection.execute(_RESCANNING)
        numbers = await archives.claim(
            connection, destination, now, now + times.MINUTE, limit=5, ordered=ordered
        )
    assert len(numbers) == 5


async def test_pauses_grow_to_an_hour_and_end_after_a_day(a: Office, clock: ManualClock) -> None:
    """Retries pause 1, 5, 30 minutes, then an hour each for a day; then the result is parked."""
    await a.archive("dead", "http", {"url": DEAD})
    await a.ended()
    tries: list[int] = []
    begun = clock.now()
    row = None
    while await a.states() == {"waiting": 1}:
        tries.append((clock.now() - begun) // times.MINUTE)
        await a.result_delivery.run_once()
        [row] = await a.rows("SELECT next_at, attempts, state::text, last_error FROM archiving")
        assert row["attempts"] == len(tries)
        clock.move_to(row["next_at"] or clock.now())
    assert tries[:5] == [0, 1, 6, 36, 96]
    assert {after - before for before, after in pairwise(tries[3:])} == {60}
    assert 24 * 60 <= tries[-1] < 25 * 60
    assert row is not None
    assert row["state"] == "parked"
    assert row["last_error"].startswith(
        "given up after a day: 127.0.0.1 port 9: Connection refused"
    )


async def _give_up(a: Office, taker: Receiver, clock: ManualClock, runs: int) -> None:
    """End runs whose archive is away for longer than a day."""
    taker.answer = refuses(503)
    await a.ended(runs)
    while await a.states() != {"parked": runs}:
        await a.result_delivery.run_once()
        clock.advance(times.HOUR)
    taker.answer = lambda _: web.Response()
    taker.posted.clear()


async def test_what_was_given_up_is_delivered_with_the_next_result(
    a: Office, taker: Receiver, clock: ManualClock
) -> None:
    """An archive that was away for days gets all of it with the next result that it accepts."""
    await a.archive("all", "http", {"url": taker.url})
    await _give_up(a, taker, clock, 3)
    clock.advance(2 * times.DAY)
    await a.ended()
    await a.result_delivery.run_once()
    await a.result_delivery.run_once()
    assert await a.states() == {"delivered": 4}


async def test_what_was_given_up_is_tried_each_hour(
    a: Office, taker: Receiver, clock: ManualClock
) -> None:
    """Without new results one delivery in an hour finds out whether the archive is back."""
    await a.archive("all", "http", {"url": taker.url})
    await _give_up(a, taker, clock, 3)
    taker.answer = refuses(503)
    for _ in range(6):
        clock.advance(10 * times.MINUTE)
        await a.result_delivery.run_once()
    assert (len(taker.documents), await a.states()) == (1, {"parked": 3})
    taker.answer = lambda _: web.Response()
    clock.advance(times.HOUR)
    await a.result_delivery.run_once()
    await a.result_delivery.run_once()
    assert await a.states() == {"delivered": 3}


async def test_what_was_refused_stays_parked(
    a: Office, taker: Receiver, clock: ManualClock
) -> None:
    """A refused result is not tried again by itself, whatever its archive accepts."""
    await a.archive("all", "http", {"url": taker.url})
    taker.answer = refuses(404)
    await a.ended()
    await a.result_delivery.run_once()
    taker.answer = lambda _: web.Response()
    clock.advance(times.DAY)
    await a.ended()
    await a.result_delivery.run_once()
    await a.result_delivery.run_once()
    assert await a.states() == {"delivered": 1, "parked": 1}


@pytest.mark.parametrize("status", [408, 429, 500, 503])
@pytest.mark.mostly_nightly
async def test_temporary_failures_are_retried(a: Office, taker: Receiver, status: int) -> None:
    """A temporarily failing server gets the result later, and its message is kept."""
    await a.archive("all", "http", {"url": taker.url})
    taker.answer = refuses(status)
    await a.ended()
    await a.result_delivery.run_once()
    [row] = await a.rows("SELECT state::text, last_error FROM archiving")
    assert row[0] == "waiting"
    assert str(status) in row[1]


async def test_retry_after_is_honoured(a: Office, taker: Receiver, clock: ManualClock) -> None:
    """A pause that the server asks for is used if it is longer than ours; the log has both ends."""
    await a.archive("all", "http", {"url": taker.url})
    taker.answer = refuses(429, **{"Retry-After": "600"})
    await a.ended()
    with capture_logs() as logged:
        await a.result_delivery.run_once()
        [row] = await a.rows("SELECT next_at FROM archiving")
        assert row[0] == clock.now() + 10 * times.MINUTE
        await a.ended()
        await a.result_delivery.run_once()
        assert len(taker.posted) == 1
        taker.answer = lambda _: web.Response(status=204)
        clock.advance(10 * times.MINUTE)
        await a.result_delivery.run_once()
    assert [line["event"] for line in logged] == ["results wait", "results are accepted again"]


@pytest.mark.parametrize("status", [301, 401, 403, 404, 410])
@pytest.mark.mostly_nightly
async def test_permanent_refusals_are_parked(a: Office, taker: Receiver, status: int) -> None:
    """A permanent refusal is parked for a person, with the server's message."""
    await a.archive("all", "http", {"url": taker.url})
    taker.answer = refuses(status)
    await a.ended(3)
    await a.result_delivery.run_once()
    assert await a.states() == {"parked": 3}
    assert len(taker.posted) == 1
    [row] = await a.rows("SELECT DISTINCT last_error FROM archiving")
    assert row[0].startswith(f"refused: {status}")


async def test_one_bad_document_parks_itself_alone(a: Office, taker: Receiver) -> None:
    """A rejected batch is bisected until only the rejected document is left."""
    await a.archive("all", "http", {"url": taker.url})
    bad = str((await a.ended(20))[7])

    def judge(posted: Posted) -> web.Response:
        spoilt = any(document["run"] == bad for document in posted.documents)
        return web.Response(status=422 if spoilt else 200)

    taker.answer = judge
    await a.result_delivery.run_once()
    assert await a.states() == {"delivered": 19, "parked": 1}
    [row] = await a.rows("SELECT run_id FROM archiving WHERE state = 'parked'")
    assert str(row[0]) == bad


async def test_a_person_has_it_tried_again(a: Office, taker: Receiver, clock: ManualClock) -> None:
    """A parked result is delivered after a manual retry, under the same key."""
    await a.archive("all", "http", {"url": taker.url})
    taker.answer = refuses(404)
    await a.ended(2)
    await a.result_delivery.run_once()
    keys = [document["key"] for document in taker.documents]
    taker.answer = lambda _: web.Response()
    assert (await a.archives.retry(RetryRequest(archive="all"))).retried == 2
    await a.result_delivery.run_once()
    assert [document["key"] for document in taker.documents] == keys * 2
    assert await a.states() == {"delivered": 2}


async def test_a_manual_retry_ends_the_rest(a: Office, taker: Receiver) -> None:
    """A manual retry does not wait for the destination's rest to end."""
    await a.archive("all", "http", {"url": taker.url})
    taker.answer = refuses(503)
    await a.ended(2)
    await a.result_delivery.run_once()
    taker.answer = lambda _: web.Response()
    await a.result_delivery.run_once()
    assert await a.states() == {"waiting": 2}
    heard: asyncio.Queue[Notice] = asyncio.Queue()
    listening = asyncio.create_task(a.database.listen(heard.put_nowait, a.clock))
    assert (await heard.get()).kind == "wake"
    assert (await a.archives.retry(RetryRequest(archive="all"))).retried == 2
    a.result_delivery.on_notice(await heard.get())
    listening.cancel()
    await a.result_delivery.run_once()
    assert await a.states() == {"delivered": 2}


async def test_a_rest_does_not_depend_on_the_date(
    a: Office, taker: Receiver, clock: ManualClock
) -> None:
    """A destination rests for a minute, also if the clock is set back in the meantime."""
    await a.archive("all", "http", {"url": taker.url})
    taker.answer = refuses(503)
    await a.ended()
    await a.result_delivery.run_once()
    clock.step(-times.HOUR)
    await a.execute("UPDATE archiving SET next_at = $1", clock.now())
    taker.answer = lambda _: web.Response()
    clock.advance(times.MINUTE - 1)
    await a.result_delivery.run_once()
    assert await a.states() == {"waiting": 1}
    clock.advance(1)
    await a.result_delivery.run_once()
    assert await a.states() == {"delivered": 1}


async def test_a_dead_archiver_is_asked_once_a_minute(
    a: Office, taker: Receiver, clock: ManualClock
) -> None:
    """A dead server is tried once a minute; once it works, all results are delivered."""
    await a.archive("all", "http", {"url": taker.url})
    taker.answer = refuses(503)
    for _ in range(5):
        await a.ended()
        await a.result_delivery.run_once()
    assert len(taker.posted) == 1
    clock.advance(times.MINUTE)
    await a.result_delivery.run_once()
    assert len(taker.posted) == 2
    clock.advance(times.MINUTE)
    taker.answer = lambda _: web.Response()
    await a.ended()
    await a.result_delivery.run_once()
    await a.result_delivery.run_once()
    assert await a.states() == {"delivered": 6}


async def test_a_slow_archiver_delays_no_other(a: Office, taker: Receiver) -> None:
    """While one server is slow, another one gets its results, and runs end."""
    async with receiver() as slow:
        slow.held = asyncio.Event()
        await a.archive("slow", "http", {"url": slow.url})
        await a.archive("dead", "http", {"url": DEAD})
        await a.archive("good", "http", {"url": taker.url})
        async with a.at_work():
            await a.ended()
            async with asyncio.timeout(PATIENCE_S):
                await slow.arrived.wait()
                await taker.arrived.wait()
                taker.arrived.clear()
                await a.ended()
                await taker.arrived.wait()
        assert len(slow.posted) == 1
        assert len(taker.documents) == 2


async def test_timeouts_are_retried(a: Office, taker: Receiver) -> None:
    """A request that times out is retried, because its outcome is unknown."""
    taker.held = asyncio.Event()
    await a.archive("all", "http", {"url": taker.url, "timeout": "PT1S"})
    await a.ended()
    await a.result_delivery.run_once()
    [row] = await a.rows("SELECT state::text, last_error FROM archiving")
    assert tuple(row) == ("waiting", "did not answer within 1 s")


async def test_unrecorded_deliveries_are_repeated(a: Office, taker: Receiver) -> None:
    """A delivery that a killed service had not recorded is repeated under the same key."""
    await a.archive("all", "http", {"url": taker.url})
    await a.ended()
    now = a.clock.now()
    async with a.database.connection() as connection:
        [row] = await connection.fetch("SELECT id FROM destination")
        taken = await archives.claim(
            connection, row[0], now, now + times.HOUR, limit=10, ordered=False
        )
    assert len(taken) == 1
    await a.result_delivery.run_once()
    assert taker.documents == []
    async with a.at_work(), asyncio.timeout(PATIENCE_S):
        await taker.arrived.wait()
    assert len(taker.documents) == 1


async def test_a_task_has_archives_of_its_own(a: Office, taker: Receiver) -> None:
    """A task's archives get the results of the task and its seats, and no others."""
    await a.archive("all", "http", {"url": DEAD})
    part = await a.add_task(parent=a.task)
    other = await a.add_task()
    choice = ArchiveChoice(archiver="http", spec={"url": taker.url})
    edited = await a.archives.effect_of_edit(a.task, [choice])
    assert edited is not None
    async with a.database.transaction() as connection:
        await a.archives.keep_of_task(connection, a.task, edited.choices)
    for task in (a.task, part, other):
        await a.ended(task=task)
    await a.result_delivery.run_once()
    assert {document["task"] for document in taker.documents} == {str(a.task), str(part)}
    assert {document["pool_task"] for document in taker.documents} == {None, str(a.task)}


async def test_waiting_results_follow_an_edit(a: Office, taker: Receiver) -> None:
    """After an edit of the address, even parked results are delivered to the new one."""
    await a.archive("all", "http", {"url": taker.url + "x"})
    await a.ended()
    await a.result_delivery.run_once()
    assert await a.states() == {"parked": 1}
    await a.archives.edit("all", ArchivePatch(spec={"url": taker.url}))
    await a.archives.retry(RetryRequest(archive="all"))
    await a.result_delivery.run_once()
    assert await a.states() == {"delivered": 1}


async def test_an_archive_that_is_removed_gets_nothing_more(a: Office, taker: Receiver) -> None:
    """A removed archive gets nothing more, but past deliveries remain visible."""
    await a.archive("all", "http", {"url": taker.url})
    await a.ended()
    await a.result_delivery.run_once()
    await a.ended()
    await a.archives.remove("all")
    await a.ended()
    await a.result_delivery.run_once()
    assert await a.states() == {"delivered": 1}
    assert len(taker.documents) == 1
    async with a.database.connection() as connection:
        await archives.purge(connection, 1000)
    assert len(await a.rows("SELECT FROM archive")) == 1


async def test_archives_with_one_spec_share_batches(a: Office, taker: Receiver) -> None:
    """Two archives with the same spec are one destination: one request has the results of both."""
    await a.archive("one", "http", {"url": taker.url})
    await a.archive("two", "http", {"url": taker.url}, transform={"jmespath": "{run: run}"})
    [run] = await a.ended()
    await a.result_delivery.run_once()
    [posted] = taker.posted
    assert {document["run"] for document in posted.documents} == {str(run)}
    assert {len(document) for document in posted.documents} == {1, 32}


@pytest.mark.parametrize(
    ("transform", "state", "error"),
    [
        ({"jmespath": "missing"}, "delivered", "left out by its transform"),
        pytest.param({"jq": "empty"}, "delivered", "left out by its transform", marks=WITH_JQ),
        ({"jmespath": "length(succeeded)"}, "parked", "the transform failed: In function length()"),
        pytest.param({"jq": ".run / 2"}, "parked", "the transform failed: string (", marks=WITH_JQ),
        pytest.param(
            {"jq": ".run, .task"},
            "parked",
            "the transform failed: the program output 2 documents",
            marks=WITH_JQ,
        ),
        pytest.param(
            {"jq": 'error("no # ]")'}, "parked", "the transform failed: no # ]", marks=WITH_JQ
        ),
    ],
)
@pytest.mark.mostly_nightly
async def test_a_transform_that_gives_nothing_or_fails(
    a: Office, taker: Receiver, transform: dict[str, str], state: str, error: str
) -> None:
    """A transform without output drops the result; one that fails parks it, and others go on."""
    await a.archive("some", "http", {"url": taker.url}, transform=transform)
    await a.archive("all", "http", {"url": taker.url})
    await a.ended()
    await a.result_delivery.run_once()
    rows = await a.rows("SELECT state::text, last_error FROM archiving ORDER BY last_error")
    assert [row[0] for row in rows] == [state, "delivered"]
    assert rows[0][1].startswith(error)
    assert len(taker.documents) == 1


@pytest.mark.needs("jq")
async def test_jq_sees_neither_environment_nor_files(
    a: Office, taker: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A jq transform can read neither the service's environment nor its files."""
    monkeypatch.setenv("PARLEY_SECRET", "hidden")
    await a.archive("env", "http", {"url": taker.url}, transform={"jq": "[env, $ENV]"})
    await a.ended()
    await a.result_delivery.run_once()
    assert taker.documents == [[{}, {}]]


async def test_a_request_can_be_signed(a: Office, taker: Receiver, clock: ManualClock) -> None:
    """A receiver that knows the secret can verify the body as sent and its instant."""
    secret = "0123456789abcdef"
    spec = {"url": taker.url, "secret": secret, "gzip": True, "format": "lines"}
    await a.archive("all", "http", {**spec, "headers": {"Authorization": "Bearer x"}})
    await a.ended(3)
    await a.result_delivery.run_once()
    [posted] = taker.posted
    stamp, _, said = posted.headers["Parley-Signature"].partition(",")
    seconds = stamp.removeprefix("t=")
    signed = f"{seconds}.".encode() + posted.body
    assert said == "v1=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert int(seconds) == clock.now() // times.SECOND
    assert posted.headers["Authorization"] == "Bearer x"
    assert posted.headers["Content-Encoding"] == "gzip"
    assert len(posted.documents) == 3


async def test_order_is_kept_where_it_matters(
    a: Office, tmp_path: Path, clock: ManualClock
) -> None:
    """While a result cannot be written, later ones of its task wait; other tasks do not."""
    path = tmp_path / "out" / "results.jsonl"
    await a.archive("file", "file", {"path": str(path)})
    first = await a.ended()
    await a.result_delivery.run_once()
    assert await a.states() == {"waiting": 1}
    path.parent.mkdir()
    second = await a.ended()
    other = await a.add_task()
    third = await a.ended(task=other)
    a.result_delivery._open.clear()
    await a.result_delivery.run_once()
    assert [str(third[0])] == _runs_in(path)
    clock.advance(times.MINUTE)
    await a.result_delivery.run_once()
    assert [str(run) for run in (*third, *first, *second)] == _runs_in(path)


def _runs_in(path: Path) -> list[str]:
    return [json.loads(line)["run"] for line in path.read_text().splitlines()]


async def test_undelivered_runs_are_not_purged(a: Office) -> None:
    """A run is not purged until its result is delivered or parked."""
    await a.archive("dead", "http", {"url": DEAD})
    await a.ended()
    late = a.clock.now() + 400 * times.DAY
    async with a.database.transaction() as connection:
        await runs.purge(connection, late, 1000, finished=True)
    assert len(await a.rows("SELECT FROM run")) == 1
    await a.execute("UPDATE archiving SET state = 'parked', next_at = NULL")
    async with a.database.transaction() as connection:
        await runs.purge(connection, late, 1000, finished=True)
    assert await a.rows("SELECT FROM run") == []
    assert await a.states() == {}


async def test_an_archiver_that_cannot_be_closed_stops_nothing(
    a: Office, taker: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while closing an archiver is logged, and the delivery counts."""

    async def close(self: HttpDestination) -> None:
        await self.poster.close()
        raise ZeroDivisionError

    monkeypatch.setattr(HttpDestination, "close", close)
    await a.archive("all", "http", {"url": taker.url})
    await a.ended()
    await a.result_delivery.run_once()
    with capture_logs() as logged:
        await a.result_delivery.close()
    assert [(line["event"], line["archiver"]) for line in logged] == [
        ("an archiver failed", "http")
    ]
    assert await a.states() == {"delivered": 1}
