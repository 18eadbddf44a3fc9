"""A copy of a node begins nothing while the original goes on, and the original never ends."""

from __future__ import annotations

import asyncio
from copy import copy as shallow_copy
from pathlib import Path
from uuid import uuid4

import pytest

from node.model import times
from node.model.errors import CopyOfNode, NotAllowed
from node.model.wire.participants import ConfirmationRequest
from node.peers.rivals import SILENT, OwnProcess, ProcessesHeard
from node.service import NodeService
from node.store.mark import HostMarks
from node.trust.keys import NodeKey
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.loopback import free_port
from tests.support.served_nodes import served
from tests.support.worlds import ON_ONE_LOOP, Site, World

pytestmark = ON_ONE_LOOP


def _serve(node: NodeService, seconds: int) -> NodeService:
    """Let a node be served by a process that was started so many seconds after the beginning."""
    node.confirmer.process = OwnProcess.new(node.clock.monotonic() + seconds * times.SECOND)
    return node


async def _twice(world: World) -> tuple[NodeService, NodeService, Site]:
    """Return a node, its copy, which was started later, and the site of the copy."""
    a, _ = await world.two()
    await a.execute("UPDATE node SET attributes = '{\"feature:processes\": true}'")
    await a.node.directory.refresh()
    original = _serve(a.node, 0)
    await world.restart(a)
    apart = shallow_copy(a.node.database)  # what the one process reads, the other one does not know
    original.announcer._database = original.confirmer._database = apart
    return original, _serve(a.node, 5), a


async def _doubt(site: Site) -> None:
    """Let the data of a site be such as were on another host, or in an earlier state."""
    await site.execute("UPDATE generation SET copy_of = ''")
    await site.node.announcer.look()


async def test_a_clone_that_nothing_tells_apart_ends_after_one_exchange(world: World) -> None:
    """Two processes with the same data hear of each other from a peer, and the later one ends."""
    original, copy, _ = await _twice(world)
    for node in (original, copy):
        await node.confirmer.run_once()
    assert not copy.announcer.ended.is_set()
    world.clock.advance(15 * times.SECOND)
    for node in (original, copy, original):
        await node.confirmer.run_once()
    assert not original.announcer.ended.is_set()
    with pytest.raises(CopyOfNode, match=r"goes on at a place that b reaches.*admin take-over"):
        copy.announcer.require_here()


async def test_a_clone_of_what_was_just_restored_ends_too(world: World) -> None:
    """A later mark is the original's while that is heard, and no reason to be a newer node."""
    original, copy, site = await _twice(world)
    await site.execute("UPDATE generation SET made_at = now()")
    await site.execute("UPDATE schema_version SET applied_at = now() - interval '1 day'")
    await original.mark_database()
    await original.confirmer.run_once()
    await site.execute("UPDATE generation SET marked_at = marked_at - interval '1 minute'")
    assert copy.database.marked_at is not None
    copy.database.marked_at -= times.MINUTE
    await copy.database.check_mark()
    generation = copy.database.generation
    await copy.confirmer.run_once()
    assert (copy.database.generation, copy.database.was_restored) == (generation, True)
    world.clock.advance(15 * times.SECOND)
    for node in (original, copy):
        await node.confirmer.run_once()
    assert not original.announcer.ended.is_set()
    with pytest.raises(CopyOfNode, match=r"goes on at a place that b reaches"):
        copy.announcer.require_here()


@pytest.mark.parametrize("lives", [True, False])
async def test_a_clone_asks_where_it_was_before_it_believes_a_later_mark(
    world: World, monkeypatch: pytest.MonkeyPatch, *, lives: bool
) -> None:
    """Others may have been restarted since they heard the original, and know its mark alone."""
    original, copy, _ = await _twice(world)
    other = world.sites[1]
    assert await original.announcer.own() is not None
    await copy.mark_database()
    await copy.database.check_mark()
    assert copy.database.marked_at is not None
    known = copy.database.marked_at + times.MINUTE
    await other.execute("UPDATE node SET marked_at = $1 WHERE NOT is_self", known)
    other.node.confirmer._heard_processes = ProcessesHeard(world.clock)
    copy.announcer._url = "http://198.51.100.77:8642"
    assert await copy.announcer.own() is not None
    asked: list[str] = []

    async def is_at(url: str, _identity: str) -> bool:
        asked.append(url)
        return lives

    monkeypatch.setattr(copy.announcer._peers, "is_at", is_at)
    generation = copy.database.generation
    confirming = asyncio.create_task(copy.confirmer.run_once())
    while not (await asyncio.wait({confirming}, timeout=0.05))[0]:
        # Before it was asked, and if it lives, time would make an answer late that is only slow.
        if asked and not lives:
            world.clock.advance(2 * times.SECOND)
    await confirming
    assert asked == [original.card.url]
    assert (copy.database.generation == generation) is lives


