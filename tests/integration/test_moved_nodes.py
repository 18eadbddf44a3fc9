"""A node follows another one only to where its key answers, and only to where it went last."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from node.model import times
from node.model.announcement import Announcement
from node.model.errors import MovedAway, NotAllowed
from node.model.wire.directories import DirectoryEntry, DirectoryRequest, IntroductionState
from node.model.wire.participants import ConfirmationAnswer
from node.store import nodes
from node.store.database import Notice
from node.trust.keys import NodeKey
from node.trust.statements import StatementKind, sign_statement
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.served_nodes import Served, asker, served
from tests.support.served_pairs import Pair, paired


@pytest.fixture
async def pair(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> AsyncIterator[Pair]:
    """Serve a and b, which know each other."""
    async with (
        asker("a", await new_database(), clock, tmp_path / "a") as a,
        served("b", await new_database(), clock, tmp_path / "b") as b,
    ):
        yield await paired(a, b, clock)


def _signed(node: Served, announcement: Announcement) -> str:
    return sign_statement(node.key, StatementKind.ANNOUNCEMENT, announcement.claims)


def _announced(node: Served, url: str | None, at: int = START) -> Announcement:
    return Announcement(UUID(int=at), at, at, url)


async def _url_of_b(pair: Pair) -> str | None:
    await pair.a.node.directory.refresh()
    return pair.a.node.directory.by_identity(pair.b.card.identity).url


async def _follow(pair: Pair, announcement: Announcement) -> None:
    """Let a hear b's announcement, and do what it does then."""
    heard = await pair.a.node.announcer.hear(pair.b.card.identity, _signed(pair.b, announcement))
    assert heard.successor is None
    following = list(pair.a.node.announcer._following.values())
    await pair.clock.sleep(0)
    pair.clock.advance(5 * times.SECOND)
    await asyncio.gather(*following)


async def test_a_node_is_followed_to_where_its_key_answers(pair: Pair) -> None:
    """A node is known there from then on, though it was known elsewhere, and did not answer."""
    url = pair.b.card.url
    await pair.a.rows("UPDATE node SET url = 'http://127.0.0.1:9' WHERE name = 'b'")
    await pair.a.node.peer_monitor.run_once()
    await pair.a.node.directory.refresh()
    assert pair.a.node.directory.by_identity(pair.b.card.identity).unreachable_since
    await _follow(pair, _announced(pair.b, url))
    assert await _url_of_b(pair) == url
    assert pair.a.node.directory.by_identity(pair.b.card.identity).unreachable_since is None


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("http://127.0.0.1:9", "no node with its key is reached at http://127.0.0.1:9"),
        ("the other node", "is this node itself"),
        ("http://localhost:{port}", "calls itself"),
    ],
)
async def test_a_node_is_not_followed_elsewhere(pair: Pair, where: str, why: str) -> None:
    """A URL where nobody answers, or another node, changes nothing, and the sender is told."""
    before = pair.b.card.url or ""
    url = where.format(port=before.rpartition(":")[2])
    url = pair.a.node.card.url or "" if where == "the other node" else url
    announcement = _announced(pair.b, url)
    await _follow(pair, announcement)
    assert await _url_of_b(pair) == before
    again = await pair.a.node.announcer.hear(pair.b.card.identity, _signed(pair.b, announcement))
    assert why in (again.not_followed or "")
    await pair.a.node.announcer.stop()


