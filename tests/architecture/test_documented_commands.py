"""Every command line of the documentation is one that the program takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.sources import REPOSITORY, where
from tests.booted.__main__ import LOAD, steps_of_moving
from tests.support.documented_commands import (
    blocks,
    command_lines,
    fault_of,
    fault_of_mention,
    mentioned,
)

PAGES = sorted(
    page
    for page in [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    if "generated" not in page.parts
)
FOR_USERS = [page for page in PAGES if page.name != "CHANGELOG.md"]
"""The changelog names commands as they were."""


@pytest.mark.parametrize("page", FOR_USERS, ids=where)
def test_documented_command_lines_are_parsed(page: Path, tmp_path: Path) -> None:
    """The parser of the command takes each ``parley …`` line of a page."""
    lines = [line for block in blocks(page) for line in command_lines(block)]
    assert {" ".join(line): fault for line in lines if (fault := fault_of(line))} == {}


@pytest.mark.parametrize("page", FOR_USERS, ids=where)
def test_mentioned_commands_exist(page: Path) -> None:
    """Each verb and option exists that a sentence of a page names."""
    faults = {words: fault_of_mention(words) for words in mentioned(page)}
    assert {words: fault for words, fault in faults.items() if fault} == {}


def test_the_steps_of_moving_are_those_that_booted_machines_type() -> None:
    """The page about moving has what ``make booted`` types of it."""
    stop, serve, _, back = steps_of_moving()
    assert stop.startswith("systemctl disable --now ")
    assert LOAD in serve
    assert back.startswith("systemctl disable --now parley-node ")


def test_a_removed_option_is_noticed() -> None:
    """A command line with an option or a verb that does not exist is a fault."""
    assert fault_of(["rtt", "192.0.2.7", "--cuont", "5"])
    assert fault_of(["task", "lists"])
    assert fault_of(["rtt"])
    assert fault_of_mention("mesh apply --spraed")
    assert fault_of_mention("mesh applies")
    assert fault_of_mention("task list|shown")
    assert fault_of(["rtt", "192.0.2.7", "--count", "5"]) is None
    assert fault_of_mention("task list|show") is None
