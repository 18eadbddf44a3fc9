"""Lists in every format, ids by their first digits, and the text of empty lists."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
from typing import Any

import pytest
import yaml

ONE = "11111111-1111-4111-8111-111111111111"
TWO = "12222222-2222-4222-8222-222222222222"
TASK = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
AT = "2026-12-01T10:00:00Z"


@pytest.fixture
def runs(node: Any) -> list[dict[str, Any]]:
    """A run that was measured, and one that was not."""
    lost = {"state": "unplaced", "summary": None, "result": None, "tool": None}
    reason = "b was busy with throughput 7c1e until 14:00"
    node.add_task(TASK)
    return [
        node.add_run(ONE, TASK),
        node.add_run(TWO, TASK, **lost, started_at=None, reason=reason),
    ]


async def test_a_pipe_gets_json(parley: Any, runs: list[dict[str, Any]]) -> None:
    """In a pipe a list is one JSON array of the API's objects."""
    ended = await parley("run", "list")
    assert ended.code == 0
    assert ended.err == ""
    records = json.loads(ended.out)
    assert [run["id"] for run in records] == [ONE, TWO]
    assert records[0]["result"] == runs[0]["result"]


async def test_a_table_has_the_reason_in_the_list(parley: Any, runs: list[dict[str, Any]]) -> None:
    """The list shows the reason of a run that did not take place."""
    ended = await parley("run", "list", "-o", "table")
    lines = ended.out.splitlines()
    assert lines[0].split()[:4] == ["run", "state", "outcome", "what"]
    assert lines[1].split()[:2] == [ONE[:8], "finished"]
    assert lines[1].endswith("20.41 ms, loss 0 %")
    assert lines[2].endswith(runs[1]["reason"])
    assert "2026-12-01 10:00:00Z" in lines[1]


async def test_other_forms(parley: Any, runs: list[dict[str, Any]]) -> None:
    """Ids are lines, jsonl is one object a line, and csv has the requested fields."""
    assert len(runs) == 2
    assert (await parley("run", "list", "-o", "ids")).out.split() == [ONE, TWO]
    lines = (await parley("run", "list", "-o", "jsonl")).out.splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["finished", "unplaced"]
    fields = "id,participants,result.rtt_ms.median,reason"
    ended = await parley("run", "list", "-o", "csv", "--fields", fields)
    rows = list(csv.reader(io.StringIO(ended.out)))
    assert rows[0] == fields.split(",")
    assert rows[1] == [ONE, "a b", "20.41", ""]
    assert rows[2][2:] == ["", runs[1]["reason"]]


async def test_yaml_wide_and_jq(parley: Any, runs: list[dict[str, Any]]) -> None:
    """YAML has what JSON has, a wide table whole ids, and jq makes something else of the JSON."""
    records = json.loads((await parley("run", "list")).out)
    assert yaml.safe_load((await parley("run", "list", "-o", "yaml")).out) == records
    table, wide = [(await parley("run", "list", "-o", form)).out for form in ("table", "wide")]
    assert wide.splitlines()[0].startswith(table.splitlines()[0].rstrip())
    assert ONE not in table
    assert ONE in wide
    ended = await parley("run", "list", "--jq", ".[] | .id, .result.rtt_ms.median")
    assert ended.out.splitlines() == [ONE, "20.41", TWO, "null"]
    shown = await parley("run", "show", ONE, "-o", "wide")
    assert re.search(r"(?m)^result\.rtt_ms\.median +20\.41$", shown.out)
    wrong = await parley("run", "list", "--jq", ".[|")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--jq: jq: error: syntax error" in wrong.err
    other = await parley("run", "list", "--jq", ".", "-o", "csv")
    assert other.code == 2
    assert "-o csv makes no sense" in other.err


async def test_options_go_before_and_after_the_verb(
    parley: Any, runs: list[dict[str, Any]]
) -> None:
    """The global options work before and after the verbs, and the last one wins."""
    assert len(runs) == 2
    before = await parley("-o", "ids", "run", "list")
    after = await parley("-o", "json", "run", "list", "-o", "ids")
    assert before.out == after.out


async def test_filters_reach_the_node(parley: Any, node: Any, runs: list[dict[str, Any]]) -> None:
    """State, test, task and time are sent as filters of the API."""
    assert len(runs) == 2
    ended = await parley(
        "run", "list", "--state", "failed,missed", "--test", "rtt", "--task", "aaaa",
        "--from", "2026-12-01T00:00:00Z", "--oldest-first",
    )  # fmt: skip
    assert json.loads(ended.out) == []
    query = node.asked[-1][2]
    assert query["state"] == "failed,missed"
    assert query["task"] == TASK
    assert query["from"] == "2026-12-01T00:00:00Z"
    assert query["order"] == "asc"


