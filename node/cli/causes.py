"""``parley run causes``: the runs that went wrong, grouped by why."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from node.cli.listing import collect, expected_members, measured_options
from node.cli.options import options
from node.cli.outcomes import common_causes, common_lines, mark_of
from node.cli.output import Column, Record, RecordLayout, printable_text, readable_text
from node.cli.references import find_task_id, short
from node.cli.session import ReadingSession, reads_node
from node.cli.times import api_instant, local_time_text
from node.model import times
from node.model.moments import Moment

if TYPE_CHECKING:
    from node.client.answers import Members, Page

OVER = ("finished", "failed", "missed", "unplaced")
"""The states of runs that nobody took back, and that no other attempt followed."""
WRONG = ("failed", "missed", "not-planned", "no-answer", "bad")
"""The judgements of runs that gave no result, or one that is no good."""
FIELDS = "id,task,headline,test,state,outcome,reason,starts_at,slots,followed_by"
"""The fields of runs that are needed to group them."""
READ_MAX = 5_000
"""Maximum number of runs that are read."""
_PARTICULARS = re.compile(
    r"[0-9a-f]{8}-[0-9a-f-]{27}|\d{4}-\d\d-\d\dT[0-9:.]+Z|\bPT?\d[0-9WDHMST.]*\b"
    r"|(?<=\s)\d(?:[0-9.,]*\d)?(?: (?:d|h|min|s|ms)\b(?: \d[0-9.,]* (?:h|min|s)\b)*)?",
    re.ASCII,
)
"""The parts of a reason that differ from run to run, much as in ``plain_cause`` of the database."""
_NAMED = 3
_DAY_AGO = Moment(offset=-times.DAY)


def plain_cause(reason: str) -> str:
    """Return a reason without times, lengths, ids and figures.

    >>> plain_cause("b cannot be reached since 2026-12-01T00:00:00Z: timed out after 5 s")
    'b cannot be reached since …: timed out after …'
    """
    return _PARTICULARS.sub("…", reason)


def runs_by_cause(runs: Iterable[Record], common: Iterable[Record] = ()) -> list[dict[str, Any]]:
    """Return runs by judgement and cause, most frequent first; a gap counts once per slot.

    Each has the sentences of those of the ``common`` causes that explain a task of its runs.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for run in runs:
        outcome = run["outcome"]
        cause = plain_cause(outcome["reason"] or "no reason is known")
        groups.setdefault((outcome["judgement"], cause), []).append(run)
    causes = [
        _cause_record(word, cause, members) | {"common": _common_sentences(members, common)}
        for (word, cause), members in groups.items()
    ]
    return sorted(causes, key=lambda each: (-each["count"], each["latest_at"]))


def _cause_record(judgement: str, cause: str, runs: Sequence[Record]) -> dict[str, Any]:
    latest = max(runs, key=_start)
    return {
        "count": sum(run["slots"] for run in runs),
        "outcome": judgement,
        "cause": cause,
        "example": latest["outcome"]["reason"],
        "headlines": list(dict.fromkeys(run["headline"] for run in runs)),
        "first_at": min(runs, key=_start)["starts_at"],
        "latest_at": latest["starts_at"],
        "run": latest["id"],
        "followed_by": latest_follow_ups(runs),
    }


def _common_sentences(runs: Iterable[Record], common: Iterable[Record]) -> list[str]:
    tasks = {run["task"] for run in runs}
    return [
        cause["sentence"]
        for cause in common
        if not tasks.isdisjoint(failing["task"] for failing in cause["tasks"])
    ]


def latest_follow_ups(runs: Iterable[Record]) -> Sequence[Record]:
    """Return the runs that follow the latest of some that any follows; empty if none does."""
    followed = [run for run in runs if run["followed_by"]]
    return max(followed, key=_start)["followed_by"] if followed else ()


def _start(run: Record) -> int:
    return times.parse_instant(run["starts_at"])


def _reason_text(cause: Record) -> str:
    """Return the full reason of the only run of a cause, or else the cause without its figures."""
    return str(cause["cause"] if cause["count"] > 1 else cause["example"] or cause["cause"])


