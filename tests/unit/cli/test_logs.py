"""What libraries log becomes lines like our own, and not one for each time."""

from __future__ import annotations

import logging
from typing import Any

from structlog.testing import capture_logs

from node.cli.logs import LogRouter


def _record(name: str, level: int, words: str, at: float, *given: Any) -> logging.LogRecord:
    record = logging.LogRecord(name, level, "file", 1, words, given, None)
    record.created = at
    return record


def test_a_late_job_is_told_once_a_minute_and_quietly() -> None:
    """As debug, in our words, with what was said and how often it was not told."""
    routed = LogRouter()
    with capture_logs() as told:
        for second in (0.0, 1.0, 59.0, 61.0):
            words = 'Run time of job "%s" was missed by 0:00:01'
            routed.handle(_record("apscheduler.executors", logging.WARNING, words, second, "tend"))
    assert [line["log_level"] for line in told] == ["debug", "debug"]
    assert [line["event"] for line in told] == ["house-keeping is late"] * 2
    assert [line.get("more") for line in told] == [None, 2]
    assert told[0]["said"] == 'Run time of job "tend" was missed by 0:00:01'


def test_what_others_say_keeps_its_words_and_its_level() -> None:
    """Different words are different lines, each with who said it."""
    routed = LogRouter()
    with capture_logs() as told:
        routed.handle(_record("asyncio", logging.ERROR, "Task was destroyed", 0.0))
        routed.handle(_record("asyncio", logging.WARNING, "slow", 0.0))
        routed.handle(_record("apscheduler.x", logging.ERROR, "Job raised", 0.0))
    assert [(line["log_level"], line["event"], line["by"]) for line in told] == [
        ("error", "Task was destroyed", "asyncio"),
        ("warning", "slow", "asyncio"),
        ("error", "Job raised", "apscheduler.x"),
    ]


def test_what_a_library_mends_by_itself_has_no_traceback() -> None:
    """A warning tells its error in words; only what is an error shows where it was raised."""
    fault = FileNotFoundError("no socket")
    routed = LogRouter()
    with capture_logs() as told:
        for level in (logging.WARNING, logging.ERROR):
            record = _record("asyncpg.pool", level, f"failed {level}", 0.0)
            record.exc_info = (FileNotFoundError, fault, None)
            routed.handle(record)
    assert [line["error"] for line in told] == ["no socket", "no socket"]
    assert [bool(line["exc_info"]) for line in told] == [False, True]
