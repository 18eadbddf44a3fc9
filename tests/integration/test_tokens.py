"""Tokens of users over HTTP: roles, expiry, revocation, and the record of their use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from node.api.app import ROUTES
from node.model import times
from node.model.permissions import PERMISSIONS, Access
from node.model.principals import Role
from node.store.database import Notice
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.patience import PATIENCE_S
from tests.support.served_nodes import Asker, asker, give_token, user


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node with its owner."""
    async with asker("a", await new_database(), clock, tmp_path) as owner:
        yield owner


async def made(a: Asker, role: str, **fields: Any) -> dict[str, Any]:
    """Let the owner make a token; return it with its secret."""
    request = {"label": "alice", "role": role, **fields}
    status, document = await a.ask("POST", "/v1/tokens", request)
    assert status == 201, document
    return dict(document)


async def status_of(asking: Asker, method: str, path: str) -> tuple[int, str]:
    """Return the status of an answer, and the kind of problem; its body may never end."""
    url = f"{asking.node.card.url}{path}"
    body = None if method == "GET" else b""
    async with asking.session.request(method, url, data=body) as response:
        if response.content_type != "application/problem+json":
            return response.status, ""
        return response.status, (await response.json(content_type=None))["type"].rsplit("/", 1)[-1]


@pytest.mark.parametrize("role", [None, *Role])
@pytest.mark.nightly
async def test_each_role_may_do_what_the_table_says(a: Asker, role: Role | None) -> None:
    """Every route is tried with a token of each role and without one: 401, 403, or served."""
    if role is not None:
        await give_token(a.node, "theirs", "alice", role)
    async with user(a, None if role is None else "theirs") as caller:
        for route in ROUTES:
            access = PERMISSIONS[f"{route.method} {route.path}"]
            path = route.path.replace("{id}", str(uuid4())).replace("{name}", "missing")
            status, problem = await status_of(caller, route.method, path)
            if access is Access.PEER:
                expected = (401, "not-authenticated")
            elif role is Role.RUN and (
                access is Access.READ_WHOLE or (access.is_narrow and "{id}" in route.path)
            ):
                expected = (403, "not-allowed")  # of all users, or not of this one
            elif access.role is None or (role is not None and role.includes(access.role)):
                assert status not in {401, 403}, (path, status, problem)
                continue
            elif role is None:
                expected = (401, "not-authenticated")
            else:
                expected = (403, "not-allowed")
            assert (status, problem) == expected, (route.method, path)


async def test_a_token_is_shown_once(a: Asker) -> None:
    """The answer that makes a token has its secret; no list and no table has it."""
    token = await made(a, "run", expires_in="P30D")
    status, listed = await a.ask("GET", "/v1/tokens")
    assert status == 200
    [alice] = [item for item in listed["items"] if item["label"] == "alice"]
    assert alice == {name: value for name, value in token.items() if name != "token"}
    assert (alice["role"], alice["created_by"]) == ("run", "owner")
    assert token["token"] not in str(await a.rows("SELECT * FROM access_token"))


async def test_a_revoked_token_is_refused_at_once(a: Asker) -> None:
    """The next request of a token that was revoked is answered 401 with the reason."""
    token = await made(a, "operate")
    async with user(a, token["token"]) as alice:
        assert (await alice.ask("GET", "/v1/tasks"))[0] == 200
        status, revoked = await a.ask("DELETE", f"/v1/tokens/{token['id']}")
        assert (status, revoked["revoked_at"] is None) == (200, False)
        status, problem = await alice.ask("GET", "/v1/tasks")
        assert status == 401
        assert problem["detail"].startswith("the token 'alice' was revoked at ")
        assert (await a.ask("DELETE", f"/v1/tokens/{token['id']}"))[1] == revoked


async def test_a_token_expires(a: Asker) -> None:
    """A token is valid until the instant at which it expires, and not from then on."""
    token = await made(a, "read", expires_in="P30D")
    clock = a.node.clock
    assert isinstance(clock, ManualClock)
    async with user(a, token["token"]) as alice:
        clock.advance(30 * times.DAY - 1)
        assert (await alice.ask("GET", "/v1/tasks"))[0] == 200
        clock.advance(1)
        status, problem = await alice.ask("GET", "/v1/tasks")
        assert (status, "has expired at" in problem["detail"]) == (401, True)


async def test_the_last_use_is_recorded_once_a_minute(a: Asker) -> None:
    """The instant of the last use is that of a request at most a minute ago."""
    token = await made(a, "read")
    clock = a.node.clock
    assert isinstance(clock, ManualClock)
    async with user(a, token["token"]) as alice:
        used = []
        for step in (0, 59 * times.SECOND, times.SECOND):
            clock.advance(step)
            await alice.ask("GET", "/v1/tasks")
            [[at]] = await a.rows("SELECT used_at FROM access_token WHERE label = 'alice'")
            used.append(at)
    assert used[1:] == [used[0], clock.now()]


