"""The lead of a run keeps parts of its test, in time and bounded, whatever participants send."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import asyncpg
import orjson
import pytest

from node.api import runs as api_runs
from node.model import times
from node.model.errors import Conflict, InvalidDocument
from node.model.late_runs import LAUNCH_HORIZON
from node.model.wire.participants import PartMessage
from node.plugins.part_limits import COMMAND_LENGTH_MAX
from node.store import runs
from node.store.runs import KeptPart
from tests.support.clocks import START
from tests.support.worlds import DURATION, ON_ONE_LOOP, Site, World, book_everywhere, introduction

pytestmark = ON_ONE_LOOP

HOUR = START + times.HOUR
CLOCK_LIMIT = times.SECOND
MEGABYTES = {"padding": "x" * 7_400_000}


async def _booked(sites: tuple[Site, ...]) -> UUID:
    [run] = await book_everywhere(introduction(sites), sites[0], sites, [HOUR])
    return run


async def _begun(sites: tuple[Site, ...]) -> UUID:
    run = await _booked(sites)
    sites[0].clock.move_to(HOUR)
    for site in sites:
        async with site.database.transaction() as connection:
            assert await runs.begin(connection, run, HOUR)
    return run


def _message(run: UUID, **fields: Any) -> PartMessage:
    document: dict[str, Any] = {"run": run, "result": {"slept_ms": 1.0}, "reason": None}
    document |= {"started_at": HOUR, "finished_at": HOUR + DURATION, "command": None}
    return PartMessage.model_validate(document | fields)


def _own(site: Site, place: int, result: dict[str, Any] | None = None) -> KeptPart:
    return KeptPart(place, site.name, result or {"slept_ms": 1.0}, None, HOUR, HOUR + DURATION)


async def _database_bytes(site: Site) -> int:
    [row] = await site.rows("SELECT coalesce(sum(octet_length(part::text)), 0) AS bytes FROM part")
    return int(row["bytes"])


async def test_no_part_comes_before_the_run(world: World) -> None:
    """A result that comes before the start, less the limit of the clocks, keeps no true one out."""
    a, b = sites = await world.two()
    run = await _booked(sites)
    early = _message(run, result={"slept_ms": 9.0})
    for at in (START, HOUR - CLOCK_LIMIT - 1):
        world.clock.move_to(at)
        with pytest.raises(Conflict, match="no part of it is taken yet: compare the clocks"):
            await a.node.collector.receive(b.identity, early)
    assert await a.rows("SELECT FROM part") == []
    world.clock.move_to(HOUR - CLOCK_LIMIT)
    await a.node.collector.receive(b.identity, _message(run))
    [row] = await a.rows("SELECT result FROM part")
    assert row["result"] == {"slept_ms": 1.0}


async def test_a_reason_comes_once_the_run_is_prepared(world: World) -> None:
    """A participant can say that it will not measure as soon as it prepares the run."""
    a, b = sites = await world.two()
    run = await _booked(sites)
    reason = _message(run, result=None, reason="it is not installed", started_at=None)
    world.clock.move_to(HOUR - LAUNCH_HORIZON - CLOCK_LIMIT - 1)
    with pytest.raises(Conflict):
        await a.node.collector.receive(b.identity, reason)
    world.clock.advance(1)
    with pytest.raises(Conflict):  # a reason makes no result of what was not measured
        await a.node.collector.receive(b.identity, _message(run, reason="it broke off"))
    await a.node.collector.receive(b.identity, reason)
    [row] = await a.rows("SELECT reason FROM part")
    assert row["reason"] == "it is not installed"


async def test_a_run_that_its_lead_saw_begin_takes_parts_whatever_its_clock_says(
    world: World,
) -> None:
    """A lead whose clock is set back during a run loses no part of it."""
    a, b = sites = await world.two()
    run = await _begun(sites)
    world.clock.step(-times.HOUR)
    await a.node.collector.receive(b.identity, _message(run))
    assert len(await a.rows("SELECT FROM part")) == 1


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (MEGABYTES, "b: its part of 7.4 MB is larger than 256 kB"),
        ({"slept_ms": 1.0, "x": "y" * 100_000}, "b: its part of 100.02 kB is not a result (x: "),
        ({"slept_ms": 1.0, "x": "y" * 1_000}, "b: its part is not a result (x: "),
    ],
)
async def test_a_part_that_is_no_result_is_told(
    world: World, result: dict[str, Any], reason: str
) -> None:
    """A run says which participant sent what is too large, or no result, and keeps little of it."""
    a, b = sites = await world.two()
    run = await _begun(sites)
    message = _message(run, result=result)
    if len(str(result)) > 32_000:
        with pytest.raises(InvalidDocument, match="its part of"):
            await a.node.collector.receive(b.identity, message)
    else:
        await a.node.collector.receive(b.identity, message)
    await a.node.collector.keep_own(run, _own(a, 0))
    assert await a.state(run) == "failed"
    assert (await a.reason(run) or "").startswith(reason)
    assert await _database_bytes(a) < 3_000
    shown = await api_runs.fetch(a.node, run)
    assert len(shown.model_dump_json()) < 5_000


async def test_the_parts_of_a_run_share_what_is_kept_of_no_results(world: World) -> None:
    """However many participants send what is no result, a run keeps 64 kB of it together."""
    sites = await world.three()
    run = await _begun(sites)
    for site in sites[1:]:
        message = _message(run, result={"x": "y" * 21_000})
        await sites[0].node.collector.receive(site.identity, message)
    assert 42_000 < await _database_bytes(sites[0]) < 64_000
    too_much = _message(run, result={"x": "y" * 22_000})
    other = await _begun_again(sites)
    with pytest.raises(InvalidDocument, match=r"its part of 22.01 kB is not a result"):
        await sites[0].node.collector.receive(
            sites[1].identity, too_much.model_copy(update={"run": other})
        )


async def _begun_again(sites: tuple[Site, ...]) -> UUID:
    at = HOUR + DURATION
    [run] = await book_everywhere(introduction(sites), sites[0], sites, [at])
    sites[0].clock.move_to(at)
    return run


async def test_a_participant_judges_its_own_part_before_it_sends_it(world: World) -> None:
    """The lead hears that a part was too large, not that none came, and never gets its bytes."""
    a, b = sites = await world.two()
    run = await _begun(sites)
    await b.node.collector.keep_own(run, _own(b, 1, {"slept_ms": 1.0, "padding": "x" * 9_000_000}))
    [message] = await b.outbox_messages()
    assert len(orjson.dumps(message, default=str)) < 3_000
    await a.node.collector.keep_own(run, _own(a, 0))
    await world.settle()
    assert await a.reason(run) == "b: its part of 9 MB is larger than 256 kB"
    assert await b.state(run) == "failed"


async def test_of_a_long_command_the_beginning_is_kept(world: World) -> None:
    """A command of half a megabyte is cut; the part is not as it was signed, so it is unsigned."""
    a, b = sites = await world.two()
    run = await _begun(sites)
    command = ("sleep", "-v", "x" * 500_000, "y")
    await a.node.collector.receive(b.identity, _message(run, command=command, signature=None))
    [row] = await a.rows("SELECT command, signature, result FROM part")
    assert row["command"][:2] == ["sleep", "-v"]
    assert row["command"][2].endswith("x…")
    assert len(" ".join(row["command"])) <= COMMAND_LENGTH_MAX
    assert (row["signature"], row["result"]) == (None, {"slept_ms": 1.0})


async def test_the_database_bounds_parts_as_well(world: World) -> None:
    """The table of parts itself refuses parts that no program should have let through."""
    a, b = sites = await world.two()
    run = await _begun(sites)
    huge = KeptPart(1, b.name, {"x": "y" * 8_000_001}, None, HOUR, HOUR)
    with pytest.raises(asyncpg.CheckViolationError, match="part_is_bounded"):
        async with a.database.transaction() as connection:
            await runs.keep_part(connection, run, huge, None)
