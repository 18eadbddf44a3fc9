"""Archives get the documents that readers of pScheduler's archives know, by any archiver."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.acceptance.conftest import NAMED_PORT, facade_of
from tests.acceptance.outsider import Outsider
from tests.support.archiving import receiver
from tests.support.listeners import tcp, udp
from tests.support.pscheduler.command import CommandLine, Failed
from tests.support.receivers import Surroundings
from tests.support.worlds import ON_ONE_LOOP

pytestmark = [pytest.mark.nightly, ON_ONE_LOOP, pytest.mark.usefixtures("tidy")]

NOWHERE = cast("Surroundings", None)
"""Listeners of their own need nothing of the surroundings."""


@pytest.fixture
def command(a: Outsider) -> CommandLine:
    """Return the command line of pScheduler, with the first node as its host."""
    return CommandLine(facade_of(a.url))


@pytest.mark.needs("jq")
async def test_each_archive_gets_the_document(a: Outsider, command: CommandLine) -> None:
    """A document has all members that pipelines read, whole, or as the transform makes it."""
    async with (
        receiver(port=NAMED_PORT) as taker,
        tcp(NOWHERE, NAMED_PORT + 1) as lines,
        udp(NOWHERE, NAMED_PORT + 1) as datagrams,
    ):
        put = {
            "schema": 3,
            "_url": taker.url,
            "op": "put",
            "verify-ssl": False,
            "_headers": {"x-ps-observer": "a.example", "Content-Type": "application/json"},
        }
        transform = {"script": "{id, $who, ok: .result.succeeded}", "args": {"who": "me"}}
        archives = [
            {"archiver": "http", "data": put, "schema": 2, "uri-host": "ps.example"},
            {"archiver": "tcp", "data": lines.spec, "transform": transform},
            {"archiver": "udp", "data": datagrams.spec, "transform": {"script": ".run.state"}},
        ]
        reference = {"psconfig": {"created-by": {"uuid": "u"}}, "display-task": "x"}
        url = await command.post(
            "rtt", "--dest", a.address, "--count", "2", archives=archives, reference=reference
        )
        [transformed] = await lines.until(1)
        assert await datagrams.until(1) == ["finished"]
        await a.until("/v1/archivings?limit=3", lambda _: taker.posted)
    [posted] = taker.posted
    [document] = taker.documents
    assert (posted.method, posted.headers["x-ps-observer"]) == ("PUT", "a.example")
    assert posted.headers["Content-Type"] == "application/json"
    run, task = document["run"], document["task"]
    assert transformed == {"id": document["id"], "who": "me", "ok": True}
    assert set(document) == {
        "id",
        "schedule",
        "test",
        "tool",
        "run",
        "task",
        "participants",
        "result",
        "reference",
    }
    assert document["reference"] == reference
    assert document["schedule"] == {"start": run["start-time"], "duration": run["duration"]}
    assert document["test"]["type"] == "rtt"
    assert document["test"]["spec"]["dest"] == a.address
    assert set(document["tool"]) == {"name", "version"}
    assert (run["state"], run["result-merged"]["succeeded"]) == ("finished", True)
    assert len(document["result"]["roundtrips"]) == 2
    base = f"https://ps.example/pscheduler/tasks/{url.rpartition('/')[2]}"
    assert run["href"] == f"{base}/runs/{document['id']}"
    assert (run["task-href"], task["href"]) == (base, base)
    assert "archives" not in task
    assert document["participants"] == run["participants"] == ["ps.example"]
    assert task["detail"]["participants"] == [a.name]
    assert not {"archivings", "participant-data", "result"} & set(run)


async def test_failed_runs_are_archived_where_they_are_wanted(
    a: Outsider, command: CommandLine
) -> None:
    """Archives for failed runs get the document of a run that failed, with the reason."""
    async with receiver(port=NAMED_PORT) as taker:
        data = {"_url": taker.url}
        archives = [
            {"archiver": "http", "data": data, "schema": 2, "runs": runs}
            for runs in ("failed", "succeeded")
        ]
        words = ("--query", "x.invalid", "--record", "a")
        server = ("--nameserver", "127.0.0.1", "--timeout", "PT1S")
        await command.post("dns", *words, *server, archives=archives)
        await a.until("/v1/archivings?limit=2", lambda _: taker.posted)
    [document] = taker.documents
    assert (document["run"]["state"], document["result"]["succeeded"]) == ("failed", False)
    assert document["result"]["error"]


@pytest.mark.needs("ping")
async def test_a_task_of_ours_is_archived_in_their_form(a: Outsider) -> None:
    """A task that was created by our own API has a document in their form, too."""
    async with receiver() as taker:
        archive = {"archiver": "http", "spec": {"url": taker.url}, "format": "pscheduler"}
        spec = {"dest": a.address, "count": 2}
        task = await a.create("rtt", spec=spec, archives=[archive], reference={"mine": 1})
        await a.until("/v1/archivings?limit=2", lambda _: taker.posted)
    [document] = taker.documents
    assert document["task"]["href"].endswith(f"/pscheduler/tasks/{task['id']}")
    assert document["test"]["spec"]["count"] == 2
    assert document["reference"] == {"mine": 1}
    assert len(document["result"]["roundtrips"]) == 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"archiver": "esmond", "data": {"url": "x"}}, 'No archiver "esmond" is available'),
    ({"archiver": "http", "data": {}}, "'_url' is a required property"),
    ({"archiver": "syslog", "data": {"facility": "none"}}, "facility"),
    ({"archiver": "bitbucket", "data": {}, "transform": {"script": "{"}}, "syntax error"),
]


@pytest.mark.needs("jq")
@pytest.mark.parametrize(("archive", "words"), REFUSED)
async def test_a_wrong_archive_refuses_the_task(
    command: CommandLine, archive: dict[str, Any], words: str
) -> None:
    """An archive that cannot be used refuses its task, with a sentence."""
    with pytest.raises(Failed, match=words):
        await command.post("idle", "--duration", "PT1S", archives=[archive])