async def test_runs_that_have_begun_or_will(parley: Any, node: Any) -> None:
    """Future runs are left out by default, and --upcoming lists them, the next one first."""
    await parley("run", "list")
    assert set(node.asked[-1][2]) == {"to", "limit"}
    await parley("run", "list", "--from", "-1d")
    assert (set(node.asked[-1][2]), node.asked[-1][2]["limit"]) == ({"from", "to", "limit"}, "200")
    await parley("run", "list", "--from", "+1h")
    assert set(node.asked[-1][2]) == {"from", "limit"}
    await parley("run", "list", "--upcoming")
    query = node.asked[-1][2]
    assert set(query) == {"from", "order", "state", "limit"}
    assert "scheduled" in query["state"]
    await parley("run", "list", "--state", "scheduled")
    assert set(node.asked[-1][2]) == {"state", "limit"}


async def test_long_lists_take_several_pages(parley: Any, node: Any) -> None:
    """A list follows the cursor up to its limit, and notes on standard error if there is more."""
    for number in range(450):
        node.add_run(f"{number:08x}-1111-4111-8111-111111111111", TASK)
    ended = await parley("run", "list", "--limit", "420", "-o", "ids")
    assert len(ended.out.split()) == 420
    assert "--limit" in ended.err
    assert len(node.asked) == 3


async def test_empty_lists_say_what_to_do(parley: Any) -> None:
    """An empty table names the next command, and empty JSON is an empty array."""
    assert "parley rtt HOST" in (await parley("run", "list", "-o", "table")).out
    assert "parley task create" in (await parley("task", "list", "-o", "table")).out
    assert (await parley("task", "list")).out.strip() == "[]"


async def test_ids_may_be_shortened(parley: Any, runs: list[dict[str, Any]]) -> None:
    """A unique beginning of an id is the id, and @-1 is the newest."""
    assert len(runs) == 2
    for written in ("11", ONE, "11111111-1111", "@-1"):
        assert json.loads((await parley("run", "show", written)).out)["id"] == ONE


async def test_the_newest_is_ones_own(parley: Any, node: Any) -> None:
    """@-1 is the newest of the caller's own, so that nothing of others is changed by it."""
    node.add_task(TASK)
    node.tasks.insert(0, {**node.tasks[0], "id": ONE, "requester": "eve"})
    assert json.loads((await parley("task", "cancel", "@-1")).out)[0]["id"] == TASK
    assert [task["state"] for task in node.tasks] == ["active", "cancelled"]
    ended = await parley("task", "show", "@-2")
    assert (ended.code, "there is only 1 task of yours yet" in ended.err) == (6, True)


async def test_the_newest_reaches_back_as_far_as_a_list(parley: Any, node: Any) -> None:
    """@-999 is told how many there are, or how far back it may reach."""
    ended = await parley("run", "show", "@-999")
    assert (ended.code, "there is no run of yours yet" in ended.err) == (6, True)
    for number in range(500):
        node.add_run(f"{number:08x}-1111-4111-8111-111111111111", TASK)
    ended = await parley("run", "show", "@-999")
    assert (ended.code, "too far back: @-1 to @-500" in ended.err) == (2, True)


async def test_ambiguous_and_unknown_ids(parley: Any, runs: list[dict[str, Any]]) -> None:
    """An ambiguous beginning lists the matches, an unknown one exits with 6, a word with 2."""
    assert len(runs) == 2
    ended = await parley("run", "show", "1")
    assert ended.code == 2
    assert ONE in ended.err
    assert TWO in ended.err
    ended = await parley("run", "show", "ff")
    assert (ended.code, ended.out) == (6, "")
    assert "parley run list" in ended.err
    assert (await parley("run", "show", "hello")).code == 2
    assert (await parley("explain", "ff")).code == 6


async def test_task_list_and_show(parley: Any, node: Any) -> None:
    """A task is shown with its schedule, participants, and counts of runs."""
    node.add_task(TASK)
    line = (await parley("task", "list", "-o", "table")).out.splitlines()[1]
    assert "rtt  a → b  every 5 min" in line
    assert "2 scheduled" in line
    shown = (await parley("task", "show", "aa", "-o", "table")).out
    assert shown.startswith("rtt  a → b: active")
    assert "dest" in shown


