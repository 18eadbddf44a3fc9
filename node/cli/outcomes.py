"""Judgements of outcomes in lists and as exit codes; nodes judge, commands only repeat it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from node.cli.failures import NO_TIME
from node.cli.output import Record, readable_text
from node.model.errors import NotAllowed, NotFound
from node.model.outcome import TROUBLE, Judgement

if TYPE_CHECKING:
    from node.client.session import NodeSession

NO_RESULT = 1
"""The exit code of what was not measured, or is bad."""
_NO_TIME_STATES = frozenset({"displaced", "unplaced"})
_MARKS = dict.fromkeys(TROUBLE | {Judgement.NOT_PLANNED}, "✗") | {
    Judgement.GOOD: "✓",
    Judgement.FAIR: "~",
}


def judgement_of(record: Mapping[str, Any]) -> Judgement | None:
    """Return the judgement of a run, pair or task as the API has it; None if it has none yet."""
    outcome = record.get("outcome")
    return None if outcome is None else Judgement(outcome["judgement"])


def mark_of(record: Mapping[str, Any]) -> str:
    """Return the mark of a judgement: ✓ good, ~ fair, ✗ wrong, · nothing is known."""
    return _MARKS.get(judgement_of(record) or Judgement.UNKNOWN, "·")


def outcome_text(record: Mapping[str, Any]) -> str:
    """Return the judgement for a column of a table; empty if it is good, or nothing is known."""
    judgement = judgement_of(record)
    return (
        ""
        if judgement in {None, Judgement.GOOD, Judgement.UNKNOWN}
        else f"{mark_of(record)} {judgement}"
    )


def exit_code(record: Mapping[str, Any]) -> int:
    """Return the exit code of a run that is over: 0 measured, 1 no result or bad, 4 no time."""
    if record["state"] in _NO_TIME_STATES:
        return NO_TIME
    wrong = TROUBLE | {Judgement.NOT_PLANNED, None}
    return NO_RESULT if judgement_of(record) in wrong else 0


_ASKED_MOST = 100
"""Maximum number of tasks that a node is asked about at once."""


async def common_causes(reader: NodeSession, tasks: Iterable[str]) -> list[Record]:
    """Return what is common to what fails now, as far as it concerns one of these tasks.

    It is empty for tokens that see their own tasks only, and of nodes of 0.3.
    """
    ids = list(dict.fromkeys(tasks))
    if not ids:
        return []
    query = {"task": ",".join(ids)} if len(ids) <= _ASKED_MOST else {}
    with suppress(NotAllowed, NotFound):
        return list((await reader.document("/outcomes", query))["causes"])
    return []


def common_lines(causes: Iterable[Record]) -> list[str]:
    """Return a line for each common cause, marked like what needs attention."""
    return [f"! {readable_text(each['sentence'])}" for each in causes]
