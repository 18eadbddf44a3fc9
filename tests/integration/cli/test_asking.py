"""Creating tasks: the documents of options, following the first run, and exit codes."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from node.model.errors import FieldFault, InvalidDocument, RefusedByParticipant

TASK = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
RUN = "11111111-1111-4111-8111-111111111111"
NEXT = "12222222-2222-4222-8222-222222222222"
PENDING: dict[str, Any] = {
    "state": "scheduled",
    "summary": None,
    "result": None,
    "started_at": None,
    "finished_at": None,
}


@pytest.fixture
def planned(node: Any) -> Any:
    """A node that accepts a task and has planned its first run, which then runs and is measured."""
    node.created = node.add_task(TASK, planned=False, plan_at="2020-01-01T00:00:00Z")
    run = node.add_run(RUN, TASK)
    measured = dict(run)
    run.update(PENDING)
    node.stories[RUN] = [{"state": "running"}, {"state": "merging"}, measured]
    node.tasks[0]["planned"] = True
    return node


async def test_a_shortcut_creates_follows_and_prints(parley: Any, planned: Any) -> None:
    """A shortcut prints the run on standard output and its progress on standard error."""
    ended = await parley("rtt", "b", "--count", "5", "--interval", "20ms", "--packet-timeout", "2s")
    assert ended.code == 0
    run = json.loads(ended.out)
    assert (run["id"], run["state"]) == (RUN, "finished")
    document, key = planned.posted[0]
    spec = {"dest": "b", "count": 5, "interval": "PT0.02S", "timeout": "PT2S"}
    assert document == {"test": {"type": "rtt", "spec": spec}}
    assert key
    lines = ended.err.splitlines()
    assert lines[0] == f"task {TASK[:8]}: rtt  a → b, every 5 min"
    phases = (
        "rtt  a → b: planned for 10:00:00, start",
        "rtt  a → b: running",
        "rtt  a → b: waiting for the parts of the other participants",
        "rtt  a → b: finished",
    )
    for line, phase in zip(lines[2:], phases, strict=True):
        assert line.startswith(phase)
        assert line.endswith(f"(run {RUN[:8]})")


async def test_a_result_for_a_person(parley: Any, planned: Any) -> None:
    """A table begins with the summary, followed by each value with its unit."""
    assert planned.created
    ended = await parley("latency", "a", "b", "-o", "table", "-q")
    lines = ended.out.splitlines()
    assert lines[0] == "✓ rtt  a → b: 20.41 ms, loss 0 %"
    assert "  rtt median  20.41 ms" in lines
    assert "  loss        0 %" in lines
    assert ended.err == ""


@pytest.mark.parametrize(
    ("state", "code"),
    [("failed", 1), ("missed", 1), ("cancelled", 1), ("unplaced", 4), ("finished", 0)],
)
async def test_the_end_of_the_run_is_the_exit_code(
    parley: Any, planned: Any, state: str, code: int
) -> None:
    """A failed run exits with 1, a run without time with 4, and the reason is shown."""
    end = {"state": state, "reason": "because of this"}
    planned.stories[RUN] = [end]
    ended = await parley("throughput", "b", "-o", "table")
    assert ended.code == code
    assert "because of this" in ended.out


async def test_options_become_the_document(parley: Any, planned: Any) -> None:
    """Options override the file, and fill in the schedule and all labels."""
    base = {"test": {"type": "rtt", "spec": {"dest": "b", "count": 3}}, "priority": 1}
    ended = await parley(
        "task", "create", "--file", "-", "--spec", "count=10", "--spec-json", '{"length": 100}',
        "--repeat", "5m", "--slip", "30s", "--slip-random", "--start", "2026-12-01T00:00:00Z",
        "--until", "2027-01-01 00:00:00+01:00", "--max-runs", "9", "--priority", "7",
        "--participant", "a", "--tool", "ping", "--tool", "fping", "--campaign", "ops",
        "--reference", '{"ticket": 4711}', "-o", "ids",
        stdin=json.dumps(base),
    )  # fmt: skip
    assert ended.out.strip() == TASK
    assert planned.posted[0][0] == {
        "test": {"type": "rtt", "spec": {"dest": "b", "count": 10, "length": 100}},
        "schedule": {
            "repeat": "PT5M",
            "slip": "PT30S",
            "slip_random": True,
            "start": "2026-12-01T00:00:00Z",
            "until": "2026-12-31T23:00:00Z",
            "max_runs": 9,
        },
        "priority": 7,
        "participants": ["a"],
        "tools": ["ping", "fping"],
        "campaign": "ops",
        "reference": {"ticket": 4711},
    }


async def test_short_durations_in_the_spec(parley: Any, planned: Any) -> None:
    """A short duration becomes ISO 8601 only in fields that are durations in the test's schema."""
    duration = {"anyOf": [{"type": "string", "format": "duration"}, {"type": "null"}]}
    schema = {"properties": {"interval": duration, "dest": {"type": "string"}}}
    planned.documents["/v1/tests/rtt"] = {
        "name": "rtt", "title": "Round trip", "spec": schema, "result": {}, "tools": [],
    }  # fmt: skip
    ended = await parley(
        "task", "create", "rtt", "--spec", "interval=20ms", "--spec", "dest=5m", "--no-wait"
    )
    assert ended.code == 0
    assert planned.posted[0][0]["test"]["spec"] == {"interval": "PT0.02S", "dest": "5m"}


