"""The audit of a node: who, from where, what, on what, and with which outcome."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from structlog.testing import capture_logs

from node.journal.audit import AuditLog
from node.journal.events import EventHub
from node.model import times
from node.model.audit import AuditEntry, AuditOutcome
from node.model.errors import DatabaseUnavailable, ParleyError
from node.model.principals import STRANGER, Principal, PrincipalKind, Role
from node.model.wire.participants import TaskEnd
from node.store import audit
from node.store.database import Connection, Notice
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.limits import NOTHING, set_limits
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import Asker, asker, give_token, served, user
from tests.support.served_pairs import Pair, paired

IDLE = {"type": "idle", "spec": {"duration": "PT30S", "participants": ["a"]}}


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node with its owner."""
    async with asker("a", await new_database(), clock, tmp_path) as owner:
        yield owner


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Return two nodes that know each other."""
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            asker("a", await new_database(), clock, tmp_path / "a")
        )
        second = await stack.enter_async_context(
            served("b", await new_database(), clock, tmp_path / "b")
        )
        clock.advance(times.HOUR)
        yield await paired(first, second, clock)


async def recorded(a: Asker, query: str = "") -> list[dict[str, Any]]:
    """Return the audit as the owner reads it, the oldest row first."""
    await a.node.audit.flush()
    status, document = await a.ask("GET", f"/v1/audit?order=asc{query}")
    assert status == 200, document
    return list(document["items"])


async def task_of(a: Asker) -> str:
    """Create a task, and return its id."""
    document = {"test": IDLE, "schedule": {"repeat": "PT1H"}}
    status, task = await a.ask("POST", "/v1/tasks", document)
    assert status == 201, task
    return str(task["id"])


async def test_what_a_user_changes_is_recorded_before_the_answer(a: Asker) -> None:
    """A row says who, from where, what, on what, and that it was done; no reading has one."""
    task = await task_of(a)
    [[made]] = await a.rows("SELECT count(*) FROM audit")
    assert made == 1
    await a.ask("GET", f"/v1/tasks/{task}")
    await a.ask("PATCH", f"/v1/tasks/{task}?dry_run=true", {"priority": 2})
    await a.ask("POST", "/v1/plans", {"task": {"test": IDLE}})
    await a.ask("DELETE", f"/v1/tasks/{task}")
    [[token]] = await a.rows("SELECT id::text FROM access_token")
    created, cancelled = await recorded(a)
    assert created == {
        "id": created["id"],
        "at": times.format_instant(a.node.clock.now()),
        "kind": "token",
        "principal": "owner",
        "key": token,
        "role": "own",
        "origin": "127.0.0.1",
        "verb": "create_task",
        "thing": task,
        "outcome": "done",
        "status": 201,
        "problem": None,
        "count": 1,
    }
    assert (cancelled["verb"], cancelled["thing"]) == ("cancel_task", task)


async def test_a_change_cannot_be_called_a_trial(a: Asker) -> None:
    """A change with dry_run at a route that has no trials is made, and recorded like any other."""
    task = await task_of(a)
    for method, path in (("DELETE", f"/v1/tasks/{task}"), ("POST", "/v1/tokens")):
        body = {"label": "eve", "role": "own"} if method == "POST" else None
        status, _ = await a.ask(method, f"{path}?dry_run=true", body)
        assert status < 300
    verbs = [row["verb"] for row in await recorded(a)]
    assert verbs == ["create_task", "cancel_task", "create_token"]


async def test_each_role_leaves_what_it_did_and_what_it_was_refused(a: Asker) -> None:
    """All four roles post a task and read the audit: done, or refused with the reason."""
    for role in Role:
        await give_token(a.node, f"of {role}", str(role), role)
        async with user(a, f"of {role}") as caller:
            await caller.ask("POST", "/v1/tasks", {"test": IDLE, "schedule": {"repeat": "PT1H"}})
            assert (await caller.ask("GET", "/v1/audit"))[0] == (200 if role is Role.OWN else 403)
    rows = [
        (row["principal"], row["role"], row["verb"], row["outcome"], row["problem"])
        for row in await recorded(a)
    ]
    assert rows == [
        ("read", "read", "create_task", "refused", "not-allowed"),
        ("read", "read", "list_audit", "refused", "not-allowed"),
        ("run", "run", "create_task", "done", None),
        ("run", "run", "list_audit", "refused", "not-allowed"),
        ("operate", "operate", "create_task", "done", None),
        ("operate", "operate", "list_audit", "refused", "not-allowed"),
        ("own", "own", "create_task", "done", None),
    ]


async def test_tokens_are_named_and_never_shown(a: Asker) -> None:
    """Making, listing, using, and revoking a token is recorded with its id, without its secret."""
    status, token = await a.ask("POST", "/v1/tokens", {"label": "alice", "role": "run"})
    assert status == 201
    await a.ask("GET", "/v1/tokens")
    await a.ask("DELETE", f"/v1/tokens/{token['id']}")
    async with user(a, token["token"]) as alice:
        assert (await alice.ask("GET", "/v1/tasks"))[0] == 401
    async with user(a, "parley_guessed") as guesser:
        assert (await guesser.ask("POST", "/v1/tasks", {}))[0] == 401
    rows = await recorded(a)
    of_owner = [(row["verb"], row["thing"]) for row in rows if row["principal"] == "owner"]
    assert sorted(of_owner, key=str) == [
        ("create_token", token["id"]),
        ("list_tokens", None),
        ("revoke_token", token["id"]),
    ]
    revoked, guessed = (row for row in rows if row["outcome"] == "refused")
    assert (revoked["principal"], revoked["key"]) == ("alice", token["id"])
    assert (guessed["kind"], guessed["principal"]) == ("stranger", None)
    stored = str(await a.rows("SELECT audit::text FROM audit"))
    assert token["token"] not in stored
    assert "guessed" not in stored


async def test_what_cannot_be_done_is_recorded_with_the_problem(a: Asker) -> None:
    """A change that is refused or fails has a row with the status and what the problem was."""
    await a.ask("POST", "/v1/tasks", {"test": IDLE, "schedule": 1})
    await a.ask("DELETE", f"/v1/tasks/{uuid4()}")
    await a.ask("DELETE", "/v1/nodes/%00")
    await a.ask("DELETE", f"/v1/nodes/{'x' * 5000}")
    await a.ask("POST", "/v1/nodes", {"url": "http://127.0.0.1:9"})
    rows = [(row["verb"], row["outcome"], row["problem"]) for row in await recorded(a)]
    assert rows == [
        ("create_task", "refused", "invalid-document"),
        ("cancel_task", "refused", "not-found"),
        ("remove_node", "refused", "not-found"),
        ("remove_node", "refused", "not-found"),
        ("add_node", "failed", "peer-unreachable"),
    ]


@pytest.mark.nightly
async def test_a_flood_of_strangers_is_counted(a: Asker) -> None:
    """A thousand refused requests leave a few rows, and one that says how many there were."""
    async with user(a, None) as stranger:
        for _ in range(20):
            asked = [stranger.ask("DELETE", f"/v1/tasks/{uuid4()}") for _ in range(50)]
            assert {status for status, _ in await asyncio.gather(*asked)} == {401}
    await a.node.audit.catch_up()
    rows = await recorded(a)
    assert len(rows) == 21
    assert sum(row["count"] for row in rows) == 1000
    [sum_] = [row for row in rows if row["verb"] == "left_out"]
    assert (sum_["kind"], sum_["count"], sum_["outcome"]) == ("stranger", 980, "refused")
    assert {row["origin"] for row in rows} == {"127.0.0.1", None}


async def test_another_nodes_tasks_are_recorded_and_its_bookings_are_not(pair: Pair) -> None:
    """An introduction and an end have a row each with the node's key; proposals and holds none."""
    task = await pair.book(first=3)
    b = Asker(pair.b, pair.a.session)
    await give_token(pair.b)
    assert await pair.at_b("SELECT FROM run") != []
    end = TaskEnd(task=UUID(task), state="cancelled", reason="enough")
    await pair.a.node.peer(pair.b.card.identity).end_task(end)
    rows = await recorded(b)
    assert [(row["verb"], row["thing"], row["outcome"]) for row in rows] == [
        ("introduce_task", task, "done"),
        ("end_task", task, "done"),
    ]
    who = {(row["kind"], row["principal"], row["key"], row["role"]) for row in rows}
    assert who == {("node", "a", pair.a.node.card.identity, None)}


