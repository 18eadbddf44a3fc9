"""Targets that object: tasks for them are refused, whoever wants them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node.model.principals import Role
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.objections import objecting
from tests.support.served_nodes import Asker, asker, give_token, user

WHY = "example.org has said by DNS (_parley.example.org TXT) that it does not want to be measured"


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node that asks a name server of the test."""
    async with (
        asker("a", await new_database(), clock, tmp_path) as client,
        objecting() as (_, opt_outs),
    ):
        client.node.foreign_targets.opt_outs = opt_outs
        yield client


def _task(host: str) -> dict[str, Any]:
    return {"test": {"type": "rtt", "spec": {"dest": host}}, "schedule": {"repeat": "PT1H"}}


@pytest.mark.parametrize("role", [Role.OWN, Role.RUN])
async def test_a_target_that_objects_is_refused(a: Asker, role: Role) -> None:
    """A task for a target that objects is refused with the record, to the owner, too."""
    await give_token(a.node, "of-user", "anna", role)
    async with user(a, "of-user") as client:
        status, problem = await client.ask("POST", "/v1/tasks", _task("example.org"))
        assert status >= 400, problem
        assert WHY in str(problem)
        status, answer = await client.ask("POST", "/v1/tasks", _task("www.example.org"))
        assert status == 201, answer
