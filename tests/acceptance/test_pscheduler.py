"""Clients of pScheduler work with a node as they are: the command line, and the psConfig agent."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import facade_of
from tests.acceptance.outsider import Outsider
from tests.support.pscheduler.command import CommandLine
from tests.support.worlds import ON_ONE_LOOP

pytestmark = [ON_ONE_LOOP, pytest.mark.usefixtures("tidy")]


@pytest.fixture
def command(a: Outsider) -> CommandLine:
    """Return the command line of pScheduler, with the first node as its host."""
    return CommandLine(facade_of(a.url))


async def test_a_task_is_measured_and_printed(a: Outsider, command: CommandLine) -> None:
    """A task is posted, followed and printed with the requests of the command line."""
    assert await command.ping() == f"{command.host}: pScheduler is alive"
    printed = await command.task("rtt", "--dest", a.address, "--count", "2")
    assert "0% Packet Loss" in printed
    assert printed.endswith("No further runs scheduled.")


async def test_troubleshoot(command: CommandLine) -> None:
    """A single host passes all checks of ``troubleshoot``."""
    await command.troubleshoot()
