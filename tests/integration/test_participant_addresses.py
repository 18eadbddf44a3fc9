"""Measurement traffic goes to the addresses on participants' cards, not to what a lead says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node.execution import process
from node.model import times
from node.model.classes import SchedulingClass
from node.model.contexts import ATTRIBUTE
from node.model.errors import HostError, NotFound, RefusedByParticipant
from node.model.features import Feature
from node.model.ids import TaskId, run_id
from node.model.wire.participants import CommitRequest, HoldRequest, Introduction
from node.model.wire.tasks import Participant, Schedule, TaskDocument
from node.store import nodes, tasks
from node.trust.keys import NodeKey
from tests.conftest import NewDatabase
from tests.support.clocks import START, ManualClock
from tests.support.objections import objecting
from tests.support.served_nodes import know, served
from tests.support.worlds import (
    GENERATION,
    ON_ONE_LOOP,
    Call,
    Site,
    World,
    exchange_of,
    introduce,
    run_request,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
VICTIM = "203.0.113.9"
LATENCY: dict[str, Any] = {"source": "a", "dest": "b"}


def _listed(site: Any, **changes: Any) -> Participant:
    card = site.card
    listed = Participant(node=card.identity, name=card.name, url=card.url, address=card.address)
    return listed.model_copy(update=changes)


async def test_an_invented_address_over_http(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A peer cannot aim a node at an address in another node's name, or in a stranger's name."""
    async with (
        served("a", await new_database(), clock, tmp_path) as a,
        served("b", await new_database(), clock, tmp_path) as b,
        served("c", await new_database(), clock, tmp_path) as c,
    ):
        await know(a, b, c)
        await know(c, a)
        made = introduce(
            [_listed(a), _listed(b)],
            scheduling_class=SchedulingClass.NORMAL,
            schedule=Schedule(start=HOUR, slip=0),
            duration=11_700 * times.MILLISECOND,
        ).model_copy(
            update={
                "test": "latency",
                "spec": LATENCY,
                "tool": "stamp",
                "addresses": {"a": "127.0.0.1", "b": VICTIM},
            }
        )
        peer = c.peer(a.card.identity)

        async def refusal(participant: Participant) -> str | None:
            document = made.model_copy(update={"participants": (_listed(a), participant)})
            considered = await peer.consider(document)
            introduced = await peer.introduce(document)
            assert considered.reason == introduced.reason
            assert considered.accepted is introduced.accepted is (introduced.reason is None)
            return introduced.reason

        for address in (VICTIM, "victim.example"):
            reason = str(await refusal(_listed(b, address=address)))
            said = f"{address} is not an address of b: its card here says 127.0.0.1."
            assert reason.startswith(said)
        stranger = NodeKey.generate().identity
        for address in ("127.9.9.9", "169.254.169.254"):
            assert address in str(await refusal(_listed(b, address=address)))
            assert address in str(await refusal(_listed(b, node=stranger, address=address)))
        async with a.database.connection() as connection:
            assert await connection.fetchval("SELECT count(*) FROM task") == 0
        assert await refusal(_listed(b)) is None


async def test_an_unknown_participant_may_object(
    new_database: NewDatabase, clock: ManualClock, tmp_path: Path
) -> None:
    """A participant that nobody knows here is asked by DNS like a target; a known one is not."""
    async with (
        served("a", await new_database(), clock, tmp_path) as a,
        served("c", await new_database(), clock, tmp_path) as c,
        objecting() as (_, opt_outs),
    ):
        await know(a, c)
        await know(c, a)
        a.foreign_targets.opt_outs = opt_outs
        made = introduce(
            [_listed(a), _listed(c)],
            scheduling_class=SchedulingClass.NORMAL,
            schedule=Schedule(start=HOUR, slip=0),
            duration=11_700 * times.MILLISECOND,
        )
        peer, spec = c.peer(a.card.identity), {"duration": "PT11.7S", "class": "normal"}

        async def reason(participant: Participant) -> str | None:
            listed = (_listed(a), participant)
            names = {"participants": [each.name for each in listed]}
            changes = {"participants": listed, "spec": {**spec, **names}}
            return (await peer.consider(made.model_copy(update=changes))).reason

        stranger = NodeKey.generate().identity
        for address in ("198.41.0.4", "example.org"):
            invented = _listed(c, node=stranger, name="x", address=address)
            assert f"{address} has said by DNS" in str(await reason(invented))
        assert await reason(_listed(c)) is None


