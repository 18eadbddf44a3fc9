"""Three real leads want more time of one host than it has, and get what its owner gave them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider, instant
from tests.support.command_line import CommandResult

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy", "all_alike"),
]

LENGTH = timedelta(minutes=2)
HOUR = timedelta(hours=1)


@pytest_asyncio.fixture(loop_scope="session")
async def all_alike(a: Outsider) -> AsyncIterator[None]:
    """Remove the shares after a test."""
    yield
    assert (await a.ask("PUT", "/v1/shares", {"shares": {}})).status == 200


async def _done(node: Outsider, *arguments: str) -> CommandResult:
    result = await parley(node, *arguments)
    assert result.code == 0, result.err
    return result


async def _wanted(lead: Outsider, host: Outsider, start: datetime, runs: int) -> Json:
    """Create a task whose runs may begin at any time of an hour."""
    end = start.replace(minute=0) + HOUR
    schedule = {
        "start": start.isoformat(),
        "repeat": "PT2M",
        "max_runs": runs,
        "slip": "PT1H",
        "until": end.isoformat(),
    }
    spec = {"duration": "PT2M", "class": "exclusive"}
    task = await lead.create("idle", host, spec=spec, schedule=schedule)
    return await lead.planned(task)


async def test_three_leads_have_their_shares(a: Outsider, b: Outsider, c: Outsider) -> None:
    """Each lead gets its part of an hour that all three want, and explains what it lacks."""
    await _done(a, "node", "share", "a=2", "b=3", "c=1", "others=0")
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=22)
    first = {
        lead.name: await _wanted(lead, a, hour + number * LENGTH, 1)
        for number, lead in enumerate((a, b, c))
    }
    most = {"c": await _wanted(c, a, hour + 3 * LENGTH, 27)}
    explained = json.loads((await _done(c, "explain", most["c"]["id"])).out)
    why = "a: this lead is above its share of 16.7 % here; later, from"
    assert why in explained["sentence"]
    most |= {lead.name: await _wanted(lead, a, hour + 3 * LENGTH, 27) for lead in (a, b)}
    booked = {lead.name: 0 for lead in (a, b, c)}
    for lead in (a, b, c):
        for task in (first[lead.name], most[lead.name]):
            runs = await lead.runs(task, state="scheduled")
            booked[lead.name] += sum(instant(run["starts_at"]) < hour + HOUR for run in runs)
    assert booked == {"a": 10, "b": 15, "c": 5}
    listed = json.loads((await _done(a, "node", "share")).out)
    assert [(each["lead"], each["share"]) for each in listed] == [
        ("b", 3),
        ("a", 2),
        ("c", 1),
        ("others", 0),
    ]


async def test_unknown_leads_are_refused(a: Outsider) -> None:
    """The command line says which lead is unknown, and which shares make no sense."""
    unknown = await parley(a, "node", "share", "zz=3")
    assert unknown.code != 0
    assert "no node zz is known here" in unknown.err
    nothing = await parley(a, "node", "share", "b=0", "others=0")
    assert "are all zero" in nothing.err
    word = await parley(a, "node", "share", "b=many")
    assert "is not a share; write LEAD=NUMBER" in word.err