async def test_a_refused_introduction_says_so(pair: Pair) -> None:
    """An introduction that the limits of the host refuse is recorded so, and a stranger as such."""
    set_limits(pair.b, NOTHING)
    b = Asker(pair.b, pair.a.session)
    await give_token(pair.b)
    document = {"test": {"type": "idle", "spec": {"duration": "PT30S", "participants": ["a", "b"]}}}
    assert (await pair.a.ask("POST", "/v1/tasks", document))[0] == 403
    rows = await recorded(b, "&principal=a")
    assert ("introduce_task", "refused", "limit-refused") in {
        (row["verb"], row["outcome"], row["problem"]) for row in rows
    }
    await pair.at_b("DELETE FROM node WHERE NOT is_self")
    await pair.b.directory.refresh()
    with pytest.raises(ParleyError):
        await pair.a.node.peer(pair.b.card.identity).end_task(
            TaskEnd(task=uuid4(), state="cancelled", reason="enough")
        )
    last = (await recorded(b))[-1]
    assert (last["kind"], last["status"], last["problem"]) == ("stranger", 401, "unknown-peer")


async def test_rows_cannot_be_changed(a: Asker) -> None:
    """Neither an update, nor a deletion, nor a truncation of the table is possible."""
    await task_of(a)
    for statement in (
        "UPDATE audit SET principal = 'nobody'",
        "DELETE FROM audit",
        "TRUNCATE audit",
    ):
        with pytest.raises(asyncpg.IntegrityConstraintViolationError, match="only added to"):
            await a.rows(statement)
    assert len(await recorded(a)) == 1


