"""``parley explain``: why a task or a run is in its state; one sentence, then the attempts.

The trace of a decision is the lead's own record (``decision.trace`` in ``schema.sql``): requested
windows, offers of the participants with their obstacles, choices, refusals. Unknown parts are
skipped and remain visible with ``-o json``, so a trace of a newer lead does not break the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from node.cli.listing import print_record
from node.cli.options import options
from node.cli.output import (
    Column,
    Record,
    RecordLayout,
    printable_text,
    readable_text,
    sanitise_line,
)
from node.cli.references import find_run_or_task, find_task_id, short
from node.cli.session import ReadingSession, reads_node
from node.cli.times import api_instant, clock_time, duration_in_words, local_time_text
from node.model.moments import Moment

if TYPE_CHECKING:
    from node.client.answers import Members

EXPLANATION = RecordLayout(
    "task,run,headline,state,sentence",
    Column("sentence", lambda explanation: explanation["sentence"]),
    model="node.model.wire.runs:Explanation",
)

_DECISIONS_SHOWN = 3
_SPANS_SHOWN = 3
_OBSTACLES_SHOWN = 5
_SPAN = 2


@click.command("explain")
@click.argument("what", metavar="TASK|RUN")
@options("""
    --all as everything  Show every attempt, not only the newest three.
    --slot TIME          Only the slot of a task at or nearest to this time: 10:05, -2h.
