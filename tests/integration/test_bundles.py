"""Bundles of runs: exported at the lead, checked with keys alone, and merged again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from node.execution.catalog import Capabilities
from node.model import times
from node.model.classes import SchedulingClass
from node.model.errors import Conflict, InvalidDocument, NotFound
from node.model.intervals import Interval
from node.model.runstate import RunState
from node.model.wire.participants import IntervalsMessage, PartMessage
from node.results.bundles.replay import differences_of
from node.results.bundles.verification import ConfirmedKeys, Outcome
from node.store import runs
from node.store.runs import KeptPart
from node.trust.keys import NodeKey
from tests.support.bundles import Bundle, changed, check, exported, keys_of, signed_again
from tests.support.circumstances import told
from tests.support.clocks import START
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, book_everywhere, introduction
from tests.unit.plugins.records import (
    SPEC,
    at_dest,
    at_source,
    reflector_record,
    sender_record,
)

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
GRACE = 15 * times.SECOND
SLEPT = {"slept_ms": 1.5}


def _part(site: Site, place: int, reason: str | None = None, output: str = "slept") -> KeptPart:
    return KeptPart(
        place,
        site.name,
        SLEPT if reason is None else None,
        reason,
        HOUR + place,
        HOUR + DURATION,
        ("sleep", "1"),
        output,
        told(),
    )


async def _running(sites: tuple[Site, ...]) -> UUID:
    [run] = await book_everywhere(introduction(sites), sites[0], sites, [HOUR])
    sites[0].clock.move_to(HOUR)
    for site in sites:
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run, HOUR)
    return run


async def _measured(world: World, sites: tuple[Site, ...], **fields: Any) -> UUID:
    """Let these sites measure a run that the first one leads."""
    run = await _running(sites)
    for place, site in enumerate(sites):
        await site.node.collector.keep_own(run, _part(site, place, **fields))
    await world.settle()
    return run


async def _stored(site: Site, what: str) -> list[Any]:
    return [row[0] for row in await site.rows(f"SELECT {what} FROM part ORDER BY participant")]


def _key(site: Site) -> NodeKey:
    signer = site.node.core.signer
    assert signer is not None
    return signer._key.current


async def test_a_bundle_is_checked_with_the_keys_of_its_nodes_alone(world: World) -> None:
    """Each part is signed by its own node, and the whole by the lead; nothing is missing."""
    sites = await world.three()
    run = await _measured(world, sites)
    bundle = await exported(sites[0].node, run)
    assert [part["output"] for part in bundle["parts"]] == ["slept"] * 3
    assert bundle["outcome"]["state"] == "finished"
    found = check(bundle, ConfirmedKeys({site.name: site.identity for site in sites}))
    assert (found.outcome, found.changed, found.unproven) == (Outcome.VERIFIED, [], [])
    assert [(each.subject, each.identity) for each in found.signatures] == [
        ("bundle", sites[0].identity),
        *((f"part of {site.name}", site.identity) for site in sites),
    ]
    assert differences_of(bundle, Capabilities()) == []


async def test_keys_that_nobody_confirms_prove_nothing(world: World) -> None:
    """A bundle whose keys are not given is unproven; one with another key than given is changed."""
    a, b = sites = await world.two()
    bundle = await exported(a.node, await _measured(world, sites))
    found = check(bundle, ConfirmedKeys({"a": a.identity}))
    assert found.outcome is Outcome.UNPROVEN
    unknown = f"part of b: signed by {b.identity}, which you have not confirmed"
    assert found.unproven == [unknown]
    assert check(bundle, ConfirmedKeys(known=frozenset({a.identity}))).unproven == [unknown]
    both = ConfirmedKeys(known=frozenset({a.identity, b.identity}))
    assert check(bundle, both).outcome is Outcome.VERIFIED
    other = check(bundle, ConfirmedKeys({"a": a.identity, "b": NodeKey.generate().identity}))
    assert other.changed == [f"b: its key is {b.identity} in the bundle, not the one given"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"result": {"slept_ms": 9.0}}, "result is not what was signed"),
        ({"output": "idled"}, "output is not what was signed"),
        ({"started_at": "2026-01-01T00:00:00Z"}, "started_at is not what was signed"),
        ({"command": ["sleep", "2"]}, "command is not what was signed"),
        ({"circumstances": None}, "circumstances is not what was signed"),
        ({"result": None, "reason": "it failed"}, "reason and result are not what was signed"),
        ({"signature": "x"}, "it is not a compact JWS with an Ed25519 signature"),
        ({"signature": None}, None),
    ],
)
@pytest.mark.mostly_nightly
async def test_a_lead_cannot_change_the_part_of_another_node(
    world: World, change: dict[str, Any], fault: str | None
) -> None:
    """A change that a lead makes in a participant's part is named, though it signs all again."""
    a, _b = sites = await world.two()
    bundle = await exported(a.node, await _measured(world, sites))
    forged = signed_again(changed(bundle, lambda it: it["parts"][1].update(change)), _key(a))
    found = check(forged, keys_of(bundle))
    if fault is None:
        assert (found.changed, found.unproven) == ([], ["part of b: not signed"])
    else:
        assert found.changed == [f"part of b: {fault}"]


