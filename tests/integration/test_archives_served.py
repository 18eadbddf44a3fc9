"""Archives over HTTP: invalid ones are refused early, valid ones stored, secrets never shown."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node.model import times
from node.results.sealing import opened_spec
from tests.conftest import NewDatabase
from tests.support.archiving import receiver
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Asker, asker

WITH_JQ = pytest.mark.needs("jq")

HUSH = "hush-hush-hush-hush"
IDLE = {"type": "idle", "spec": {"duration": "PT1S", "class": "background"}}
LATER = {"start": times.format_instant(START + times.HOUR)}
DEAD = "http://127.0.0.1:9/in"
NO_TRANSFORM = {"jmespath": None, "jq": None, "raw": None}
_ENDED = """
INSERT INTO run (id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state,
    reason, created_at, changed_at)
VALUES (gen_random_uuid(), $1, $2, $3::smallint, 'background', 0, $2, $2::timestamptz + '1 s',
    'unplaced', 'no time', $2, $2)
RETURNING id
"""


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node to query, with a token."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        yield client
        await client.node.result_delivery.close()


def http(url: str = DEAD, **spec: Any) -> dict[str, Any]:
    """Return an HTTP archive for a task."""
    return {"archiver": "http", "spec": {"url": url, **spec}}


async def _task(a: Asker, *archives: Any) -> dict[str, Any]:
    document = {"test": IDLE, "schedule": LATER, "archives": archives}
    status, answer = await a.ask("POST", "/v1/tasks", document)
    assert status == 201, answer
    return dict(answer)


async def _unplaced(a: Asker, task: str, count: int = 1) -> list[str]:
    """Insert runs of a task for which no time was found; return their ids."""
    inserted = [await a.rows(_ENDED, task, START + number, 7) for number in range(count)]
    return [str(rows[0][0]) for rows in inserted]


@pytest.mark.parametrize(
    ("archive", "pointer", "word"),
    [
        ({"archiver": "nosuch"}, "/archiver", "there are: bitbucket, file, http, kafka"),
        ({"archiver": "http"}, "/spec/url", "required"),
        (http("gopher://a"), "/spec/url", "https://"),
        (http(cheap=True), "/spec/cheap", "no such field"),
        ({"archiver": "file", "spec": {"path": "/etc/x"}}, "/spec/path", "ARCHIVE_DIRECTORIES"),
        ({**http(), "runs": "some"}, "/runs", ""),
        ({**http(), "transform": {"jmespath": "a."}}, "/transform/jmespath", "Parse error"),
        pytest.param(
            {**http(), "transform": {"jq": ".a |"}}, "/transform/jq", "syntax error", marks=WITH_JQ
        ),
        ({**http(), "transform": {}}, "/transform", "jmespath or jq"),
        ({**http(), "transform": {"jq": ".", "jmespath": "@"}}, "/transform", "either"),
    ],
)
@pytest.mark.mostly_nightly
async def test_faulty_archives_are_refused_with_the_field(
    a: Asker, archive: Any, pointer: str, word: str
) -> None:
    """An invalid archive is refused with its field in a task, a plan and as the node's own."""
    task = {"test": IDLE, "schedule": LATER, "archives": [http(), archive]}
    requests = (
        ("/v1/tasks", task, "/archives/1"),
        ("/v1/plans", task, "/archives/1"),
        ("/v1/archives", {**archive, "name": "x"}, ""),
    )
    for path, document, prefix in requests:
        status, problem = await a.ask("POST", path, document)
        assert status == 422, problem
        [fault] = [each for each in problem["errors"] if word in each["detail"]]
        assert fault["pointer"] == prefix + pointer
    assert await a.rows("SELECT FROM archive") == []


async def test_archivers_describe_themselves(a: Asker) -> None:
    """Each archiver has a title and the schema of its spec."""
    _, page = await a.ask("GET", "/v1/archivers")
    assert [archiver["name"] for archiver in page["items"]] == [
        *(
            "bitbucket",
            "file",
            "http",
            "kafka",
            "otlp",
            "postgresql",
            "prometheus",
            "rabbitmq",
            "s3",
        ),
        *("syslog", "tcp", "udp"),
    ]
    status, one = await a.ask("GET", "/v1/archivers/http")
    assert (status, "url" in one["spec"]["properties"]) == (200, True)
    assert (await a.ask("GET", "/v1/archivers/nosuch"))[0] == 404


