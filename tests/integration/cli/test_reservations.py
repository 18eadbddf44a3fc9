"""``parley reservation``, and reserved time in ``parley schedule``, against a real node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.served_nodes import Asker, Command

AT = ("--start", "2026-12-01T01:00:00Z", "--for", "2h")
LISTED = ("--from", "2026-12-01T00:00:00Z", "--to", "2026-12-01T06:00:00Z")


@pytest.mark.nightly
async def test_a_life_from_the_command_line(ask: Command) -> None:
    """A reservation is added with all criteria, shown, listed, edited, and removed."""
    added = await ask(
        "reservation", "add", "SC26", "--kind", "demo", *AT, "--owner", "alice",
        "--campaign", "default", "--test", "rtt", "--class", "background", "--priority", "7",
        "--lead", "a", "--description", "booth 12", "-o", "json",
    )  # fmt: skip
    created = json.loads(added.out)
    assert (created["kind"], created["owner"], created["duration"]) == ("demo", "alice", "PT2H")
    assert (created["state"], created["inside"], created["pool"]) == ("upcoming", [], None)
    shown = (await ask("reservation", "show", "@-1", "-o", "table")).out
    assert shown.startswith("demo SC26: 2026-12-01 ")
    admitted = (
        "campaigns default or leads a or tests rtt or classes background or priority 7 or more"
    )
    assert admitted in " ".join(shown.split())
    assert "booth 12" in shown
    edit = ("reservation", "edit", created["id"][:8], "-o", "json")
    daily = await ask(*edit, "--cron", "0 22 * * *", "--timezone", "Europe/Berlin", "--for", "30m")
    assert json.loads(daily.out)["schedule"]["cron"] == "0 22 * * *"
    changed = json.loads((await ask(*edit, "--repeat", "1d", "--clear", "campaigns")).out)
    assert (changed["schedule"]["repeat"], changed["schedule"]["cron"]) == ("P1D", None)
    assert (changed["access"]["campaigns"], changed["access"]["tests"]) == ([], ["rtt"])
    table = (await ask("reservation", "list", "-o", "table")).out
    assert "every 1 d from" in table
    assert (await ask("reservation", "list", "-o", "ids")).out == f"{created['id']}\n"
    removed = await ask("reservation", "remove", created["id"])
    assert (removed.code, f"SC26 ({created['id'][:8]}) was removed." in removed.err) == (0, True)
    assert (await ask("reservation", "show", created["id"])).code == 6
    empty = await ask("reservation", "list", "-o", "table")
    assert empty.out.startswith("Nothing is reserved. Reserve time: parley reservation add")


async def test_missing_and_wrong_options(ask: Command) -> None:
    """Missing options, invalid kinds, and unknown pools are refused with a reason."""
    missing = await ask("reservation", "add", "x")
    assert (missing.code, "missing: --kind, --for" in missing.err) == (2, True)
    assert (await ask("reservation", "add", "x", "--kind", "party", *AT)).code == 2
    unknown = await ask("reservation", "add", "x", "--kind", "quiet", *AT, "--pool", "europe")
    assert (unknown.code, "/pool: there is no pool europe" in unknown.err) == (2, True)
    made = (await ask("reservation", "add", "x", "--kind", "quiet", *AT, "-o", "ids")).out.strip()
    nothing = await ask("reservation", "edit", made[:8])
    assert (nothing.code, "nothing to change" in nothing.err) == (2, True)
    for change in (("edit", "--name", "y"), ("remove",)):
        newest = await ask("reservation", *change, "@-1")
        assert (newest.code, "may be somebody else's" in newest.err) == (2, True)


async def test_a_document_is_read_and_options_win(ask: Command, tmp_path: Path) -> None:
    """A document can be read from a file, and options override it."""
    path = tmp_path / "quiet.json"
    schedule = {"start": "2026-12-01T01:00:00Z", "repeat": "P1D"}
    access = {"classes": ["background"]}
    document = {"name": "night", "kind": "quiet", "duration": "PT8H"}
    path.write_text(json.dumps(document | {"schedule": schedule, "access": access}))
    added = await ask("reservation", "add", "--file", str(path), "--priority", "3", "-o", "json")
    created = json.loads(added.out)
    assert (created["name"], created["schedule"]["repeat"]) == ("night", "P1D")
    assert (created["access"]["classes"], created["access"]["priority"]) == (["background"], 3)


@pytest.mark.nightly
async def test_the_pool_is_said(ask: Command, a: Asker) -> None:
    """The pool of a reservation is in the document, the list and the view."""
    await a.node.own_card.set({"in": "europe"})
    await a.node.directory.refresh()
    assert (await ask("pool", "add", "europe", "--match", "in=europe")).code == 0
    add = ("reservation", "add", "SC26", "--kind", "demo", *AT)
    created = json.loads((await ask(*add, "--pool", "europe", "-o", "json")).out)
    assert created["pool"] == "europe"
    assert "europe" in (await ask("reservation", "list", "-o", "table")).out
    assert "pool europe" in " ".join(
        (await ask("reservation", "show", "@-1", "-o", "table")).out.split()
    )
    assert json.loads((await ask("schedule", *LISTED, "-o", "json")).out) == []


async def test_the_schedule_shows_it(ask: Command) -> None:
    """Reserved time is listed among the runs, except in a list of run ids."""
    add = ("reservation", "add", "SC26", "--kind", "demo", *AT, "--owner", "alice", "-o", "ids")
    identifier = (await ask(*add)).out.strip()
    [entry] = json.loads((await ask("schedule", *LISTED, "-o", "json")).out)
    assert (entry["state"], entry["reservation"], entry["run"]) == ("reserved", identifier, None)
    reason = "reserved for demo 'SC26' by alice until 2026-12-01T03:00:00Z"
    assert entry["reason"] == f"{reason}, reservation {identifier}"
    table = (await ask("schedule", *LISTED, "-o", "table")).out
    assert identifier[:8] in table
    assert (await ask("schedule", *LISTED, "-o", "ids")).out == ""
