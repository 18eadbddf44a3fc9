"""A refused task leaves nothing behind on any node."""

from __future__ import annotations

import asyncio

import pytest

from node.model import times
from node.model.errors import (
    Conflict,
    DatabaseUnavailable,
    InvalidDocument,
    NotAuthenticated,
    ParleyError,
    PeerError,
    PeerUnreachable,
    RefusedByParticipant,
)
from node.model.reasons import not_created
from node.model.wire.campaigns import CampaignDocument
from node.model.wire.tasks import TaskDocument
from tests.support.worlds import ON_ONE_LOOP, Call, Site, World

pytestmark = ON_ONE_LOOP


def _document(
    *participants: Site, duration: str = "PT5S", campaign: str | None = None
) -> TaskDocument:
    spec = {"duration": duration, "participants": [site.name for site in participants]}
    document = {"test": {"type": "idle", "spec": spec}, "campaign": campaign}
    return TaskDocument.model_validate(document)


async def _active(site: Site) -> int:
    return len(await site.rows("SELECT FROM task WHERE state = 'active'"))


async def test_a_key_used_twice_at_once_makes_one_task(world: World) -> None:
    """Two documents posted concurrently under one key create one task; the other is refused."""
    a, b = await world.site("a"), await world.site("b")
    documents = [_document(a, b), _document(a, b, duration="PT6S")]
    answers = await asyncio.gather(
        *(a.node.admission.create(document, "one") for document in documents),
        return_exceptions=True,
    )
    assert [isinstance(answer, Conflict) for answer in answers].count(True) == 1
    await world.settle()
    assert (await _active(a), await _active(b)) == (1, 1)


async def test_a_refused_task_is_forgotten_where_the_answer_was_lost(world: World) -> None:
    """A participant whose acceptance was lost learns of the refusal, too."""
    a, b, c = await world.three()
    c.node.capabilities.tests = {}

    async def lose(call: Call, phase: str) -> None:
        if call == ("a", "b", "introduce") and phase == "answered":
            raise PeerUnreachable("no answer within 5 s")

    world.watch = lose
    with pytest.raises(RefusedByParticipant):
        await a.node.admission.create(_document(a, b, c), None)
    world.watch = None
    assert await _active(b) == 1
    await world.settle()
    assert (await _active(a), await _active(b)) == (0, 0)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (DatabaseUnavailable("the database does not answer: disk full"), "b cannot do it: the da"),
        (ParleyError("an internal error occurred"), "b cannot do it: an internal error occurred"),
        (NotAuthenticated("the key is not known here"), "b: the key is not known here"),
    ],
)
async def test_a_participant_that_answers_neither_yes_nor_no_is_asked_again(
    world: World, error: ParleyError, sentence: str
) -> None:
    """A task whose participant answers with an error is taken in, and says who answered what."""
    a, b, c = await world.three()

    async def fail(call: Call, phase: str) -> None:
        if call == ("a", "b", "introduce") and phase == "asked":
            raise error

    world.watch = fail
    task, _ = await a.node.admission.create(_document(a, b, c), None)
    (stored,) = await a.rows("SELECT participants FROM task WHERE id = $1", task)
    assert [p["accepted"] for p in stored["participants"]] == [True, None, True]
    assert stored["participants"][1]["reason"].startswith(sentence)
    await a.plan()
    (waiting,) = await a.rows("SELECT reason FROM run_known WHERE task_id = $1", task)
    assert sentence in waiting["reason"]
    world.watch = None
    world.clock.advance(times.MINUTE)
    await a.plan()
    await world.settle()
    assert [await _active(site) for site in (a, b, c)] == [1, 1, 1]


async def test_a_task_that_cannot_be_stored_is_forgotten_by_those_who_accepted(
    world: World,
) -> None:
    """A task that fails after its introduction is told to be over where it was accepted."""
    a, b = await world.two()
    await a.node.campaigns.create(CampaignDocument.model_validate({"name": "brief"}))

    async def remove(call: Call, phase: str) -> None:
        if call == ("a", "b", "introduce") and phase == "answered":
            assert await _active(b) == 1
            await a.node.campaigns.remove("brief")

    world.watch = remove
    with pytest.raises(Conflict, match="brief was removed"):
        await a.node.admission.create(_document(a, b, campaign="brief"), None)
    world.watch = None
    await world.settle()
    assert (await _active(a), await _active(b)) == (0, 0)


