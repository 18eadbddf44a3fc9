"""``parley plan``: preview tasks and meshes; nothing is booked or stored.

An alternative is a complete task document: ``parley plan task … --alternative 1`` prints only
that, so ``parley plan task … --alternative 1 | parley task create --file -`` posts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from node.cli.documents import document_options, task_document
from node.cli.failures import NO_TIME
from node.cli.groups import command_group
from node.cli.meshplan import mesh
from node.cli.options import options
from node.cli.output import (
    Column,
    Record,
    RecordLayout,
    aligned_text,
    printable_text,
    readable_text,
    titled_lines,
)
from node.cli.references import short
from node.cli.session import Session, asks_node
from node.cli.times import duration_in_words, local_time_text
from node.model import times
from node.model.byte_quotas import bytes_text
from node.model.errors import NotFound, PeerUnreachable, RefusedByParticipant
from node.model.times import duration_text

_EXIT_CODES = {
    "found": 0,
    "partly": 0,
    "beyond-horizon": 0,
    "no-time": NO_TIME,
    "clock": NO_TIME,
    "refused": RefusedByParticipant.exit_code,
    "unreachable": PeerUnreachable.exit_code,
}

PLAN = RecordLayout(
    "outcome,asked,placed,tool,duration,displaced_count,sentence",
    Column("sentence", lambda plan: plan["sentence"]),
)

_BARS = "▁▂▃▄▅▆▇█"
_LISTED = 10
_REASONS = 3
_LEAST = 0.0005


plan_group = command_group("plan")


plan_group.add_command(mesh)


@plan_group.command("task")
@document_options
@options("--runs 1..  How many of the next starts to show [10].")
@click.option(
    "--alternative",
    type=click.IntRange(1),
    metavar="N",
    help="Print only the document of the N-th alternative, ready to be posted.",
)
@asks_node
async def task(session: Session, /, runs: int | None, alternative: int | None, **given: Any) -> int:
    """Preview a task; the options are those of task create.

    \b
      parley plan task throughput --spec source=a --spec dest=b --repeat 1h
      parley plan task rtt --spec dest=192.0.2.7 --repeat 5m --pool europe -k 2
      parley plan task --file task.json
      parley plan task --file task.json --alternative 1 | parley task create --file -
    """  # noqa: D301 - click's mark for lines to keep
    document = await task_document(session, given)
    session.progress.status("asking the participants for a time", "planning")
    plan = await session.client.plan(document if runs is None else {**document, "runs": runs})
    session.progress.clear()
    if alternative is None:
        spec = document.get("test", {}).get("spec", {})
        session.output.print_one(plan, PLAN, lambda record: plan_view(record, spec))
        return _EXIT_CODES[plan.outcome]
    if alternative > len(plan.alternatives):
        raise NotFound(_no_alternative_message(plan.model_dump(mode="json"), alternative))
    session.output.print_document(plan.alternatives[alternative - 1].document)
    return 0


def _no_alternative_message(plan: Record, wanted: int) -> str:
    count = len(plan["alternatives"])
    if count:
        return f"there is no alternative {wanted}, only {count}"
    if plan["outcome"] == "found":
        return (
            "there is no alternative: time was found for all runs of the task; create it as it is"
        )
    return f"there is no alternative; {plan['sentence']}"


def plan_view(plan: Record, spec: Record) -> str:
    """Describe a plan: starts, displaced runs, participants, occupancy, and alternatives."""
    from node.model.headline import headline  # loads pydantic

    names = [participant["name"] for participant in plan["participants"]]
    what = plan["test"] if plan["seats"] else headline(plan["test"], names, spec)
    head = f"{printable_text(what)}: {readable_text(plan['sentence'])}"
    takes = (
        f"takes {duration_text(plan['duration'])} on each participant, {plan['scheduling_class']}"
    )
    if plan["tool"]:
        takes += f", with {plan['tool']}"
    if plan.get("expected_bytes"):
        takes += f", moves {bytes_text(plan['expected_bytes'])} on each"
    sections = [
        [head, f"({takes}; nothing was booked or stored)"],
        _seat_lines(plan),
        _start_lines(plan),
        _unplaced_lines(plan),
        _displaced_lines(plan),
        _participant_lines(plan),
        _occupancy_lines(plan),
        _alternative_lines(plan),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _seat_lines(plan: Record) -> list[str]:
    """Describe the seats of a pool task: the first term seat by seat, later ones by their nodes."""
    if not plan["seats"]:
        return []
    first = plan["seats"][0]
    rows = []
    for seat in plan["seats"]:
        if seat["term"] == first["term"]:
            time = f"time for {seat['placed']} of {seat['asked']}" if seat["asked"] else ""
            who, why = printable_text(seat["node"] or "nobody"), readable_text(seat["reason"] or "")
            rows.append([str(seat["number"]), who, time, why])
    lines = [f"Seats from {local_time_text(first['term'])} on", *_columns(rows)]
    for term in dict.fromkeys(seat["term"] for seat in plan["seats"][len(rows) :]):
        in_term = [seat for seat in plan["seats"] if seat["term"] == term]
        nodes = [printable_text(seat["node"]) for seat in in_term if seat["node"]]
        summary = f"{len(nodes)} of {len(in_term)}: {', '.join(nodes) or 'nobody'}"
        lines.append(f"  from {local_time_text(term)}  {summary}")
    return lines


def _start_lines(plan: Record) -> list[str]:
    rows = []
    for start in plan["starts"]:
        late = times.parse_instant(start["starts_at"]) - times.parse_instant(start["slot"])
        notes = (
            [f"{duration_in_words(late)} after its nominal start"] if late >= times.SECOND else []
        )
        notes += ["displacing lower priorities"] if start["displacing"] else []
        notes += [printable_text(name) for name in start["nodes"]]
        rows.append([local_time_text(start["starts_at"]), ", ".join(notes)])
    lines = titled_lines("Starts", rows)
    if more := plan["placed"] - len(rows):
        lines.append(f"  and {more} more up to the horizon; --runs N shows more")
    if plan["drawn"] and rows:
        lines.append("  Drawn at random within the slip: the task will draw others.")
    return lines


def _unplaced_lines(plan: Record) -> list[str]:
    """Describe the first runs without a time; the reason of a single run is in the first line."""
    waiting = plan["asked"] - plan["placed"]
    if waiting <= 0 or plan["asked"] == 1:
        return []
    lines = [
        f"  {local_time_text(lost['slot'])}  {readable_text(lost['reason'])}"
        for lost in plan["unplaced"][:_REASONS]
    ]
    if waiting > len(lines):
        lines.append(f"  and {waiting - len(lines)} more; -o json has their reasons, too")
    return ["Would wait", *lines]


def _displaced_lines(plan: Record) -> list[str]:
    rows = [
        [
            printable_text(lost["name"]),
            *_displaced_run_lines(lost),
            local_time_text(lost["starts_at"]),
        ]
        for lost in plan["displaced"][:_LISTED]
    ]
    title = f"Would give way to priority {plan['priority']}"
    return titled_lines(title, rows, count=plan["displaced_count"])


def _displaced_run_lines(lost: Record) -> list[str]:
    """Return lines on a run that would give way; of another node's run only its class is known."""
    if lost["run"] is None:
        return ["another node's", "run", lost["scheduling_class"], ""]
    return [
        f"{lost['test']} of task {short(lost['task'])}",
        f"run {short(lost['run'])}",
        lost["scheduling_class"],
        f"priority {lost['priority']}",
    ]


