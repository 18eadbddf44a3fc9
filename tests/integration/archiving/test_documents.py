"""The documents that archives get of runs and intervals, and the count of parked deliveries."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node.model import times
from node.model.errors import ArchiverFailed
from node.model.intervals import Interval, Rhythm
from node.model.secrets import REDACTED
from node.model.wire.archives import RetryRequest
from node.store import archives, intervals, runs
from node.store.intervals import MergedInterval
from tests.support.archiving import IDENTITY, Office, Receiver

DEAD = "http://127.0.0.1:9/in"
CLOCK = {"synchronised": True, "source": "chrony", "stepped_ms": 0.0}
WAY = {"rate_bps": 8.0, "packet_rate": 1.0, "error_rate": 0.0, "drop_rate": 0.0}
COUNTS = {"bytes": 1, "packets": 1, "errors": 0, "drops": 0}
FIGURES: dict[str, Any] = {
    "interface": "eth0",
    "duration_ms": 1000.0,
    "received": {**WAY, **COUNTS},
    "sent": {**WAY, **COUNTS, "rate_bps": 16.0},
}
RHYTHM = Rhythm(times.SECOND, 4)
_PART = """
INSERT INTO part (run_id, participant, name, result, started_at, command, circumstances)
VALUES ($1, $2, $3, '{}', $4, '{ping,-c,10}', $5)
"""
_WITHIN = """
UPDATE task SET test = 'interface', spec = '{"duration": "PT4S", "each": "PT1S"}' WHERE id = $1
"""


def circumstances(identity: str, error_bound_ms: float | None, **more: Any) -> dict[str, Any]:
    """Return a participant's report of its host."""
    clock = {**CLOCK, "identity": identity, "error_bound_ms": error_bound_ms}
    return {"tool": "ping", "tool_version": "20221126", "clock": clock, "neighbours": [], **more}


async def test_a_document_says_how_it_was_measured(a: Office, taker: Receiver) -> None:
    """A document has the tool's version, verdict, clock bound, and each part's start and argv."""
    await a.archive("all", "http", {"url": taker.url})
    await a.execute(
        "UPDATE task SET participants = participants || jsonb_build_array($1::jsonb)",
        {"node": "ed25519:b", "name": "b", "url": None, "address": "127.0.0.2"},
    )
    [run] = await a.begun()
    started = a.clock.now()
    await a.execute(_PART, run, 0, "a", started, circumstances("x", 0.5))
    await a.execute(_PART, run, 1, "b", started + 7, circumstances("y", 1.25))
    await a.execute(
        "UPDATE run SET verdict = 'suspicious', verdict_reasons = '{it rained}' WHERE id = $1", run
    )
    await a.end([run])
    await a.result_delivery.run_once()
    [document] = taker.documents
    assert document["tool_version"] == "20221126"
    assert (document["verdict"], document["verdict_reasons"]) == ("suspicious", ["it rained"])
    assert document["clock_error_ms"] == 1.75
    assert document["interval"] is None
    first, second = document["participants"]
    assert first["started_at"] == times.format_instant(started)
    assert second["started_at"] == times.format_instant(started + 7)
    assert first["command"] == ["ping", "-c", "10"]
    assert first["circumstances"] == circumstances("x", 0.5)


async def streaming(a: Office) -> UUID:
    """Create a running run of a test that gives a result each second."""
    await a.execute(_WITHIN, a.task)
    [run] = await a.begun()
    return run


async def told(a: Office, run: UUID, *numbers: int, gaps: tuple[int, ...] = ()) -> None:
    """Merge these intervals of the run."""
    starts_at = (await a.rows("SELECT starts_at FROM run WHERE id = $1", run))[0][0]
    found = [
        Interval(number, None, "nobody told") if number in gaps else Interval(number, FIGURES)
        for number in numbers
    ]
    merged = [
        MergedInterval(one, "fine", complete=number not in gaps)
        for number, one in zip(numbers, found, strict=True)
    ]
    async with a.database.transaction() as connection:
        await intervals.create_first(connection, run, starts_at, RHYTHM, 1 + max(numbers))
        await intervals.merge(connection, run, merged, a.clock.now())