async def test_rows_go_by_age_alone(a: Asker) -> None:
    """After a year rows are deleted, and no earlier; so are tokens long after they were revoked."""
    clock = a.node.clock
    assert isinstance(clock, ManualClock)
    _, token = await a.ask("POST", "/v1/tokens", {"label": "alice", "role": "run"})
    await a.ask("POST", "/v1/tokens", {"label": "bob", "role": "run", "expires_in": "P30D"})
    await a.ask("DELETE", f"/v1/tokens/{token['id']}")
    labels = "SELECT label FROM access_token ORDER BY label"
    for passed, left in ((80, ["alice", "bob", "owner"]), (20, ["bob", "owner"]), (30, ["owner"])):
        clock.advance(passed * times.DAY)
        await a.node.purger.purge(a.node.clock.now())
        assert [row[0] for row in await a.rows(labels)] == left
    assert len(await recorded(a)) == 3
    clock.advance(236 * times.DAY)
    await a.node.purger.purge(a.node.clock.now())
    assert await recorded(a) == []
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await a.rows("DELETE FROM audit")


async def test_filters_and_pages(a: Asker) -> None:
    """The audit can be filtered by each column, and read page by page in both orders."""
    tasks = [await task_of(a) for _ in range(5)]
    await a.ask("DELETE", f"/v1/tasks/{tasks[0]}")
    await a.ask("DELETE", f"/v1/tasks/{uuid4()}")
    [[first]] = await a.rows("SELECT min(id) FROM audit")
    now = times.format_instant(a.node.clock.now()).replace("+", "%2B")
    for query, number in (
        ("&principal=owner", 7),
        ("&principal=alice", 0),
        ("&principal=%00", 0),
        ("&verb=create_task", 5),
        (f"&thing={tasks[0][:13]}", 2),
        ("&outcome=refused", 1),
        ("&outcome=refused,done", 7),
        (f"&since={now}", 7),
        (f"&until={now}", 0),
        (f"&cursor={first}", 6),
    ):
        assert len(await recorded(a, query)) == number, query
    for order in ("asc", "desc"):
        seen, cursor = [], ""
        while cursor is not None:
            path = f"/v1/audit?limit=3&order={order}" + (f"&cursor={cursor}" if cursor else "")
            _, page = await a.ask("GET", path)
            seen += [row["id"] for row in page["items"]]
            cursor = page["next"]
        assert seen == sorted(seen, reverse=order == "desc")
        assert len(seen) == 7
    for query in ("outcome=good", "cursor=x", "since=whenever", "order=up", "who=me", "limit=0"):
        assert (await a.ask("GET", f"/v1/audit?{query}"))[0] == 422


async def test_a_row_is_an_event_for_owners(a: Asker) -> None:
    """The event has id, verb, outcome, and who; users of other roles do not get it."""
    heard: asyncio.Queue[Notice] = asyncio.Queue()
    listening = asyncio.create_task(a.node.database.listen(heard.put_nowait, a.node.clock))
    async with asyncio.timeout(PATIENCE_S):
        while (await heard.get()).kind != "wake":
            pass
        await task_of(a)
        while (notice := await heard.get()).kind != "audit":
            pass
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    hub = EventHub(a.node.clock)
    hub.on_notice(notice)
    [event] = hub.events_since(hub.last - 1) or []
    [[number]] = await a.rows("SELECT id FROM audit")
    body = {"id": str(number), "verb": "create_task", "outcome": "done", "by": "owner"}
    assert (event.kind, event.body) == ("audit", body)
    await give_token(a.node, "theirs", "alice", Role.OPERATE)
    async with (
        user(a, "theirs") as alice,
        alice.session.get(f"{a.node.card.url}/v1/events") as theirs,
        a.session.get(f"{a.node.card.url}/v1/events") as of_owner,
        asyncio.timeout(PATIENCE_S),
    ):
        a.node.hub.on_notice(notice)
        a.node.hub.on_notice(Notice("task", str(uuid4()), ("active",)))
        assert b"event: audit" in await of_owner.content.readuntil(b"event: task")
        assert b"event: audit" not in await theirs.content.readuntil(b"event: task")


