"""Find tasks, runs, and other things by what people type: an id, its first digits, or ``@-1``.

``@-1`` is the newest of the caller's own tasks or runs, so that nothing of others is changed by it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from node.cli.times import local_time_text
from node.model.errors import NotFound, RequestError
from node.model.times import format_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from node.cli.session import Session
    from node.client.answers import Members
    from node.client.session import NodeSession
    from node.model.wire.reservations import Reservation
    from node.model.wire.runs import Run
    from node.model.wire.tasks import Task

SHORT = 8
_MATCHES_SHOWN = 5
_WHOLE = 32
_DIGITS = re.compile(r"[0-9a-f]{1,32}", re.ASCII)
_BACKWARDS = re.compile(r"@-([1-9]\d{0,5})", re.ASCII)
_BACK_MAX = 500
"""The most that a node lists at once."""
_OF_USERS = {"task", "run"}
"""Nouns of what a user has requested."""


def short(identifier: UUID | str) -> str:
    """Return the first 8 digits of an id, as many as commands print."""
    return str(identifier)[:SHORT]


_LINES: Mapping[str, Callable[[Members], str]] = {
    "task": lambda task: f"{task['id']} {task['test']['type']}",
    "run": lambda run: f"{run['id']} {run['test']} {local_time_text(run['starts_at'])}",
    "reservation": lambda one: f"{one['id']} {one['kind']} {one['name']}",
    "token": lambda token: f"{token['id']} {token['label']}",
}
"""Descriptions of things where several are meant."""


async def find_task(session: Session, written: str) -> Task:
    """Return the task that ``written`` refers to."""
    from node.client.responses import read  # loads pydantic
    from node.model.wire.tasks import Task

    return read(Task, await read_task(session.reader, written))


async def find_run(session: Session, written: str) -> Run:
    """Return the run that ``written`` refers to."""
    from node.client.responses import read  # loads pydantic
    from node.model.wire.runs import Run

    return read(Run, await read_run(session.reader, written, session.clock.now()))


async def find_reservation(session: Session, written: str) -> Reservation:
    """Return the reservation that ``written`` refers to, to change it."""
    _refuse_newest("reservation", written)
    return await session.client.reservation(
        UUID(await find_reservation_id(session.reader, written))
    )


async def find_token(session: Session, written: str) -> UUID:
    """Return the id of the token that ``written`` refers to, to revoke it."""
    _refuse_newest("token", written)
    return _whole_id(written) or UUID(await _find_id(session.reader, "token", written))


async def read_task(reader: NodeSession, written: str) -> Members:
    """Return the task that ``written`` refers to, with all that no list has of it."""
    return await reader.document(
        f"/tasks/{_whole_id(written) or await find_task_id(reader, written)}"
    )


async def read_run(reader: NodeSession, written: str, now: int) -> Members:
    """Return the run that ``written`` refers to, with all that no list has of it."""
    identifier = _whole_id(written) or await find_run_id(reader, written, now)
    return await reader.document(f"/runs/{identifier}")


async def find_task_id(reader: NodeSession, written: str) -> str:
    """Return the id of the task that ``written`` refers to."""
    if identifier := _whole_id(written):
        return str((await reader.document(f"/tasks/{identifier}"))["id"])
    return await _find_id(reader, "task", written)


async def find_run_id(reader: NodeSession, written: str, now: int) -> str:
    """Return the id of the run that ``written`` refers to."""
    if identifier := _whole_id(written):
        return str((await reader.document(f"/runs/{identifier}"))["id"])
    # Nobody means a future run by the newest one, so @-1 counts from now on.
    return await _find_id(reader, "run", written, to=format_instant(now))


async def find_reservation_id(reader: NodeSession, written: str) -> str:
    """Return the id of the reservation that ``written`` refers to."""
    return str(_whole_id(written) or await _find_id(reader, "reservation", written))


async def find_run_or_task(
    reader: NodeSession, written: str, now: int
) -> tuple[Literal["runs", "tasks"], str]:
    """Return the id of the run that ``written`` refers to, or else of the task, after its list."""
    try:
        return "runs", await find_run_id(reader, written, now)
    except NotFound:
        pass
    try:
        return "tasks", await find_task_id(reader, written)
    except NotFound:
        msg = f"no run or task begins with {written}; see: parley run list, parley task list"
        raise NotFound(msg) from None


def _refuse_newest(noun: str, written: str) -> None:
    """Refuse to change the newest of what belongs to no user: it may be somebody else's.

    :raises RequestError: ``written`` is ``@-1`` or the like.
    """
    if _BACKWARDS.fullmatch(written):
        msg = f"the newest {noun} may be somebody else's; write the first digits of its id"
        raise RequestError(f"{msg}, see: parley {noun} list")


def _whole_id(written: str) -> UUID | None:
    """Return the id if it is written in full.

    :raises RequestError: it cannot be the beginning of an id either.
    """
    digits = _digits(written)
    if not _DIGITS.fullmatch(digits) and not _BACKWARDS.fullmatch(written):
        msg = f"{written!r} is not an id; write its first digits (0-9, a-f), or @-1 for the newest"
        raise RequestError(msg)
    return UUID(digits) if len(digits) == _WHOLE else None


async def _find_id(reader: NodeSession, noun: str, written: str, **newest: str) -> str:
    """Return the id that ``@-N`` names among the newest of a list, or that begins like this.

    ``newest`` is the query of those that count as newest.

    :raises NotFound: there is none.
    :raises RequestError: there are several.
    """
    if match := _BACKWARDS.fullmatch(written):
        return await _find_newest(reader, noun, int(match[1]), newest)
    query = {"prefix": _hyphenated(_digits(written)), "limit": _MATCHES_SHOWN}
    items = (await reader.listed(f"/{noun}s", query)).items
    if not items:
        raise NotFound(f"no {noun} begins with {written}; see: parley {noun} list")
    if len(items) > 1:
        matches = ", ".join(map(_LINES[noun], items))
        msg = f"{written} is the beginning of several {noun}s; write more of it: {matches}"
        raise RequestError(msg)
    return str(items[0]["id"])


async def _find_newest(
    reader: NodeSession, noun: str, number: int, query: Mapping[str, str]
) -> str:
    """Return the id of the one at this place from the end, among one's own if it has a user.

    :raises NotFound: there are not so many.
    :raises RequestError: it is further back than a list reaches.
    """
    own, whose = dict(query), ""
    if noun in _OF_USERS and (label := (await reader.document("/tokens/self"))["label"]):
        own["requester"], whose = label, " of yours"
    limit = min(number, _BACK_MAX)
    items = (await reader.listed(f"/{noun}s", {**own, "limit": limit})).items
    if len(items) < limit:
        there = f"is only 1 {noun}" if len(items) == 1 else f"are only {len(items)} {noun}s"
        raise NotFound(f"there {there if items else f'is no {noun}'}{whose} yet")
    if number > _BACK_MAX:
        msg = f"@-{number} is too far back: @-1 to @-{_BACK_MAX}; write the first digits of the id"
        raise RequestError(msg)
    return str(items[-1]["id"])


def _digits(written: str) -> str:
    return written.lower().replace("-", "")


def _hyphenated(digits: str) -> str:
    """Return the beginning of an id with the hyphens of the full form: 8-4-4-4-12."""
    groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(group for group in groups if group)
