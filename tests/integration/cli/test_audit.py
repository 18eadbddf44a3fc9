"""``parley audit``: the owner reads who did what."""

from __future__ import annotations

import json
from uuid import uuid4

from tests.support.served_nodes import Command


async def test_the_audit_as_table_and_json(ask: Command) -> None:
    """Actions and refusals are listed with who, from where, and on what."""
    assert "Nothing of that kind is recorded." in (await ask("audit", "-o", "table")).out
    await ask("token", "add", "--role", "run", "--label", "alice", "-o", "table")
    missing = str(uuid4())
    await ask("task", "cancel", missing)
    rows = json.loads((await ask("audit")).out)
    assert [(row["verb"], row["outcome"]) for row in rows][-1] == ("create_token", "done")
    table = (await ask("audit", "--verb", "create_token", "--since", "-1d", "-o", "table")).out
    heading, row = table.splitlines()
    assert heading.split() == ["at", "who", "from", "what", "on", "outcome"]
    assert row.split()[-4:] == ["127.0.0.1", "create_token", rows[-1]["thing"], "done"]
    assert json.loads((await ask("audit", "--principal", "alice")).out) == []
    assert (await ask("audit", "--outcome", "good")).code == 2
    assert (await ask("audit", "--follow", "-o", "csv")).code == 2