async def _three(world: World) -> tuple[Site, Site, Site]:
    """Return nodes at addresses of their own."""
    a, b, c = [
        await world.site(name, listen=f"198.51.100.{at}:8642") for at, name in enumerate("abc", 1)
    ]
    for site in (a, b, c):
        await site.execute(
            "UPDATE node SET attributes = $1", {f"feature:{it}": True for it in Feature}
        )
        await site.node.directory.refresh()
    return a, b, c


async def _create(lead: Site, **fields: Any) -> UUID:
    body = {"test": {"type": "latency", "spec": LATENCY}, **fields}
    task, _ = await lead.node.admission.create(TaskDocument.model_validate(body), None)
    return task


@pytest.mark.parametrize("names", ["a", "abc"])
async def test_participants_that_the_spec_does_not_name(world: World, names: str) -> None:
    """A test between two nodes is refused with one or three: its tool would fail at the run."""
    sites = dict(zip("abc", await _three(world), strict=True))
    cards = [_listed(sites[name].node) for name in names]
    made = introduce(
        cards,
        scheduling_class=SchedulingClass.NORMAL,
        schedule=Schedule(start=HOUR, slip=0),
        duration=11_700 * times.MILLISECOND,
    )
    update = {"test": "latency", "spec": {**LATENCY, "dest": VICTIM}, "tool": "stamp"}
    document = made.model_copy(update=update)
    answer = await sites["a"].node.acceptance.consider(sites["c"].identity, document)
    said = f"measured by 2, and it was introduced with {len(names)} participants"
    assert (answer.accepted, said in str(answer.reason)) == (False, True)


async def test_nodes_that_only_their_lead_knows(world: World) -> None:
    """A participant that is not known here may be an invention: it is a target, and no receiver."""
    a, b, c = await _three(world)
    await a.execute("DELETE FROM node WHERE identity = $1", b.identity)
    await a.node.directory.refresh()
    with pytest.raises(RefusedByParticipant, match=r"a: b \(ed25519:.*\) is not known here, so it"):
        await _create(c)
    back = {"type": "latency", "spec": {"source": "b", "dest": "a"}}
    task, _ = await c.node.admission.create(TaskDocument.model_validate({"test": back}), None)
    [row] = await a.rows("SELECT participants FROM task WHERE id = $1", task)
    assert [p["address"] for p in row["participants"]] == ["198.51.100.2", "198.51.100.1"]
    for address, kind in (("127.9.9.9", "loopback"), ("10.77.0.99", "private")):
        await c.execute("UPDATE node SET address = $1 WHERE name = 'b'", address)
        await c.node.directory.refresh()
        for test in (back, {"type": "simplestream", "spec": {"source": "a", "dest": "b"}}):
            document = TaskDocument.model_validate({"test": test})
            with pytest.raises(RefusedByParticipant, match=f"{address} is a {kind} address"):
                await c.node.admission.create(document, None)


