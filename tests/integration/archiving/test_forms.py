"""Documents of other forms, texts instead of JSON, and results that are not worth sending late."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest
from aiohttp import web

from node.execution.tool_runner import ToolRunner
from node.model import times
from node.model.errors import ArchiverFailed
from node.results.delivery import NoDocument
from node.runtime.clock import SystemClock
from node.runtime.settings import Settings
from node.store.database import PostgresDatabase, Record
from node.trust.certificates import OwnCertificate
from node.trust.tls import read_certificate
from tests.support.archiving import Office, Receiver, office, receiver
from tests.support.clocks import ManualClock


class NumberedForm:
    """A form whose documents have a number, and only for runs that succeeded."""

    async def documents(self, rows: Sequence[Record]) -> list[bytes | NoDocument]:
        """Return the document of each row."""
        return [
            orjson.dumps({"run": str(row["run_id"]), "number": number})
            if row["state"] == "finished"
            else NoDocument("only success counts")
            for number, row in enumerate(rows)
        ]


@pytest.mark.needs("jq")
async def test_a_text_is_sent_as_it_is(a: Office, taker: Receiver) -> None:
    """A transform with ``raw`` sends the text that it makes, as a body of its own, with PUT."""
    spec = {"url": taker.url, "format": "single", "method": "PUT"}
    await a.archive("lines", "http", spec, transform={"jq": '"run \\(.run)"', "raw": True})
    await a.archive("json", "http", spec, transform={"jq": "{run: .run}", "raw": True})
    [run] = await a.ended()
    await a.result_delivery.run_once()
    sent = {posted.headers["Content-Type"]: posted for posted in taker.posted}
    assert {posted.method for posted in taker.posted} == {"PUT"}
    assert {name: posted.body.decode() for name, posted in sent.items()} == {
        "text/plain": f"run {run}",
        "application/json": f'{{"run":"{run}"}}',
    }


async def test_a_certificate_is_trusted_only_if_that_is_asked_for(
    a: Office, tmp_path: Path
) -> None:
    """A server with a certificate of its own gets results only where ``verify`` is false."""
    pem = tmp_path / "server.pem"
    pem.write_bytes(OwnCertificate.make(None, ["127.0.0.1"], SystemClock().now()).pem)
    async with receiver(read_certificate(pem).context) as taker:
        await a.archive("strict", "http", {"url": taker.url})
        await a.archive("lenient", "http", {"url": taker.url, "verify": False, "format": "single"})
        await a.ended()
        await a.result_delivery.run_once()
        assert "nothing was posted" in (await a.archives.test("lenient")).detail
        with pytest.raises(ArchiverFailed, match="certificate"):
            await a.archives.test("strict")
        assert len(taker.posted) == 1
    assert await a.states() == {"delivered": 1, "waiting": 1}


async def test_a_result_is_not_sent_after_its_ttl(
    a: Office, taker: Receiver, clock: ManualClock
) -> None:
    """A result older than the archive's ttl is parked, and retries end when it is over."""
    await a.archive("late", "http", {"url": taker.url}, ttl="PT2M")
    await a.archive("soon", "http", {"url": f"{taker.url}?soon"}, ttl="PT30S")
    taker.answer = lambda _: web.Response(status=503)
    await a.ended()
    await a.result_delivery.run_once()
    rows = await a.rows("SELECT state::text, last_error FROM archiving ORDER BY state::text DESC")
    assert [row[0] for row in rows] == ["waiting", "parked"]
    assert rows[1][1].startswith("given up after its ttl, 30 s: 503")
    clock.advance(3 * times.MINUTE)
    await a.result_delivery.run_once()
    rows = await a.rows("SELECT last_error FROM archiving WHERE state = 'parked'")
    assert "its ttl, 2 min, is over" in {row[0] for row in rows}
    assert len(taker.posted) == 2


async def test_documents_have_the_form_that_the_archive_asks_for(
    database: PostgresDatabase, clock: ManualClock, tmp_path: Path, taker: Receiver
) -> None:
    """A form makes the documents, or says why there is none; one that is unknown makes none."""
    runner = ToolRunner(Settings())
    a = await office(database, clock, runner, tmp_path, forms={"pscheduler": NumberedForm()})
    await a.archive("theirs", "http", {"url": taker.url}, format="pscheduler", runs="all")
    [run] = await a.ended()
    await a.ended(state="failed")
    await a.result_delivery.run_once()
    assert taker.documents == [{"run": str(run), "number": 0}]
    rows = await a.rows("SELECT last_error FROM archiving WHERE state = 'parked'")
    assert [row[0] for row in rows] == ["only success counts"]
    await a.result_delivery.close()
    await runner.close()


async def test_a_form_that_is_unknown_parks_results(a: Office, taker: Receiver) -> None:
    """Results are parked where nothing makes documents of the form of their archive."""
    await a.archive("theirs", "http", {"url": taker.url}, format="pscheduler", note="for Logstash")
    await a.ended()
    await a.result_delivery.run_once()
    rows = await a.rows("SELECT state::text, last_error FROM archiving")
    assert [tuple(row) for row in rows] == [
        ("parked", "this node has no documents of the form pscheduler")
    ]
    shown = await a.archives.one("theirs")
    assert (shown.format, shown.note, shown.ttl) == ("pscheduler", "for Logstash", None)
