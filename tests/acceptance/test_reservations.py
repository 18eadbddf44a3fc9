"""Reserved time on three nodes: displaced, refused, and admitted runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
import pytest_asyncio

from tests.acceptance.commands import parley
from tests.acceptance.outsider import Json, Outsider, instant
from tests.support.command_line import CommandResult

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy", "given_back"),
]


@pytest_asyncio.fixture(loop_scope="session")
async def given_back(b: Outsider) -> AsyncIterator[None]:
    """Remove all reservations after a test."""
    yield
    for reservation in (await b.get("/v1/reservations"))["items"]:
        assert (await b.ask("DELETE", f"/v1/reservations/{reservation['id']}")).status < 300


async def _done(node: Outsider, *arguments: str) -> CommandResult:
    result = await parley(node, *arguments)
    assert result.code == 0, result.err
    return result


async def _reserved(node: Outsider, hour: datetime, name: str, *options: str) -> Json:
    """Reserve time of a node, from ten minutes into an hour, for twenty minutes."""
    start = (hour + timedelta(minutes=10)).isoformat()
    options = ("--kind", "maintenance", "--start", start, "--for", "20m", *options)
    return json.loads((await _done(node, "reservation", "add", name, *options, "-o", "json")).out)


def _exclusive(start: datetime, slip: str) -> Json:
    schedule = {"start": start.isoformat(), "slip": slip}
    return {"spec": {"duration": "PT5M", "class": "exclusive"}, "schedule": schedule}


async def test_an_owner_says_no_and_then_yes(a: Outsider, b: Outsider, free_hour: datetime) -> None:
    """A task of another lead finds no time inside until the reservation is removed."""
    reservation = await _reserved(b, free_hour, "new disks", "--owner", "berta")
    inside = free_hour + timedelta(minutes=12)
    task = await a.create("idle", a, b, **_exclusive(inside, "PT0S"))
    run = await a.run(task)
    assert run["state"] == "waiting"
    explained = (await _done(a, "explain", task["id"])).out
    assert "reserved for maintenance 'new disks' by berta" in " ".join(explained.split())
    await _done(b, "reservation", "remove", reservation["id"])
    booked = await a.until_state(run, "scheduled")
    assert instant(booked["starts_at"]) == inside


async def test_what_slips_is_put_behind_it(a: Outsider, b: Outsider, free_hour: datetime) -> None:
    """A run with enough slip is booked after the reservation."""
    await _reserved(b, free_hour, "patching")
    task = await a.create("idle", a, b, **_exclusive(free_hour + timedelta(minutes=12), "PT40M"))
    run = await a.run(task)
    assert instant(run["starts_at"]) >= free_hour + timedelta(minutes=30)


async def test_runs_inside_are_listed_or_give_way(
    a: Outsider, b: Outsider, free_hour: datetime
) -> None:
    """Booked runs inside are listed, or give way with --displace, and their lead has the reason."""
    task = await a.create("idle", a, b, **_exclusive(free_hour + timedelta(minutes=12), "PT0S"))
    run = await a.run(task)
    reservation = await _reserved(b, free_hour, "gently")
    assert run["id"] in {inside["run"] for inside in reservation["inside"]}
    assert (await a.get(f"/v1/runs/{run['id']}"))["state"] == "scheduled"
    await _done(b, "reservation", "remove", reservation["id"])
    await _reserved(b, free_hour, "at once", "--displace")
    displaced = await a.until_state(run, "displaced")
    assert "at once" in displaced["reason"]


async def test_whom_it_admits_goes_in(a: Outsider, b: Outsider, free_hour: datetime) -> None:
    """A reservation that admits one lead takes its runs, and refuses those of another."""
    await _reserved(b, free_hour, "booth", "--lead", "a")
    inside = free_hour + timedelta(minutes=12)
    admitted = await a.create("idle", a, b, **_exclusive(inside, "PT0S"))
    assert instant((await a.run(admitted))["starts_at"]) == inside
    later = inside + timedelta(minutes=6)
    refused = await b.run(await b.create("idle", b, **_exclusive(later, "PT0S")))
    assert refused["state"] == "waiting"
    assert "reserved for maintenance 'booth'" in refused["reason"]