def _own(forged: Bundle) -> None:
    forged["parts"][1]["signature"] = forged["parts"][0]["signature"]


def _swap(forged: Bundle) -> None:
    forged["parts"][0]["participant"], forged["parts"][1]["participant"] = 1, 0


def _spec(forged: Bundle) -> None:
    forged["run"]["spec"] = {"duration": "PT1S"}


def _replace(forged: Bundle) -> None:
    forged["participants"][1]["node"] = NodeKey.generate().identity


def _leave_out(forged: Bundle) -> None:
    del forged["participants"][1], forged["parts"][1]


def _other_run(forged: Bundle) -> None:
    forged["run"]["id"] = str(uuid4())


def _other_time(forged: Bundle) -> None:
    forged["run"]["starts_at"] = "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("forgery", "fault"),
    [
        (_own, "part of b: it is signed with ed25519:"),
        (_swap, "part of b: it is signed with ed25519:"),
        (_spec, "part of b: b signed for another spec"),
        (_replace, "b: its key is ed25519:"),
        (_leave_out, "part of a: a signed for another participants"),
        (_other_run, "part of b: it is signed for run "),
        (_other_time, "part of b: b signed for another starts_at"),
    ],
)
@pytest.mark.mostly_nightly
async def test_a_lead_cannot_make_up_what_a_participant_signed(
    world: World, forgery: Callable[[Bundle], None], fault: str
) -> None:
    """A part that the lead signs itself, or of another run, time, place, or spec, is found."""
    sites = await world.two()
    bundle = await exported(sites[0].node, await _measured(world, sites))
    forged = signed_again(changed(bundle, forgery), _key(sites[0]))
    found = check(forged, keys_of(bundle))
    assert any(each.startswith(fault) for each in found.changed), found


async def test_a_lead_that_changes_its_own_outcome_is_found_by_a_replay(world: World) -> None:
    """The outcome is the lead's word; merging the parts again shows each field that differs."""
    a, _b = sites = await world.two()
    bundle = await exported(a.node, await _measured(world, sites))

    def lie(forged: dict[str, Any]) -> None:
        forged["outcome"]["result"]["participants"] = 3
        forged["outcome"]["verdict"] = "contaminated"

    forged = signed_again(changed(bundle, lie), _key(a))
    assert check(forged, keys_of(bundle)).outcome is Outcome.VERIFIED
    fields = [each.field for each in differences_of(forged, Capabilities())]
    assert fields == ["/outcome/result/participants", "/outcome/verdict"]


async def test_a_wrong_signature_is_refused_with_the_reason(world: World) -> None:
    """The lead refuses a part whose signature is wrong, and the run fails with that reason."""
    a, b = sites = await world.two()
    run = await _running(sites)
    await b.node.collector.keep_own(run, _part(b, 1))
    [body] = [row["message"] for row in await b.rows("SELECT message FROM outbox")]
    message = PartMessage.model_validate(body)
    forged = message.model_copy(update={"result": {"slept_ms": 99.0}})
    for _ in range(2):
        with pytest.raises(InvalidDocument, match="result is not what was signed"):
            await a.node.collector.receive(b.identity, forged)
    await a.node.collector.keep_own(run, _part(a, 0))
    assert await a.state(run) == "failed"
    assert "b: its part was refused: its signature is not valid" in (await a.reason(run) or "")
    [of_a, *_] = await _stored(a, "signature")
    stolen = message.model_copy(update={"signature": of_a})
    with pytest.raises(InvalidDocument, match="it is signed with"):
        await a.node.collector.receive(b.identity, stolen)