async def test_a_clone_whose_original_is_slow_asks_it_as_long_as_others_would_hear_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer in time says nothing of who is there, until that one would have been heard of."""
    original, copy, _ = await _twice(world)
    assert await original.announcer.own() is not None
    copy.announcer._url = "http://198.51.100.77:8642"
    assert await copy.announcer.own() is not None
    answers: list[bool | None] = [None, None, None, False, True]

    async def is_at(_url: str, _identity: str) -> bool | None:
        return answers.pop(0)

    monkeypatch.setattr(copy.announcer._peers, "is_at", is_at)
    found = []
    for _ in range(len(answers)):
        found.append(await copy.announcer.may_live_where_it_was())
        world.clock.advance(SILENT // 2)
    assert found == [True, True, False, False, True]


async def test_a_clone_that_is_restarted_knows_where_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place before is stored: whoever announced another one may have been killed since."""
    original, copy, site = await _twice(world)
    assert await original.announcer.own() is not None
    assert await copy.announcer.may_live_where_it_was() is False
    copy.announcer._url = "http://198.51.100.77:8642"
    assert await copy.announcer.own() is not None
    await world.restart(site)
    asked: list[str] = []

    async def is_at(url: str, _identity: str) -> bool:
        asked.append(url)
        return True

    restarted = site.node.announcer
    restarted._url = copy.announcer._url
    monkeypatch.setattr(restarted._peers, "is_at", is_at)
    assert await restarted.may_live_where_it_was() is True
    assert asked == [original.card.url]


@pytest.mark.parametrize(
    ("answers", "ends", "seconds"),
    [((True,), True, 0), ((None, None, True), True, 4), ((False,), False, 0), ((), False, 20)],
)
async def test_a_clone_looks_where_it_was_before_it_begins(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    answers: tuple[bool | None, ...],
    ends: bool,  # noqa: FBT001 - a parameter
    seconds: int,
) -> None:
    """Others may reach neither of both; a slow original is asked as long as it would be heard."""
    original, copy, _ = await _twice(world)
    assert await original.announcer.own() is not None
    copy.announcer._url = "http://198.51.100.77:8642"
    copy._answers = False  # as at its start
    left = iter(answers)
    asked: list[str] = []

    async def is_at(url: str, _identity: str) -> bool | None:
        asked.append(url)
        return next(left, None)

    monkeypatch.setattr(copy.announcer._peers, "is_at", is_at)
    began = world.clock.now()
    asking = asyncio.create_task(copy.confirmer.require_original(starting=True))
    while not (await asyncio.wait({asking}, timeout=0.05))[0]:
        world.clock.advance(2 * times.SECOND)
    assert isinstance(asking.exception(), CopyOfNode) is ends
    assert world.clock.now() - began == seconds * times.SECOND
    assert set(asked) == {original.card.url}
    assert copy.announcer.ended.is_set() is ends


async def test_a_node_that_its_owner_moved_asks_nobody_where_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer generation is the owner's word, and a URL that is the same is no other place."""
    original, copy, _ = await _twice(world)
    assert await original.announcer.own() is not None
    assert await copy.announcer.place_before() is None
    copy.announcer._url = "http://198.51.100.77:8642"
    assert await copy.announcer.place_before() == original.card.url
    monkeypatch.setattr(copy.database, "generation", uuid4())
    assert await copy.announcer.place_before() is None


async def test_a_lead_apart_announces_no_other_place(world: World) -> None:
    """A lead that speaks before its service would take from it where the original is."""
    original, copy, _ = await _twice(world)
    said = await original.announcer.own()
    lead = shallow_copy(copy.announcer)
    for announcer in (lead, copy.announcer):
        announcer._url = "http://198.51.100.77:8642"
    assert said is not None
    assert await lead.own(serves=False) == said
    assert await copy.announcer.previous_url() == original.card.url
    moved = await copy.announcer.own()
    assert moved not in {None, said}
    assert await lead.own(serves=False) == moved


async def test_only_who_serves_the_node_believes_a_later_mark(world: World) -> None:
    """A lead apart is told of no rival: the later state that others know may be the original's."""
    a, _ = await world.two()
    await a.node.mark_database()
    await a.node.confirmer.run_once()
    await a.execute("UPDATE generation SET marked_at = marked_at - interval '1 minute'")
    assert a.database.marked_at is not None
    a.database.marked_at -= times.MINUTE
    generation = a.database.generation
    await world.restart(a)
    serving, a.node.confirmer.process = a.node.confirmer.process, None
    await a.node.confirmer.run_once()
    assert a.database.generation == generation
    a.node.confirmer.process = serving
    await a.node.confirmer.run_once()
    assert a.database.generation != generation


