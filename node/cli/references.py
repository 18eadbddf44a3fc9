"""Find tasks, runs, and other things by what people type: an id, its first digits, or ``@-1``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, Protocol
from uuid import UUID

from node.cli.times import local_time_text
from node.model.errors import NotFound, RequestError
from node.model.times import format_instant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from node.cli.session import Session
    from node.client.answers import Members, Page
    from node.client.session import NodeSession
    from node.model.wire.reservations import Reservation
    from node.model.wire.runs import Run
    from node.model.wire.tasks import Task

SHORT = 8
_MATCHES_SHOWN = 5
_WHOLE = 32
_PAIR = 2
_DIGITS = re.compile(r"[0-9a-f]{1,32}", re.ASCII)
_BACKWARDS = re.compile(r"@-([1-9]\d{0,2})", re.ASCII)


def short(identifier: UUID | str) -> str:
    """Return the first 8 digits of an id, as many as commands print."""
    return str(identifier)[:SHORT]


def participants_text(names: Iterable[str]) -> str:
    """Join participants in their order: ``a → b``, or a list of more than two."""
    listed = list(names)
    return (" → " if len(listed) <= _PAIR else ", ").join(listed)


class _Lister(Protocol):
    """Lists things, newest first."""

    def __call__(self, *, prefix: str | None = None, limit: int = 50) -> Awaitable[Page[Members]]:
        """List up to ``limit`` things, those whose id begins with ``prefix`` if it is given."""
        ...


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
    """Return the reservation that ``written`` refers to, with all that no list has of it."""
    return await session.client.reservation(
        UUID(await find_reservation_id(session.reader, written))
    )


async def find_token(session: Session, written: str) -> UUID:
    """Return the id of the token that ``written`` refers to."""
    if identifier := _whole_id(written):
        return identifier
    listed = _lister(session.reader, "/tokens")
    found = await _find_item("token", written, listed, listed, lambda t: f"{t['id']} {t['label']}")
    return UUID(found["id"])


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
    listed = _lister(reader, "/tasks")

    def line(task: Members) -> str:
        return f"{task['id']} {task['test']['type']}"

    return str((await _find_item("task", written, listed, listed, line))["id"])


async def find_run_id(reader: NodeSession, written: str, now: int) -> str:
    """Return the id of the run that ``written`` refers to."""
    if identifier := _whole_id(written):
        return str((await reader.document(f"/runs/{identifier}"))["id"])
    # Nobody means a future run by the newest one, so @-1 counts from now on.
    begun = _lister(reader, "/runs", to=format_instant(now))

    def line(run: Members) -> str:
        return f"{run['id']} {run['test']} {local_time_text(run['starts_at'])}"

    return str((await _find_item("run", written, _lister(reader, "/runs"), begun, line))["id"])


async def find_reservation_id(reader: NodeSession, written: str) -> str:
    """Return the id of the reservation that ``written`` refers to."""
    if identifier := _whole_id(written):
        return str(identifier)
    listed = _lister(reader, "/reservations")

    def line(one: Members) -> str:
        return f"{one['id']} {one['kind']} {one['name']}"

    return str((await _find_item("reservation", written, listed, listed, line))["id"])


def _lister(reader: NodeSession, path: str, **query: str) -> _Lister:
    def listed(*, prefix: str | None = None, limit: int = 50) -> Awaitable[Page[Members]]:
        return reader.listed(path, {**query, "prefix": prefix, "limit": limit})

    return listed


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


def _whole_id(written: str) -> UUID | None:
    """Return the id if it is written in full.

    :raises RequestError: it cannot be the beginning of an id either.
    """
    digits = _digits(written)
    if not _DIGITS.fullmatch(digits) and not _BACKWARDS.fullmatch(written):
        msg = f"{written!r} is not an id; write its first digits (0-9, a-f), or @-1 for the newest"
        raise RequestError(msg)
    return UUID(digits) if len(digits) == _WHOLE else None


async def _find_item(
    noun: str,
    written: str,
    lister: _Lister,
    newest: _Lister,
    line: Callable[[Members], str],
) -> Members:
    """Return the item that ``@-N`` names among the newest, or the first digits of its id.

    ``line`` describes an item where several match.
    """
    if match := _BACKWARDS.fullmatch(written):
        count = int(match[1])
        items = (await newest(limit=count)).items
        if len(items) < count:
            raise NotFound(f"there are only {len(items)} {noun}s yet")
        return items[count - 1]
    items = (await lister(prefix=_hyphenated(_digits(written)), limit=_MATCHES_SHOWN)).items
    if not items:
        raise NotFound(f"no {noun} begins with {written}; see: parley {noun} list")
    if len(items) > 1:
        matches = ", ".join(map(line, items))
        msg = f"{written} is the beginning of several {noun}s; write more of it: {matches}"
        raise RequestError(msg)
    return items[0]


def _digits(written: str) -> str:
    return written.lower().replace("-", "")


def _hyphenated(digits: str) -> str:
    """Return the beginning of an id with the hyphens of the full form: 8-4-4-4-12."""
    groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(group for group in groups if group)
