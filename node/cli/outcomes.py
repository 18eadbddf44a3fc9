"""Judgements of outcomes in lists and as exit codes; nodes judge, commands only repeat it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from node.cli.failures import NO_TIME
from node.model.outcome import TROUBLE, Judgement

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