async def test_intervals_go_as_they_are_merged(a: Office, taker: Receiver) -> None:
    """Each interval is delivered while the run lasts, in order, with its key, times and figures."""
    await a.archive("all", "http", {"url": taker.url})
    run = await streaming(a)
    await told(a, run, 2, 0, 1)
    await a.result_delivery.run_once()
    assert [document["interval"] for document in taker.documents] == [0, 1, 2]
    last = taker.documents[-1]
    [row] = await a.rows("SELECT starts_at, (SELECT id FROM archive) FROM run")
    assert last["key"] == f"{run}/{row[1]}/i2"
    assert last["starts_at"] == times.format_instant(row[0] + 2 * times.SECOND)
    assert (last["state"], last["succeeded"], last["result"]) == ("finished", True, FIGURES)
    rates = [one["value"] for one in last["metrics"] if one["name"] == "rate_bps"]
    assert rates == [8.0, 16.0]
    await a.end([run])
    await a.result_delivery.run_once()
    assert taker.documents[-1]["key"] == f"{run}/{row[1]}"
    assert await a.states() == {"delivered": 4}
    async with a.database.connection() as connection:
        own = await archives.deliveries(
            connection, archives.DeliveryFilter(run=run, whole_runs=True)
        )
        every = await archives.deliveries(connection, archives.DeliveryFilter(run=run))
    assert [row["interval"] for row in own] == [None]
    assert [row["interval"] for row in every] == [None, 2, 1, 0]


async def test_intervals_are_kept_in_order_where_it_matters(a: Office, tmp_path: Path) -> None:
    """Intervals belong to the series of their task, as its runs do."""
    await a.archive("file", "file", {"path": str(tmp_path / "out.jsonl")})
    await told(a, await streaming(a), 0)
    assert (await a.rows("SELECT series FROM archiving"))[0][0] == a.task


async def test_an_interval_goes_with_its_commit_or_not_at_all(a: Office) -> None:
    """If the transaction that merges an interval fails, there is nothing to deliver."""
    await a.archive("all", "http", {"url": DEAD})
    run = await streaming(a)
    with pytest.raises(ZeroDivisionError):
        await _merged_but_not_committed(a, run)
    assert await a.states() == {}


async def _merged_but_not_committed(a: Office, run: UUID) -> None:
    async with a.database.transaction() as connection:
        await intervals.create_first(connection, run, a.clock.now(), RHYTHM, 1)
        merged = MergedInterval(Interval(0, FIGURES), "fine", complete=True)
        await intervals.merge(connection, run, [merged], a.clock.now())
        raise ZeroDivisionError(await connection.fetchval("SELECT count(*) FROM archiving"))


@pytest.mark.parametrize(("wanted", "got"), [("succeeded", [0]), ("failed", [1]), ("all", [0, 1])])
async def test_an_archive_gets_the_intervals_it_wants(
    a: Office, wanted: str, got: list[int]
) -> None:
    """An archive gets the intervals that it wants; a gap counts as a failed one."""
    await a.archive("some", "http", {"url": DEAD}, runs=wanted)
    await told(a, await streaming(a), 0, 1, gaps=(1,))
    rows = await a.rows("SELECT interval_number FROM archiving ORDER BY number")
    assert [row[0] for row in rows] == got


async def test_a_gap_that_is_filled_goes_again(a: Office, taker: Receiver) -> None:
    """A late part makes another edition of the interval, unless the merged result is the same."""
    await a.archive("all", "http", {"url": taker.url}, runs="all")
    run = await streaming(a)
    await told(a, run, 0, gaps=(0,))
    await a.result_delivery.run_once()
    await told(a, run, 0, gaps=(0,))
    await a.result_delivery.run_once()
    assert [document["state"] for document in taker.documents] == ["failed"]
    await told(a, run, 0)
    await a.result_delivery.run_once()
    first, second = taker.documents
    assert second["state"] == "finished"
    assert second["key"] == f"{first['key']}/2"