async def test_all_of_a_task_is_shown_however_it_is_named(parley: Any, node: Any) -> None:
    """A task named by a short id has its archives and tool reason, which lists do not have."""
    spec = {"url": "https://h.example/in", "gzip": False, "secret": "(secret)", "headers": {}}
    archive = {"archiver": "http", "spec": spec, "runs": "all", "transform": None}
    node.add_task(TASK, archives=[archive], tool_reason="the best that all have")
    for name in (TASK, "aa", "@-1"):
        shown = await parley("task", "show", name, "-o", "json")
        [shown_archive] = json.loads(shown.out)["archives"]
        assert shown_archive["spec"] == spec
    lines = (await parley("task", "show", "aa", "-o", "table")).out.splitlines()
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in lines}
    assert rows["archive"] == "http (url https://h.example/in, gzip false, secret (secret)), all"
    assert rows["tool"] == "ping: the best that all have"


async def test_deliveries_and_backlog_say_for_which_archive_and_since_when(
    parley: Any, node: Any
) -> None:
    """Deliveries name their archive, and the backlog has the time of the last error."""
    to = {"archiver": "http", "destination": 1, "label": "h.example"}
    failed = {"last_error": "500 no", "attempts": 1, "next_at": None, "tried_at": None}
    own = {
        "number": 2,
        "run": ONE,
        "interval": None,
        "task": TASK,
        "edition": 1,
        "archive": "hook",
        "state": "waiting",
        "created_at": AT,
        **to,
        **failed,
    }
    of_task = {**own, "number": 1, "archive": None}
    node.documents["/v1/archivings"] = {"items": [own, of_task], "next": None}
    table = (await parley("archive", "deliveries", "-o", "table")).out.splitlines()
    assert [" hook " in line for line in table] == [False, True, False]
    assert " of the task " in table[2]
    waits = {
        **to,
        "archives": ["hook"],
        "tasks": 0,
        "waiting": 1,
        "parked": 0,
        "oldest_at": AT,
        "next_at": None,
        "last_error": "500 no",
        "last_error_at": "2026-12-01T10:00:07Z",
    }
    well = {**waits, "waiting": 0, "oldest_at": None}
    node.documents["/v1/archivings/backlog"] = {"items": [waits, well], "next": None}
    lines = (await parley("archive", "backlog", "-o", "table")).out.splitlines()
    assert lines[1].endswith("10:00:07Z 500 no")
    assert "500 no" not in lines[2]


async def test_text_from_elsewhere_cannot_command_the_terminal(parley: Any, node: Any) -> None:
    """Control characters in a reason are replaced."""
    node.add_run(ONE, TASK, state="failed", summary=None, reason="\x1b[2Jgone\nnext")
    ended = await parley("run", "list", "-o", "table")
    assert "\x1b" not in ended.out
    assert len(ended.out.splitlines()) == 2


async def test_nodes_tests_and_tools(parley: Any, node: Any) -> None:
    """Nodes, tests and tools are listed, and a missing tool names its package."""
    card = {
        "identity": "ed25519:" + "A" * 43,
        "name": "a.example",
        "url": "http://a.example:8642",
        "address": "192.0.2.1",
        "version": "0.1.0",
        "is_self": True,
        "added_at": "2026-12-01T00:00:00Z",
        "seen_at": None,
        "unreachable_since": None,
        "last_error": None,
    }
    missing = "iperf3 is not installed: apt install iperf3"
    tool = {"name": "iperf3", "tests": ["throughput"], "tried": ["3.12"], "available": False}
    tool["reason"] = missing
    properties = {"dest": {"type": "string", "description": "Whom to ask."}}
    test = {
        "name": "rtt",
        "title": "Round-trip time",
        "spec": {"properties": properties, "required": ["dest"]},
        "result": {},
        "tools": ["ping"],
    }
    other = {**card, "identity": "ed25519:" + "A" * 43, "name": "b.example", "is_self": False}
    other |= {"heard_at": None, "lease_until": "2026-12-08T00:00:00Z"}
    node.documents["/v1/nodes"] = {"items": [card, other], "next": None}
    node.documents["/v1/tools"] = {"items": [tool], "next": None}
    node.documents["/v1/tests"] = {"items": [test], "next": None}
    node.documents["/v1/tests/rtt"] = test
    assert (await parley("node", "list", "-o", "ids")).out.split() == ["a.example", "b.example"]
    shown = (await parley("node", "show", "-o", "table")).out
    assert card["identity"] in shown
    assert "heard" not in shown
    shown = (await parley("node", "show", "b.example", "-o", "table")).out
    assert re.search(r"^heard +never$", shown, re.MULTILINE)
    assert re.search(
        r"^its tasks here +end 2026-12-08 .* if it sends nothing before$", shown, re.MULTILINE
    )
    assert (await parley("node", "show", "nobody")).code == 6
    assert missing in (await parley("tool", "list", "-o", "table")).out
    assert json.loads((await parley("test", "list")).out)[0]["name"] == "rtt"
    shown = (await parley("test", "show", "rtt", "-o", "table")).out
    assert "required" in shown
    assert "Whom to ask." in shown


