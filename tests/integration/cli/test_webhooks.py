"""``parley webhook`` against a real node."""

from __future__ import annotations

import json

from tests.support.archiving import receiver
from tests.support.served_nodes import Command


async def test_webhooks_from_the_command_line(ask: Command) -> None:
    """A webhook is added with a secret that is shown once, listed, tested, and removed."""
    async with receiver() as server:
        added = await ask(
            "webhook", "add", "pager", server.url, "--event", "mesh-below", "--percent", "90",
            "--span", "30m", "--mesh", "lab", "-o", "json",
        )  # fmt: skip
        document = json.loads(added.out)
        assert document["secret"].startswith("whsec_")
        assert (document["events"], document["percent"], document["span"], document["mesh"]) == (
            ["mesh-below"],
            90,
            "PT30M",
            "lab",
        )
        listed = await ask("webhook", "list", "-o", "json")
        assert "secret" not in listed.out
        tested = await ask("webhook", "test", "pager")
        assert (tested.code, "has accepted message" in tested.err) == (0, True)
        assert (await ask("webhook", "remove", "pager")).code == 0
        assert (await ask("webhook", "test", "pager")).code == 6
    assert (await ask("webhook", "list", "-o", "table")).out == "No webhooks.\n"
