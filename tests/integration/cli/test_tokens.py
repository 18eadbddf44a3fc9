"""``parley token``: the owner makes, lists and revokes tokens."""

from __future__ import annotations

import json

from tests.support.served_nodes import Command


async def test_the_life_of_a_token(ask: Command) -> None:
    """A token is printed alone when it is made, listed without its secret, and revoked."""
    made = await ask(
        "token", "add", "--role", "run", "--label", "alice", "--expires", "P30D", "-o", "table"
    )
    assert (made.code, made.out.startswith("parley_"), made.out.count("\n")) == (0, True, 1)
    assert "shown this once" in made.err
    listed = await ask("token", "list", "-o", "table")
    assert "alice" in listed.out
    assert "until 20" in listed.out
    assert made.out.strip() not in listed.out
    [token] = [
        each for each in json.loads((await ask("token", "list")).out) if each["label"] == "alice"
    ]
    refused = await ask("task", "list", "--token", made.out.strip())
    assert refused.code == 0
    revoked = await ask("token", "revoke", token["id"][:8], "-o", "table")
    assert (revoked.code, "revoked 20" in revoked.out) == (0, True)
    refused = await ask("task", "list", "--token", made.out.strip(), "-o", "table")
    assert (refused.code, "the token 'alice' was revoked at" in refused.err) == (3, True)


async def test_a_wrong_label_is_refused(ask: Command) -> None:
    """A label with a space is refused with the field that is wrong."""
    refused = await ask("token", "add", "--role", "run", "--label", "a b", "-o", "table")
    assert (refused.code, "label" in refused.err) == (2, True)
