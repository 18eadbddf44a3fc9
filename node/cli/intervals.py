"""What a run that lasts long has measured so far, interval by interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.cli.listing import collect
from node.cli.output import Column, RecordLayout, printable, records_of
from node.cli.times import local
from node.model.errors import NotFound

if TYPE_CHECKING:
    from node.cli.session import Session
    from node.client.users import Page
    from node.model.wire.runs import Run, RunInterval

LAST = 20
"""How many are shown below the result of a run, unless said."""

STREAMED = "background-multi"
"""The class of all tests that give a result again and again while a run lasts."""

INTERVAL = RecordLayout(
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
    """What came of an interval; of one that is not whole, also what it lacks."""
    return "; ".join(printable(words) for words in (summary, reason) if words)


async def latest(
    session: Session, run: Run, last: int | None, since: int | None
) -> list[RunInterval]:
    """The last intervals of a run, earliest first: so many, or all since an instant."""

    async def page(size: int, cursor: str | None) -> Page[RunInterval]:
        return await session.client.intervals(
            run.id, since=since, latest_first=True, limit=size, cursor=cursor
        )

    most = last if last is not None else LAST if since is None else 100_000
    found, _ = await collect(page, most)
    return found[::-1]


async def the_one(session: Session, run: Run, number: int) -> RunInterval:
    """One interval of a run.

    :raises NotFound: it has not been measured, or there is none of this number.
    """
    after = number - 1 if number else None
    found = await session.client.intervals(run.id, after=after, limit=1)
    if not found.items or found.items[0].number != number:
        msg = f"interval {number} of the run has not been measured, or the run has none"
        raise NotFound(msg)
    return found.items[0]


def table(session: Session, found: list[RunInterval]) -> None:
    """Print intervals."""
    session.output.many(records_of(found), INTERVAL)


async def tell_new(session: Session, run: Run, told: int | None, wait_s: int) -> int | None:
    """Say what was measured behind interval ``told``, or once there is any; the last one told."""
    found = await session.client.intervals(run.id, after=told, wait_s=wait_s)
    for each in found.items:
        mark = "·" if each.reason is None else "✗"
        words = in_words(each.summary, each.reason)
        session.progress.note(f"{mark} {local(each.starts_at)}  {words}")
        told = each.number
    return told
