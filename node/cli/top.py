"""``parley top``: what the node does now and next, who takes its time, and its load."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from node.cli.options import options
from node.cli.output import RecordLayout, aligned_text, percent, plural, printable_text, records_of
from node.cli.references import short
from node.cli.retrying import retry_while_silent
from node.cli.session import Session, asks_node
from node.cli.status import attention_lines
from node.cli.times import SECONDS, clock_time, duration_in_words
from node.model import times

if TYPE_CHECKING:
    from node.model.wire.runs import Run
    from node.model.wire.status import NodeStatus

_SPAN = times.HOUR
"""Time before and after now of which the takers of the node are told."""
_NEXT_MAX = 8
_RUNS_MAX = 500
"""Maximum number of runs of each hour, those nearest to now."""
_NOW = frozenset({"running", "merging"})
_TO_COME = frozenset({"scheduled", "held", "set-aside"})
_TAKING = _NOW | _TO_COME | {"finished", "failed"}
"""States of runs that take the node's time, or took it."""

TOP = RecordLayout("name,now,load.one_minute,running,next,takers")

Document = dict[str, Any]


@click.command("top")
@options("--once  Print once, as where the output is not a terminal.")
@click.option(
    "--every", type=SECONDS, default=2 * times.SECOND, help="Pause between two looks [2s]."
)
@asks_node
async def top(session: Session, once: bool, every: int) -> None:
    """Show what the node does now and next, who takes its time, and its load.

    On a terminal it is shown anew until Ctrl-C. Who takes the time is told for the hour before now
    and the hour after: for tasks led here the user who requested them, for others the node that
    leads them. It needs a token of the role read, operate or own.

    \b
      parley top
      parley top --every 10s
      parley top --once -o json | jq '.takers'
    """  # noqa: D301 - click's mark for lines to keep
    if once or not session.output.terminal or session.output.format != "table":
        session.output.print_one(
            await _fetch_document(session), TOP, lambda record: top_view(dict(record))
        )
        return
    await _show_live(session, max(every, times.SECOND // 2))


async def _show_live(session: Session, every: int) -> None:
    from rich.live import Live  # slow to load, needed on terminals only
    from rich.text import Text

    document = await _fetch_document(session)
    with Live(Text(top_view(document)), screen=True, auto_refresh=False) as shown:
        while True:
            shown.update(Text(top_view(document)), refresh=True)
            await session.clock.sleep(every / times.SECOND)
            document = await retry_while_silent(
                session.progress, session.clock, lambda: _fetch_document(session)
            )


async def _fetch_document(session: Session) -> Document:
    status = await session.client.status()
    now = status.clock.now
    past = await session.client.runs(starts=now - _SPAN, ends=now, limit=_RUNS_MAX)
    coming = await session.client.runs(
        starts=now, ends=now + _SPAN, oldest_first=True, limit=_RUNS_MAX
    )
    # Long runs may have begun earlier.
    running = await session.client.runs(states=sorted(_NOW), limit=_RUNS_MAX)
    runs = {run.id: run for run in (*running.items, *past.items, *coming.items)}
    ordered = sorted(runs.values(), key=lambda run: run.starts_at)
    complete = past.next is None and coming.next is None
    return document_of(status, ordered, complete=complete)


def document_of(status: NodeStatus, runs: Sequence[Run], *, complete: bool) -> Document:
    """Return what is shown, given the runs of the hours before and after now."""
    now = status.clock.now
    running = [run for run in runs if run.state in _NOW]
    following = [run for run in runs if run.state in _TO_COME and run.starts_at >= now]
    document = status.model_dump(mode="json")
    return {
        "name": status.name,
        "now": document["clock"]["now"],
        "load": document["load"],
        "planning": document["planning"],
        "leads": document["leads"],
        "running": records_of(running),
        "next": records_of(following[:_NEXT_MAX]),
        "following": len(following),
        "takers": takers(runs, now),
        "complete": complete,
        "attention": document["attention"],
    }


def takers(runs: Iterable[Run], now: int) -> list[Document]:
    """Return who takes the node's time around now, those who take most first.

    ``share`` is the part of the two hours in which the runs of one take place; those that overlap
    count each, so it may be more than 1.
    """
    taken: defaultdict[str, int] = defaultdict(int)
    counts: defaultdict[str, int] = defaultdict(int)
    for run in runs:
        if run.state not in _TAKING or run.participant is None:
            continue
        begins, ends = max(run.starts_at, now - _SPAN), min(run.ends_at, now + _SPAN)
        who = run.requester or run.lead
        taken[who] += max(0, ends - begins)
        counts[who] += 1
    ranked = sorted(taken, key=lambda who: (-taken[who], who))
    return [
        {
            "who": who,
            "runs": counts[who],
            "time": times.format_duration(taken[who]),
            "share": round(taken[who] / (2 * _SPAN), 4),
        }
        for who in ranked
    ]


def top_view(document: Document) -> str:
    """Return the screen: what runs, what comes, and who takes the time."""
    now = times.parse_instant(document["now"])
    load, planning = document["load"], document["planning"]
    leases = sum(lead["leases"] for lead in document["leads"] or ())
    due = "?" if planning is None else plural(planning["due_tasks"], "task")
    head = (
        f"{document['name']}  {clock_time(now)}   load {load['one_minute']:g} on "
        f"{plural(load['processors'], 'processor')}   {due} due, "
        f"{leases} being planned"
    )
    lines = [printable_text(head), "", "now"]
    lines += _table([_running_cells(run, now) for run in document["running"]], "nothing")
    more = document["following"] - len(document["next"])
    lines += ["", "next" + (f" (and {more} more within the hour)" if more > 0 else "")]
    lines += _table(
        [_coming_cells(run, now) for run in document["next"]], "nothing within the hour"
    )
    lines += ["", "who takes the node, an hour before and after now"]
    lines += _table([_taker_cells(taker) for taker in document["takers"]], "nobody")
    if not document["complete"]:
        lines.append(f"  (of the first {_RUNS_MAX} runs; there are more)")
    if document["attention"]:
        lines += ["", *attention_lines(document["attention"])]
    return "\n".join(lines)


def _table(rows: Sequence[Sequence[str]], nothing: str) -> list[str]:
    return aligned_text(rows, "  ").splitlines() if rows else [f"  {nothing}"]


def _running_cells(run: Document, now: int) -> list[str]:
    left = times.parse_instant(run["ends_at"]) - now
    ends = f"{duration_in_words(left)} left" if left > 0 else run["state"]
    return [short(run["id"]), *_measurement_cells(run), ends]


def _coming_cells(run: Document, now: int) -> list[str]:
    begins = times.parse_instant(run["starts_at"])
    return [short(run["id"]), *_measurement_cells(run), f"in {duration_in_words(begins - now)}"]


def _measurement_cells(run: Document) -> list[str]:
    who = run["requester"] or run["lead"]
    return [printable_text(run["headline"]), run["scheduling_class"], printable_text(who)]


def _taker_cells(taker: Document) -> list[str]:
    took = duration_in_words(times.parse_duration(taker["time"]))
    return [
        printable_text(taker["who"]),
        plural(taker["runs"], "run"),
        took,
        percent(taker["share"]),
    ]
