"""Intervals of a run over HTTP and on the command line: pages, the last ones, single ones."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest

from node.model import times
from tests.support.clocks import START
from tests.support.served_nodes import Asker

RUN = UUID("11111111-1111-4111-8111-111111111111")

_TASK = """
INSERT INTO task (id, lead, test, spec, scheduling_class, duration, participants, created_at)
SELECT $1, identity, 'interface', '{}', 'background-multi', interval '1 h', '[{"name": "a"}]', $2
FROM node WHERE is_self
"""
_RUN = """
INSERT INTO run (
    id, task_id, slot, attempt, scheduling_class, priority, starts_at, ends_at, state, created_at,
    changed_at
)
VALUES (
    $1, $2, $3, 1, 'background-multi', 0, $3, $3::timestamptz + interval '1 h', 'running', $3, $3
)
"""
_INTERVALS = """
INSERT INTO run_interval (
    run_id, number, starts_at, ends_at, parts, result, summary, reason, merged_at
)
SELECT
    $1, number, $2::timestamptz + number * interval '1 min',
    $2::timestamptz + (number + 1) * interval '1 min', CASE WHEN number = 58 THEN '{}'::jsonb END,
    CASE WHEN number NOT IN (30, 58)
        THEN jsonb_build_object('sent', jsonb_build_object('rate_bps', number)) END,
    CASE WHEN number NOT IN (30, 58) THEN 'eth0: ' || number || ' b/s' END,
    CASE WHEN number = 30 THEN 'a: the counters were reset' END,
    CASE WHEN number <> 58 THEN $2::timestamptz END
FROM generate_series(0, 59) AS number
"""


@pytest.fixture(name="run")
async def _run(a: Asker) -> UUID:
    """Create a run with 60 intervals: number 30 is a gap, and number 58 is not merged yet."""
    task = uuid4()
    await a.rows(_TASK, task, START)
    await a.rows(_RUN, RUN, task, START)
    await a.rows(_INTERVALS, RUN, START)
    return RUN


async def _numbers(a: Asker, query: str) -> list[int]:
    status, page = await a.ask("GET", f"/v1/runs/{RUN}/intervals?{query}")
    assert status == 200, page
    return [item["number"] for item in page["items"]]


async def test_intervals_come_page_by_page(a: Asker, run: UUID) -> None:
    """The pages together have all intervals before the incomplete one, once and in order."""
    path, numbers, cursor = f"/v1/runs/{run}/intervals?limit=25", [], ""
    while True:
        _, page = await a.ask("GET", path + cursor)
        numbers += [item["number"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert numbers == list(range(58))
    assert await _numbers(a, "order=desc&limit=3") == [57, 56, 55]
    assert await _numbers(a, "after=55") == [56, 57]
    assert await _numbers(a, "after=57") == []
    assert await _numbers(a, "after=56&wait=60") == [57]
    since = times.format_instant(START + 56 * times.MINUTE)
    assert await _numbers(a, f"since={since}") == [56, 57]


async def test_an_interval_has_its_figures(a: Asker, run: UUID) -> None:
    """An interval has the figures of a run; a gap, or an unreadable result, has none."""
    way = {
        "rate_bps": 16.0,
        "packet_rate": 1.0,
        "error_rate": 0.0,
        "drop_rate": 0.0,
        "bytes": 120,
        "packets": 60,
        "errors": 0,
        "drops": 0,
    }
    result = {"interface": "eth0", "duration_ms": 6e4, "received": way, "sent": way}
    await a.rows("UPDATE run_interval SET result = $1 WHERE number = 29", result)
    _, page = await a.ask("GET", f"/v1/runs/{run}/intervals?after=28&limit=3")
    first, *others = [item["metrics"] for item in page["items"]]
    assert first[0] == {
        "name": "rate_bps",
        "value": 16.0,
        "unit": "bit/s",
        "labels": {"direction": "received", "interface": "eth0"},
    }
    assert len(first) == 10
    assert others == [[], []]


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", "after=99999999999", "cursor=1", "order=up", "since=x", "x=1"]
)
@pytest.mark.mostly_nightly
async def test_invalid_queries(a: Asker, run: UUID, query: str) -> None:
    """A wrong parameter is refused."""
    assert (await a.ask("GET", f"/v1/runs/{run}/intervals?{query}"))[0] == 422


async def test_numbers_beyond_all_intervals(a: Asker, run: UUID) -> None:
    """The largest possible number, and another run's cursor, give an empty page."""
    assert await _numbers(a, "after=2147483647") == []
    assert await _numbers(a, f"cursor=1795310027600986_{run}") == []
    assert (await a.ask("GET", f"/v1/runs/{uuid4()}/intervals"))[0] == 404


async def test_the_last_intervals_of_a_run_that_goes_on(ask: Any, run: UUID) -> None:
    """A run in progress has no result yet, but a table of its intervals."""
    ended = await ask("run", "result", str(run), "-o", "table")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].split() == ["interval", "start", "result", "or", "reason"]
    assert len(lines) == 21
    assert lines[-1].startswith("57 ")
    assert lines[-1].endswith("eth0: 57 b/s")


async def test_intervals_in_a_pipe(ask: Any, run: UUID) -> None:
    """The last intervals, or all since an instant, are printed as JSON, gaps with their reason."""
    intervals = json.loads((await ask("run", "result", str(run), "--last", "28")).out)
    assert [each["number"] for each in intervals] == list(range(30, 58))
    assert (intervals[0]["result"], intervals[0]["reason"]) == (None, "a: the counters were reset")
    since = times.format_instant(START + 20 * times.MINUTE)
    intervals = json.loads((await ask("run", "result", str(run), "--since", since)).out)
    assert [each["number"] for each in intervals] == list(range(20, 58))


async def test_one_interval_in_full(ask: Any, run: UUID) -> None:
    """The result of one interval is printed as JSON or with units, and a gap has its reason."""
    ended = await ask("run", "result", str(run), "--interval", "0")
    assert json.loads(ended.out) == {"sent": {"rate_bps": 0}}
    ended = await ask("run", "result", str(run), "--interval", "57", "-o", "table")
    assert ended.out == "sent rate  57 b/s\n"
    ended = await ask("run", "result", str(run), "--interval", "30")
    assert (ended.code, ended.out) == (1, "")
    assert "the interval is a gap and has no result: a: the counters were reset" in ended.err
    assert (await ask("run", "result", str(run), "--interval", "58")).code == 6
