"""Log records of libraries become structured lines, and repeated ones are counted."""

from __future__ import annotations

import logging
from typing import Any

from structlog.testing import capture_logs

from node.cli.logs import LogRouter


def _record(name: str, level: int, words: str, at: float, *given: Any) -> logging.LogRecord:
    record = logging.LogRecord(name, level, "file", 1, words, given, None)
    record.created = at
    return record


def test_a_repeated_message_is_logged_once_a_minute() -> None:
    """A message is logged once a minute, with the number of repeats since it was logged last."""
    routed = LogRouter()
    with capture_logs() as logged:
        for second in (0.0, 1.0, 59.0, 61.0):
            routed.handle(_record("asyncio", logging.WARNING, "%s is slow", second, "a task"))
    assert [line["log_level"] for line in logged] == ["warning", "warning"]
    assert [line["event"] for line in logged] == ["a task is slow"] * 2
    assert [line.get("more") for line in logged] == [None, 2]


def test_other_records_keep_message_and_level() -> None:
    """Different messages are different lines, each with the name of its logger."""
    routed = LogRouter()
    with capture_logs() as logged:
        routed.handle(_record("asyncio", logging.ERROR, "Task was destroyed", 0.0))
        routed.handle(_record("asyncio", logging.WARNING, "slow", 0.0))
        routed.handle(_record("apscheduler.x", logging.ERROR, "Job raised", 0.0))
    assert [(line["log_level"], line["event"], line["by"]) for line in logged] == [
        ("error", "Task was destroyed", "asyncio"),
        ("warning", "slow", "asyncio"),
        ("error", "Job raised", "apscheduler.x"),
    ]


def test_warnings_have_no_traceback() -> None:
    """A warning has the text of its exception, and only an error has the traceback."""
    fault = FileNotFoundError("no socket")
    routed = LogRouter()
    with capture_logs() as logged:
        for level in (logging.WARNING, logging.ERROR):
            record = _record("asyncpg.pool", level, f"failed {level}", 0.0)
            record.exc_info = (FileNotFoundError, fault, None)
            routed.handle(record)
    assert [line["error"] for line in logged] == ["no socket", "no socket"]
    assert [bool(line["exc_info"]) for line in logged] == [False, True]