def _participant_lines(plan: Record) -> list[str]:
    rows = []
    for participant in plan["participants"]:
        time = ""
        if participant["windows_free"] is not None:
            time = f"time for {participant['windows_free']} of {plan['asked']}"
        # The obstacles of a run are described beside the run.
        accepts = participant["answer"] == "accepts"
        reason = "" if accepts else readable_text(participant["reason"] or "")
        rows.append(
            [
                printable_text(participant["name"]),
                participant["answer"],
                printable_text(" ".join(participant["tools"])),
                time,
                reason,
            ]
        )
    return ["Participants", *_columns(rows)]


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as aligned lines, without the columns that are empty in every row."""
    columns = [column for column in zip(*rows, strict=True) if any(column)]
    return aligned_text(list(zip(*columns, strict=True)), indent="  ").splitlines()


def _occupancy_lines(plan: Record) -> list[str]:
    if not plan["occupancy"]:
        return []
    rows = []
    for full in plan["occupancy"]:
        hours = full["hours"]
        added = f"{full['added_s']:+,.0f} s"
        shares = f"{full['before']:.1%} → {full['after']:.1%}"
        rows += [
            [printable_text(full["name"]), added, shares, "now", _bars(hours, "before")],
            ["", "", "", "then", _bars(hours, "after")],
        ]
    lines = titled_lines("Occupancy of the next 24 h, hour by hour", rows)
    fullest = [
        (hour["after"], printable_text(full["name"]), hour)
        for full in plan["occupancy"]
        for hour in full["hours"]
        if abs(hour["after"] - hour["before"]) > _LEAST
    ]
    if fullest:
        share, name, hour = max(fullest, key=lambda entry: entry[0])
        lines.append(
            f"  fullest hour that changes: from {local_time_text(hour['starts_at'])} on {name}, "
            f"{hour['before']:.1%} → {share:.1%}"
        )
    return lines


def _bars(hours: Sequence[Record], which: str) -> str:
    """Return a character for each hour: a dot for nothing, else one of eight heights."""
    return "".join(
        "·" if hour[which] <= 0 else _BARS[min(7, int(hour[which] * 8))] for hour in hours
    )


def _alternative_lines(plan: Record) -> list[str]:
    rows = []
    for number, other in enumerate(plan["alternatives"], 1):
        outcome = (
            f"{other['placed']} of {other['asked']}, first at {local_time_text(other['starts_at'])}"
        )
        if other["displacing"]:
            outcome += f", {other['displacing']} displacing"
        rows.append([str(number), readable_text(other["differs"]), outcome])
    none = [
        f"  none {_NONE[other['kind']]}: {readable_text(other['reason'])}"
        for other in plan["no_alternatives"]
    ]
    if not rows:
        return ["No alternatives", *none] if none else []
    how = "  To create one, add: --alternative N | parley task create --file -"
    return [*titled_lines("Alternatives, the nearest first", rows), *none, how]


_NONE = {"later": "later", "shorter": "shorter", "tool": "with another tool"}
