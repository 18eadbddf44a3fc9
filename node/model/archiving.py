"""Deliveries of results: when they are tried again, the document, and what is secret. Pure.

Instants and durations are microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any
from uuid import UUID

from pydantic import ValidationError

from node.model import times
from node.model.clocks import combined_bound_ms
from node.model.wire.circumstances import ClockCondition
from node.model.wire.fields import Document

SCHEMA = "parley-result"
VERSION = 1
"""Of the document. Fields may be added under the same version; readers pass over unknown ones."""

REDACTED = "(secret)"
"""Stands for what is kept and shown to nobody; sent back in an edit it keeps what is there."""

PAUSES = (times.MINUTE, 5 * times.MINUTE, 30 * times.MINUTE)
HOURLY = times.HOUR
GIVE_UP_AGE = times.DAY
DESTINATION_PAUSE = times.MINUTE
"""Where not one of a batch was taken, the destination is left alone for so long."""


def next_try(attempts: int, first_tried_at: int, now: int, asked: int = 0) -> int | None:
    """When to try again after so many attempts in vain, this one included; None: not any more.

    The pauses are 1 m, 5 m and 30 m, then an hour each, until a day after the first attempt.
    ``asked`` is the pause that the destination wants; it may be longer than ours, by an hour at
    most.
    """
    if now - first_tried_at >= GIVE_UP_AGE:
        return None
    pause = PAUSES[attempts - 1] if attempts <= len(PAUSES) else HOURLY
    return now + max(pause, min(asked, HOURLY))


def key_of(run: UUID, archive: UUID, edition: int, interval: int | None = None) -> str:
    """The idempotency key: the same however often this outcome is delivered to this archive."""
    which = "" if interval is None else f"/i{interval}"
    return f"{run}/{archive}{which}" + (f"/{edition}" if edition > 1 else "")


def document_of(
    row: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], parts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The archived document: all that is known of a run that is over, at its lead.

    ``row`` has the columns of the query ``documents``; ``parts`` are those of its participants. Of
    an interval (``row["interval"]`` is its number) the document has the same fields: its own times,
    state, result and figures, and no verdict, which only the whole run has.
    """
    by_place = {part["participant"]: part for part in parts}
    told = [part["circumstances"] for part in parts if part["circumstances"] is not None]
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
        "test": {"type": row["test"], "spec": row["spec"]},
        "tool": row["tool"],
        "tool_version": _only({one.get("tool_version") for one in told}),
        "scheduling_class": row["scheduling_class"],
        "priority": row["priority"],
        "participants": [
            _participant(one, by_place.get(place)) for place, one in enumerate(row["participants"])
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
        "verdict": row["verdict"],
        "verdict_reasons": row["verdict_reasons"],
        "clock_error_ms": _clock_error_ms(told, len(row["participants"])),
    }


def _only(values: set[Any]) -> Any:
    """The one value that there is; None if there are several, or none."""
    return next(iter(values)) if len(values) == 1 else None


def _clock_error_ms(told: Sequence[Mapping[str, Any]], participants: int) -> float | None:
    """The combined bound of the participants' clocks, of the two that are worst; None if unknown.

    With one participant there are no two clocks, and nothing to bound.
    """
    clocks = [clock for one in told if (clock := _clock(one)) is not None]
    if participants < 2 or len(clocks) < participants:  # noqa: PLR2004 - it takes two
        return None
    bounds = [combined_bound_ms(one, other) for one, other in combinations(clocks, 2)]
    known = [bound for bound in bounds if bound is not None]
    return max(known) if len(known) == len(bounds) else None


def _clock(circumstances: Mapping[str, Any]) -> ClockCondition | None:
    try:
        return ClockCondition.model_validate(circumstances.get("clock"))
    except ValidationError:
        return None  # another version's


def _participant(listed: Mapping[str, Any], part: Mapping[str, Any] | None) -> dict[str, Any]:
    found = part or {}
    circumstances = found.get("circumstances")
    return {
        "name": listed["name"],
        "node": listed["node"],
        "address": listed["address"],
        "started_at": _instant(found.get("started_at")),
        "finished_at": _instant(found.get("finished_at")),
        "command": found.get("command"),
        "reason": found.get("reason"),
        "tool_version": (circumstances or {}).get("tool_version"),
        "circumstances": circumstances,
    }


def _instant(instant: int | None) -> str | None:
    return None if instant is None else times.format_instant(instant)


def secret_fields(model: type[Document]) -> frozenset[str]:
    """Names of the fields that are shown to nobody."""
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("secret")
    )


def redacted(model: type[Document], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec as it may be shown: of secret maps the names, of secret texts nothing."""
    secret = secret_fields(model)
    return {name: _hidden(value) if name in secret else value for name, value in spec.items()}


def _hidden(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict.fromkeys(value, REDACTED)
    return None if value is None else REDACTED


def restored(
    model: type[Document], spec: Mapping[str, Any], before: Mapping[str, Any]
) -> dict[str, Any]:
    """The spec with what it leaves hidden taken from the one before."""
    found = dict(spec)
    for name in secret_fields(model):
        value, old = spec.get(name), before.get(name)
        if value == REDACTED:
            found[name] = old
        elif isinstance(value, Mapping):
            known = old if isinstance(old, Mapping) else {}
            found[name] = {
                each: known.get(each) if given == REDACTED else given
                for each, given in value.items()
            }
    return found