async def test_a_card_that_the_lead_read_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node reads the card again before it refuses an address that is not on it."""
    a, b, c = await _three(world)
    moved = b.node.card.model_copy(update={"address": "198.51.100.77"})
    await c.execute("UPDATE node SET address = '198.51.100.77' WHERE name = 'b'")
    await c.node.directory.refresh()
    sentence = (
        r"a: 198\.51\.100\.77 is not an address of b: its card here says 198\.51\.100\.2\. Cards"
    )
    with pytest.raises(RefusedByParticipant, match=sentence):
        await _create(c)
    for site in (a, b):

        async def card(_url: str, _identity: str) -> Any:
            return moved

        monkeypatch.setattr(site.node.peers, "card", card)
    await b.execute("UPDATE node SET address = '198.51.100.77' WHERE name = 'b'")
    await b.node.directory.refresh()
    await _create(c)
    known = a.node.directory.find("b")
    assert known is not None
    assert known.address == "198.51.100.77"


async def test_an_edit_from_before_a_node_moved(world: World) -> None:
    """A change that waited while one node was away and another one moved is taken by the first."""
    a, b, c = await _three(world)
    task = await _create(c)
    await c.execute("UPDATE node SET address = '198.51.100.77' WHERE name = 'b'")
    await c.node.directory.refresh()
    async with c.database.connection() as connection:
        known = await tasks.fetch(connection, task)
    assert known is not None
    edit = known.introduction(0).model_copy(
        update={
            "revision": 2,
            "reference": "x",
            "participants": (_listed(a.node), _listed(b.node, address="198.51.100.77")),
        }
    )

    def moved_to(node: Participant) -> Introduction:
        return edit.model_copy(update={"participants": (edit.participants[0], node)})

    for other in (
        _listed(c.node, address="198.51.100.88"),
        _listed(b.node, address="198.51.100.88", context="lab"),
    ):
        answer = await a.node.acceptance.consider(c.identity, moved_to(other))
        assert "198.51.100.88 is not an address of" in str(answer.reason)
    assert (await a.node.acceptance.consider(c.identity, edit)).accepted
    async with a.database.connection() as connection:
        there = await tasks.fetch(connection, task)
    assert there is not None
    assert (there.terms.revision, there.terms.reference) == (2, "x")
    followed = a.node.foreign_targets.with_card_addresses(there.terms.participants)
    assert [each.address for each in followed] == ["198.51.100.1", "198.51.100.2"]


async def test_a_task_is_told_again_with_the_addresses_of_today(world: World) -> None:
    """A node that has lost a task hears where the others are now, not where they were."""
    a, b, c = await _three(world)
    task = await _create(c)
    for site in (a, b, c):
        await site.execute("UPDATE node SET address = '198.51.100.77' WHERE name = 'b'")
        await site.node.directory.refresh()
    await a.execute("DELETE FROM task WHERE id = $1", task)
    assert await c.node.editing.tell_again(task, a.identity, 0)
    await world.settle()
    [[participants]] = await a.rows("SELECT participants FROM task WHERE id = $1", task)
    assert [p["address"] for p in participants] == ["198.51.100.1", "198.51.100.77"]


async def test_a_task_from_before_a_node_moved(world: World) -> None:
    """A task that waits for one node is introduced to it with the address of today of another."""
    a, b, c = await _three(world)
    world.cut = {frozenset("ac")}
    task = await _create(c)
    for site in (a, b, c):
        await site.execute("UPDATE node SET address = '198.51.100.77' WHERE name = 'b'")
        await site.node.directory.refresh()
    world.cut = set()
    await world.pass_time(5 * times.MINUTE, step=times.MINUTE)
    [[state, participants]] = await c.rows(
        "SELECT state::text, participants FROM task WHERE id = $1", task
    )
    assert state == "active"
    assert [(p["address"], p["accepted"]) for p in participants] == [
        ("198.51.100.1", True),
        ("198.51.100.77", True),
    ]


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the command lines of all programs, and start none."""
    programs: list[str] = []

    async def start(argv: Any, **_: Any) -> Any:
        programs.append(" ".join(argv))
        raise HostError("not started, this is a test")

    monkeypatch.setattr(process, "start", start)
    return programs


async def _booked(world: World, lead: Site, **fields: Any) -> UUID:
    """Book a run for the next hour, and let that come; return the run."""
    schedule = Schedule(start=HOUR, slip=0).times.model_dump(mode="json")
    task = await _create(lead, schedule=schedule, **fields)
    await lead.plan()
    await world.settle()
    world.clock.move_to(HOUR)
    return run_id(TaskId(task), HOUR, 1)


async def _launch(site: Site) -> None:
    await site.node.launcher.run_once()
    await asyncio.gather(*site.node.launcher._tasks.values())


@pytest.mark.parametrize("leads", ["a", "c"])
async def test_a_changed_card_is_followed(world: World, programs: list[str], leads: str) -> None:
    """A run measures to the address that a participant's card has when it starts."""
    a, b, c = await _three(world)
    await _booked(world, c if leads == "c" else a)
    async with a.database.transaction() as connection:
        await nodes.keep_changed_card(connection, b.identity, {}, 8, "198.51.100.77")
    await a.node.directory.refresh()
    await _launch(a)
    [command] = programs
    assert "198.51.100.77" in command
    assert "198.51.100.2" not in command


