"""Pausing, resuming and editing tasks: the patches of options, and the output."""

from __future__ import annotations

import json
from typing import Any

import pytest

ONE = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
TWO = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"


@pytest.fixture
def tasks(node: Any) -> Any:
    """A node with two tasks, one of them changed before."""
    node.add_task(ONE, revision=4)
    node.add_task(TWO)
    return node


async def test_several_are_paused_at_once(parley: Any, tasks: Any) -> None:
    """Several tasks are paused at once, and the list shows since when."""
    ended = await parley("task", "pause", "aaaa", "bbbb", "-o", "table")
    assert ended.code == 0
    assert ended.out.count("paused since 2026-12-01 10:00:00Z; 2 cancelled") == 2
    posts = [path for method, path, _ in tasks.asked if method == "POST"]
    assert posts == [f"/v1/tasks/{ONE}/pause", f"/v1/tasks/{TWO}/pause"]


async def test_one_is_resumed(parley: Any, tasks: Any) -> None:
    """A resumed task is active again, and shows its revision."""
    await parley("task", "pause", "aaaa")
    shown = await parley("task", "show", "aaaa", "-o", "table")
    assert "paused since" in shown.out
    assert "revision" in shown.out
    ended = await parley("task", "resume", "aaaa")
    assert [task["state"] for task in json.loads(ended.out)] == ["active"]
    assert "paused since" not in (await parley("task", "show", "aaaa", "-o", "table")).out


async def test_a_task_is_made_to_follow_another_one(parley: Any, tasks: Any) -> None:
    """With --after a task follows another one, and has no times of its own any more."""
    ended = await parley(
        "task", "edit", "aaaa", "--after", "bbbb", "--after-outcome", "ended",
        "--after-within", "10m",
    )  # fmt: skip
    assert ended.code == 0
    [(patch, _)] = tasks.patched
    assert patch["after"] == {"task": TWO, "outcome": "ended", "within": "PT10M"}
    assert patch["schedule"] == dict.fromkeys(
        ("start", "repeat", "cron", "timezone", "slip", "slip_random", "until", "max_runs")
    )
    await parley("task", "edit", "aaaa", "--clear", "after", "--repeat", "1h")
    assert tasks.patched[-1][0]["after"] is None


async def test_options_become_a_merge_patch(parley: Any, tasks: Any) -> None:
    """A patch has only the given fields, null for cleared ones, and the revision that was read."""
    ended = await parley(
        "task", "edit", "aaaa", "--repeat", "30m", "--priority", "10", "--spec", "count=20",
        "--clear", "until", "--clear", "campaign",
    )  # fmt: skip
    assert ended.code == 0
    cleared = {"until": None, "cron": None, "timezone": None}
    assert tasks.patched == [
        (
            {
                "test": {"spec": {"count": 20}},
                "schedule": {"repeat": "PT30M", **cleared},
                "priority": 10,
                "campaign": None,
                "revision": 4,
            },
            "",
        )
    ]
    assert ended.err == "changed: repeat 5 min → 30 min\n"
    assert json.loads(ended.out)["revision"] == 5


async def test_a_dry_run_says_what_would_change(parley: Any, tasks: Any) -> None:
    """A dry run changes nothing, and options override the file."""
    patch = json.dumps({"schedule": {"repeat": "PT1H", "slip": "PT2M"}, "revision": 4})
    ended = await parley(
        "task", "edit", "aaaa", "--file", "-", "--cron", "0 * * * *", "--dry-run", stdin=patch
    )
    schedule = {"repeat": "PT1H", "slip": "PT2M", "cron": "0 * * * *"}
    assert tasks.patched == [({"schedule": {**schedule, "repeat": None}, "revision": 4}, "true")]
    assert ended.err.startswith("would change: repeat 5 min → none; ")


async def test_an_edit_of_nothing_is_a_usage_error(parley: Any, tasks: Any) -> None:
    """An edit without changes is refused with an example, without a request to change."""
    ended = await parley("task", "edit", "aaaa")
    assert ended.code == 2
    assert "--repeat 30m" in ended.err
    assert tasks.patched == []
