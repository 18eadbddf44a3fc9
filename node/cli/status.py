"""``parley status``: how the node is, on one screen, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import click

from node.cli.listing import expected_members
from node.cli.output import Record, RecordLayout, aligned_text, plural, readable_text
from node.cli.session import ReadingSession, reads_node
from node.cli.times import duration_in_words, local_time_text
from node.model import times
from node.model.leads import LeadState
from node.model.outcome import Judgement

NEEDS_ATTENTION = 1
_FULL = 0.1
"""Share of a disk's bytes below which it is called nearly full."""
_UNREAD = "cannot be read"

STATUS = RecordLayout(
    "name,version,runs.running,planning.due_tasks,peers,attention",
    model="node.model.wire.status:NodeStatus",
)


@click.command("status")
@reads_node
async def status(session: ReadingSession) -> int:
    """Show how the node is, and what needs attention.

    The exit code is 0 if the node is well, and 1 if something needs attention: each such thing is
    told with the command to type next. It needs a token of the role read, operate or own.

    \b
      parley status
      parley status -o json | jq -r '.attention[].what'
      parley status --fields attention -o jsonl
    """  # noqa: D301 - click's mark for lines to keep
    found = await session.reader.document("/status")
    with expected_members():
        session.output.print_one(found, STATUS, status_view)
    return NEEDS_ATTENTION if found["attention"] else 0


def status_view(status: Record) -> str:
    """Return the status as aligned lines, then what needs attention."""
    rows = [(name, readable_text(text)) for name, text in _rows(status)]
    return "\n".join([aligned_text(rows), "", *attention_lines(status["attention"])])


def attention_lines(attention: Sequence[Record] | None) -> list[str]:
    """Return a line for each thing that needs attention, and below it the next command."""
    if not attention:
        return ["✓ Nothing needs attention."]
    lines = [f"{plural(len(attention), 'thing needs', 'things need')} attention:"]
    for each in attention:
        lines += [f"  ! {readable_text(each['what'])}", f"    → {readable_text(each['command'])}"]
    return lines


def _rows(status: Record) -> Iterator[tuple[str, str]]:
    now = times.parse_instant(status["clock"]["now"])
    up = duration_in_words(now - times.parse_instant(status["started_at"]))
    yield "node", f"{status['name']}, version {status['version']}, up {up}"
    yield "reached at", status["url"] or "nowhere: it fetches its work itself"
    yield "clock", _clock_text(status["clock"])
    yield "database", _database_text(status["database"])
    yield "schema", _schema_text(status["database"])
    yield "disk", _disk_text(status["disk"])
    yield "load", "{one_minute:g} on {processors} processors".format(**status["load"])
    yield "backup", _backup_text(status["backup"], now)
    yield from zip_longest(("leads",), _lead_lines(status["leads"]), fillvalue="")
    yield "planning", _planning_text(status["planning"])
    yield "runs", _runs_text(status["runs"], now)
    yield "outcomes", _outcomes_text(status["outcomes"])
    yield "nodes", _peers_text(status)
    yield "backlog", _backlog_text(status["backlog"])


def _outcomes_text(outcomes: Record | None) -> str:
    """Return the number of tasks by the judgement of their newest runs."""
    if outcomes is None:
        return _UNREAD
    counts = outcomes["judgements"]
    told = [f"{counts[word]} {word}" for word in Judgement if word in counts]
    return ", ".join(told) or "no run of an active task is over"


def _clock_text(clock: Record) -> str:
    bound = "" if clock["error_bound_ms"] is None else f", within {clock['error_bound_ms']:.3g} ms"
    kept = {True: f"synchronised{bound}", False: "not synchronised", None: "state unknown"}
    return f"{local_time_text(clock['now'])}, {kept[clock['synchronised']]}"


def _database_text(database: Record) -> str:
    if database["server_version"] is None:
        return _UNREAD
    where = f" at {database['place']}" if database["place"] else ""
    size, took = size_in_words(database["size_bytes"]), database["answer_ms"]
    return f"Postgres {database['server_version']}{where}, {size}, answers in {took:g} ms"


def _schema_text(database: Record) -> str:
    there, own = database["schema_version"], database["program_schema_version"]
    if there is None:
        return f"{_UNREAD}; this program's is {own}"
    return f"version {there}" + ("" if there == own else f"; this program's is {own}")


def _disk_text(disk: Record) -> str:
    free, total = disk["free_bytes"], disk["total_bytes"]
    full = ", nearly full" if free < _FULL * total else ""
    return f"{size_in_words(free)} of {size_in_words(total)} free{full} ({disk['directory']})"


def _backup_text(backup: Record, now: int) -> str:
    if not backup["wanted"]:
        return "none by itself; PARLEY_BACKUP_DIRECTORY says where to"
    if backup["latest_at"] is None:
        return "none yet"
    return f"made {duration_in_words(now - times.parse_instant(backup['latest_at']))} ago"


def _lead_lines(leads: Sequence[Record] | None) -> list[str]:
    if leads is None:
        return [_UNREAD]
    return [_lead_text(lead) for lead in leads] or ["none: no task is planned here"]


def _lead_text(lead: Record) -> str:
    heard = _age_text(lead["heartbeat_age"])
    words = [f"{lead['owner']} {lead['state']}", f"heard {heard} ago"]
    if lead["state"] == LeadState.PLANNING:
        of = "" if lead["workers"] is None else f" of {lead['workers']} workers"
        words.append(f"{lead['leases']}{of} busy")
    if lead["oldest_lease_age"] is not None:
        words.append(f"oldest lease {_age_text(lead['oldest_lease_age'])} old")
    if lead["takeovers"]:
        at = local_time_text(lead["took_over_at"])
        words.append(f"took over {plural(lead['takeovers'], 'task')}, last {at}")
    return ", ".join(words)


def _planning_text(planning: Record | None) -> str:
    if planning is None:
        return _UNREAD
    words = [f"{plural(planning['due_tasks'], 'task')} due"]
    if planning["due_tasks"]:
        words.append(f"the first for {_age_text(planning['oldest_due'])}")
    if planning["waiting_for_nodes"]:
        words.append(f"{planning['waiting_for_nodes']} wait for a node")
    age = planning["plan_age"]
    words.append(
        "none was planned yet" if age is None else f"the last was planned {_age_text(age)} ago"
    )
    return ", ".join(words)


def _runs_text(runs: Record | None, now: int) -> str:
    if runs is None:
        return _UNREAD
    following = runs["next_start"]
    if following is None:
        return f"{runs['running']} now, none booked"
    ahead = duration_in_words(times.parse_instant(following) - now)
    return f"{runs['running']} now, the next in {ahead}"


def _peers_text(status: Record) -> str:
    away = [peer["name"] for peer in status["peers_away"]]
    known = f"{plural(status['peers'], 'other')} known"
    return f"{known}, {len(away)} away: {', '.join(away)}" if away else f"{known}, none away"


def _backlog_text(backlog: Record | None) -> str:
    if backlog is None:
        return _UNREAD
    messages, waiting = backlog["messages"], backlog["results_waiting"]
    parked = backlog["results_parked"]
    return (
        f"{plural(messages, 'message')} to other nodes, {plural(waiting, 'result')} to archives"
        + (f", {parked} parked" if parked else "")
    )


def _age_text(duration: Any) -> str:
    return duration_in_words(times.parse_duration(duration))


def size_in_words(count: float) -> str:
    """Format a number of bytes with three digits: ``1.25 GB``."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:g} B"