async def test_a_context_that_is_gone_ends_the_run_with_a_reason(
    world: World, programs: list[str]
) -> None:
    """A run whose context the card offers no more has no address, and says so."""
    a, b, c = await _three(world)
    for site in (a, b, c):
        async with site.database.transaction() as connection:
            await connection.execute(
                "UPDATE node SET attributes = $1 WHERE name = 'b'",
                {f"{ATTRIBUTE}interface:lo": "198.51.100.22"},
            )
        await site.node.directory.refresh()
    run = await _booked(world, c, contexts={"b": "interface:lo"})
    await a.execute("UPDATE node SET attributes = '{}' WHERE name = 'b'")
    await a.node.directory.refresh()
    await _launch(a)
    assert programs == []
    [row] = await a.rows("SELECT reason FROM part WHERE run_id = $1", run)
    assert "b does not offer the context interface:lo any more" in row["reason"]


FAST: dict[str, Any] = {**LATENCY, "count": 500, "length": 8952, "interval": "PT0.002S"}


async def _stream_on(
    world: World,
    *participants: Site,
    test: str = "latency",
    spec: dict[str, Any] = FAST,
    port: int = 8760,
    changed: dict[str, Any] | None = None,
) -> UUID:
    """Book a stream from a to b, led by c, on these only, and launch it at a.

    ``port`` is what the lead says of b's, ``changed`` what it has changed in the spec for a.
    """
    a, _, c = world.sites
    schedule = Schedule(start=HOUR, slip=0)
    times_of = schedule.times.model_dump(mode="json")
    document = {"test": {"type": test, "spec": spec}, "schedule": times_of}
    task, _ = await c.node.admission.create(TaskDocument.model_validate(document), None)
    [[duration, tool]] = await c.rows("SELECT duration, tool FROM task WHERE id = $1", task)
    if changed is not None:
        await a.execute("UPDATE task SET spec = spec || $1 WHERE id = $2", changed, task)
    request = HoldRequest(
        task=task,
        generation=GENERATION,
        lease_epoch=1,
        tool=tool,
        priority=0,
        life=30 * times.SECOND,
        runs=(run_request(task, HOUR, HOUR + duration),),
    )
    world.clock.move_to(HOUR - 30 * times.SECOND)
    for site in participants:
        line = site.node.time_line
        await line.hold(exchange_of(request), c.identity, request)
        commit = CommitRequest(runs=(request.runs[0].run,), data={"1": {"port": port}})
        await line.commit(exchange_of(request), commit, c.identity)
    world.clock.move_to(HOUR)
    await _launch(a)
    return request.runs[0].run


async def test_a_node_that_never_booked_a_stream_gets_none(
    world: World, programs: list[str]
) -> None:
    """A lead that names a known node as participant without asking it aims no stream at it."""
    a, b, _ = await _three(world)
    run = await _stream_on(world, a)
    [part] = await a.rows("SELECT reason FROM part WHERE run_id = $1", run)
    assert part["reason"].startswith("b has not booked this run, so nothing is sent to it for a")
    assert programs == []
    with pytest.raises(NotFound, match="is booked here in which you take part"):
        await a.node.peer(b.identity).booked_run(run)


async def test_a_node_that_booked_a_stream_gets_it(world: World, programs: list[str]) -> None:
    """Participants that have both booked a fast stream measure it; others learn nothing of it."""
    a, b, _ = await _three(world)
    run = await _stream_on(world, a, b)
    assert len(programs) == 1
    stranger = await world.site("d", listen="198.51.100.4:8642")
    with pytest.raises(NotFound):
        await stranger.node.peer(b.identity).booked_run(run)


async def test_a_lead_that_takes_part_is_not_asked(world: World, programs: list[str]) -> None:
    """A fast stream to the lead of its task needs no other word: the lead asks for it itself."""
    a, _, c = await _three(world)

    async def unasked(call: Call, _: str) -> None:
        assert call[2] != "booked_run"

    world.watch = unasked
    await _stream_on(world, a, c, spec={**FAST, "dest": "c"})
    assert len(programs) == 1


