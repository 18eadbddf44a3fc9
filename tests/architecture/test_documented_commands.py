"""Every command line of the documentation is one that the program takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from node.model.host_limits.document import parse_limits
from node.runtime.settings import Settings
from tests.architecture.sources import REPOSITORY, where
from tests.booted.__main__ import LOAD, MOVING, steps_of_moving
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


def test_the_settings_and_limits_of_moving_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable of the page about moving is one of the node, and its limits are limits."""
    shell = [block.text for block in blocks(MOVING) if block.language == "sh"]
    of_service = re.findall(r"^PARLEY_\w+=.*$", shell[1], re.MULTILINE)
    [exported] = re.findall(r"^export (.*)\nparley up$", shell[-1], re.MULTILINE)
    for lines in (of_service, shlex.split(exported)):
        for name, _, value in (line.partition("=") for line in lines):
            monkeypatch.setenv(name, value)
        settings = Settings()
        assert settings.pscheduler_listen == "*:443"
        assert settings.pscheduler_allow == "192.0.2.0/24 2001:db8::/32"
    [limits] = re.findall(
        r"^```toml\n(.*?)^```", MOVING.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    [rule] = parse_limits(f"version = 1\n{limits}").rules
    assert rule.name == "throughput of perfSONAR hosts"


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
