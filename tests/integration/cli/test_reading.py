"""Explanations, the schedule, and errors as people and programs read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TASK = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
RUN = "11111111-1111-4111-8111-111111111111"


async def test_explain(parley: Any, node: Any) -> None:
    """An explanation has the sentence first, then each participant's offer and obstacles."""
    node.add_task(TASK)
    node.add_run(RUN, TASK)
    hour = 1_796_119_200_000_000
    obstacle = {
        "window": 0, "run": RUN, "task": TASK, "test": "throughput", "priority": 5,
        "scheduling_class": "exclusive", "starts_at": hour, "ends_at": hour + 60_000_000,
    }  # fmt: skip
    reserved = {"reservation": TASK, "kind": "demo", "name": "SC26", "owner": "alice"}
    obstacles = [obstacle, *[{**reserved, "starts_at": hour, "ends_at": hour + 60_000_000}] * 9]
    offer = {"node": "b", "free": [], "obstacles": obstacles, "reason": "busy all the time"}
    decision = {
        "id": 1, "task": TASK, "decided_at": "2026-12-01T10:00:00Z", "outcome": "nothing placed",
        "first_at": "2026-12-01T10:00:00Z", "times": 1,
        "sentence": "b has no time", "asked": 1, "placed": 0, "first_slot": None,
        "last_slot": None, "trace": {"windows": [[hour, hour + 300_000_000]], "offers": [offer]},
    }  # fmt: skip
    explanation = {
        "task": TASK, "run": RUN, "headline": "rtt  a → b", "state": "unplaced",
        "sentence": "It found no PT10S until 2026-12-01T11:00:00Z.", "decisions": [decision] * 5,
    }  # fmt: skip
    node.documents[f"/v1/runs/{RUN}/explain"] = explanation
    ended = await parley("explain", "11", "-o", "table")
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0] == "rtt  a → b: It found no 10 s until 2026-12-01 11:00:00Z."
    assert "throughput 11111111 (exclusive, priority 5) 2026-12-01 10:00:00Z to 10:01:00" in (
        ended.out
    )
    assert "busy all the time" in ended.out
    assert ended.out.count("demo 'SC26' by alice") == 3  # once in each attempt
    assert lines[-1] == "and 2 earlier attempts: --all shows them"
    assert json.loads((await parley("explain", RUN)).out)["sentence"] == explanation["sentence"]


async def test_schedule(parley: Any, node: Any) -> None:
    """The schedule is a list of spans in the requested time."""
    entry = {
        "run": RUN, "task": TASK, "headline": "rtt  a → b", "test": "rtt", "state": "scheduled",
        "scheduling_class": "background", "priority": 0, "starts_at": "2026-12-01T10:00:00Z",
        "ends_at": "2026-12-01T10:00:03Z", "participants": ["a"], "reason": None, "summary": None,
    }  # fmt: skip
    frame = {
        "now": "2026-12-01T09:00:00Z",
        "from": "2026-12-01T08:00:00Z",
        "to": "2026-12-01T15:00:00Z",
    }
    node.documents["/v1/schedule"] = {**frame, "items": [entry]}
    ended = await parley("schedule", "--to", "2026-12-01T15:00:00Z", "-o", "ids")
    assert ended.out.strip() == RUN
    assert node.asked[-1][2] == {"to": "2026-12-01T15:00:00Z"}
    node.documents["/v1/schedule"] = {**frame, "items": []}
    assert "--from -1d" in (await parley("schedule", "-o", "table")).out


async def test_nobody_answers(bare: Any) -> None:
    """If no node listens, the error names the address and how to start one, with exit code 5."""
    ended = await bare("task", "list", "--server", "http://127.0.0.1:1")
    assert (ended.code, ended.out) == (5, "")
    assert ended.err == (
        "✗ no node answers at http://127.0.0.1:1: connection refused\n"
        "  start one with 'parley up' or name another with --server\n"
    )


async def test_errors_for_programs(parley: Any) -> None:
    """With -o json the last line of standard error is the problem document, with the exit code."""
    ended = await parley("run", "show", "ff", "-o", "json")
    assert (ended.code, ended.out) == (6, "")
    problem = json.loads(ended.err.splitlines()[-1])
    assert (problem["status"], problem["exit_code"]) == (404, 6)


async def test_another_service(parley: Any, node: Any) -> None:
    """An answer that is not from a node gives a sentence, not a traceback."""
    node.documents["/v1/tools"] = ["something else"]
    ended = await parley("tool", "list")
    assert ended.code == 5
    assert "not a list" in ended.err
    node.documents["/v1/tests/rtt"] = {"name": "rtt", "colour": "red"}
    node.documents["/v1/tools"] = {"items": [{"name": "ping", "colour": "red"}]}
    for command in (("test", "show", "rtt"), ("tool", "list")):
        ended = await parley(*command, "-o", "table")
        assert ended.code == 5
        assert "do their versions differ?" in ended.err


@pytest.mark.parametrize(
    ("place", "variable"), [("state", "PARLEY_STATE_DIR"), (".local/state/parley", None)]
)
async def test_the_token_file(
    bare: Any, node: Any, tmp_path: Path, place: str, variable: str | None
) -> None:
    """The token of this host's node is found in its state directory."""
    node.add_task(TASK)
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "token").write_text(node.token + "\n")
    more = {variable: str(folder)} if variable else {}
    ended = await bare("task", "cancel", "aa", "--server", node.url, **more)
    assert ended.code == 0


async def test_completion(bare: Any) -> None:
    """The completion script is printed for each shell, and completes commands."""
    for shell in ("bash", "zsh", "fish"):
        assert "_PARLEY_COMPLETE" in (await bare("completion", shell)).out
    ended = await bare(_PARLEY_COMPLETE="bash_complete", COMP_WORDS="parley thr", COMP_CWORD="1")
    assert ended.out.strip() == "plain,throughput"


async def test_help_names_every_exit_code(bare: Any) -> None:
    """The help page needs no node, and explains the exit codes."""
    ended = await bare("--help")
    assert ended.code == 0
    for code in (*range(9), 130):
        assert f"{code} " in ended.out
    for command in ("task", "run", "rtt", "lab", "up", "explain"):
        assert f"\n  {command} " in ended.out
