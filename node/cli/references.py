"""Tasks, runs and reservations as people write them, and read them.

Written: a whole id, its first digits, or ``@-1``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from node.cli.times import local
from node.model.errors import NotFound, RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from node.cli.session import Session
    from node.model.wire.reservations import Reservation
    from node.model.wire.runs import Run
    from node.model.wire.tasks import Task

Found = TypeVar("Found")

SHORT = 8
_MATCHES_SHOWN = 5
_WHOLE = 32
_PAIR = 2
_DIGITS = re.compile(r"[0-9a-f]{1,32}", re.ASCII)
_BACKWARDS = re.compile(r"@-([1-9]\d{0,2})", re.ASCII)


def short(identifier: UUID | str) -> str:
    """The first digits of an id: enough to type."""
    return str(identifier)[:SHORT]


def route(names: Iterable[str]) -> str:
    """The participants in order: ``a → b``, or a list if they are more than two."""
    listed = list(names)
    return (" → " if len(listed) <= _PAIR else ", ").join(listed)


async def find_task(session: Session, written: str) -> Task:
    """The task that is meant."""
    digits = _digits(written)
    if len(digits) == _WHOLE:
        return await session.client.task(UUID(digits))
    if match := _BACKWARDS.fullmatch(written):
        page = await session.client.tasks(limit=int(match[1]))
        return _last(page.items, int(match[1]), "tasks")
    found = (await session.client.tasks(prefix=_hyphenated(digits), limit=_MATCHES_SHOWN)).items
    return _only(found, written, "task", [f"{task.id} {task.test.type}" for task in found])


async def find_run(session: Session, written: str) -> Run:
    """The run that is meant."""
    digits = _digits(written)
    if len(digits) == _WHOLE:
        return await session.client.run(UUID(digits))
    if match := _BACKWARDS.fullmatch(written):
        now = session.clock.now()  # runs to come are not what anybody means by the newest
        page = await session.client.runs(ends=now, limit=int(match[1]))
        return _last(page.items, int(match[1]), "runs")
    found = (await session.client.runs(prefix=_hyphenated(digits), limit=_MATCHES_SHOWN)).items
    lines = [f"{run.id} {run.test} {local(run.starts_at)}" for run in found]
    return _only(found, written, "run", lines)


async def find_reservation(session: Session, written: str) -> Reservation:
    """The reservation that is meant, as the node shows a single one."""
    digits = _digits(written)
    if len(digits) == _WHOLE:
        return await session.client.reservation(UUID(digits))
    if match := _BACKWARDS.fullmatch(written):
        page = await session.client.reservations(limit=int(match[1]))
        one = _last(page.items, int(match[1]), "reservations")
    else:
        page = await session.client.reservations(prefix=_hyphenated(digits), limit=_MATCHES_SHOWN)
        lines = [f"{one.id} {one.kind} {one.name}" for one in page.items]
        one = _only(page.items, written, "reservation", lines)
    return await session.client.reservation(one.id)


async def find_either(session: Session, written: str) -> Run | Task:
    """The run, else the task, that is meant."""
    try:
        return await find_run(session, written)
    except NotFound:
        pass
    try:
        return await find_task(session, written)
    except NotFound:
        msg = (
            f"neither a run nor a task is called {written}; see: parley run list, parley task list"
        )
        raise NotFound(msg) from None


def _digits(written: str) -> str:
    digits = written.lower().replace("-", "")
    if not _DIGITS.fullmatch(digits) and not _BACKWARDS.fullmatch(written):
        msg = f"{written!r} is not an id; write its first digits (0-9, a-f), or @-1 for the newest"
        raise RequestError(msg)
    return digits


def _hyphenated(digits: str) -> str:
    """The beginning of an id as it is written in full: 8-4-4-4-12."""
    groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(group for group in groups if group)


def _last(found: tuple[Found, ...], wanted: int, nouns: str) -> Found:
    if len(found) < wanted:
        msg = f"there are only {len(found)} {nouns} yet"
        raise NotFound(msg)
    return found[wanted - 1]


def _only(found: tuple[Found, ...], written: str, noun: str, lines: list[str]) -> Found:
    if not found:
        msg = f"no {noun} begins with {written}; see: parley {noun} list"
        raise NotFound(msg)
    if len(found) > 1:
        msg = f"{written} is the beginning of several {noun}s; write more of it: {', '.join(lines)}"
        raise RequestError(msg)
    return found[0]