async def test_a_single_text_needs_a_word_as_well(world: World, programs: list[str]) -> None:
    """A known participant that has not booked a run is sent nothing, however little it would be."""
    a, _, _ = await _three(world)
    text = {"source": "a", "dest": "b", "text": "FLUSHALL", "port": 8760}
    run = await _stream_on(world, a, test="simplestream", spec=text)
    [part] = await a.rows("SELECT reason FROM part WHERE run_id = $1", run)
    assert part["reason"].startswith("b has not booked this run, so nothing is sent to it for a")
    assert programs == []


@pytest.mark.parametrize("said", [6379, 8762])
async def test_a_port_is_told_by_the_node_that_listens(
    world: World, programs: list[str], said: int
) -> None:
    """A sender uses the port of the receiver's own hold, and a receiver its own, not the lead's."""
    a, b, _ = await _three(world)
    run = await _stream_on(world, a, b, test="simplestream", spec=LATENCY, port=said)
    [told] = await b.rows("SELECT answer #> '{data,port}' AS port FROM exchange")
    assert told["port"] != said
    await _launch(b)
    assert len(programs) == 2
    for command in programs:
        assert f'"port":{told["port"]},' in command
        assert str(said) not in command.replace(str(run), "")


async def test_a_port_that_a_spec_states(world: World, programs: list[str]) -> None:
    """A receiver lets a foreign lead state a port of tools only; senders want the same from it."""
    a, b, c = await _three(world)
    for port in (1024, 6379):
        with pytest.raises(RefusedByParticipant, match=f"b: the port {port} is not among those of"):
            await _create(c, test={"type": "latency", "spec": {**LATENCY, "port": port}})
    await _stream_on(world, a, b, spec={**LATENCY, "port": 9000})
    assert '"port":9000,' in programs[0]


async def test_a_port_that_only_one_of_two_was_told(world: World, programs: list[str]) -> None:
    """A lead that tells the sender another spec than the receiver gets nothing sent."""
    a, b, _ = await _three(world)
    run = await _stream_on(world, a, b, spec={**LATENCY, "port": 9000}, changed={"port": 6379})
    [part] = await a.rows("SELECT reason FROM part WHERE run_id = $1", run)
    assert part["reason"].startswith("b has not booked this run, so nothing is sent to it for a")
    assert programs == []


async def test_ports_beyond_those_of_tools(world: World, programs: list[str]) -> None:
    """A lead whose card has another's address gets nothing sent to another's port there."""
    a, _, c = await _three(world)
    for site in (a, c):
        await site.execute("UPDATE node SET address = '10.77.0.99' WHERE name = 'c'")
        await site.node.directory.refresh()
    text = {"source": "a", "dest": "c"}
    run = await _stream_on(world, a, c, test="simplestream", spec=text, port=6379)
    [part] = await a.rows("SELECT reason FROM part WHERE run_id = $1", run)
    assert part["reason"].startswith("c listens at port 6379, which is not among the ports of")
    assert programs == []


async def test_a_node_of_an_earlier_version_tells_no_port(
    world: World, programs: list[str]
) -> None:
    """A node without the feature confirms a run, and the lead's word holds for ports of tools."""
    a, b, _ = await _three(world)
    for site, other in ((a, b), (b, a)):
        await site.execute(
            "UPDATE node SET attributes = attributes - 'feature:told-ports' WHERE identity = $1",
            other.identity,
        )
        await site.node.directory.refresh()
    run = await _stream_on(world, a, b, spec=LATENCY, port=8900)
    answer = await a.node.peer(b.identity).booked_run(run)
    assert answer.data is None
    assert '"port":8900,' in programs[0]


async def test_a_node_that_does_not_answer_gets_no_stream(
    world: World, programs: list[str]
) -> None:
    """A participant that cannot be asked whether it takes part is sent no fast stream."""
    a, b, _ = await _three(world)
    world.cut = {frozenset("ab")}
    run = await _stream_on(world, a, b)
    [part] = await a.rows("SELECT reason FROM part WHERE run_id = $1", run)
    assert part["reason"].startswith("b cannot be reached: the wire is cut; a task of another")
    assert programs == []