async def test_a_task_whose_lead_dies_before_storing_it_is_forgotten(world: World) -> None:
    """Participants that accepted a task are told that it does not exist if its lead dies."""
    a, b = await world.two()
    introduced = asyncio.Event()

    async def die(call: Call, phase: str) -> None:
        if call == ("a", "b", "introduce") and phase == "answered":
            introduced.set()
            await asyncio.Event().wait()

    world.watch = die
    creating = asyncio.create_task(a.node.admission.create(_document(a, b), None))
    await introduced.wait()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    world.watch = None
    await world.settle()
    assert await _active(b) == 1, "the request could still be under way"
    world.clock.advance(times.MINUTE)
    await world.settle()
    assert (await _active(a), await _active(b)) == (0, 0)
    (ended,) = await b.rows("SELECT reason FROM task")
    assert ended["reason"] == not_created("a")


async def test_a_task_is_not_stored_after_its_participants_were_told_it_is_not_there(
    world: World,
) -> None:
    """A request that took so long that the participants were told is refused as a whole."""
    a, b = await world.two()

    async def sleep(call: Call, phase: str) -> None:
        if call == ("a", "b", "introduce") and phase == "answered":
            world.watch = None
            world.clock.advance(times.HOUR)
            await a.deliver()

    world.watch = sleep
    with pytest.raises(PeerError, match=r"took too long to answer, .* post the task again"):
        await a.node.admission.create(_document(a, b), "key")
    await world.settle()
    assert (await _active(a), await _active(b)) == (0, 0)
    await a.node.admission.create(_document(a, b), "key")
    await world.settle()
    assert (await _active(a), await _active(b)) == (1, 1)


async def test_a_created_task_leaves_no_message_that_ends_it(world: World) -> None:
    """Nothing tells the participants of a stored task that it does not exist."""
    a, b = await world.two()
    await a.node.admission.create(_document(a, b), None)
    assert await a.outbox_messages() == []


async def test_a_target_is_measured_where_it_is_written(world: World) -> None:
    """The host of a node's URL means the node only in tests in which nodes take part."""
    a, b = await world.site("a", address="10.88.0.1"), await world.site("b", address="10.88.0.2")
    await _reached_at(a, b, "http://10.87.0.3:8642")

    async def addresses(test: str, spec: dict[str, str]) -> object:
        document = TaskDocument.model_validate({"test": {"type": test, "spec": spec}})
        task, _ = await a.node.admission.create(document, None)
        return (await a.rows("SELECT addresses FROM task WHERE id = $1", task))[0]["addresses"]

    assert await addresses("rtt", {"dest": "10.87.0.3"}) == {"10.87.0.3": "10.87.0.3"}
    url = "http://10.87.0.3:8642/healthz"
    assert await addresses("http", {"url": url}) == {"10.87.0.3": "10.87.0.3"}
    assert await addresses("rtt", {"dest": "b"}) == {"b": "10.88.0.2"}
    ends = {"source": "a", "dest": "10.87.0.3"}
    assert await addresses("latency", ends) == {"a": "10.88.0.1", "10.87.0.3": "10.88.0.2"}


@pytest.mark.parametrize(
    ("test", "spec", "reason"),
    [
        ("rtt", {"dest": "b"}, "is 6, but b, 10.88.0.2, is not an IPv6 address; leave it out"),
        ("tcp", {"dest": "192.0.2.1", "port": 22}, "is 6, but 192.0.2.1 is not an IPv6 address"),
        ("throughput", {"dest": "b"}, "is 6, but b, 10.88.0.2, is not an IPv6 address"),
    ],
)
async def test_another_version_than_a_target_has_is_refused(
    world: World, test: str, spec: dict[str, object], reason: str
) -> None:
    """An IP version that a target lacks is refused; names and the own host may have both."""
    a = await world.site("a", address="10.88.0.1")
    await world.site("b", address="10.88.0.2")

    def document(**spec: object) -> TaskDocument:
        return TaskDocument.model_validate({"test": {"type": test, "spec": spec}})

    with pytest.raises(InvalidDocument, match=f"/test/spec/ip_version: {reason}"):
        await a.node.admission.create(document(**spec, ip_version=6), None)
    assert await _active(a) == 0
    await a.node.admission.create(document(**spec, ip_version=4), None)
    choice = {"type": "rtt", "spec": {"source": "a", "dest": "::1", "ip_version": 6}}
    await a.node.admission.create(TaskDocument.model_validate({"test": choice}), None)


async def _reached_at(site: Site, other: Site, url: str) -> None:
    await site.execute("UPDATE node SET url = $1 WHERE identity = $2", url, other.identity)
    await site.node.directory.refresh()