async def test_a_copied_node_asks_before_it_begins(world: World) -> None:
    """Data from another host wait until the last process would have been heard again: it is."""
    original, copy, site = await _twice(world)
    await original.confirmer.run_once()
    await _doubt(site)
    asking = asyncio.create_task(copy.ask_others())
    while not (await asyncio.wait({asking}, timeout=0.05))[0]:
        world.clock.advance(2 * times.SECOND)
        await original.confirmer._try(world.sites[1].identity)
    assert isinstance(asking.exception(), CopyOfNode)
    assert not original.announcer.ended.is_set()
    with pytest.raises(CopyOfNode):  # after a restart, too
        await copy.ask_others()


@pytest.mark.parametrize("answers", [(None, None, True), ()])
async def test_a_copy_asks_a_slow_original_again(
    world: World, monkeypatch: pytest.MonkeyPatch, answers: tuple[bool | None, ...]
) -> None:
    """An original that does not answer in time is asked again, as long as it could be heard of."""
    original, copy, site = await _twice(world)
    assert await original.announcer.own() is not None
    await _doubt(site)
    copy._answers = False  # as at its start
    left = iter(answers)

    async def lives_at(_url: str, _identity: str) -> bool | None:
        return next(left, None)

    monkeypatch.setattr(copy.announcer._peers, "lives_at", lives_at)
    asking = asyncio.create_task(copy.ask_others())
    began = world.clock.now()
    while not (await asyncio.wait({asking}, timeout=0.05))[0]:
        world.clock.advance(2 * times.SECOND)
    if answers:
        assert isinstance(asking.exception(), CopyOfNode)
    else:
        await asking
        assert world.clock.now() - began >= 20 * times.SECOND


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.nightly
async def test_a_copy_waits_for_an_original_that_starts_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch, *, starts: bool
) -> None:
    """Nobody answers where it was, or has heard it: both may have been started at once."""
    original, copy, site = await _twice(world)
    assert await original.announcer.own() is not None
    await _doubt(site)
    copy._answers = False  # as at its start
    monkeypatch.setattr(copy.database, "was_elsewhere", True)
    began = world.clock.now()

    async def lives_at(_url: str, _identity: str) -> bool:
        return starts and world.clock.now() >= began + 50 * times.SECOND

    monkeypatch.setattr(copy.announcer._peers, "lives_at", lives_at)
    asking = asyncio.create_task(copy.ask_others())
    while not (await asyncio.wait({asking}, timeout=0.05))[0]:
        world.clock.advance(2 * times.SECOND)
    if starts:
        assert isinstance(asking.exception(), CopyOfNode)
    else:
        await asking
        assert world.clock.now() - began >= times.MINUTE


@pytest.mark.parametrize("lives", [True, False])
async def test_a_copy_that_is_born_under_a_wrong_clock_looks_where_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch, *, lives: bool
) -> None:
    """A copy whose dates nobody accepts ends if somebody answers where it was, or asks later."""
    original, copy, site = await _twice(world)
    assert await original.announcer.own() is not None
    await _doubt(site)
    asked: list[str] = []

    async def lives_at(url: str, _identity: str) -> bool:
        asked.append(url)
        return lives

    async def ask(_node: str, _tasks: object) -> None:
        raise AssertionError("a request was dated by a wrong clock")

    monkeypatch.setattr(copy.announcer._peers, "lives_at", lives_at)
    monkeypatch.setattr(copy.confirmer, "_confirm", ask)
    copy._answers = False  # as at its start
    world.clock.confirmed = False
    copy.clock_steps.watcher.begin(world.clock.now() - times.DAY)
    if lives:
        with pytest.raises(CopyOfNode, match="goes on at"):
            await copy.begin_work()
    else:
        await copy.begin_work()
        assert copy.database.copy_of == ""  # other nodes are asked once the clock is believed
    for loop in copy._loops:
        loop.cancel()
    assert asked == [original.card.url]


async def test_a_lead_beside_a_copy_waits_for_its_service(world: World, tmp_path: Path) -> None:
    """Data that were served on another host are led once the service works with them, or asks."""
    _, lead, site = await _twice(world)
    await site.execute("UPDATE generation SET host = 'another//', marked_at = now()")
    waiting = asyncio.create_task(lead.wait_until_in_use(HostMarks.of(tmp_path)))
    for change in ("copy_of = ''", "copy_of = NULL"):
        await site.execute(f"UPDATE generation SET {change}")
        for _ in range(5):
            world.clock.advance(times.SECOND)
            assert not (await asyncio.wait({waiting}, timeout=0.05))[0]
    await site.execute("UPDATE generation SET marked_at = marked_at + interval '1 s'")
    while not (await asyncio.wait({waiting}, timeout=0.05))[0]:
        world.clock.advance(times.SECOND)
    await waiting


