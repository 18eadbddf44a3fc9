"""Keys that are revoked: it travels, ends what they have, and they never come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from node.model.errors import Conflict, HostError, NotAuthenticated, ParleyError, PeerAnswered
from node.model.wire.keys import RevocationRequest
from node.model.wire.nodes import NodeAddition
from node.trust.keys import NodeKey
from node.trust.revocations import sign_revocation
from node.trust.signer import Signer
from tests.conftest import NewDatabase
from tests.support.served_nodes import Asker, Served, give_token, three_served

Three = tuple[Served, Served, Served]


@pytest.fixture
async def three(new_database: NewDatabase, tmp_path: Path) -> AsyncIterator[Three]:
    """Return three nodes that know each other."""
    async with three_served(new_database, tmp_path) as nodes:
        yield nodes


async def _ask(here: Served, there: Served) -> None:
    known = here.directory.by_identity(there.core.identity)
    await here.peers.client_of(known.identity, known.name, known.url).limits()


async def _cut(here: Served, name: str) -> None:
    """Let a node not reach another one."""
    async with here.database.transaction() as connection:
        await connection.execute("UPDATE node SET url = 'http://127.0.0.1:9' WHERE name = $1", name)
    await here.directory.refresh()


@pytest.mark.nightly
async def test_a_revocation_travels_and_ends_the_node(three: Three) -> None:
    """A node that revokes its key is removed by those it tells, and by those whom they tell."""
    a, b, c = three
    await _cut(a, "c")
    report = await a.revocations.revoke_own(RevocationRequest(key=a.key.public_text))
    assert report.ended == "node"
    assert report.told == ("b",)
    assert [each.name for each in report.untold] == ["c"]
    assert not b.directory.knows(a.core.identity)
    assert c.directory.knows(a.core.identity)
    assert await b.revocations.tell() == {"c": None}
    assert not c.directory.knows(a.core.identity)
    assert await b.revocations.tell() == {}
    with pytest.raises((NotAuthenticated, PeerAnswered), match="was revoked"):
        await _ask(a, b)


@pytest.mark.nightly
async def test_a_document_that_names_no_key_ends_nothing(three: Three) -> None:
    """Only a request that names the key of a node ends it; one without a key is refused."""
    a, b, _ = three
    await give_token(a)
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session:
        for document in ({}, {"prepare": False}, {"key": None}):
            answer = await Asker(a, session).ask("POST", "/v1/nodes/self/revocation", document)
            assert answer[0] == 422, answer
    assert b.directory.knows(a.core.identity)


@pytest.mark.nightly
async def test_a_revoked_node_begins_nothing_any_more(three: Three) -> None:
    """A node whose key is revoked elsewhere is told, ends, and says how to go on."""
    a, b, _ = three
    report = await a.revocations.revoke_own(RevocationRequest(prepare=True))
    assert a.directory.knows(a.core.identity)
    await b.revocations.revoke(report.statement)
    await a.announcer.look()
    assert a.announcer.ended.is_set()
    with pytest.raises(HostError, match="begin another node"):
        a.announcer.require_here()


async def test_a_revoked_key_never_comes_back(three: Three) -> None:
    """A revoked key is not added again: by its URL, by its key, or with a successor."""
    a, b, _ = three
    prepared = await a.revocations.revoke_own(RevocationRequest(prepare=True))
    await b.revocations.revoke(prepared.statement)
    for addition in (
        NodeAddition(url=a.card.url),
        NodeAddition(url=a.card.url, identity=a.core.identity),
        NodeAddition(identity=a.core.identity),
    ):
        with pytest.raises(ParleyError, match="was revoked"):
            await b.registration.add(addition)
    a.peers.signer = Signer(a.key.succeeded_by(NodeKey.generate(), a.clock.now()), a.clock.now)
    with pytest.raises(ParleyError, match="was revoked"):
        await b.registration.add(NodeAddition(url=a.card.url))


async def test_no_earlier_key_comes_back_either(three: Three) -> None:
    """A node that ends after it was rekeyed does not come back with its first key."""
    a, b, c = three
    await a.successions.rekey()
    prepared = await a.revocations.revoke_own(RevocationRequest(prepare=True))
    await b.revocations.revoke(prepared.statement)
    for node in (b, c):
        with pytest.raises(Conflict, match="was revoked"):
            await node.registration.add(NodeAddition(identity=a.core.identity))


@pytest.mark.nightly
async def test_a_replaced_key_ends_alone(three: Three) -> None:
    """A node that revokes the key that it has replaced stays, and the old key ends at once."""
    a, b, c = three
    old = a.key
    await a.successions.rekey()
    report = await a.revocations.revoke_own(RevocationRequest(key=old.public_text))
    assert report.ended == "key"
    assert set(report.told) == {"b", "c"}
    await _ask(a, b)
    await _ask(c, a)
    a.peers.signer = Signer(old, a.clock.now)
    with pytest.raises(NotAuthenticated, match="was revoked"):
        await _ask(a, b)


async def test_who_was_away_follows_the_key_that_has_revoked(three: Three) -> None:
    """A node that hears of a revocation before it hears of the rekeying ends nothing."""
    a, b, c = three
    old = a.key
    await _cut(a, "c")
    await a.successions.rekey()
    await a.revocations.revoke_own(RevocationRequest(key=old.public_text))
    assert c.directory.lineage(a.core.identity).keys == (old.public_text,)  # type: ignore[union-attr]
    assert (await b.revocations.tell())["c"] is None
    known = c.directory.lineage(a.core.identity)
    assert known is not None
    assert known.key == a.core.signer.lineage.key  # type: ignore[union-attr]
    assert c.directory.is_revoked(old.public_text)
    await _ask(c, a)


async def test_a_removed_node_is_asked_by_its_latest_key(three: Three) -> None:
    """A node of whom only a revoked key is known is asked, and added by the later key it shows."""
    a, b, _ = three
    old = a.key
    await a.successions.rekey()
    await a.revocations.revoke_own(RevocationRequest(key=old.public_text))
    assert b.successions.keys(a.core.identity) == (a.core.signer.lineage.key,)  # type: ignore[union-attr]
    await b.node_removal.remove("a")
    assert b.successions.keys(old.public_text) == (old.public_text,)


async def test_a_thief_who_was_shut_out_ends_nothing(three: Three) -> None:
    """A thief of a key that was replaced and revoked cannot end the node with it."""
    a, b, _ = three
    old = a.key
    await a.successions.rekey()
    await a.revocations.revoke_own(RevocationRequest(key=old.public_text))
    stolen = sign_revocation(Signer(old, a.clock.now), old.public_text)
    assert (await b.revocations.revoke(stolen)).ended == "nothing"
    assert b.directory.knows(a.core.identity)


async def test_a_prepared_revocation_ends_the_node_of_a_thief(three: Three) -> None:
    """A revocation that was made beforehand ends the node though a thief has rekeyed it since."""
    a, b, c = three
    prepared = (await a.revocations.revoke_own(RevocationRequest(prepare=True))).statement
    await a.successions.rekey()  # as a thief of the whole host does
    assert (await c.revocations.revoke(prepared)).ended == "node"
    assert not b.directory.knows(a.core.identity)
    with pytest.raises(ParleyError, match="was revoked"):
        await b.registration.add(NodeAddition(url=a.card.url))


async def test_the_table_is_not_filled_by_others(three: Three) -> None:
    """A revocation of an unknown key is kept if the owner gives it, not if a node tells it."""
    a, b, _ = three
    stranger = NodeKey.generate()
    text = sign_revocation(Signer(stranger, a.clock.now), stranger.public_text)
    known = a.directory.by_identity(b.core.identity)
    await a.peers.client_of(known.identity, known.name, known.url).revoke([text])
    await b.directory.refresh()
    assert not b.directory.is_revoked(stranger.public_text)
    await b.revocations.revoke(text)
    assert b.directory.is_revoked(stranger.public_text)


async def test_a_key_of_another_is_not_revoked(three: Three) -> None:
    """A node does not revoke keys that it never had."""
    a, b, _ = three
    with pytest.raises(Conflict, match="never had the key"):
        await a.revocations.revoke_own(RevocationRequest(key=b.core.identity))


@pytest.mark.nightly
async def test_an_owner_revokes_another_node_at_their_own(three: Three) -> None:
    """A node that is revoked by its name ends there alone; a signed revocation still travels."""
    a, b, c = three
    await a.successions.rekey()
    prepared = await a.revocations.revoke_own(RevocationRequest(prepare=True))
    await give_token(b)
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session:
        client = Asker(b, session)
        for document in ({}, {"node": "a", "statement": prepared.statement}):
            assert (await client.ask("POST", "/v1/revocations", document))[0] == 422
        for name, status in (("x", 404), ("b", 409)):
            assert (await client.ask("POST", "/v1/revocations", {"node": name}))[0] == status
        status, report = await client.ask("POST", "/v1/revocations", {"node": "a"})
    assert (status, report["ended"], report["statement"]) == (200, "node", ""), report
    assert not b.directory.knows(a.core.identity)
    with pytest.raises((NotAuthenticated, PeerAnswered), match="was revoked"):
        await _ask(a, b)
    for addition in (NodeAddition(url=a.card.url), NodeAddition(identity=a.core.identity)):
        with pytest.raises(ParleyError, match="was revoked"):
            await b.registration.add(addition)
    assert await b.revocations.tell() == {}
    assert c.directory.knows(a.core.identity)
    assert (await b.revocations.revoke(prepared.statement)).told == ("c",)
    assert not c.directory.knows(a.core.identity)
