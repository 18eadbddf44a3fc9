"""``parley events``: the changes on the node as they happen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from node.cli.options import options
from node.cli.output import Column, Record, RecordLayout
from node.cli.references import find_task, short
from node.cli.retrying import PAUSES_S, RETRYABLE_ERRORS, announce_retry
from node.cli.session import Session, asks_node
from node.cli.times import clock_time
from node.model import times

if TYPE_CHECKING:
    from node.client.events import ServerEvent

GAP = "gap"
"""The type of the event that tells that the node has lost some."""
_WORDS = ("state", "judgement", "outcome", "verb", "by", "number", "campaign")


def _subject_text(event: Record) -> str:
    about_id = event["event"] in {"run", "interval", "task", "exchange", "reservation", "token"}
    return short(event["id"]) if about_id else str(event["id"])


EVENT = RecordLayout(
    "event_id,event,id,task,state,headline",
    Column("event", lambda event: event["event"], whole=True),
    Column("id", _subject_text, whole=True),
    Column("change", lambda event: " ".join(str(event[w]) for w in _WORDS if w in event)),
    Column("what", lambda event: event.get("headline", "")),
)


def _split_words(_: click.Context, __: click.Parameter, written: str | None) -> list[str]:
    return list(filter(None, (word.strip() for word in (written or "").split(","))))


@click.command("events")
@options("--kind A,B as kinds  Only events of these kinds.", callback=_split_words)
@options("--task TASK as written  Only events of this task and its runs.")
@options("--state A,B as states  Only changes to these states.", callback=_split_words)
@options("--kept  Begin with the events that the node has kept.")
@click.option("--after", type=click.IntRange(0), metavar="ID", help="Begin after this event.")
@options("--count 1..  End after so many events.")
@asks_node
async def events(
    session: Session,
    kinds: list[str],
    written: str | None,
    states: list[str],
    kept: bool,
    after: int | None,
    count: int | None,
) -> None:
    """Print the changes on the node as they happen, until Ctrl-C.

    With -o json or jsonl each event is a JSON object on a line of its own. If the connection is
    lost, it is made again, and what happened meanwhile is printed, as far as the node has kept it:
    its latest 2,000 events.

    \b
      parley events
      parley events --kind run --state failed,missed -o jsonl
      parley events --task @-1 --kept
      parley events --kind node --count 1 --timeout 10m     # wait for a node to come or go
    """  # noqa: D301 - click's mark for lines to keep
    if session.output.format == "csv":
        raise click.UsageError("events are printed as they come; use -o jsonl, ids or table")
    task = None if written is None else (await find_task(session, written)).id
    stream = partial(session.client.events, types=kinds, task=task)
    first = 0 if kept and after is None else after
    left = count
    async for record in _records(session, first, stream):
        if record["event"] == GAP:
            _print_gap(session, record)
        elif not states or record.get("state") in states:
            _print(session, record)
            if left is not None and (left := left - 1) == 0:
                return


async def _records(
    session: Session, after: int | None, stream: Callable[[int | None], AsyncIterator[ServerEvent]]
) -> AsyncIterator[dict[str, Any]]:
    """Yield the events of a stream, also those after a lost connection."""
    attempt = 0
    while True:
        try:
            async for event in stream(after):
                known, attempt, after = after, 0, event.number
                session.progress.clear()
                if event.kind != GAP or known:  # whoever knows none has lost none
                    yield _record(event)
        except RETRYABLE_ERRORS as error:
            if after is None or attempt == len(PAUSES_S):
                raise
            await announce_retry(session.progress, session.clock, error, PAUSES_S[attempt])
            attempt += 1


def _record(event: ServerEvent) -> dict[str, Any]:
    return {"event_id": event.number, "event": event.kind, **event.body}


def _print_gap(session: Session, record: Record) -> None:
    """Note on a terminal that events were lost; give programs the event ``gap`` itself."""
    if session.output.format in {"table", "ids"}:
        session.progress.note(f"events between {record['after']} and {record['next']} are lost")
    else:
        session.output.print_line(record, EVENT)


def _print(session: Session, record: Record) -> None:
    output = session.output
    if output.format == "table":
        cells = filter(None, (column.text(record) for column in EVENT.columns))
        heard = record.get("at")  # nodes of 0.2 do not tell it
        instant = session.clock.now() if heard is None else times.parse_instant(heard)
        output.print_text("  ".join([clock_time(instant), *cells]))
    elif output.format == "ids":
        output.print_list([record], EVENT)
    else:
        output.print_line(record, EVENT)
