"""Boots under a wrong clock: nothing of what is to come may be lost.

``make chaos ARGS=--boots`` books thirty runs of the next hour on two nodes, at either of them
and at one alone, stops one node, starts it while its clock is an hour, a day, or forty days ahead,
or an hour or a day behind, sets the clock right after a while, and looks what became of the runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import asyncpg

from node.model import times
from node.model.times import format_duration, format_instant
from node.runtime.clock import SystemClock
from tests.chaos.plan import Plan
from tests.chaos.queries import SQL
from tests.chaos.sites import READY_S, Site, Sites, running

_CLOCK = SystemClock()
_SLOTS = 10
_EVERY = 5 * times.MINUTE
_BOOKED_S = 60.0
_NOTICED = 20 * times.SECOND
"""Time after the clock is right in which the node begins its work, and a run may be lost."""


@dataclass(frozen=True)
class Boot:
    """A boot: the seconds by which the clock is ahead, or behind, and for which it stays so."""

    ahead_s: int
    lasts_s: float


BOOTS = (
    Boot(3600, 41.0),
    Boot(86_400, 300.0),
    Boot(40 * 86_400, 50.0),
    Boot(-3600, 41.0),
    Boot(-86_400, 41.0),
)


@dataclass(frozen=True)
class BootOutcome:
    """The runs that were booked, and those of them that one of the nodes lost."""

    booked: int
    lost: Sequence[str]
    sentence: str
    """The words of the node about its clock while it was wrong."""


async def boot(sites: Sites, case: Boot, session: aiohttp.ClientSession) -> BootOutcome:
    """Boot the node with a clock of its own under a wrong one, and return what became of the runs.

    It has to say so meanwhile, and to be ready once the clock is right.
    """
    site = next(each for each in sites.all if each.clock is not None)
    assert site.clock is not None
    other = next(each for each in sites.all if each is not site)
    first = _CLOCK.now() + 6 * times.MINUTE
    for number, (lead, parties) in enumerate(
        ((other, (other, site)), (site, (site, other)), (site, (site,)))
    ):
        await _post(session, lead, parties, first + number * times.MINUTE)
    before = await _booked(site)
    for service in site.services[:2]:
        await service.stop(10.0)
    site.clock.set(case.ahead_s)
    for service in site.services[:2]:
        service.start()
    sentence = await _answer(session, site, 503)
    await _CLOCK.sleep(case.lasts_s)
    site.clock.set(0)
    right_at = _CLOCK.now()
    await _answer(session, site, 200)
    await _CLOCK.sleep(200.0)  # until leads and participants have compared
    lost = [
        f"{slot} at {place.name}: {found.get(slot)}"
        for place in (site, other)
        for found in [await _states(place)]
        for slot, parties in before.items()
        if place.name in parties and slot[1] > right_at + _NOTICED
        if found.get(slot) not in {"booked", "running", "merging", "finished"}
    ]
    return BootOutcome(len(before), lost, sentence)


async def _post(
    session: aiohttp.ClientSession, lead: Site, parties: Sequence[Site], first: int
) -> None:
    document = {
        "test": {"type": "idle", "spec": {"duration": "PT2S"}},
        "participants": [each.name for each in parties],
        "schedule": {
            "start": format_instant(first),
            "repeat": format_duration(_EVERY),
            "max_runs": _SLOTS,
            "slip": "PT2M",
        },
    }
    headers = {"Authorization": f"Bearer {lead.token}"}
    async with session.post(f"{lead.url}/v1/tasks", json=document, headers=headers) as answer:
        assert answer.status == 201, await answer.text()


Slot = tuple[str, int]


async def _booked(site: Site) -> dict[Slot, Sequence[str]]:
    """Return the participants of all slots of the three tasks, once all are booked at a node."""
    async with asyncio.timeout(_BOOKED_S):
        while len(states := await _states(site)) < 3 * _SLOTS or set(states.values()) != {"booked"}:
            await _CLOCK.sleep(0.5)
    rows = await _rows(site, SQL["boot_parties"])
    return {(str(row[0]), times.from_datetime(row[1])): row[2] for row in rows}


async def _states(site: Site) -> dict[Slot, str]:
    """Return the state of the last run of each slot at a node."""
    rows = await _rows(site, SQL["boot_states"])
    return {(str(row[0]), times.from_datetime(row[1])): row[2] for row in rows}


async def _rows(site: Site, query: str) -> list[asyncpg.Record]:
    connection: Any = await site.connect()
    try:
        return list(await connection.fetch(query))
    finally:
        await connection.close()


async def _answer(session: aiohttp.ClientSession, site: Site, status: int) -> str:
    """Wait until a node is ready, or says why it is not; return what it says."""
    async with asyncio.timeout(READY_S):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{site.url}/readyz") as answer:
                    if answer.status == status:
                        return str((await answer.json()).get("detail", ""))
            await _CLOCK.sleep(0.5)


async def play() -> bool:
    """Play all boots and print what became of the runs; return whether none was lost."""
    sound = True
    for case in BOOTS:
        async with (
            running(Plan(nodes=3), keep=[]) as sites,
            aiohttp.ClientSession() as session,
        ):
            outcome = await boot(sites, case, session)
        kept = outcome.booked - len({slot for slot, _ in itertools.groupby(outcome.lost)})
        print(f"{case.ahead_s} s ahead for {case.lasts_s:g} s: {kept} of {outcome.booked} runs")
        print(f"  it said: {outcome.sentence}")
        for each in outcome.lost:
            print(f"  lost: {each}")
        sound = sound and not outcome.lost
    return sound