async def test_a_lead_believes_no_marks_that_came_after_its_look(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lead that looks just before its service does waits for what that finds."""
    _, lead, site = await _twice(world)
    host, look = HostMarks.of(tmp_path), lead.announcer.look
    await site.execute("UPDATE generation SET host = 'another//'")

    async def then_the_service_looks() -> None:
        await look()
        await site.execute(
            f"UPDATE generation SET host = '{host}', copy_of = '',"
            " marked_at = marked_at + interval '1 s' WHERE copy_of IS NULL"
        )

    monkeypatch.setattr(lead.announcer, "look", then_the_service_looks)
    waiting = asyncio.create_task(lead.wait_until_in_use(host))
    for _ in range(5):
        assert not (await asyncio.wait({waiting}, timeout=0.05))[0]
        world.clock.advance(times.SECOND)
    await site.execute("UPDATE generation SET copy_of = 'http://a.example'")
    while not (await asyncio.wait({waiting}, timeout=0.05))[0]:
        world.clock.advance(times.SECOND)
    with pytest.raises(CopyOfNode):
        await lead.ask_others()


async def test_a_lead_of_a_copy_ends(world: World, tmp_path: Path) -> None:
    """A lead whose service has found that it is a copy begins nothing."""
    _, lead, site = await _twice(world)
    await site.execute("UPDATE generation SET host = 'another//', copy_of = 'http://a.example'")
    await lead.wait_until_in_use(HostMarks.of(tmp_path))
    with pytest.raises(CopyOfNode, match=r"goes on at http://a.example"):
        await lead.ask_others()


async def test_what_one_process_found_to_be_a_copy_is_one_for_all(world: World) -> None:
    """A lead that finds the original away takes nothing back: its node has spoken with it."""
    _, lead, site = await _twice(world)
    await _doubt(site)
    await site.execute("UPDATE generation SET copy_of = 'http://a.example'")
    with pytest.raises(CopyOfNode, match=r"goes on at http://a.example"):
        await lead.announcer.note_original(None)
    assert [row[0] for row in await site.rows("SELECT copy_of FROM generation")] == [
        "http://a.example"
    ]


async def _say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


async def test_who_lives_at_a_url(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A node lives where its key answers, not where nothing listens; one that is slow may live."""
    async with served("a", await new_database(), clock, tmp_path) as a:
        silent = await asyncio.start_server(_say_nothing, "127.0.0.1", 0)
        port, own, url = silent.sockets[0].getsockname()[1], a.card.identity, a.card.url or ""
        assert await a.peers.lives_at(url, own) is True
        assert await a.peers.lives_at(url, NodeKey.generate().identity) is False
        async with silent:
            a.peers._timeout_s = 0.2
            assert await a.peers.lives_at(f"http://127.0.0.1:{port}", own) is None
        assert await a.peers.lives_at(f"http://127.0.0.1:{free_port()}", own) is False


async def test_a_moved_node_goes_on_without_a_word(world: World) -> None:
    """Data from another host go on once nobody else is heard, and no other node is told before."""
    original, moved, site = await _twice(world)
    await original.confirmer.run_once()
    await _doubt(site)
    assert await moved.announcer.own() is None
    asking = asyncio.create_task(moved.ask_others())
    began = world.clock.now()
    while not (await asyncio.wait({asking}, timeout=0.05))[0]:
        world.clock.advance(times.SECOND)
    await asking
    assert world.clock.now() - began < 30 * times.SECOND
    assert moved.database.copy_of is None
    assert await moved.announcer.own() is not None


@pytest.mark.nightly
async def test_no_word_of_another_node_ends_a_node(world: World) -> None:
    """A peer that lies ends nobody: with its own statement, a changed one, or one from before."""
    original, node, site = await _twice(world)
    liar = world.sites[1].node
    process, own, others = OwnProcess.new(0), OwnProcess.new(times.SECOND), OwnProcess.new(-1)
    before = original.announcer.process_statement(process) or ""
    world.clock.advance(60 * times.SECOND)
    invented = liar.announcer.process_statement(others) or ""
    for lie in (before, invented, before[:-8] + "AAAAAAAA", invented[:99] + before[99:], "1"):
        await node.announcer.meet(own, lie, "b")
        node.announcer.require_here()
    assert not node.announcer.ended.is_set()
    assert await site.rows("SELECT copy_of FROM generation") == [(None,)]
    proof = original.announcer.process_statement(process) or ""
    with pytest.raises(CopyOfNode):
        await node.announcer.meet(own, proof, "b")


async def test_a_process_is_heard_of_by_its_signature(world: World) -> None:
    """A node whose process another node has signed is refused, and makes nobody a rival."""
    a, b = await world.two()
    told = b.node.announcer.process_statement(OwnProcess.new(0))
    with pytest.raises(NotAllowed, match="not one that the sender has signed"):
        await b.node.confirmer.answer(a.identity, ConfirmationRequest(tasks=(), process=told))
