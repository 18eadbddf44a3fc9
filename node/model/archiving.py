"""Archived results: the document, and the retry schedule. Pure.

Instants and durations are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from node.model import secrets, times
from node.model.clocks import combined_bound_ms
from node.model.outcome import Judgement
from node.model.wire.circumstances import ClockCondition

SCHEMA = "parley-result"
VERSION = 1
"""Version of the document. New fields may appear under the same version; readers ignore them."""

PAUSES = (times.MINUTE, 5 * times.MINUTE, 30 * times.MINUTE)
HOURLY = times.HOUR
GIVE_UP_AGE = times.DAY
DESTINATION_PAUSE = times.MINUTE
"""Pause for a destination that refused every result of a batch."""


def next_try(
    attempts: int,
    first_tried_at: int,
    now: int,
    requested_pause: int = 0,
    expires_at: int | None = None,
) -> int | None:
    """Return when to retry after ``attempts`` failures, or None to give up.

    The pauses are 1 min, 5 min, and 30 min, then one hour each, until a day after the first
    attempt, or until ``expires_at``. ``requested_pause`` comes from the destination; it counts if
    it is longer than our own pause, up to an hour.
    """
    if expires_at is None and now - first_tried_at >= GIVE_UP_AGE:
        return None
    pause = PAUSES[attempts - 1] if attempts <= len(PAUSES) else HOURLY
    next_at = now + max(pause, min(requested_pause, HOURLY))
    return None if expires_at is not None and next_at > expires_at else next_at


def expiry_of(row: Mapping[str, Any]) -> int | None:
    """Return when the outcome of a row is not worth delivering any more; None if it always is.

    ``row`` has the columns of the query ``documents``.
    """
    ttl = row["form"].get("ttl")
    return None if ttl is None else ended_at(row) + times.parse_duration(ttl)


def ended_at(row: Mapping[str, Any]) -> int:
    """Return when the run or the interval of a row was over."""
    finished_at: int | None = row["finished_at"]
    return row["changed_at"] if finished_at is None else finished_at


def key_of(run: UUID, archive: UUID, edition: int, interval: int | None = None) -> str:
    """Return the idempotency key, equal for every delivery of this outcome to this archive."""
    interval_part = "" if interval is None else f"/i{interval}"
    return f"{run}/{archive}{interval_part}" + (f"/{edition}" if edition > 1 else "")


def document_of(
    row: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the archived document: everything that the lead knows about a run that ended.

    ``row`` has the columns of the query ``documents``; ``parts`` are the participants' parts. The
    document of an interval (``row["interval"]`` is its number) has the same fields: the interval's
    own times, state, result, and metrics, but no verdict and no outcome, which only the run has.
    """
    part_by_place = {part["participant"]: part for part in parts}
    circumstances = [part["circumstances"] for part in parts if part["circumstances"] is not None]
    number, finished = row["interval"], row["state"] == "finished"
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "key": key_of(row["run_id"], row["archive_id"], row["edition"], number),
        "run": str(row["run_id"]),
        "interval": number,
        "task": str(row["task_id"]),
        "pool_task": None if row["parent"] is None else str(row["parent"]),
        "attempt": row["attempt"],
        "lead": row["lead"],
        "campaign": row["campaign"],
        "reference": row["reference"],
        "test": {"type": row["test"], "spec": secrets.without_sealed(row["spec"])},
        "tool": row["tool"],
        "tool_version": _single_value({each.get("tool_version") for each in circumstances}),
        "scheduling_class": row["scheduling_class"],
        "priority": row["priority"],
        "participants": [
            _participant(each, part_by_place.get(place))
            for place, each in enumerate(row["participants"])
        ],
        "nominal_start": times.format_instant(row["slot"]),
        "starts_at": times.format_instant(row["starts_at"]),
        "ends_at": times.format_instant(row["ends_at"]),
        "started_at": _instant(row["started_at"]),
        "finished_at": _instant(row["finished_at"]),
        "state": row["state"],
        "succeeded": finished,
        "reason": row["reason"],
        "summary": row["summary"],
        "result": row["result"],
        "metrics": list(metrics),
        "outcome": _outcome(row),
        "verdict": row["verdict"],
        "verdict_reasons": row["verdict_reasons"],
        "clock_error_ms": _clock_error_ms(circumstances, len(row["participants"])),
    }


def _outcome(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the judgement of a run with its reason, as the API has it; None for an interval."""
    if row["judgement"] is None:
        return None
    good = row["judgement"] == Judgement.GOOD
    return {
        "judgement": row["judgement"],
        "code": None if good else row["judgement_code"] or row["state"],
        "reason": None if good else row["judgement_reason"],
    }


def _single_value(values: set[Any]) -> Any:
    """Return the only element; None if there are several or none."""
    return next(iter(values)) if len(values) == 1 else None


def _clock_error_ms(circumstances: Sequence[Mapping[str, Any]], participants: int) -> float | None:
    """Return the largest combined error bound of any two participants' clocks; None if unknown.

    With one participant there are no two clocks to compare.
    """
    clocks = [clock for each in circumstances if (clock := _clock(each)) is not None]
    if participants < 2 or len(clocks) < participants:  # noqa: PLR2004 - it takes two
        return None
    bounds = [combined_bound_ms(one, other) for one, other in combinations(clocks, 2)]
    finite = [bound for bound in bounds if bound is not None]
    return max(finite) if len(finite) == len(bounds) else None


def _clock(circumstances: Mapping[str, Any]) -> ClockCondition | None:
    try:
        return ClockCondition.model_validate(circumstances.get("clock"))
    except ValidationError:
        return None  # written by another version of the program


def _participant(listed: Mapping[str, Any], part: Mapping[str, Any] | None) -> dict[str, Any]:
    fields = part or {}
    circumstances = fields.get("circumstances")
    return {
        "name": listed["name"],
        "node": listed["node"],
        "address": listed["address"],
        "started_at": _instant(fields.get("started_at")),
        "finished_at": _instant(fields.get("finished_at")),
        "command": fields.get("command"),
        "reason": fields.get("reason"),
        "tool_version": (circumstances or {}).get("tool_version"),
        "circumstances": circumstances,
    }


def _instant(instant: int | None) -> str | None:
    return None if instant is None else times.format_instant(instant)