""")
@reads_node
async def explain(
    session: ReadingSession, what: str, *, everything: bool, slot: Moment | None
) -> None:
    """Explain why a task or a run is in its state, or why a run has no time.

    With --slot, explain why the slot at that time, or the nearest one, was measured or not; many
    slots that were never planned, because no lead was running, are one gap.
    """
    explanation = await _explanation(session, what, slot)

    def view(record: Record) -> str:
        return explanation_view(record, None if everything else _DECISIONS_SHOWN)

    print_record(session, EXPLANATION, explanation, view)


async def _explanation(session: ReadingSession, what: str, slot: Moment | None) -> Members:
    reader, now = session.reader, session.clock.now()
    if slot is not None:
        task = await find_task_id(reader, what)
        return await reader.document(f"/tasks/{task}/explain", {"slot": api_instant(slot, now)})
    # @-1 means the newest task: its author just created it, and a run of a seat may be newer.
    if what.startswith("@"):
        kind, identifier = "tasks", await find_task_id(reader, what)
    else:
        kind, identifier = await find_run_or_task(reader, what, now)
    return await reader.document(f"/{kind}/{identifier}/explain")


def explanation_view(explanation: Record, shown: int | None) -> str:
    """Format the sentence and the newest ``shown`` decisions, or all."""
    subject = f"run {short(explanation['run'])} of " if explanation["run"] else ""
    subject += f"task {short(explanation['task'])}"
    if explanation.get("requester"):
        subject += f" of {printable_text(explanation['requester'])}"
    lines = [
        f"{printable_text(explanation['headline'])}: {readable_text(explanation['sentence'])}",
        f"({subject}, {explanation['state']})",
    ]
    if explanation.get("tool_reason"):
        tool = f"{explanation['tool']}: {explanation['tool_reason']}"
        lines.append(f"  tool     {readable_text(tool)}")
    decisions = explanation["decisions"]
    for decision in decisions[:shown]:
        lines += ["", *decision_lines(decision)]
    if shown is not None and len(decisions) > shown:
        lines += ["", f"and {len(decisions) - shown} earlier attempts: --all shows them"]
    return "\n".join(lines)


def decision_lines(decision: Record) -> list[str]:
    """Describe one planning attempt: windows, offers, obstacles, and choices."""
    trace = decision["trace"]
    what = "seats given" if "pool" in trace else "runs placed"
    count = f"{decision['placed']} of {decision['asked']} {what}"
    often = ""
    if decision["times"] > 1:
        often = f", {decision['times']} times since {local_time_text(decision['first_at'])}"
    decided_at = local_time_text(decision["decided_at"])
    lines = [
        f"{decided_at}  {printable_text(decision['outcome'])}, {count}{often}",
        f"  {readable_text(decision['sentence'])}",
    ]
    lines += [
        f"  before   {readable_text(why)}" for why in _items(trace.get("before"))[:_SPANS_SHOWN]
    ]
    if windows := _spans(trace.get("windows")):
        lines.append(f"  asked    {_spans_text(windows)}")
    for offer in _objects(trace.get("offers")):
        lines += _offer_lines(offer)
    if choices := [_choice_text(choice) for choice in _items(trace.get("choices"))]:
        lines.append(f"  chosen   {_first_texts(choices, _SPANS_SHOWN)}")
    lines += _seat_lines(trace)
    refusals = trace.get("refusals")
    if isinstance(refusals, Mapping):
        lines += [f"  refused  {name}: {readable_text(why)}" for name, why in refusals.items()]
    return [sanitise_line(line) for line in lines]


def _seat_lines(trace: Mapping[str, Any]) -> list[str]:
    """Return lines on what an episode decided about the seats of a pool task, and the verdicts."""
    lines: list[str] = []
    if isinstance(seats := trace.get("seats"), Mapping) and seats:
        seated = [f"{number} {printable_text(name)}" for number, name in seats.items()]
        lines.append(f"  seats    {', '.join(seated)}")
    if runs := [short(str(run)) for run in _items(trace.get("yielding"))]:
        lines.append(f"  yielding {_first_texts(runs, _SPANS_SHOWN)}")
    if "policies" in trace:
        lines.append(
            f"  by       {printable_text(trace['policies'])}, pool {printable_text(trace['pool'])}"
        )
    for verdict in _objects(trace.get("verdicts")):
        rule = f"{verdict.get('axis', '?')}/{verdict.get('rule', '?')}"
        lines.append(
            f"  no       {readable_text(verdict.get('sentence', ''))} ({printable_text(rule)})"
        )
    return lines


def _offer_lines(offer: Mapping[str, Any]) -> list[str]:
    lines = [
        f"  {printable_text(offer.get('node', '?'))}",
        f"    free   {_ranges_text(offer.get('free'))}",
    ]
    if offer.get("free_displacing") is not None:
        displacing = _ranges_text(offer["free_displacing"])
        lines.append(f"    free   {displacing}, if lower priorities give way")
    if offer.get("reason"):
        lines.append(f"    why    {readable_text(offer['reason'])}")
    descriptions = (_obstacle_text(obstacle) for obstacle in _objects(offer.get("obstacles")))
    obstacles = list(dict.fromkeys(descriptions))  # a reservation is in the way of many windows
    lines += [f"    {obstacle}" for obstacle in obstacles[:_OBSTACLES_SHOWN]]
    if len(obstacles) > _OBSTACLES_SHOWN:
        lines.append(f"    and {len(obstacles) - _OBSTACLES_SHOWN} more")
    return lines


def _ranges_text(ranges: object) -> str:
    """Return free ranges as text; a lead writes ``everything`` if they equal the windows."""
    if isinstance(ranges, str):
        return printable_text(ranges)
    spans = _spans(ranges)
    return _spans_text(spans) if spans else "nothing"


def _obstacle_text(obstacle: Mapping[str, Any]) -> str:
    span = _spans([[obstacle.get("starts_at"), obstacle.get("ends_at")]])
    if obstacle.get("reservation"):
        what = f"{obstacle.get('kind', '?')} '{obstacle.get('name', '?')}'"
        by = f"{what} by {obstacle.get('owner', '?')}, {short(obstacle['reservation'])}"
        return f"closed {printable_text(by)} {_spans_text(span)}".rstrip()
    if obstacle.get("sentence"):
        return f"closed {readable_text(obstacle['sentence'])} {_spans_text(span)}".rstrip()
    if obstacle.get("percent") is not None:
        return f"closed kept for other leads {_spans_text(span)}".rstrip()
    if obstacle.get("run") is None:
        kind = obstacle.get("scheduling_class", "?")
        return f"busy   another node's run ({kind}) {_spans_text(span)}".rstrip()
    return (
        f"busy   {printable_text(obstacle.get('test', 'a run'))} "
        f"{short(obstacle.get('run') or '')} "
        f"({obstacle.get('scheduling_class', '?')}, priority {obstacle.get('priority', '?')}) "
        f"{_spans_text(span)}"
    ).rstrip()


def _choice_text(choice: object) -> str:
    """Format ``[nominal start, start, whether it displaces]``."""
    match choice:
        case [int(nominal), int(start), bool(displacing)]:
            late = (
                f", {duration_in_words(start - nominal)} after its nominal start"
                if start > nominal
                else ""
            )
            displaces = ", displacing lower priorities" if displacing else ""
            return f"{local_time_text(start)}{late}{displaces}"
        case _:
            return printable_text(choice)


Span = tuple[int, int]


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in _items(value) if isinstance(item, Mapping)]


def _spans(value: object) -> list[Span]:
    """Return the pairs of instants (microseconds) in a list; ignore anything else."""
    return [
        (item[0], item[1])
        for item in _items(value)
        if isinstance(item, list)
        and len(item) == _SPAN
        and all(isinstance(instant, int) for instant in item)
    ]


def _spans_text(spans: Sequence[Span]) -> str:
    return _first_texts(
        [f"{local_time_text(start)} to {clock_time(end)}" for start, end in spans], _SPANS_SHOWN
    )


def _first_texts(texts: Sequence[str], most: int) -> str:
    """Return the first ``most`` texts, joined by commas, and how many there are besides."""
    rest = len(texts) - most
    return ", ".join(texts[:most]) + (f" and {rest} more" if rest > 0 else "")