async def test_a_gap_that_was_filled_meanwhile_is_not_told(a: Office, taker: Receiver) -> None:
    """A gap that was filled before its delivery is not delivered as a gap, nor twice."""
    await a.archive("gaps", "http", {"url": taker.url}, runs="failed")
    await a.archive("all", "http", {"url": taker.url}, runs="all")
    run = await streaming(a)
    await told(a, run, 0, gaps=(0,))
    await told(a, run, 0)
    await a.result_delivery.run_once()
    assert [document["state"] for document in taker.documents] == ["finished"]
    assert await a.states() == {"delivered": 1}


async def test_intervals_of_what_others_lead_are_theirs(a: Office) -> None:
    """A participant that is not the lead delivers no intervals."""
    await a.archive("all", "http", {"url": DEAD})
    run = await streaming(a)
    await a.execute("UPDATE task SET lead = 'ed25519:other' WHERE lead = $1", IDENTITY)
    await told(a, run, 0)
    assert await a.states() == {}


async def test_results_of_a_missing_archiver_wait(a: Office) -> None:
    """Results of an uninstalled third-party archiver wait, and its secrets stay hidden."""
    spec = {"url": DEAD, "secret": "a secret of some length"}
    await a.archive("all", "http", spec)
    await a.ended()
    await a.execute("UPDATE destination SET archiver = 'gone'")
    await a.result_delivery.run_once()
    [row] = await a.rows("SELECT state::text, last_error, next_at FROM archiving")
    assert tuple(row[:2]) == ("waiting", "the archiver 'gone' is no longer installed here")
    assert row[2] > a.clock.now()
    [own] = await a.archives.own()
    assert set(own.spec.values()) == {REDACTED}
    with pytest.raises(ArchiverFailed, match="'gone'"):
        await a.archives.test("all")
    await a.archives.remove("all")


async def counted(a: Office) -> dict[str, int]:
    """Return the number of parked deliveries by destination, from the backlog."""
    async with a.database.connection() as connection:
        rows = await archives.backlog(connection)
    return {row["label"]: row["parked"] for row in rows}


async def test_parked_deliveries_are_counted_as_they_come_and_go(
    a: Office, taker: Receiver
) -> None:
    """Deliveries are counted when parked, retried, moved, dropped with an archive, and purged."""
    for name in ("one", "two"):
        await a.archive(name, "http", {"url": f"{taker.url}-{name}"})
    one, two = sorted(await counted(a))
    await a.ended(3)
    await a.result_delivery.run_once()
    assert await counted(a) == {one: 3, two: 3}
    await a.archives.retry(RetryRequest(archive="one"))
    assert await counted(a) == {one: 0, two: 3}
    await a.result_delivery.run_once()
    await a.execute(
        "UPDATE archiving SET destination_id = (SELECT max(id) FROM destination) WHERE run_id = "
        "(SELECT run_id FROM archiving ORDER BY number LIMIT 1)"
    )
    assert await counted(a) == {one: 2, two: 4}
    await a.archives.remove("one")
    assert (await counted(a))[two] == 3
    late = a.clock.now() + 400 * times.DAY
    async with a.database.transaction() as connection:
        await runs.purge(connection, late, 1000, finished=True)
    assert await counted(a) == {two: 0}
    assert await a.rows("SELECT FROM parked_count") == []


async def test_two_who_count_at_once_do_not_wait_for_each_other(a: Office, taker: Receiver) -> None:
    """Two concurrent counts add a row each without waiting, and the next one merges the rows."""
    await a.archive("one", "http", {"url": f"{taker.url}-none"})
    await a.ended(3)
    rows = await a.rows("SELECT number FROM archiving ORDER BY number")
    park = "UPDATE archiving SET state = 'parked', next_at = NULL WHERE number = $1"
    async with a.database.transaction() as first, a.database.transaction() as second:
        await first.execute(park, rows[0][0])
        await second.execute(park, rows[1][0])
    assert len(await a.rows("SELECT FROM parked_count")) == 2
    assert set((await counted(a)).values()) == {2}
    await a.execute(park, rows[2][0])
    assert [row[0] for row in await a.rows("SELECT change FROM parked_count")] == [3]
