"""The reason for a task's tool over HTTP, and requests that no tool can meet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from node.cli.tasks import task_view
from node.execution.privileges import ProcessPrivileges
from node.model.errors import ToolUnavailable
from node.plugins import registry
from tests.conftest import NewDatabase
from tests.support.clocks import ManualClock
from tests.support.served_nodes import Asker, asker

TRACE = {"type": "trace", "spec": {"dest": "192.0.2.7"}}


@pytest.fixture
async def a(new_database: NewDatabase, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Asker]:
    """Return a node with traceroute and tracepath alone and without privileges."""
    async with asker("a", await new_database(), clock, tmp_path) as client:
        here = {"traceroute", "tracepath"}
        nobody = ProcessPrivileges(
            root=False, effective=0, bounding=0, ambient=0, no_new=True, echo=False
        )
        capabilities = client.node.capabilities
        capabilities._which = lambda name: f"/absent/{name}" if name in here else None
        capabilities._standing = lambda: nobody
        yield client


async def create(a: Asker, **document: Any) -> tuple[int, Any]:
    """Create a task for tomorrow and return the answer."""
    schedule = {"start": "PT20H"}
    return await a.ask("POST", "/v1/tasks", {"test": TRACE, "schedule": schedule, **document})


async def test_the_choice_is_told(a: Asker) -> None:
    """A task and its explanation name the reason for its tool."""
    status, task = await create(a)
    assert (status, task["tool"]) == (201, "traceroute")
    reason = "scamper is better, but a: scamper is not installed; apt install scamper"
    assert task["tool_reason"] == reason
    assert f"traceroute: {reason}" in task_view(task)
    _, explained = await a.ask("GET", f"/v1/tasks/{task['id']}/explain")
    assert (explained["tool"], explained["tool_reason"]) == ("traceroute", reason)
    _, preferred = await create(a, tools=["tracepath", "mtr"])
    assert preferred["tool_reason"] == "the first of those requested"


async def test_a_tool_that_may_not_is_refused_early(a: Asker) -> None:
    """A test that lacks a privilege is refused at once with the remedy."""
    test = {"type": "trace", "spec": {"dest": "192.0.2.7", "protocol": "icmp"}}
    status, problem = await create(a, test=test)
    assert status == 422
    assert "traceroute needs CAP_NET_RAW for this, which tools lack here" in problem["detail"]
    assert "tracepath cannot send ICMP" in problem["detail"]


@pytest.mark.nightly
async def test_a_tool_that_cannot_is_refused_at_once(a: Asker) -> None:
    """A requested tool that cannot do the test is a fault of the document."""
    test = {"type": "trace", "spec": {"dest": "192.0.2.7", "protocol": "tcp"}}
    status, problem = await create(a, test=test, tools=["tracepath"])
    assert status == 422
    [fault] = problem["errors"]
    assert fault["pointer"] == "/tools"
    assert "tracepath cannot send TCP" in fault["detail"]


async def test_a_wish_that_no_tool_fulfils(a: Asker) -> None:
    """A test that no given tool can do is refused with the reasons."""
    test = {"type": "trace", "spec": {"dest": "192.0.2.7", "as_numbers": True}}
    able = [t.name for t in registry.tools_for("trace") if t.can(_spec(test)) is None]
    assert able == ["traceroute"]
    with pytest.raises(ToolUnavailable, match="scamper does not report AS numbers"):
        a.node.capabilities.choose("trace", (), [("scamper",)], _spec(test))


def _spec(test: dict[str, Any]) -> Any:
    return registry.tests()[test["type"]].spec_model.model_validate(test["spec"])
