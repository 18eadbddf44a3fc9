"""Print the intervals that a long run has measured so far."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from node.cli.listing import collect
from node.cli.output import Column, RecordLayout, printable, records_of
from node.cli.times import local
from node.model.errors import NotFound

if TYPE_CHECKING:
    from node.cli.session import Session
    from node.model.wire.runs import Run, RunInterval

LAST = 20
"""Default number of intervals to show below the result of a run."""

STREAMED = "background-multi"
"""The class of all tests that give results repeatedly while a run lasts."""

INTERVAL = RecordLayout(
    model="node.model.wire.runs:RunInterval",
    columns=(
        Column("interval", lambda interval: str(interval["number"]), whole=True),
        Column("start", lambda interval: local(interval["starts_at"]), whole=True),
        Column("result or reason", lambda it: in_words(it["summary"], it["reason"])),
    ),
    fields=("number", "starts_at", "ends_at", "summary", "reason"),
    empty="No interval has been measured so far.",
    key="number",
)


def in_words(summary: str | None, reason: str | None) -> str:
    """Describe the outcome of an interval: its result, what is missing from it, or both."""
    return "; ".join(printable(words) for words in (summary, reason) if words)


async def latest(
    session: Session, run: Run, last: int | None, since: int | None
) -> list[RunInterval]:
    """Return the last intervals of a run, earliest first: ``last`` of them, or all ``since``."""
    most = last if last is not None else LAST if since is None else 100_000
    fetch = partial(session.client.intervals, run.id, since=since, latest_first=True)
    items, _ = await collect(fetch, most)
    return items[::-1]


async def the_one(session: Session, run: Run, number: int) -> RunInterval:
    """Return one interval of a run.

    :raises NotFound: it has not been measured, or the run has no interval of this number.
    """
    after = number - 1 if number else None
    page = await session.client.intervals(run.id, after=after, limit=1)
    if not page.items or page.items[0].number != number:
        msg = f"interval {number} of the run has not been measured, or the run has none"
        raise NotFound(msg)
    return page.items[0]


def table(session: Session, intervals: list[RunInterval]) -> None:
    """Print intervals."""
    session.output.many(records_of(intervals), INTERVAL)


async def note_new(session: Session, run: Run, last: int | None, wait_s: int) -> int | None:
    """Note the intervals after ``last``, once there is one; return the last number noted."""
    page = await session.client.intervals(run.id, after=last, wait_s=wait_s)
    for interval in page.items:
        mark = "·" if interval.reason is None else "✗"
        words = in_words(interval.summary, interval.reason)
        session.progress.note(f"{mark} {local(interval.starts_at)}  {words}")
        last = interval.number
    return last
