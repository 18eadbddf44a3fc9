"""Names and places that cannot be meant are refused with one cause, and what to do."""

from __future__ import annotations

from typing import Any

import pytest


async def test_a_pair_of_nobody_fails(parley: Any, node: Any) -> None:
    """A host that is no node, and that nothing measured, is not an empty list."""
    row = {"name": "alpha", "address": "192.0.2.1", "is_self": True}
    node.documents["/v1/nodes"] = {"items": [row], "next": None}
    ended = await parley("pair", "alpha", "alpa")
    assert (ended.code, ended.out) == (6, "")
    assert "alpa is no node known here" in ended.err
    assert "did you mean alpha?" in ended.err


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("--listen", "192.0.2.1:8642"), "192.0.2.1:8642 is reachable from other hosts"),
        (("--state-dir", "/proc/x"), "/proc/x cannot be created"),
    ],
)
async def test_a_wrong_place_is_a_wrong_command(
    parley: Any, options: tuple[str, str], cause: str
) -> None:
    """A node that cannot listen or keep its files there says only that, and exits with 2."""
    ended = await parley("up", *options)
    assert (ended.code, cause in ended.err, "stays root" in ended.err) == (2, True, False)
