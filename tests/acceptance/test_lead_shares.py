"""Three real leads want more time of one host than it has, and get what its owner gave them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio

from node.cli.lab.supervisor import Lab
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
async def all_alike(a: Outsider, lab: Lab) -> AsyncIterator[None]:
    """Take the shares out of the file of limits after a test."""
    file = Path(a.state, "limits.toml")
    before = file.read_text()
    yield
    file.write_text(before)
    await _read_limits(a, lab)


async def _read_limits(node: Outsider, lab: Lab) -> None:
    """Have a node read its file of limits again, as systemctl reload does."""
    text = Path(node.state, "limits.toml").read_text()
    os.kill(lab.pid(node.name), signal.SIGHUP)
    await node.until("/v1/limits", lambda limits: limits["text"] == text)
    if "[shares]" in text:
        # The text is there a moment before the shares, without which no lead's wish is noted.
        await node.until("/v1/shares", lambda shares: len(shares["items"]) > 1)


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


async def test_three_leads_have_their_shares(
    a: Outsider, b: Outsider, c: Outsider, lab: Lab
) -> None:
    """Each lead gets its part of an hour that all three want, and explains what it lacks."""
    known = json.loads((await _done(a, "node", "list")).out)
    keys = {node["name"]: node["identity"] for node in known}
    shares = [f'"{keys[name]}" = {share}' for name, share in (("a", 2), ("b", 3), ("c", 1))]
    file = Path(a.state, "limits.toml")
    file.write_text("\n".join([file.read_text(), "[shares]", *shares, "others = 0", ""]))
    await _read_limits(a, lab)
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=22)
    first = {
        lead.name: await _wanted(lead, a, hour + number * LENGTH, 1)
        for number, lead in enumerate((a, b, c))
    }
    most = {"c": await _wanted(c, a, hour + 3 * LENGTH, 27)}
    explained = json.loads((await _done(c, "explain", most["c"]["id"])).out)
    why = "a: no 2 min free: this lead is above its share of 16.7 % here; later, from"
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