async def test_wait_follows_and_no_wait_does_not(parley: Any, planned: Any) -> None:
    """--wait ends with the run, and --no-wait asks nothing after the task was accepted."""
    assert json.loads((await parley("task", "create", "rtt", "--wait")).out)["id"] == RUN
    planned.asked.clear()
    ended = await parley("task", "create", "rtt", "--no-wait")
    assert json.loads(ended.out)["id"] == TASK
    assert [method for method, _, _ in planned.asked] == ["POST"]


async def test_a_repeating_shortcut_says_how_to_end_it(parley: Any, planned: Any) -> None:
    """After the first result it prints that the task continues, and how to cancel it."""
    planned.created["schedule"] = {"repeat": "PT5M"}
    ended = await parley("rtt", "b", "--repeat", "5m")
    assert ended.code == 0
    assert f"parley task cancel {TASK[:8]}" in ended.err


async def test_a_task_without_time_says_why(parley: Any, node: Any) -> None:
    """A task without time yet is not an error, and the reason is printed."""
    node.created = node.add_task(TASK, next_run_at=None, runs={"waiting": 1})
    node.add_run(RUN, TASK, **PENDING | {"state": "waiting", "reason": "b is busy until 14:00"})
    ended = await parley("task", "create", "rtt")
    assert ended.code == 0
    assert "no time yet, will be retried: b is busy until 14:00" in ended.err


async def test_a_displaced_run_is_followed_to_its_new_place(parley: Any, planned: Any) -> None:
    """A run that lost its time is followed as the next attempt of its slot."""
    measured = planned.add_run(NEXT, TASK, attempt=2)
    planned.stories[NEXT] = [dict(measured)]
    measured.update(PENDING)
    planned.stories[RUN] = [{"state": "displaced", "reason": "it gave way"}]
    ended = await parley("run", "follow", "11")
    assert ended.code == 0
    assert json.loads(ended.out)["id"] == NEXT
    assert "it gave way" in ended.err


async def test_follow_takes_a_task(parley: Any, planned: Any) -> None:
    """Following a task follows its next run, or shows the last one when none will come."""
    assert json.loads((await parley("run", "follow", "aaaa")).out)["id"] == RUN
    planned.tasks[0]["state"] = "finished"
    assert json.loads((await parley("run", "follow", "aaaa")).out)["id"] == RUN


async def test_refusals(parley: Any, node: Any) -> None:
    """A refusal exits with 3, whether it is an error or the state of the task."""
    node.created = RefusedByParticipant("b has no tool for throughput; apt install iperf3")
    ended = await parley("throughput", "b")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "✗ b has no tool for throughput\n  apt install iperf3\n"
    node.created = node.add_task(TASK, state="refused", reason="b will not")
    assert (await parley("throughput", "b")).code == 3
    assert (await parley("task", "create", "rtt")).code == 3


