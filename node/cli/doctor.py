"""``parley doctor``: what is wrong with a node, or between two nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from node.cli.output import Column, Record, RecordLayout, plural, readable_text
from node.cli.session import Session, asks_node

SOMETHING_WRONG = 1

_MARKS = {"ok": "✓", "warning": "!", "fault": "✗", "skipped": "?"}

CHECK = RecordLayout(
    "node,towards,subject,state,what,cause,command,where",
    Column("node", lambda check: check["node"], whole=True),
    Column("towards", lambda check: check["towards"] or "", whole=True, optional=True),
    Column("check", lambda check: check["subject"], whole=True),
    Column("state", lambda check: check["state"], whole=True),
    Column("what", lambda check: check["what"]),
    Column("cause", lambda check: check["cause"] or ""),
    Column("next command", lambda check: check["command"] or ""),
    Column("on", lambda check: check["where"] or "", optional=True),
    empty="Nothing was checked.",
    key="subject",
)


@click.command("doctor")
@click.argument("a", required=False, metavar="[A]")
@click.argument("b", required=False, metavar="[B]")
@asks_node
async def doctor(session: Session, a: str | None, b: str | None) -> int:
    """Find what is wrong with the node, or between two nodes, and what to type next.

    Without arguments the node is checked alone: its leads, database, schema, disk, clock, tools and
    what they may do, limits, and load. With A, the way between this node and node A is checked in
    both directions; with A and B the way between these two, and each of them is asked for its
    view. That has whether they know each other, their clocks, the tools in common, the largest
    packet, the ports of tools over TCP and UDP, limits, and load. Nothing is booked; a few packets
    are sent.

    The exit code is 1 if something is wrong (✗), and 0 otherwise, also with warnings (!). It needs
    a token of the role operate or own.

    \b
      parley doctor                   # this node
      parley doctor b                 # from here to b, and back
      parley doctor b c               # between b and c; both are asked
      parley doctor b -o jsonl | jq 'select(.state == "fault")'
    """  # noqa: D301 - click's mark for lines to keep
    from node.model.wire.checks import DiagnosisRequest  # loads pydantic

    ends = {"to": a} if b is None else {"from": a, "to": b}
    request = DiagnosisRequest.model_validate(ends)
    session.progress.status(_progress_text(a, b), "checking")
    answer = await session.client.check(request)
    session.progress.clear()
    records = [
        {"node": view.node, "towards": view.towards, **check.model_dump(mode="json")}
        for view in answer.views
        for check in view.checks
    ]
    if session.output.format == "table":
        session.output.print_text(diagnosis_view(records))
    else:
        session.output.print_list(records, CHECK)
    return SOMETHING_WRONG if any(each["state"] == "fault" for each in records) else 0


def _progress_text(a: str | None, b: str | None) -> str:
    if a is None:
        return "checking the node"
    return f"checking the way to {a} and back" if b is None else f"having {a} and {b} checked"


def diagnosis_view(records: Sequence[Record]) -> str:
    """Format checks for a person: those of each view below its heading, faults with what to do."""
    lines: list[str] = []
    heading = None
    width = max((len(each["subject"]) for each in records), default=0)
    for each in records:
        if heading != (heading := _heading(each)):
            lines += [*([""] if lines else []), heading]
        mark = _MARKS[each["state"]]
        lines.append(f"  {mark} {each['subject']:<{width}}  {readable_text(each['what'])}")
        lines += (f"    {'':<{width}}  {line}" for line in _advice(each))
    return "\n".join([*lines, "", _summary(records)])


def _heading(check: Record) -> str:
    return readable_text(
        f"{check['node']} → {check['towards']}" if check["towards"] else check["node"]
    )


def _advice(check: Record) -> Iterator[str]:
    """Yield lines with the probable cause and the next command of a check that failed."""
    if check["cause"]:
        yield f"cause: {readable_text(check['cause'])}"
    if check["command"]:
        where = f"on {check['where']}: " if check["where"] else ""
        yield f"next:  {where}{readable_text(check['command'])}"


def _summary(records: Sequence[Record]) -> str:
    counts: Counter[Any] = Counter(each["state"] for each in records)
    words = [
        plural(counts[state], noun)
        for state, noun in (("fault", "fault"), ("warning", "warning"))
        if counts[state]
    ]
    unknown = f", {plural(counts['skipped'], 'check')} not made" if counts["skipped"] else ""
    return (" and ".join(words) or "Nothing is wrong") + unknown + "."
