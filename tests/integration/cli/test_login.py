"""``parley login`` and ``parley profile``."""

from __future__ import annotations

import json
from typing import Any


async def test_a_profile_from_login_to_removal(ask: Any, bare: Any, a: Any) -> None:
    """A token that a node accepts is kept and used; another one is not kept."""
    url = a.node.card.url
    refused = await bare("login", url, "--profile", "lab", stdin="wrong\n")
    assert refused.code == 3
    assert "the token is not valid" in refused.err
    assert json.loads((await bare("profile", "list")).out) == []
    kept = await bare("login", url, "--profile", "lab", stdin="secret\n")
    assert (kept.code, kept.out) == (0, "")
    assert "profile lab is used from now on" in kept.err
    (profile,) = json.loads((await bare("profile", "list")).out)
    assert (profile["name"], profile["server"], profile["default"]) == ("lab", url, True)
    assert "secret" not in json.dumps(profile)
    # Only who has a token sees the list of tokens.
    tokens = await bare("token", "list")
    assert (tokens.code, tokens.err) == (0, "")
    assert (await bare("profile", "remove", "lab")).code == 0
    assert (await bare("profile", "use", "lab")).code == 2
    nothing = await bare("login", url, stdin="\n")
    assert nothing.code == 2
    assert "no token was given" in nothing.err