async def test_wrong_documents(parley: Any, node: Any) -> None:
    """Every wrong field is named, and the exit code is 2."""
    faults = [FieldFault("/test/spec/dest", "is required"), FieldFault("/priority", "too much")]
    node.created = InvalidDocument(faults)
    ended = await parley("task", "create", "rtt")
    assert (ended.code, ended.out) == (2, "")
    assert "/test/spec/dest: is required" in ended.err
    assert "/priority: too much" in ended.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("task", "create"), "parley test list"),
        (("task", "create", "rtt", "--repeat", "P1M"), "vary in length"),
        (("task", "create", "rtt", "--repeat", "5"), "no unit"),
        (("task", "create", "rtt", "--start", "someday"), "+10m"),
        (("task", "create", "rtt", "--spec", "dest"), "KEY=VALUE"),
        (("task", "create", "rtt", "--spec-json", "[1]"), "not a JSON object"),
        (("task", "create", "rtt", "--reference", "{"), "not JSON"),
        (("task", "create", "--file", "/nonexistent"), "cannot be read"),
        (("throughput", "b", "--rate", "fast"), "50M"),
        (("latency", "a", "b", "c"), "at most two hosts"),
        (("run", "list", "--server", "ftp://x"), "not the address of a node"),
    ],
)
async def test_usage(parley: Any, node: Any, arguments: tuple[str, ...], text: str) -> None:
    """A wrong command line is refused before any request, with what to write and exit code 2."""
    ended = await parley(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert text in " ".join(ended.err.split())
    assert node.posted == []


@pytest.mark.nightly
async def test_ctrl_c_while_following(bare: Any, planned: Any) -> None:
    """Ctrl-C while following prints how to follow again, cancels nothing, and exits with 130."""
    planned.stories[RUN] = []
    settings = {"PARLEY_SERVER": planned.url, "PARLEY_TOKEN": planned.token}
    process = await bare.start("rtt", "b", **settings)
    await planned.waited.wait()
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert f"parley run follow {TASK[:8]}" in err.decode()
    assert f"parley task cancel {TASK[:8]}" in err.decode()
    assert not any(method == "DELETE" for method, _, _ in planned.asked)


async def test_timeout(parley: Any, planned: Any) -> None:
    """--timeout ends the command with exit code 7, and prints how to follow again."""
    planned.stories[RUN] = []
    ended = await parley("run", "follow", RUN, "--timeout", "0.5")
    assert (ended.code, ended.out) == (7, "")
    assert f"parley run follow {RUN[:8]}" in ended.err
    ended = await parley("run", "follow", RUN, "--timeout", "0.5", "-q", "-o", "json")
    assert json.loads(ended.err)["exit_code"] == 7


@pytest.mark.parametrize(
    ("outcome", "placed", "code"),
    [
        ("unreachable", 0, 5),
        ("no time", 0, 4),
        pytest.param("partly booked", 1, 7, marks=pytest.mark.nightly),
        pytest.param("lease lost", 0, 7, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.nightly
async def test_whoever_gives_up_is_told_the_reason(
    parley: Any, planned: Any, outcome: str, placed: int, code: int
) -> None:
    """After --timeout the reason known by then is printed, and the exit code says the same."""
    planned.stories[RUN] = []
    planned.documents[f"/v1/tasks/{TASK}/explain"] = explained(outcome, placed)
    ended = await parley("latency", "a", "b", "--timeout", "0.5", "-q")
    assert (ended.code, ended.out) == (code, "")
    why = "c cannot be reached; asked again at 2026-12-01 09:00:00Z"
    assert ended.err.splitlines()[0].endswith(f": {why} (exit code {code})")
    ended = await parley("latency", "a", "b", "--timeout", "0.5", "-q", "-o", "json")
    problem = json.loads(ended.err)
    assert problem["exit_code"] == code
    assert problem["detail"].endswith("asked again at 2026-12-01T09:00:00Z")


def explained(outcome: str, placed: int) -> dict[str, Any]:
    """An explanation of the task, with one attempt to plan it."""
    decision = {
        "id": 1, "task": TASK, "decided_at": "2026-12-01T08:00:00Z", "outcome": outcome,
        "first_at": "2026-12-01T08:00:00Z", "times": 1, "sentence": "c does not answer",
        "asked": 1, "placed": placed, "first_slot": None, "last_slot": None, "trace": {},
    }  # fmt: skip
    return {
        "task": TASK, "run": None, "headline": "latency  a → b", "state": "active",
        "sentence": "c cannot be reached; asked again at 2026-12-01T09:00:00Z",
        "decisions": [decision],
    }  # fmt: skip


async def test_total_loss_is_a_failure(parley: Any, planned: Any) -> None:
    """A shortcut whose packets were all lost exits with 1, and says so with its mark."""
    lost = {"judgement": "no-answer", "code": "all-lost", "reason": "all packets were lost"}
    planned.stories[RUN][-1].update(outcome=lost, summary="no answer, loss 100 %")
    ended = await parley("rtt", "b", "-o", "table", "-q")
    assert ended.code == 1
    assert ended.out.startswith("✗ rtt  a → b: no answer, loss 100 %\n")


async def test_a_shortcut_need_not_wait(parley: Any, planned: Any) -> None:
    """With --no-wait a shortcut prints the task that it has created, and follows no run."""
    planned.stories[RUN] = []
    ended = await parley("rtt", "b", "--repeat", "5m", "--no-wait")
    assert ended.code == 0
    assert json.loads(ended.out)["id"] == TASK
    assert not any("wait" in query for _, _, query in planned.asked)


async def test_usage_errors_are_problem_documents(parley: Any) -> None:
    """With -o json a wrong command line is a problem document on standard error, too."""
    for line in (("rtt", "b", "--cout", "3"), ("rrt",), ("task", "lst"), ("run", "show")):
        ended = await parley(*line, "-o", "json")
        assert (ended.code, ended.out) == (2, "")
        assert json.loads(ended.err)["exit_code"] == 2
        plain = await parley(*line)
        assert plain.code == 2
        assert json.loads(ended.err)["detail"] in plain.err


async def test_a_refused_token_is_told_once_with_its_place(
    parley: Any, planned: Any, tmp_path: Path
) -> None:
    """A refusal of a token names the place of the token, or the places without one."""
    assert planned.tasks
    wrong = await parley("task", "cancel", "aa", PARLEY_TOKEN="wrong")
    assert len(wrong.err.splitlines()) == 2
    assert "it is that of PARLEY_TOKEN" in wrong.err
    (tmp_path / "token").write_text("other\n")
    places = {"PARLEY_TOKEN": "", "PARLEY_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    stale = await parley("task", "cancel", "aa", **places)
    assert (stale.code, f"it is that of {tmp_path}/token" in stale.err) == (3, True)
    (tmp_path / "token").unlink()
    absent = await parley("task", "cancel", "aa", **places)
    assert f"none can be read in {tmp_path}/token or " in absent.err


async def test_unknown_settings_are_told(parley: Any, planned: Any) -> None:
    """A variable that looks like a setting and is none is told, with what was probably meant."""
    assert planned.tasks
    ended = await parley("task", "list", PARLEY_SEVER="http://x", PARLEY_STATE_DIR="/nowhere")
    assert ended.code == 0
    assert ended.err == "! PARLEY_SEVER is not a setting; did you mean PARLEY_SERVER?\n"


async def test_cancelling(parley: Any, planned: Any) -> None:
    """Several tasks and runs are cancelled at once by shortened ids."""
    planned.add_run(NEXT, TASK, state="running")
    ended = await parley("run", "cancel", "11", "12")
    assert [run["state"] for run in json.loads(ended.out)] == ["cancelled", "cancelled"]
    assert json.loads((await parley("task", "cancel", "aa")).out)[0]["state"] == "cancelled"
    ended = await parley("task", "cancel", "aa", PARLEY_TOKEN="wrong")
    assert ended.code == 3
    assert "PARLEY_TOKEN" in ended.err


async def test_results_alone(parley: Any, planned: Any) -> None:
    """A result is raw JSON in a pipe, and a run without one gives the reason."""
    planned.stories.clear()
    assert (await parley("run", "result", "11")).code == 1
    planned.runs[0].update(state="finished", result={"loss": 0.5, "rtt_ms": None})
    ended = await parley("run", "result", "11")
    assert json.loads(ended.out) == {"loss": 0.5, "rtt_ms": None}
    assert (await parley("run", "result", "11", "-o", "table")).out == "loss  50 %\n"


async def test_what_a_program_printed(parley: Any, planned: Any) -> None:
    """Programs' output is JSON in a pipe, sanitised in a table, and raw for one participant."""
    printed = '{\n\t"end":\t1\n}\x1b[2J\n'
    part = dict.fromkeys(("started_at", "finished_at", "result", "reason"))
    part |= {"participant": 0, "name": "a", "command": ["iperf3", "-J"], "output": printed}
    planned.runs[0].update(state="finished", parts=[part])
    ended = await parley("run", "result", "11", "--raw")
    assert [part["output"] for part in json.loads(ended.out)] == [printed]
    ended = await parley("run", "result", "11", "--raw", "-o", "table")
    assert ended.out == 'a: iperf3 -J\n  {\n  \t"end":\t1\n  }\ufffd[2J\n'
    assert (await parley("run", "result", "11", "--raw", "--part", "a")).out == printed
    ended = await parley("run", "result", "11", "--raw", "--part", "b")
    assert (ended.code, "has no part of b, only of a" in ended.err) == (6, True)
