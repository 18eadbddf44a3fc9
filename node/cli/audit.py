"""``parley audit``: who did what on the node, and who was refused."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from node.cli.invocation import global_options
from node.cli.listing import limit_option, print_documents
from node.cli.options import options
from node.cli.output import Column, Record, RecordLayout, printable_text
from node.cli.retrying import retry_while_silent
from node.cli.session import Session, run_command, run_reading
from node.cli.times import api_instant, local_time_text
from node.model.audit import AuditOutcome
from node.model.moments import Moment
from node.model.principals import PrincipalKind

if TYPE_CHECKING:
    from node.cli.session import ReadingSession
    from node.client.responses import Page
    from node.model.wire.audit import AuditRecord

_WAIT_S = 20
_PAGE = 200


def _principal_text(row: Record) -> str:
    kind = "node " if row["kind"] == PrincipalKind.NODE else ""
    return f"{kind}{row['principal'] or row['kind']}"


def _outcome_text(row: Record) -> str:
    words = [row["outcome"]]
    if row["outcome"] != AuditOutcome.DONE:
        words += [str(row[name]) for name in ("status", "problem") if row[name]]
    return " ".join(words) + (f" ({row['count']} times)" if row["count"] > 1 else "")


ENTRY = RecordLayout(
    "id,at,kind,principal,key,role,origin,verb,thing,outcome,status,problem,count",
    Column("at", lambda row: local_time_text(row["at"]), whole=True),
    Column("who", _principal_text),
    Column("from", lambda row: row["origin"] or ""),
    Column("what", lambda row: row["verb"]),
    Column("on", lambda row: row["thing"] or ""),
    Column("outcome", _outcome_text),
    empty="Nothing of that kind is recorded.",
)


@click.command("audit")
@options(f"""
    --principal NAME  Only of this user or node: label, name or key.
    --verb TEXT       Only this operation, such as create_token.
    --thing ID|NAME   Only about this task, node, token and the like.
    --outcome [{"|".join(AuditOutcome)}]... as outcomes  Only with this outcome; several times: any
                      of these.
    --since TIME      From then on: -1h, yesterday, 2026-12-01.
    --until TIME      Before then.
    --follow          Print what is added from now on, until Ctrl-C.
""")
@limit_option
@global_options
@click.pass_context
def audit(
    context: click.Context,
    /,
    *,
    since: Moment | None,
    until: Moment | None,
    follow: bool,
    limit: int,
    **filters: Any,
) -> None:
    """Show who did what on the node, and who was refused.

    The newest come first, but for --follow. It needs a token of the role own.

    \b
      parley audit --since -1d --outcome refused
      parley audit --principal alice --verb create_task
      parley audit --thing 7c1e90ab              # all about that task, or token
      parley audit --follow -o jsonl             # each line as it is added

    A verb is the operationId of /v1/openapi.json: create_task creates a task, remove_node
    removes a node, introduce_task is another node's introduction of a task. What the
    node did by itself is token_made, limits_loaded, limits_broken and limit_reached; left_out
    counts the requests of a flood that have no rows of their own.
    """  # noqa: D301 - click's mark for lines to keep

    async def follow_rows(session: Session) -> None:
        now = session.clock.now()
        fetch = partial(
            session.client.audit,
            **filters,
            since=since.at(now) if since else None,
            until=until.at(now) if until else None,
        )
        await _follow(session, fetch)

    async def list_rows(session: ReadingSession) -> None:
        now = session.clock.now()
        query = {
            "principal": filters["principal"],
            "verb": filters["verb"],
            "thing": filters["thing"],
            "outcome": ",".join(filters["outcomes"]) or None,
            "since": api_instant(since, now),
            "until": api_instant(until, now),
        }
        await print_documents(session, ENTRY, "/audit", query, limit)

    context.exit(run_command(context, follow_rows) if follow else run_reading(context, list_rows))


async def _follow(session: Session, fetch: Any) -> None:
    """Print rows that are added from now on, in their order, until interrupted."""
    if session.output.format == "csv":
        raise click.UsageError("--follow prints lines as they come; use -o jsonl, ids or table")
    latest: Page[AuditRecord] = await session.client.audit(limit=1)
    last = latest.items[0].id if latest.items else 0
    while True:
        following = partial(fetch, oldest_first=True, cursor=str(last), limit=_PAGE, wait_s=_WAIT_S)
        added: Page[AuditRecord] = await retry_while_silent(
            session.progress, session.clock, following
        )
        for record in added.items:
            row, last = record.model_dump(mode="json"), record.id
            if session.output.format == "table":
                session.output.print_text("  ".join(filter(None, _cells(row))))
            elif session.output.format == "json":
                session.output.print_document(row)
            else:
                session.output.print_list([row], ENTRY)


def _cells(row: Record) -> list[str]:
    return [printable_text(column.cell(row)) for column in ENTRY.columns]