async def test_a_part_that_was_signed_for_other_terms_is_refused(world: World) -> None:
    """A participant cannot sign another spec, so that its lead's bundle looks as if forged."""
    a, b = sites = await world.two()
    run = await _running(sites)
    other = """UPDATE task SET spec = spec || '{"duration": "PT7S"}'"""
    await b.rows(other)
    await b.node.collector.keep_own(run, _part(b, 1))
    [body] = [row["message"] for row in await b.rows("SELECT message FROM outbox")]
    with pytest.raises(InvalidDocument, match="it is signed for another spec"):
        await a.node.collector.receive(b.identity, PartMessage.model_validate(body))


async def test_parts_of_nodes_that_do_not_sign_are_marked(world: World) -> None:
    """A part without a signature is accepted, counted, and named as not signed."""
    a, b = sites = await world.two()
    run = await _running(sites)
    message = PartMessage(
        run=run, result=SLEPT, reason=None, started_at=HOUR, finished_at=HOUR + 1, command=None
    )
    await a.node.collector.receive(b.identity, message)
    await a.node.collector.keep_own(run, _part(a, 0))
    bundle = await exported(a.node, run)
    assert bundle["outcome"]["state"] == "finished"
    assert "b: its node did not sign its part" in bundle["missing"]
    found = check(bundle, keys_of(bundle))
    assert (found.outcome, found.unproven) == (Outcome.UNPROVEN, ["part of b: not signed"])
    assert differences_of(bundle, Capabilities()) == []


async def test_a_part_that_is_sent_again_has_its_signature(world: World) -> None:
    """The signature is stored with the part at its node, so that both are sent again."""
    a, b = sites = await world.two()
    run = await _running(sites)
    await b.node.collector.keep_own(run, _part(b, 1))
    await b.rows("DELETE FROM outbox")
    await b.node.collector.send_again(a.identity, [run])
    await a.node.collector.keep_own(run, _part(a, 0))
    await world.settle()
    bundle = await exported(a.node, run)
    assert check(bundle, keys_of(bundle)).outcome is Outcome.VERIFIED


async def test_runs_that_failed_or_lack_a_part_are_exported_too(world: World) -> None:
    """A failed run has its reasons; of a missing part the lead's word is all there is."""
    a, b, _c = sites = await world.three()
    run = await _running(sites)
    await a.node.collector.keep_own(run, _part(a, 0))
    await b.node.collector.keep_own(run, _part(b, 1, "sleep: killed by a signal"))
    await world.settle()
    world.clock.move_to(HOUR + DURATION + GRACE + 1)
    await a.tend()
    bundle = await exported(a.node, run)
    assert bundle["outcome"]["state"] == "failed"
    assert "c: sent no part" in bundle["missing"]
    found = check(bundle, keys_of(bundle))
    assert found.unproven == [
        "part of c: not here; that there is none is only what a says",
    ]
    assert differences_of(bundle, Capabilities()) == []


async def test_a_cancelled_run_has_its_task_and_reason(world: World) -> None:
    """A run that never measured has no parts, and is verified by the lead's signature."""
    a, _b = sites = await world.two()
    [run] = await book_everywhere(introduction(sites), a, sites, [HOUR])
    with pytest.raises(Conflict, match="is scheduled; wait for its end"):
        await exported(a.node, run)
    async with a.database.transaction() as connection:
        await runs.set_state(connection, [run], RunState.CANCELLED, "no longer needed", HOUR)
    bundle = await exported(a.node, run)
    assert (bundle["outcome"]["state"], bundle["outcome"]["reason"]) == (
        "cancelled",
        "no longer needed",
    )
    assert check(bundle, keys_of(bundle)).outcome is Outcome.VERIFIED


async def test_only_the_lead_exports_a_run_and_only_while_it_has_it(world: World) -> None:
    """A participant names the lead; a run that was deleted is said to be deleted."""
    a, b = sites = await world.two()
    run = await _measured(world, sites)
    with pytest.raises(Conflict, match=r"a leads run .* export it there"):
        await exported(b.node, run)
    world.clock.advance(400 * times.DAY)
    await a.node.purger.purge(a.node.clock.now())
    with pytest.raises(NotFound, match="finished runs are deleted with their parts after 30 d"):
        await exported(a.node, run)


async def test_long_output_is_signed_as_it_was_sent(world: World) -> None:
    """The bundle says that the middle of long output is missing; what is there is signed."""
    a, _b = sites = await world.two()
    text = "x" * 15_000 + "\n[about 900000 characters are left out]\n" + "ü\n" * 2_000
    bundle = await exported(a.node, await _measured(world, sites, output=text))
    only = "of the program's long output only the beginning and the end"
    assert bundle["missing"][:2] == [f"a: {only}", f"b: {only}"]
    assert check(bundle, keys_of(bundle)).outcome is Outcome.VERIFIED


