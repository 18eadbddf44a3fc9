"""Secrets over HTTP: who uses those of the owner, and what becomes of those stored in clear."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node.model.errors import HostError
from node.model.named_secrets import SecretUse
from node.model.principals import Role
from node.model.secrets import is_sealed
from node.results.sealing import opened_spec
from node.store import archives
from node.trust.sealing import SealingKey
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Asker, asker, give_token, user

HUSH = "hush4f1d9c"
OWN = SecretUse(lead=None, targets=[("api.example", "api.example")], port=443)


@dataclass
class Users:
    """A node with its owner, and two users with the role run."""

    owner: Asker
    ann: Asker
    bob: Asker


@pytest.fixture
async def users(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Users]:
    """Return a node whose owner stored a secret for ann, and another for no user."""
    async with AsyncExitStack() as stack:
        owner = await stack.enter_async_context(asker("a", await new_database(), clock, tmp_path))
        clients = []
        for label in ("ann", "bob"):
            await give_token(owner.node, f"of {label}", label, Role.RUN)
            clients.append(await stack.enter_async_context(user(owner, f"of {label}")))
        bound = {"name": "door", "value": HUSH, "hosts": ["api.example"], "users": ["ann"]}
        for secret in (bound, {"name": "vault", "value": HUSH}):
            status, added = await owner.ask("POST", "/v1/secrets", secret)
            assert status == 201, added
        yield Users(owner, *clients)
        await owner.node.result_delivery.close()


def _http(header: Any, host: str = "api.example", **spec: Any) -> dict[str, Any]:
    headers = {"Authorization": header}
    spec = {"url": f"https://{host}/", "headers": headers, **spec}
    return {"test": {"type": "http", "spec": spec}, "schedule": {"repeat": "PT1H"}}


async def _posted(client: Asker, document: dict[str, Any]) -> dict[str, Any]:
    status, task = await client.ask("POST", "/v1/tasks", document)
    assert status == 201, task
    return dict(task)


async def test_a_user_uses_a_secret_that_names_them(users: Users) -> None:
    """A user with the role run names a secret for them; any other is for them as if not there."""
    named, vault = {"secret": "door"}, {"secret": "vault"}
    await _posted(users.ann, _http(named))
    await _posted(users.owner, _http(vault))
    for client, document, name in (
        (users.bob, _http(named), "door"),
        (users.ann, _http(vault), "vault"),
        (users.ann, _http({"secret": "none"}), "none"),
    ):
        for path in ("/v1/tasks", "/v1/plans"):
            status, problem = await client.ask("POST", path, document)
            assert (status, problem["type"]) == (403, "/problems/not-allowed"), problem
            assert f"there is no secret {name} that" in problem["detail"]


async def test_credentials_of_agents_are_named(users: Users) -> None:
    """A community stands in no task: it is named, and only a secret for the user may be."""

    def snmp(community: Any) -> dict[str, Any]:
        credentials = {"community": community}
        spec = {"dest": "93.184.216.34", "interface": "ge-0/0/0", "credentials": credentials}
        return {"test": {"type": "snmp", "spec": spec}, "schedule": {"start": "PT1H"}}

    status, problem = await users.owner.ask("POST", "/v1/tasks", snmp(HUSH))
    assert status == 422
    [fault] = problem["errors"]
    assert fault["pointer"] == "/test/spec/credentials/community"
    assert "parley secret add NAME" in fault["detail"]
    assert HUSH not in str(problem)
    assert (await users.owner.ask("POST", "/v1/tasks", snmp({"secret": "vault"})))[0] == 201
    status, problem = await users.ann.ask("POST", "/v1/tasks", snmp({"secret": "vault"}))
    assert status == 403
    assert "there is no secret vault that ann may use" in str(problem)


async def test_an_edit_of_the_target_needs_the_secret_that_stays(users: Users) -> None:
    """A user may not turn a task with a secret that is not for them to another target."""
    task = await _posted(users.ann, _http({"secret": "door"}))
    removed = {"name": "door", "value": HUSH, "replace": True}
    assert (await users.owner.ask("POST", "/v1/secrets", removed))[0] == 201
    patch = {"test": {"spec": {"url": "https://evil.example/"}}}
    status, problem = await users.ann.ask("PATCH", f"/v1/tasks/{task['id']}", patch)
    assert (status, problem["type"]) == (403, "/problems/not-allowed"), problem
    assert (await users.owner.ask("PATCH", f"/v1/tasks/{task['id']}", patch))[0] == 200


@pytest.mark.parametrize(
    "change",
    [
        {"url": "https://evil.example/"},
        {"url": "http://api.example/"},
        {"url": "https://api.example/echo"},
        {"verify": False},
        {"source": "a"},
        {"text": "a guess"},
        {"url": "https://evil.example/", "headers": {"Authorization": "(secret)"}},
        {"url": "https://evil.example/", "headers": {"Y": "another"}},
    ],
)
@pytest.mark.mostly_nightly
async def test_a_literal_goes_where_it_was_given_for(users: Users, change: dict[str, Any]) -> None:
    """Nobody has a header sent elsewhere without giving it; how long it takes may be changed."""
    task = await _posted(users.owner, _http(HUSH))
    path = f"/v1/tasks/{task['id']}"
    status, problem = await users.owner.ask("PATCH", path, {"test": {"spec": change}})
    assert status == 422, problem
    assert "(secret) stands for a value that was given for what was there before" in str(problem)
    again = {"test": {"spec": {**change, "headers": {"Authorization": "another"}}}}
    patch = {"test": {"spec": {"timeout": "PT3S"}}}
    for sound in (patch, again):
        status, edited = await users.owner.ask("PATCH", path, sound)
        assert status == 200, edited


async def test_users_do_not_write_the_store(users: Users) -> None:
    """The owner alone adds and removes secrets, and users with the role run do not list them."""
    document = {"name": "mine", "value": HUSH}
    assert (await users.ann.ask("POST", "/v1/secrets", document))[0] == 403
    assert (await users.ann.ask("GET", "/v1/secrets"))[0] == 403
    assert (await users.ann.ask("DELETE", "/v1/secrets/door"))[0] == 403
    _, listed = await users.owner.ask("GET", "/v1/secrets")
    assert [each["name"] for each in listed["items"]] == ["door", "vault"]
    assert HUSH not in json.dumps(listed)
    status, problem = await users.owner.ask("POST", "/v1/secrets", {"name": "door", "value": "x"})
    assert (status, "--replace" in problem["detail"]) == (409, True)
    unbound = {"name": "open", "value": HUSH, "users": ["bob"]}
    status, problem = await users.owner.ask("POST", "/v1/secrets", unbound)
    assert status == 422
    assert "could have it sent to themselves" in problem["errors"][0]["detail"]
    assert HUSH not in json.dumps(problem)


async def test_what_is_sealed_is_of_no_use_to_who_saw_it(users: Users) -> None:
    """A sealed text that somebody found, and the mark of one, are no values of a new task."""
    task = await _posted(users.ann, _http(HUSH))
    assert task["test"]["spec"]["headers"] == {"Authorization": "(secret)"}
    [[stored]] = await users.owner.rows("SELECT spec FROM task WHERE id = $1", UUID(task["id"]))
    found = stored["headers"]["Authorization"]
    assert is_sealed(found)
    for word, reason in ((found, "sealed"), ("(secret)", "stands for a value that nobody is told")):
        for path in ("/v1/tasks", "/v1/plans"):
            status, problem = await users.bob.ask("POST", path, _http(word, "evil.example"))
            assert status == 422, problem
            assert reason in problem["errors"][0]["detail"]
        patch = {"test": {"spec": {"headers": {"X": word}}}}
        status, problem = await users.ann.ask("PATCH", f"/v1/tasks/{task['id']}", patch)
        assert status == 422, problem


async def test_a_repeated_post_is_recognised_by_its_secret(users: Users) -> None:
    """The same key with the same secret creates nothing new, and with another one is refused."""
    first, again, other = [
        await users.owner.ask("POST", "/v1/tasks", [{**_http(word), "idempotency_key": "k"}])
        for word in (HUSH, HUSH, "other")
    ]
    assert first[1]["items"][0]["task"] == again[1]["items"][0]["task"]
    assert other[1]["items"][0]["problem"]["type"] == "/problems/conflict"


async def _in_clear(a: Asker) -> tuple[str, str]:
    """Store secrets as the program before did; return the task, and the run with its own spec."""
    task = await _posted(a, _http("before"))
    clear = {**task["test"]["spec"], "headers": {"Authorization": HUSH}}
    await a.rows("UPDATE task SET spec = $2 WHERE id = $1", UUID(task["id"]), clear)
    archive = {"name": "own", "archiver": "http", "spec": {"url": "http://127.0.0.1:9/in"}}
    assert (await a.ask("POST", "/v1/archives", archive))[0] == 201
    [[spec]] = await a.rows("SELECT spec FROM destination")
    in_clear = {**spec, "headers": {"X": HUSH}, "secret": HUSH * 2}
    await a.rows("UPDATE destination SET spec = $1", in_clear)
    webhook = {"name": "pager", "url": "http://127.0.0.1:9/in"}
    assert (await a.ask("POST", "/v1/webhooks", webhook))[0] == 201
    await a.rows("UPDATE webhook SET secret = $1", f"whsec_{HUSH * 4}")
    [[run]] = await a.rows(
        """
        INSERT INTO run (id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at,
            state, reason, created_at, changed_at, spec)
        VALUES (gen_random_uuid(), $1, $2, 1, 'background', 0, $2, $2::timestamptz + '1 s',
            'failed', 'no time', $2, $2, $3)
        RETURNING id::text
        """,
        UUID(task["id"]),
        a.node.clock.now(),
        clear,
    )
    return task["id"], run


_EVERYTHING = """
SELECT string_agg(row::text, ' ') FROM (
    SELECT spec::text FROM task UNION ALL SELECT spec::text FROM run
    UNION ALL SELECT spec::text FROM destination UNION ALL SELECT secret FROM webhook
) AS row
"""


async def test_secrets_that_stood_in_clear_are_sealed_at_the_start(users: Users) -> None:
    """Rows of an earlier program are sealed once, and used as before."""
    a = users.owner
    task, run = await _in_clear(a)
    [[before]] = await a.rows(_EVERYTHING)
    assert HUSH in before
    await a.node.unsealed.seal()
    [[after]] = await a.rows(_EVERYTHING)
    assert HUSH not in after
    await a.node.unsealed.seal()
    assert (await a.rows(_EVERYTHING))[0][0] == after
    http = a.node.capabilities.tests["http"]
    for query, one in (
        ("SELECT spec FROM task WHERE id = $1", task),
        ("SELECT spec FROM run WHERE id = $1", run),
    ):
        [[spec]] = await a.rows(query, UUID(one))
        opened = await a.node.drafter.secrets.opened_spec(http, spec, OWN)
        assert opened["headers"] == {"Authorization": HUSH}
    async with a.node.database.connection() as connection:
        [kept] = await archives.find_all(connection, None)
    opened = opened_spec(a.node.core.sealing, "http", kept.spec)
    assert (opened["headers"], opened["secret"]) == ({"X": HUSH}, HUSH * 2)
    same = {"name": "own", "archiver": "http", "spec": opened}
    assert (await a.ask("POST", "/v1/archives", same))[0] == 201


async def test_a_lost_key_is_the_reason_where_it_is_needed(users: Users) -> None:
    """Without its key a secret cannot be read, and what needs it says so; all else goes on."""
    a = users.owner
    await _in_clear(a)
    await a.node.unsealed.seal()
    other = SealingKey.generate()
    lost = f"it was sealed by the key {a.node.core.sealing.name}, and the file secrets.key"
    object.__setattr__(a.node.core, "sealing", other)
    object.__setattr__(a.node.archives, "_sealing", other)
    http, secrets = a.node.capabilities.tests["http"], a.node.drafter.secrets
    spec = {"url": "https://api.example/", "headers": {"X": {"secret": "door"}}}
    with pytest.raises(HostError, match=f"the secret door cannot be read: {lost}"):
        await secrets.opened_spec(http, spec, OWN)
    [[stored]] = await a.rows("SELECT spec FROM task")
    with pytest.raises(HostError, match=f"a secret of the task cannot be read: {lost}"):
        await secrets.opened_spec(http, stored, OWN)
    _, problem = await a.ask("POST", "/v1/archives/own/test")
    assert problem["type"] == "/problems/archiver-failed", problem
    assert f"a secret of the http archive cannot be read: {lost}" in problem["detail"]
    _, problem = await a.ask("POST", "/v1/webhooks/pager/test")
    assert f"the secret of webhook pager cannot be read: {lost}" in problem["detail"]
    assert (await a.ask("GET", "/v1/archives/own"))[0] == 200
    again = {"name": "door", "value": HUSH, "replace": True}
    assert (await a.ask("POST", "/v1/secrets", again))[0] == 201
    assert (await secrets.opened_spec(http, spec, OWN))["headers"] == {"X": HUSH}