async def test_a_node_is_not_told_what_hinders_the_way_to_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is judged as it is connected to, and only the owner's log says what was there."""
    url = f"http://moved.example:{(pair.a.node.card.url or '').rpartition(':')[2]}"

    def found(_: str, port: int, *__: object, **___: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    announcement = _announced(pair.b, url)
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(socket, "getaddrinfo", found)
        await _follow(pair, announcement)
    again = await pair.a.node.announcer.hear(pair.b.card.identity, _signed(pair.b, announcement))
    assert again.not_followed == f"no node with its key is reached at {url}"
    (told,) = (each["error"] for each in logs if each["event"] == "a node says that it has moved")
    assert "its name cannot be resolved" in told  # and not: another key answers
    await pair.a.node.announcer.stop()


async def test_an_earlier_generation_is_told_of_the_later_one(pair: Pair) -> None:
    """The host that was restored first is told so, and a replayed announcement changes nothing."""
    hear, identity = pair.a.node.announcer.hear, pair.b.card.identity
    url = pair.b.card.url
    later = _announced(pair.b, url, START + 2)
    text = _signed(pair.b, later)
    assert await hear(identity, text) == await hear(identity, text)
    heard = await hear(identity, _signed(pair.b, _announced(pair.b, "http://127.0.0.1:9", START)))
    assert heard.successor == text
    replayed = replace(later, announced_at=START, url="http://127.0.0.1:9")
    heard = await hear(identity, _signed(pair.b, replayed))
    assert (heard.successor, heard.overtaking) == (None, text)
    assert await _url_of_b(pair) == url
    with pytest.raises(NotAllowed):
        await hear(identity, _signed(pair.a.node, later))


async def test_a_node_is_found_again_where_its_copy_was_followed(pair: Pair) -> None:
    """A copy with its data, whose place is announced later, takes nothing away for good."""
    announcer, hear, identity = pair.b.announcer, pair.a.node.announcer.hear, pair.b.card.identity
    said = await announcer.own()
    assert said is not None
    first, _ = announcer._own or (None, None)
    assert first is not None
    copied = replace(first, announced_at=first.announced_at + 1, url="http://127.0.0.1:9")
    await _follow(pair, copied)
    await pair.a.rows("UPDATE node SET url = 'http://127.0.0.1:9' WHERE name = 'b'")
    await pair.a.node.directory.refresh()
    heard = await hear(identity, said)
    await announcer.learn("a", ConfirmationAnswer(successor=heard.overtaking))
    announcer.require_here()
    assert await announcer.own() != said
    assert announcer._own is not None
    await _follow(pair, announcer._own[0])
    assert await _url_of_b(pair) == pair.b.card.url


async def test_a_node_ends_only_by_what_its_own_key_has_signed(pair: Pair) -> None:
    """Another node cannot make up that this one goes on elsewhere."""
    announcer, own = pair.b.announcer, _announced(pair.b, "http://127.0.0.1:9", START + times.DAY)
    await announcer.own()
    forged = ConfirmationAnswer(successor=_signed(pair.a.node, own))
    await announcer.learn("a", forged)
    earlier = ConfirmationAnswer(successor=_signed(pair.b, _announced(pair.b, None, 1)))
    await announcer.learn("a", earlier)
    announcer.require_here()
    assert not announcer.ended.is_set()
    with pytest.raises(MovedAway, match="another host goes on as this node"):
        await announcer.learn("a", ConfirmationAnswer(successor=_signed(pair.b, own)))
    assert announcer.ended.is_set()
    await pair.a.node.announcer.look()
    assert not pair.a.node.announcer.ended.is_set()


async def test_every_process_of_a_node_ends_once_one_has_heard_of_it(pair: Pair) -> None:
    """A lead in a process of its own reads it from the database, and does not start again."""
    node = pair.b
    later = _signed(node, _announced(node, "http://127.0.0.1:9", START + times.DAY))
    async with node.database.connection() as connection:
        await nodes.note_moved_away(connection, node.database.generation, later)
    node._refresh_directory(Notice("successor", "", ()))
    await asyncio.gather(*node.rereader.tasks)
    assert node.announcer.ended.is_set()
    with pytest.raises(MovedAway):
        await node.ask_others()


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://169.254.169.254", "the metadata service of a cloud"),
        ("https://[fe80::1]:8642", "a link-local address"),
        ("http://0.0.0.0:6379", "an address of this host itself"),
        ("http://inner.example:6379", "its name cannot be resolved"),
    ],
)
@pytest.mark.mostly_nightly
async def test_a_directory_leads_to_nothing_inside(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, url: str, kind: str
) -> None:
    """The maker of a directory has nothing asked that only the host of its reader reaches."""

    def found(_: str, port: int, *__: object, **___: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("169.254.9.9", port))]

    entry = DirectoryEntry(name="c", url=url, identity=NodeKey.generate().identity)
    made = await pair.b.directory_files.make(DirectoryRequest(nodes=(entry,)))
    monkeypatch.setattr(socket, "getaddrinfo", found)
    report = await pair.a.node.directory_files.introduce(made, dry_run=False)
    [refused] = [each for each in report.nodes if each.name == "c"]
    assert refused.state is IntroductionState.REFUSED
    assert kind in (refused.reason or "")