async def test_an_open_stream_ends_with_its_token(a: Asker) -> None:
    """The event stream of a token that is revoked ends, and those of others go on."""
    token = await made(a, "read")
    async with (
        user(a, token["token"]) as alice,
        alice.session.get(f"{a.node.card.url}/v1/events") as stream,
        a.session.get(f"{a.node.card.url}/v1/events") as of_owner,
        asyncio.timeout(PATIENCE_S),
    ):
        await a.ask("DELETE", f"/v1/tokens/{token['id']}")
        a.node.hub.on_notice(Notice("token", token["id"], ("revoked",)))
        assert b"revoked" not in await stream.read()
        assert await of_owner.content.readuntil(b"revoked")


async def test_a_long_poll_is_not_answered_to_a_revoked_token(a: Asker) -> None:
    """A caller who waits while their token is revoked gets no answer but 401."""
    token = await made(a, "read")
    async with user(a, token["token"]) as alice, asyncio.timeout(PATIENCE_S):
        waiting = asyncio.create_task(alice.ask("GET", "/v1/runs?wait=300"))
        used = "SELECT used_at FROM access_token WHERE label = 'alice' AND used_at IS NOT NULL"
        while not await a.rows(used):
            pass
        await a.ask("DELETE", f"/v1/tokens/{token['id']}")
        a.node.stopping = True
        a.node.hub.on_notice(Notice("token", token["id"], ("revoked",)))
        assert (await waiting)[0] == 401


async def test_after_lost_notices_valid_tokens_are_remembered_by_themselves(a: Asker) -> None:
    """Tokens known while the database is away are read again, without those revoked then."""
    kept, revoked = [await made(a, "read", label=label) for label in ("kept", "revoked")]
    tokens = a.node.tokens
    for each in (kept, revoked):
        await tokens.principal(each["token"])
    assert tokens.find_remembered(revoked["token"]) is not None
    await a.rows("UPDATE access_token SET revoked_at = now() WHERE label = 'revoked'")
    tokens.on_notice(Notice("wake", "", ()))
    assert tokens.find_remembered(kept["token"]) is None
    await tokens.reread()
    remembered = tokens.find_remembered(kept["token"])
    assert remembered is not None
    assert (remembered.name, remembered.role) == ("kept", Role.READ)
    assert tokens.find_remembered(revoked["token"]) is None


async def test_the_owners_file_has_a_valid_token(a: Asker, tmp_path: Path) -> None:
    """A start keeps the token in the file while it is valid, and otherwise makes another one."""
    file = tmp_path / "first"
    secrets = []
    for _ in range(3):
        async with a.node.database.transaction() as connection:
            await a.node.tokens.ensure_owner(connection, file)
        secrets.append(file.read_text().strip())
        principal = await a.node.tokens.principal(secrets[-1])
        assert principal is not None
        assert (principal.name, principal.role) == ("owner", Role.OWN)
        if len(secrets) == 2:
            await a.ask("DELETE", f"/v1/tokens/{principal.key}")
    assert secrets[0] == secrets[1] != secrets[2]


async def test_a_follower_has_a_token_of_its_own(a: Asker, tmp_path: Path) -> None:
    """A node that follows meshes makes a token with the role operate for it, and others none."""
    folder = tmp_path / "follows"
    folder.mkdir()
    for followed in (False, True):
        if followed:
            (folder / "lab.json").touch()
        async with a.node.database.transaction() as connection:
            await a.node.tokens.ensure_follower(connection, folder)
        assert (folder / "token").exists() is followed
    principal = await a.node.tokens.principal((folder / "token").read_text().strip())
    assert principal is not None
    assert (principal.name, principal.role) == ("follower", Role.OPERATE)


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"label": "a b"}, "/label"),
        ({"label": ""}, "/label"),
        ({"role": "root"}, "/role"),
        ({"expires_in": "PT0S"}, "/expires_in"),
        ({"expires_in": "P9999D"}, "/expires_in"),
    ],
)
async def test_a_wrong_request_makes_no_token(
    a: Asker, fields: dict[str, str], pointer: str
) -> None:
    """A label is a word, a role one of four, and a life has an end within a year."""
    request = {"label": "alice", "role": "read", **fields}
    status, problem = await a.ask("POST", "/v1/tokens", request)
    assert (status, [fault["pointer"] for fault in problem["errors"]]) == (422, [pointer])


async def test_on_the_host_itself_a_token_counts_if_it_is_of_this_node(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """On a host that reads without a token, one that was revoked is refused, a foreign one not."""
    async with asker("a", await new_database(), clock, tmp_path, read_local=True) as owner:
        token = await made(owner, "read")
        await owner.ask("DELETE", f"/v1/tokens/{token['id']}")
        for secret, status in ((None, 200), ("of another node", 200), (token["token"], 401)):
            async with user(owner, secret) as reader:
                assert (await reader.ask("GET", "/v1/tasks"))[0] == status
        async with user(owner, None) as reader:
            assert (await reader.ask("GET", "/v1/tokens"))[0] == 401
