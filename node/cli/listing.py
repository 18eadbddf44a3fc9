"""Long lists: page after page up to a limit, and a word when there is more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from node.cli.retrying import retry_while_silent

if TYPE_CHECKING:
    from node.cli.output import Record
    from node.cli.session import Session
    from node.client.users import Page

Item = TypeVar("Item")

_PAGE = 200
_USUAL = 50
_TOLD = 5000

limit_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=_USUAL,
    show_default=True,
    help="Show at most so many.",
)


async def collect(
    page: Callable[[int, str | None], Awaitable[Page[Item]]], limit: int
) -> tuple[list[Item], bool]:
    """At most ``limit`` items of a list, and whether there are more."""
    found: list[Item] = []
    cursor: str | None = None
    while True:
        part = await page(min(_PAGE, limit - len(found)), cursor)
        found.extend(part.items)
        cursor = part.next
        if cursor is None or len(found) >= limit:
            return found[:limit], cursor is not None or len(found) > limit


async def collect_all(
    session: Session,
    page: Callable[[str | None], Awaitable[Page[Item]]],
    doing: str,
    unit: str = "",
) -> list[Item]:
    """All of a list, page by page; of a long one it is told how far it is."""
    found: list[Item] = []
    cursor: str | None = None
    while True:
        part = await retry_while_silent(session.progress, session.clock, partial(page, cursor))
        told = len(found) // _TOLD
        found.extend(part.items)
        if len(found) // _TOLD > told:
            so_far = f"{doing}: {len(found)}{unit} so far"
            session.progress.status(so_far, f"{doing.split(maxsplit=1)[0]} {len(found) // _TOLD}")
        cursor = part.next
        if cursor is None:
            session.progress.clear()
            return found


def print_warnings(session: Session, records: Iterable[Record]) -> None:
    """Say what is to be told of these."""
    for record in records:
        for warning in record["warnings"]:
            session.progress.note(f"! {record['name']}: {warning}")


def print_truncation(session: Session, *, more: bool) -> None:
    """Say that the list goes on."""
    if more:
        session.progress.note("There are more; --limit shows them.")
