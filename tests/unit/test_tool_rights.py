"""The rights of tools, and what a node says of them at its start."""

from __future__ import annotations

import pytest

from node.execution.privileges import ProcessPrivileges
from node.execution.tool_runner import ToolRights

CONFINED = ProcessPrivileges(root=False, effective=0, bounding=0, ambient=0, no_new=True, echo=True)
ORDINARY = ProcessPrivileges(
    root=False, effective=0, bounding=0, ambient=0, no_new=False, echo=True
)


@pytest.mark.parametrize(
    ("separate", "landlock", "filtered", "standing", "uid", "words"),
    [
        (True, 7, True, CONFINED, 990, []),
        (True, 7, True, CONFINED, 0, ["this node itself is root"]),
        (True, 7, False, CONFINED, 990, ["not filtered"]),
        (True, 2, True, CONFINED, 990, []),
        (True, 0, True, CONFINED, 990, ["no Landlock"]),
        (False, 7, True, ORDINARY, 1000, ["file capabilities"]),
        (False, 2, False, CONFINED, 1000, ["not filtered", "own account", "ending this node"]),
        (False, 0, True, CONFINED, 1000, ["no Landlock"]),
    ],
)
def test_what_is_weaker_is_said(
    *,
    separate: bool,
    landlock: int,
    filtered: bool,
    standing: ProcessPrivileges,
    uid: int,
    words: list[str],
) -> None:
    """Each right that tools have here and would not have under the units is said, and no other."""
    rights = ToolRights(
        "parley-tool",
        separate=separate,
        gid=990,
        landlock=landlock,
        filtered=filtered,
        bounded=True,
        standing=standing,
    )
    said = rights.weaknesses(uid)
    assert len(said) == len(words)
    assert all(word in gap for word, gap in zip(words, said, strict=True))


def test_what_the_runner_says_comes_first() -> None:
    """A weakness that the runner itself has found is passed on."""
    rights = ToolRights(
        "nobody",
        separate=True,
        gid=65534,
        landlock=7,
        filtered=True,
        bounded=True,
        standing=CONFINED,
        weaker=("there is no account",),
    )
    assert rights.weaknesses(990) == ["there is no account"]