COUNT = 10


async def _streaming(world: World) -> tuple[Site, Site, UUID]:
    """Start a run of ten intervals from a, its lead, to b on both nodes."""
    a, b = await world.two()
    multi = SchedulingClass.BACKGROUND_MULTI
    task = introduction([a, b], duration=COUNT * times.SECOND, scheduling_class=multi)
    spec = {"source": "a", "dest": "b", **SPEC}
    task = task.model_copy(update={"test": "latencybg", "spec": spec, "tool": "stampbg"})
    [run] = await book_everywhere(task, a, [a, b], [HOUR])
    world.clock.move_to(HOUR)
    for site in (a, b):
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run, HOUR)
    return a, b, run


async def _stream(world: World, site: Site, run: UUID, shares: list[Interval], place: int) -> None:
    """Send shares of intervals, then the part that announces all of them."""
    await site.node.collector.keep_own_intervals(run, shares)
    result = {"intervals": COUNT}
    part = KeptPart(place, site.name, result, None, HOUR, HOUR + 1)
    await site.node.collector.keep_own(run, part)
    await world.settle()


async def test_shares_of_intervals_are_signed_kept_and_merged_again(world: World) -> None:
    """Each share of an interval is signed by its node, and the run comes out of them again."""
    a, b, run = await _streaming(world)
    await _stream(world, b, run, [at_dest(reflector_record(at)) for at in range(COUNT)], 1)
    await _stream(world, a, run, [at_source(sender_record(at)) for at in range(COUNT)], 0)
    bundle = await exported(a.node, run)
    assert bundle["outcome"]["state"] == "finished"
    found = check(bundle, keys_of(bundle))
    assert (found.outcome, len(found.signatures)) == (Outcome.VERIFIED, 3 + 2 * COUNT)
    assert differences_of(bundle, Capabilities()) == []

    def forge(forged: Bundle) -> None:
        forged["intervals"][4]["shares"][1]["result"]["received"] = 9

    def leave_out(forged: Bundle) -> None:
        del forged["intervals"][4]["shares"][1]

    forged = signed_again(changed(bundle, forge), _key(a))
    changes = check(forged, keys_of(bundle)).changed
    assert changes == ["interval 4 of b: result is not what was signed"]
    forged = signed_again(changed(bundle, leave_out), _key(a))
    [lack] = check(forged, keys_of(bundle)).unproven
    assert lack == ("intervals of b: 1 of 10 that it announced are not here, the first is number 4")
    assert differences_of(forged, Capabilities()) != []


async def test_intervals_that_lack_a_share_come_out_again(world: World) -> None:
    """Gaps and reasons of intervals that only one node reported are the same in a replay."""
    a, b, run = await _streaming(world)
    await _stream(world, a, run, [at_source(sender_record(at)) for at in range(COUNT)], 0)
    few = [at_dest(reflector_record(at)) for at in range(COUNT - 3)]
    await b.node.collector.keep_own_intervals(run, few)
    await world.settle()
    world.clock.move_to(HOUR + times.HOUR)
    await a.tend()
    bundle = await exported(a.node, run)
    assert bundle["outcome"]["state"] == "failed"
    assert [len(each["shares"]) for each in bundle["intervals"]] == [2] * 7 + [1] * 3
    assert check(bundle, keys_of(bundle)).changed == []
    assert differences_of(bundle, Capabilities()) == []


async def test_a_forged_share_of_an_interval_is_refused(world: World) -> None:
    """The lead refuses shares whose signatures are wrong, or of another interval."""
    a, b, run = await _streaming(world)
    await b.node.collector.keep_own_intervals(
        run, [at_dest(reflector_record(at)) for at in range(2)]
    )
    [body] = [row["message"] for row in await b.rows("SELECT message FROM outbox")]
    message = IntervalsMessage.model_validate(body)
    first, second = message.intervals
    for forged, fault in (
        (first.model_copy(update={"reason": "late"}), "reason is not what was signed"),
        (first.model_copy(update={"signature": second.signature}), "signed for interval 1, not 0"),
    ):
        sent = message.model_copy(update={"intervals": (forged, second)})
        with pytest.raises(InvalidDocument, match=fault):
            await a.node.collector.receive_intervals(b.identity, sent)
    assert await a.rows("SELECT FROM run_interval") == []