@pytest.mark.nightly
async def test_a_terminal_gets_a_table(bare: Any, node: Any) -> None:
    """On a terminal the default is a table, with colours unless NO_COLOR is set."""
    node.add_run(ONE, TASK)
    for more, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        controller, terminal = pty.openpty()
        settings = {"PARLEY_SERVER": node.url, "TERM": "xterm-256color", "COLUMNS": "120"}
        process = await bare.start("run", "list", stdout=terminal, **settings, **more)
        os.close(terminal)
        assert await process.wait() == 0
        shown = os.read(controller, 65536).decode()
        os.close(controller)
        assert ONE[:8] in shown
        assert not shown.startswith("[")
        assert ("\x1b[32m" in shown) is coloured


FIGURES = [
    {"name": "rtt_median_ms", "value": 20.41, "unit": "ms", "labels": {}},
    {"name": "loss", "value": 0.5, "unit": "1", "labels": {"direction": "forward"}},
]


async def test_csv_has_the_figures_as_columns(parley: Any, node: Any) -> None:
    """Each figure is a column of CSV, with its labels; a run without it has an empty cell."""
    node.add_task(TASK)
    node.add_run(ONE, TASK, metrics=FIGURES)
    node.add_run(TWO, TASK, state="failed", summary=None, result=None, reason="no route")
    ended = await parley("run", "list", "-o", "csv")
    heads, *rows = csv.reader(io.StringIO(ended.out))
    assert heads[-2:] == ["rtt_median_ms", "loss.forward"]
    assert [row[-2:] for row in rows] == [["20.41", "0.5"], ["", ""]]
    fields = "id,metrics.loss.forward"
    chosen = await parley("run", "list", "-o", "csv", "--fields", fields)
    assert list(csv.reader(io.StringIO(chosen.out))) == [fields.split(","), [ONE, "0.5"], [TWO, ""]]


@pytest.mark.parametrize(
    ("field", "near"),
    [
        ("stat", "did you mean state"),
        ("result.los", "did you mean result.loss"),
        ("rtt_median_ms", "did you mean metrics.rtt_median_ms"),
        ("metrics.nope", "there are: metrics.loss.forward, metrics.rtt_median_ms"),
    ],
)
@pytest.mark.mostly_nightly
async def test_unknown_fields_are_refused(parley: Any, node: Any, field: str, near: str) -> None:
    """A field that no run has is refused with similar ones, in every form of output."""
    node.add_task(TASK)
    node.add_run(ONE, TASK, metrics=FIGURES)
    for form in ("csv", "json", "table", "jsonl"):
        ended = await parley("run", "list", "-o", form, "--fields", f"id,{field}")
        assert (ended.code, ended.out) == (2, "")
        assert f"there is no field {field}; {near}" in ended.err


async def test_unknown_fields_are_refused_before_anything_is_created(
    parley: Any, node: Any
) -> None:
    """A mistyped field of a shortcut or of task create leaves no task behind."""
    for command in (("rtt", "b"), ("task", "create", "rtt", "--spec", "dest=b")):
        assert (await parley(*command, "--fields", "nope")).code == 2
    assert (await parley("run", "list", "--fields", "nope")).code == 2  # an empty list, too
    assert node.posted == []


async def test_a_list_of_tasks_says_why_runs_wait(parley: Any, node: Any) -> None:
    """A task whose run has no time is listed with the reason, in local times; and its mesh."""
    why = "c cannot be reached since 2026-12-01T09:00:00Z; asked again in PT5M"
    node.add_task(TASK, runs={"waiting": 1}, waiting=why, reference={"mesh": "lab", "key": "k"})
    heads, line = (await parley("task", "list", "-o", "table")).out.splitlines()
    local = "c cannot be reached since 2026-12-01 09:00:00Z; asked again in 5 min"
    assert line.endswith(f"1 waiting; {local}")
    assert "mesh lab" in line
    assert "requester" not in heads
    assert json.loads((await parley("task", "list")).out)[0]["waiting"] == why


async def test_total_loss_is_marked(parley: Any, node: Any) -> None:
    """A run that lost all packets is marked as failed, though it is finished and has a result."""
    node.add_task(TASK)
    lost = {"judgement": "no-answer", "code": "all-lost", "reason": "all packets were lost"}
    node.add_run(ONE, TASK, outcome=lost, summary="no answer, loss 100 %")
    assert "✗ no-answer" in (await parley("run", "list", "-o", "table")).out
    shown = (await parley("run", "show", ONE, "-o", "table")).out.splitlines()
    assert shown[0] == "✗ rtt  a → b: no answer, loss 100 %"
    words = ["state", "outcome", "started", "planned", "tool"]
    assert [line.split()[0] for line in shown[1:6]] == words