async def test_secrets_are_never_shown(a: Asker) -> None:
    """Secrets appear in no answer, list, trace, explanation or event, and edits keep them."""
    secret = http(secret=HUSH, headers={"Authorization": HUSH})
    answers = []
    answers.append(await a.ask("POST", "/v1/archives", {**secret, "name": "own"}))
    task = await _task(a, secret)
    answers.append(task["archives"])
    await _unplaced(a, task["id"])
    redacted = task["archives"][0]
    patch = {"archives": [{**redacted, "runs": "failed"}]}
    answers.append(await a.ask("PATCH", f"/v1/tasks/{task['id']}", patch))
    patched = {"spec": {"headers": {"X": HUSH}, "secret": "(secret)"}, "runs": "all"}
    answers.append(await a.ask("PATCH", "/v1/archives/own", patched))
    paths = (
        "/v1/archives",
        "/v1/archives/own",
        f"/v1/tasks/{task['id']}",
        f"/v1/tasks/{task['id']}/explain",
        "/v1/archivings",
        "/v1/archivings/backlog",
    )
    answers += [await a.ask("GET", path) for path in paths]
    assert HUSH not in json.dumps(answers)
    specs = [row[0] for row in await a.rows("SELECT spec FROM destination ORDER BY id")]
    assert HUSH not in json.dumps(specs)
    key = a.node.core.sealing
    opened = [opened_spec(key, "http", spec) for spec in specs]
    assert {spec["secret"] for spec in opened} == {HUSH}
    assert opened[-1]["headers"] == {"Authorization": HUSH, "X": HUSH}


@pytest.mark.needs("jq")
async def test_archives_of_the_node_are_added_edited_and_removed(a: Asker) -> None:
    """Equal archives are idempotent, others of the same name refused; a patch is merged."""
    document = {**http(), "name": "own", "transform": {"jmespath": "run"}}
    assert (await a.ask("POST", "/v1/archives", document))[0] == 201
    assert (await a.ask("POST", "/v1/archives", document))[0] == 201
    assert (await a.ask("POST", "/v1/archives", {**document, "runs": "all"}))[0] == 409
    patch = {"spec": {"gzip": True}, "transform": {"jq": "."}, "revision": 1}
    status, edited = await a.ask("PATCH", "/v1/archives/own", patch)
    assert (status, edited["revision"], edited["spec"]["gzip"]) == (200, 2, True)
    assert (edited["spec"]["url"], edited["transform"]) == (DEAD, {**NO_TRANSFORM, "jq": "."})
    assert (await a.ask("PATCH", "/v1/archives/own", patch))[0] == 409
    assert (await a.ask("PATCH", "/v1/archives/own", {"spec": {"url": 1}}))[0] == 422
    assert (await a.ask("DELETE", "/v1/archives/own"))[0] == 204
    assert (await a.ask("GET", "/v1/archives/own"))[0] == 404
    assert (await a.ask("POST", "/v1/archives", document))[0] == 201


async def test_a_secret_of_an_archive_goes_where_it_was_given_for(a: Asker) -> None:
    """An edit of where results go has to give the secrets again; what is not told is not kept."""
    document = {**http(headers={"X": "hush"}), "name": "own"}
    assert (await a.ask("POST", "/v1/archives", document))[0] == 201
    there: dict[str, Any] = {"url": "http://127.0.0.1:1/there"}
    for spec in (there, {**there, "headers": {"X": "(secret)"}}):
        status, problem = await a.ask("PATCH", "/v1/archives/own", {"spec": spec})
        assert (status, problem["errors"][0]["pointer"]) == (422, "/spec/url"), problem
    own = {**http(headers={"X": "hush"})}
    task = await _task(a, own)
    moved = {**own, "spec": {**own["spec"], **there, "headers": {"X": "(secret)"}}}
    status, problem = await a.ask("PATCH", f"/v1/tasks/{task['id']}", {"archives": [moved]})
    assert (status, problem["errors"][0]["pointer"]) == (422, "/archives/0/spec/url"), problem
    given = {"spec": {**there, "headers": {"X": "hush"}}}
    assert (await a.ask("PATCH", "/v1/archives/own", given))[0] == 200