async def test_a_reader_can_wait_for_the_next_row(a: Asker) -> None:
    """A question with wait is answered as soon as there is a row beyond the one that is known."""
    await task_of(a)
    [[last]] = await a.rows("SELECT id FROM audit")
    waiting = asyncio.create_task(a.ask("GET", f"/v1/audit?order=asc&cursor={last}&wait=300"))
    await task_of(a)
    a.node.hub.on_notice(Notice("audit", "0", ("create_task", "done", "owner")))
    async with asyncio.timeout(PATIENCE_S):
        _, page = await waiting
    assert [row["id"] for row in page["items"]] == [last + 1]


async def test_the_start_and_the_limits_are_recorded(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """The first token, limits that are read, and a file with a fault are what the node did."""
    file = tmp_path / "limits.toml"
    file.write_text("version = 1\n")
    dsn, rows, digest = await new_database(), [], ""
    for _ in range(2):  # the second start makes no other token
        async with asker("a", dsn, clock, tmp_path, limits=file) as a:
            async with a.node.database.transaction() as connection:
                await a.node.tokens.ensure_owner(connection, tmp_path / "token")
            await a.node.limits.record_loaded()
            file.write_text("version = 1\nrule = 3\n")
            await a.node.limits.reload()
            file.write_text("version = 1\n")
            digest = a.node.limits._loaded.digest
            rows = await recorded(a)
            await a.rows("DELETE FROM node")  # the next one has another key
            await a.rows("DELETE FROM access_token WHERE created_by = 'test'")
    assert [(row["verb"], row["outcome"], row["problem"]) for row in rows] == [
        ("token_made", "done", None),
        ("limits_loaded", "done", None),
        ("limits_broken", "failed", "host-fault"),
        ("limits_loaded", "done", None),
        ("limits_broken", "failed", "host-fault"),
    ]
    assert (rows[1]["thing"], rows[2]["thing"]) == (digest, str(file))
    assert {(row["kind"], row["principal"], row["origin"]) for row in rows} == {("node", "a", None)}


async def test_what_the_database_does_not_take_is_in_the_log_and_written_later(
    a: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change is answered although its row cannot be written, and the row comes later, once."""
    keep = audit.keep

    async def fail(connection: Connection, entries: object) -> None:
        raise DatabaseUnavailable("the database hangs")

    monkeypatch.setattr(audit, "keep", fail)
    with capture_logs() as lines:
        task = await task_of(a)
    [line] = [line for line in lines if line["event"] == "not in the audit yet"]
    assert (line["thing"], line["verb"]) == (task, "create_task")
    assert await a.rows("SELECT FROM audit") == []
    monkeypatch.setattr(audit, "keep", keep)
    await a.node.audit.catch_up()
    await a.node.audit.catch_up()
    assert [row["thing"] for row in await recorded(a)] == [task]


async def test_a_stop_in_the_middle_of_writing_loses_nothing(
    a: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop writes what the loop was writing when the node stopped."""
    keep, begun = audit.keep, asyncio.Event()

    async def hang(connection: Connection, entries: object) -> None:
        begun.set()
        await asyncio.Event().wait()

    log = AuditLog(a.node.core)
    log.note(AuditEntry(a.node.clock.now(), STRANGER, "list_tasks", AuditOutcome.REFUSED))
    monkeypatch.setattr(audit, "keep", hang)
    writing = asyncio.create_task(log.flush())
    await begun.wait()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    monkeypatch.setattr(audit, "keep", keep)
    await log.catch_up()
    assert [row["verb"] for row in await recorded(a)] == ["list_tasks"]


async def test_entries_are_written_together_and_in_order(a: Asker) -> None:
    """The rows of many changes at once are one statement."""
    log, owner = AuditLog(a.node.core), Principal(PrincipalKind.TOKEN, "alice", Role.RUN, "1")
    entries = [
        AuditEntry(a.node.clock.now(), owner, "create_task", AuditOutcome.DONE, str(number))
        for number in range(300)
    ]
    await asyncio.gather(*map(log.record, entries))
    rows = await a.rows("SELECT thing, xmin::text FROM audit ORDER BY id")
    assert [int(row[0]) for row in rows] == list(range(300))
    assert len({row[1] for row in rows}) == 1