def _headlines_text(cause: Record) -> str:
    named = cause["headlines"][:_NAMED]
    more = len(cause["headlines"]) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _follow_ups_text(cause: Record) -> str:
    """Return what the latest of these runs that asked for measurements led to."""
    return "; ".join(
        f"{each['headline']}: {each['summary'] or each['reason'] or each['state']}"
        for each in cause["followed_by"]
    )


CAUSE = RecordLayout(
    "count,outcome,cause,example,headlines,first_at,latest_at,run,followed_by,common",
    Column("runs", lambda cause: str(cause["count"]), whole=True),
    Column("outcome", lambda cause: cause["outcome"], whole=True),
    Column("why", _reason_text),
    Column("what", _headlines_text),
    Column("followed by", _follow_ups_text, optional=True),
    Column("latest", lambda cause: local_time_text(cause["latest_at"]), whole=True),
    Column("run", lambda cause: short(cause["run"]), whole=True),
    empty="No run of that time went wrong. Look further back: parley run causes --from -7d",
    key="run",
)


def cause_lines(causes: Sequence[Record], indent: str) -> list[str]:
    """Return a line for each cause, of runs that need no name, and what followed them."""
    lines = []
    for each in causes:
        lines.append(
            f"{indent}{each['count']} {each['outcome']}: {readable_text(_reason_text(each))} "
            f"(latest {local_time_text(each['latest_at'])}, run {short(each['run'])})"
        )
        lines += follow_up_lines(each["followed_by"], indent + "  ")
    return lines


def follow_up_lines(following: Sequence[Record], indent: str) -> list[str]:
    """Return a line for each run that follows one: what it measured, or why nothing yet."""
    return [
        f"{indent}{mark_of(each)} followed by {printable_text(each['headline'])}: "
        f"{readable_text(each['summary'] or each['reason'] or each['state'])} "
        f"({local_time_text(each['starts_at'])}, run {short(each['run'])})"
        for each in following
    ]


async def read_runs(
    session: ReadingSession, query: Mapping[str, object]
) -> tuple[list[Members], bool]:
    """Return the newest runs that meet a query, and whether there are more than are read."""

    def fetch(*, limit: int, cursor: str | None) -> Awaitable[Page[Members]]:
        return session.reader.listed("/runs", {**query, "limit": limit, "cursor": cursor})

    return await collect(fetch, READ_MAX)


@click.command("causes")
@options("--test TEXT  Only runs of this test.")
@options("--task TASK as written  Only runs of this task.")
@options("--from TIME as starts  Only runs from this time on [-1d].", default=_DAY_AGO)
@options("--to TIME as ends  Only runs before this time [now].")
@measured_options("runs")
@reads_node
async def causes(
    session: ReadingSession,
    /,
    *,
    written: str | None,
    starts: Moment,
    ends: Moment | None,
    **filters: Any,
) -> None:
    """Group the runs that went wrong by why, the most frequent first.

    These failed, were missed, found no time, had no answer, or are bad by their thresholds.

    \b
      parley run causes
      parley run causes --mesh backbone --from -7d
      parley run causes --participant b -o json

    First comes what is common to what fails now: a host, one direction of it, a network, a tool.
    In JSON and CSV, the field common has it, beside each cause of which it explains a task.
    The last column has the latest of these runs: parley explain RUN tells all about it.
    """  # noqa: D301 - click's mark for lines to keep
    now = session.clock.now()
    query = {
        **filters,
        "task": await find_task_id(session.reader, written) if written else None,
        "state": ",".join(OVER),
        "outcome": ",".join(WRONG),
        "from": api_instant(starts, now),
        "to": api_instant(ends or Moment(), now),
        "fields": FIELDS,
    }
    runs, more = await read_runs(session, query)
    with expected_members():
        common = await common_causes(session.reader, [run["task"] for run in runs])
        if common and session.output.format == "table" and not session.output.wide:
            session.output.print_text("\n".join([*common_lines(common), ""]))
        session.output.print_list(runs_by_cause(runs, common), CAUSE)
    if more:
        session.progress.note(f"Only the newest {READ_MAX} runs were read; choose a shorter time.")