async def test_an_archive_can_be_tried(a: Asker) -> None:
    """The test of an archive reports an answer, or a problem with its reason."""
    async with receiver() as archive_receiver:
        await a.ask("POST", "/v1/archives", {**http(archive_receiver.url), "name": "good"})
        await a.ask("POST", "/v1/archives", {**http(), "name": "dead"})
        status, tested = await a.ask("POST", "/v1/archives/good/test")
        assert (status, "answers" in tested["detail"]) == (200, True)
        status, problem = await a.ask("POST", "/v1/archives/dead/test")
        assert (status, problem["type"].rpartition("/")[2]) == (502, "archiver-failed")
        assert archive_receiver.posted == []


async def test_an_edit_of_a_task_changes_its_archives(a: Asker) -> None:
    """An edit replaces the list; places with the same archiver keep their pending deliveries."""
    task = await _task(a, {**http(), "runs": "all"}, {**http("http://b/in"), "runs": "all"})
    path = f"/v1/tasks/{task['id']}"
    await _unplaced(a, task["id"])
    ids_before = [row[0] for row in await a.rows("SELECT id FROM archive ORDER BY place")]
    patch = {"archives": [{**http("http://c/in"), "runs": "all"}]}
    _, preview = await a.ask("PATCH", f"{path}?dry_run=true", patch)
    status, edited = await a.ask("PATCH", path, patch)
    assert status == 200, edited
    assert edited["archives"] == preview["archives"]
    assert [archive["spec"]["url"] for archive in edited["archives"]] == ["http://c/in"]
    rows = await a.rows(
        "SELECT archive_id, label FROM archiving INNER JOIN destination ON "
        "destination.id = destination_id"
    )
    assert [tuple(row) for row in rows] == [(ids_before[0], "http://c/in")]
    _, explained = await a.ask("GET", f"{path}/explain")
    assert "archives changed" in explained["decisions"][0]["sentence"]
    _, same = await a.ask("PATCH", path, {"priority": 3})
    assert same["archives"] == edited["archives"]
    _, none = await a.ask("PATCH", path, {"archives": None})
    assert none["archives"] == []


async def test_deliveries_are_listed_page_by_page_and_tried_again(
    a: Asker, clock: ManualClock
) -> None:
    """Deliveries can be filtered and paged, and each reports its outcome."""
    await a.ask("POST", "/v1/archives", {**http(), "name": "own", "runs": "all"})
    task, other = await _task(a), await _task(a)
    runs = await _unplaced(a, task["id"], 3)
    await _unplaced(a, other["id"])
    clock.advance(times.SECOND)
    await a.node.result_delivery.run_once()
    _, first = await a.ask("GET", "/v1/archivings?limit=3")
    _, rest = await a.ask("GET", f"/v1/archivings?limit=3&cursor={first['next']}")
    assert (len(first["items"]), len(rest["items"]), rest["next"]) == (3, 1, None)
    for query, count in (
        (f"run={runs[0]}", 1),
        (f"task={task['id']}", 3),
        ("archive=own", 4),
        ("archive=other", 0),
        (f"destination={first['items'][0]['destination']}", 4),
        ("state=parked,delivered", 0),
        ("state=waiting", 4),
    ):
        _, page = await a.ask("GET", f"/v1/archivings?{query}")
        assert len(page["items"]) == count, query
    assert {archiving["attempts"] for archiving in first["items"]} == {1}
    _, explained = await a.ask("GET", f"/v1/runs/{runs[0]}/explain")
    assert f"to be delivered to own (http {DEAD}) at " in explained["sentence"]
    assert "127.0.0.1 port 9: Connection refused" in explained["sentence"]
    assert len(explained["archivings"]) == 1
    _, backlog = await a.ask("GET", "/v1/archivings/backlog")
    [waits] = backlog["items"]
    assert (waits["waiting"], waits["parked"], waits["archives"]) == (4, 0, ["own"])
    assert "127.0.0.1 port 9: Connection refused" in waits["last_error"]
    _, retried = await a.ask("POST", "/v1/archivings/retry", {"run": runs[0]})
    assert retried == {"retried": 1}
    assert (await a.ask("POST", "/v1/archivings/retry", {}))[0] == 422
    assert (await a.ask("POST", "/v1/archivings/retry", {"archive": "nosuch"}))[0] == 404
    async with a.session.get(f"{a.node.card.url}/metrics") as answer:
        metrics = await answer.text()
    assert 'state="waiting"} 4.0' in metrics
    assert 'parley_archive_deliveries_total{archiver="http",fate="again"} 4.0' in metrics
