"""The live view of a node, and the stream of its events."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.cli.top import document_of, takers, top_view
from node.client.events import ServerEvent, parse_events
from node.model.errors import PeerAnswered
from node.model.times import HOUR, MINUTE, SECOND
from node.model.wire.runs import Run
from tests.support.clocks import START
from tests.unit.test_attention import STATUS

RUN = Run.model_validate(
    {
        "id": UUID(int=1),
        "task": UUID(int=2),
        "headline": "rtt  a → 192.0.2.7",
        "test": "rtt",
        "tool": "ping",
        "state": "running",
        "reason": None,
        "scheduling_class": "normal",
        "priority": 0,
        "starts_at": START - 5 * SECOND,
        "ends_at": START + 7 * SECOND,
        "slot": START,
        "attempt": 1,
        "participants": ("a",),
        "participant": 0,
        "lead": "a",
        "started_at": None,
        "finished_at": None,
        "start_error_ms": None,
        "displaced_by": None,
        "summary": None,
        "result": None,
        "requester": "alice",
    }
)


def run(**changes: Any) -> Run:
    """Return a run with other members."""
    return RUN.model_copy(update=changes)


def test_takers_are_ranked_by_their_time() -> None:
    """Time outside the two hours does not count, nor do runs elsewhere or that took none."""
    runs = [
        RUN,
        run(requester=None, lead="b", starts_at=START - 2 * HOUR, ends_at=START - 30 * MINUTE),
        run(requester="carol", participant=None),
        run(requester="dave", state="cancelled"),
    ]
    assert takers(runs, START) == [
        {"who": "b", "runs": 1, "time": "PT30M", "share": 0.25},
        {"who": "alice", "runs": 1, "time": "PT12S", "share": 0.0017},
    ]


def test_the_screen_has_now_and_next() -> None:
    """Runs have their headline, who they are for, and the time that is left or to come."""
    following = [
        run(state="scheduled", starts_at=START + number * MINUTE, ends_at=START + HOUR)
        for number in range(1, 10)
    ]
    lines = top_view(document_of(STATUS, [RUN, *following], complete=False)).splitlines()
    assert "  00000000  rtt  a → 192.0.2.7  normal  alice  7 s left" in lines
    assert "next (and 1 more within the hour)" in lines
    assert "  00000000  rtt  a → 192.0.2.7  normal  alice  in 1 min" in lines
    assert "  (of the first 500 runs; there are more)" in lines
    idle = top_view(document_of(STATUS, [], complete=True)).splitlines()
    assert idle[2:7] == ["now", "  nothing", "", "next", "  nothing within the hour"]


def _lines(text: str) -> list[bytes]:
    return [line.encode() for line in text.splitlines(keepends=True)]


def test_events_are_parsed() -> None:
    """Comments and other fields are skipped; an event ends with an empty line."""
    text = (
        "retry: 2000\n\n: still here\n\nid: 7\nevent: run\n"
        'data: {"id": "x", "state": "running"}\n\nid: 8\n'
    )
    found = list(parse_events(_lines(text)))
    assert found == [ServerEvent(7, "run", {"id": "x", "state": "running"})]


def test_other_streams_are_refused() -> None:
    """An event without a number is not one of a node."""
    with pytest.raises(PeerAnswered, match="an event that cannot be read"):
        list(parse_events(_lines("event: run\ndata: {}\n\n")))
