"""Print the intervals that a long run has measured so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.cli.listing import collect, expected_members
from node.cli.output import Column, RecordLayout, printable_text
from node.cli.times import local_time_text
from node.model.errors import NotFound
from node.model.times import format_instant

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from node.cli.session import ReadingSession, Session
    from node.client.answers import Members, Page
    from node.client.session import NodeSession
    from node.model.wire.runs import Run

LAST = 20
"""Default number of intervals to show below the result of a run."""

STREAMED = "background-multi"
"""The class of all tests that give results repeatedly while a run lasts."""

INTERVAL = RecordLayout(
    "number,starts_at,ends_at,summary,reason",
    Column("interval", lambda interval: str(interval["number"]), whole=True),
    Column("start", lambda interval: local_time_text(interval["starts_at"]), whole=True),
    Column("result or reason", lambda it: interval_text(it["summary"], it["reason"])),
    empty="No interval has been measured so far.",
    model="node.model.wire.runs:RunInterval",
)


def interval_text(summary: str | None, reason: str | None) -> str:
    """Return the result of an interval, what is missing from it, or both, in one line."""
    return "; ".join(printable_text(words) for words in (summary, reason) if words)


async def latest_intervals(
    reader: NodeSession, run: str, last: int | None, since: int | None
) -> list[Members]:
    """Return the last intervals of a run, earliest first: ``last`` of them, or all ``since``."""
    most = last if last is not None else LAST if since is None else 100_000
    start = None if since is None else format_instant(since)

    def fetch(*, limit: int, cursor: str | None) -> Awaitable[Page[Members]]:
        query = {"since": start, "order": "desc", "limit": limit, "cursor": cursor}
        return reader.listed(f"/runs/{run}/intervals", query)

    items, _ = await collect(fetch, most)
    return items[::-1]


async def find_interval(reader: NodeSession, run: str, number: int) -> Members:
    """Return one interval of a run.

    :raises NotFound: it has not been measured, or the run has no interval of this number.
    """
    after = number - 1 if number else None
    page = await reader.listed(f"/runs/{run}/intervals", {"after": after, "limit": 1})
    if not page.items or page.items[0]["number"] != number:
        raise NotFound(f"interval {number} of the run has not been measured, or the run has none")
    return page.items[0]


def print_intervals(session: ReadingSession, intervals: list[Members]) -> None:
    """Print intervals as a table, or as JSON."""
    with expected_members():
        session.output.print_list(intervals, INTERVAL)


async def note_new(session: Session, run: Run, last: int | None, wait_s: int) -> int | None:
    """Note the intervals after ``last``, once there is one; return the last number noted."""
    page = await session.client.intervals(run.id, after=last, wait_s=wait_s)
    for interval in page.items:
        mark = "·" if interval.reason is None else "✗"
        words = interval_text(interval.summary, interval.reason)
        session.progress.note(f"{mark} {local_time_text(interval.starts_at)}  {words}")
        last = interval.number
    return last
