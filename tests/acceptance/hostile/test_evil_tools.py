"""Misbehaving measuring programs, run by a real node: only their own run fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from node.plugins import registry
from tests.acceptance import evil
from tests.acceptance.hostility import complains_of, each, is_problem
from tests.acceptance.outsider import Json, Outsider
from tests.support.hostile_input import WORDS, placed, words_in

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(120),
    pytest.mark.usefixtures("tidy"),
]

LATE = "c: ping had not finished at the end of the run"
SAID: dict[str, str] = {
    "hang": LATE,
    "stubborn": LATE,
    "shut": LATE,
    "fork": "c: ping: it printed no summary (exit code 0)",
    "escape": "c: ping: it printed no summary (exit code 0)",
    "flood": "c: ping printed more than 2000000 bytes, too many to read",
    "nul": "c: ping: it printed no summary (exit code 0)",
    "latin": "c: ping printed bytes that are not UTF-8: ",
    "braces": "c: ping: it printed no summary (exit code 0)",
    "silent": "c: ping: it printed no summary (exit code 0)",
    "killed": "c: ping: it printed no summary (exit code -9)",
    "lie": "c: ping contradicts itself: ",
    "crowd": "c: ping was killed: it had more than 64 processes",
    "reach": "c: ping: it printed no summary (exit code 0)",
    "contain": "c: ping: it printed no summary (exit code 0)",
    "steal": "c: ping: it printed no summary (exit code 0)",
}
"""The beginning of the reason for each misbehaviour."""

BRIEF: dict[str, Json] = {
    "rtt": {"count": 10, "interval": "PT0.01S", "timeout": "PT0.5S"},
    "trace": {"hops_max": 1, "probes": 1, "wait": "PT1S"},
    "mtu": {"hops_max": 1, "mtu_max_bytes": 1280},
    "snmp": {"interface": "lo", "duration": "PT1S", "timeout": "PT0.5S"},
}
SHORT = ("escape", "flood", "fork")


def alone() -> list[tuple[str, str]]:
    """Return the tests and tools by which one participant alone measures a target."""
    pairs = []
    for name, test in sorted(registry.tests().items()):
        spec = test.spec_model.model_validate(dict(test.example))
        if {"dest", "url"} & {*test.example} and len(test.participants(spec)) == 1:
            tools = [tool for tool in registry.tools_for(name) if tool.requirement is not None]
            pairs += [(name, tool.name) for tool in tools]
    return pairs


def _left() -> list[str]:
    """Return the misbehaving programs that still run, regardless of their parent."""
    leftovers = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if any(evil.NAME in word for word in words[:2]):
                leftovers.append(f"{entry.name}: {' '.join(words)}")
    return leftovers


@pytest.fixture(autouse=True)
def _nobody_left() -> Iterator[None]:
    assert _left() == []
    yield
    assert _left() == []


def whom(test: str, dest: str) -> Json:
    """Return the field of a test's spec that names the target."""
    if "url" in registry.tests()[test].example:
        return {"url": f"http://{dest}/"}
    return {"dest": dest}


async def failed(node: Outsider, test: str, tool: str, spec: Json, *others: Outsider) -> Json:
    """Create a task, wait for its run, and check that it has failed.

    A busy host may be too late to begin it; then this is tried again.
    """
    places = [node, *others] if others else []
    ended: Json = {"state": "missed"}
    while ended["state"] == "missed":
        task = await node.create(test, *places, spec=spec, tools=[tool])
        ended = await node.over(await node.run(task))
    assert ended["state"] == "failed", (test, tool, spec, ended["state"], ended["reason"])
    return ended


async def is_well(node: Outsider) -> None:
    """Assert that a node answers, and that a real program still measures."""
    assert (await node.get("/readyz"))["status"] == "ready"
    task = await node.create("rtt", spec={"dest": "127.0.0.1", **BRIEF["rtt"]}, tools=["ping"])
    ended = await node.finished(await node.run(task))
    assert ended["result"]["received"] == 10


@pytest.mark.needs("echo")
@pytest.mark.nightly
async def test_whatever_a_program_does_fails_its_run_alone(c: Outsider) -> None:
    """Each misbehaviour fails only its own run, with the cause, and the next good run succeeds."""
    runs = await asyncio.gather(
        *(
            failed(c, "rtt", "ping", {"dest": evil.dest(deed), **BRIEF["rtt"]})
            for deed in evil.DEEDS
        )
    )
    reasons = {deed: run["reason"] for deed, run in zip(evil.DEEDS, runs, strict=True)}
    wrong = {deed: reason for deed, reason in reasons.items() if not reason.startswith(SAID[deed])}
    assert not wrong
    await is_well(c)


_AT_ONCE = 8
"""Number of evil programs that run at once, so that none of them starts too late."""


@pytest.mark.needs("root")
@pytest.mark.nightly
async def test_every_tool_of_one_participant_can_be_evil(c: Outsider) -> None:
    """Every tool survives a flood of output, and nonsense with exit code 0 and a leftover child."""
    cases = [(test, tool, deed) for test, tool in alone() for deed in SHORT]
    places = asyncio.Semaphore(_AT_ONCE)

    async def failed_run(test: str, tool: str, deed: str) -> Json:
        async with places:
            return await failed(c, test, tool, BRIEF.get(test, {}) | whom(test, evil.dest(deed)))

    runs = await asyncio.gather(*(failed_run(*case) for case in cases))
    for (_, tool, _), run in zip(cases, runs, strict=True):
        assert run["reason"].startswith(f"c: {tool}"), run["reason"]
    await is_well(c)


FIELDS = [
    (name, path) for name, test in sorted(registry.tests().items()) for path in words_in(test)
]


@each("field", FIELDS)
@pytest.mark.nightly
async def test_hostile_words_are_refused_by_their_field(c: Outsider, field: Any) -> None:
    """A value that a test's spec refuses is refused by the API with a pointer to the field."""
    name, path = field
    test = registry.tests()[name]
    for word in WORDS:
        spec = placed(test, path, word)
        with contextlib.suppress(ValidationError):
            test.spec_model.model_validate(spec)
            continue  # it is harmless, see the tests of what becomes of it
        answer = await c.ask("POST", "/v1/tasks", {"test": {"type": name, "spec": spec}})
        if word == "\ud800":
            is_problem(answer, 400, 422)  # no JSON text can hold it
        else:
            complains_of(answer, f"/test/spec/{path[0]}")
