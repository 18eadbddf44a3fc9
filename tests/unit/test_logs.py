"""Repetitions in a log are counted instead."""

from __future__ import annotations

import logging

import pytest
import structlog
from aiohttp.http_exceptions import BadHttpMessage
from structlog.testing import capture_logs

from node.cli.logs import LogRouter, RepetitionFilter
from node.model.times import MINUTE, SECOND
from tests.support.clocks import ManualClock


def test_a_warning_is_repeated_once_a_minute() -> None:
    """The first of equal warnings of a minute is logged, and the next one counts the others."""
    clock = ManualClock()
    filtered = RepetitionFilter(clock)
    event = {"level": "warning", "event": "part not kept yet", "run": "1", "error": "away"}
    assert filtered(None, "", dict(event)) == event
    for _ in range(59):
        clock.advance(SECOND)
        with pytest.raises(structlog.DropEvent):
            filtered(None, "", dict(event))
    other = {**event, "run": "2"}
    assert filtered(None, "", dict(other)) == other
    clock.advance(MINUTE)
    assert filtered(None, "", dict(event)) == {**event, "more": 59}


def test_what_is_no_warning_is_never_left_out() -> None:
    """Information is logged as often as it is given."""
    filtered = RepetitionFilter(ManualClock())
    event = {"level": "info", "event": "ready"}
    assert [filtered(None, "", dict(event)) for _ in range(3)] == [event] * 3


def test_what_is_no_http_leaves_no_traceback() -> None:
    """A request that is no HTTP is no error of this node; other errors keep their traceback."""
    logged = []
    for fault in (BadHttpMessage("no HTTP"), ValueError("a fault")):
        given = (type(fault), fault, None)
        record = logging.LogRecord("x", logging.ERROR, "", 1, str(fault), (), given)
        with capture_logs() as entries:
            LogRouter().emit(record)
        logged += [(each["log_level"], each["exc_info"]) for each in entries]
    assert logged[0] == ("info", None)
    assert logged[1][0] == "error"
    assert logged[1][1] is not None
