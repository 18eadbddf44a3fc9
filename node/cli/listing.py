"""Fetch lists page by page, and print them up to a limit with a note when there are more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from node.cli.options import options
from node.cli.output import records_of
from node.cli.retrying import retry_while_silent
from node.model.errors import PeerAnswered

if TYPE_CHECKING:
    from uuid import UUID

    from pydantic import BaseModel

    from node.cli.output import Record, RecordLayout
    from node.cli.session import ReadingSession, Session
    from node.client.answers import Members, Page

Item = TypeVar("Item")

_PAGE = 200
DEFAULT_LIMIT = 50
_ITEMS_PER_REPORT = 5000
_MORE = "There are more; --limit shows them."

limit_option: Callable[[Callable[..., Any]], Callable[..., Any]] = options(
    "--limit 1..100000  Maximum number of entries to show.",
    default=DEFAULT_LIMIT,
    show_default=True,
)


def measured_options(noun: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what adds the filters of tasks or runs by what is measured, and for whom."""
    return options(f"""
        --mesh TEXT         Only {noun} of this mesh.
        --campaign TEXT     Only {noun} of this campaign; default for those without one.
        --participant TEXT  Only {noun} in which this node takes part.
        --target TEXT       Only {noun} with this target: the dest, url, or name in the spec.
        --class TEXT        Only {noun} of these classes (A,B), such as exclusive.
    """)


class PageFetcher(Protocol[Item]):
    """A method of the client that returns a list page by page."""

    def __call__(self, *, limit: int, cursor: str | None) -> Awaitable[Page[Item]]:
        """Fetch up to ``limit`` items that follow the cursor."""
        ...


async def collect(fetch: PageFetcher[Item], limit: int) -> tuple[list[Item], bool]:
    """Return at most ``limit`` items of a list, and whether there are more."""
    items: list[Item] = []
    cursor: str | None = None
    while True:
        part = await fetch(limit=min(_PAGE, limit - len(items)), cursor=cursor)
        items.extend(part.items)
        cursor = part.next
        if cursor is None or len(items) >= limit:
            return items[:limit], cursor is not None or len(items) > limit


async def collect_all(
    session: Session,
    page: Callable[..., Awaitable[Page[Item]]],
    doing: str,
    unit: str = "",
) -> list[Item]:
    """Return all items of a list; report progress every few thousand items.

    ``page`` is a method of the client that takes ``cursor`` and returns a page. A page is requested
    again while the node does not answer (``retry_while_silent``).
    """
    items: list[Item] = []
    cursor: str | None = None
    while True:
        part = await retry_while_silent(
            session.progress, session.clock, partial(page, cursor=cursor)
        )
        reports = len(items) // _ITEMS_PER_REPORT
        items.extend(part.items)
        if len(items) // _ITEMS_PER_REPORT > reports:
            phase = f"{doing.split(maxsplit=1)[0]} {len(items) // _ITEMS_PER_REPORT}"
            session.progress.status(f"{doing}: {len(items)}{unit} so far", phase)
        cursor = part.next
        if cursor is None:
            session.progress.clear()
            return items


class Identified(Protocol):
    """A task or a run."""

    @property
    def id(self) -> UUID:
        """The id that changes are sent for."""
        ...


async def change_all(
    session: Session,
    layout: RecordLayout,
    find: Callable[[Session, str], Awaitable[Identified]],
    written: Iterable[str],
    change: Callable[[UUID], Awaitable[BaseModel]],
) -> None:
    """Find all items by what was typed, then change them one by one, and print the results.

    All are found first, so that a mistyped id changes nothing.
    """
    items = [await find(session, each) for each in written]
    session.output.print_list(records_of([await change(item.id) for item in items]), layout)


async def print_documents(
    session: ReadingSession,
    layout: RecordLayout,
    path: str,
    query: Mapping[str, object],
    limit: int,
    *,
    warnings: bool = False,
) -> None:
    """Print up to ``limit`` objects of a list as the node has them, and note when there are more.

    They are not parsed as models, because that takes longer than all the rest. ``warnings``: also
    print the warnings that they carry.
    """

    def fetch(*, limit: int, cursor: str | None) -> Awaitable[Page[Members]]:
        return session.reader.listed(path, {**query, "limit": limit, "cursor": cursor})

    records, more = await collect(fetch, limit)
    with expected_members():
        session.output.print_list(records, layout)
    for record in records if warnings else ():
        for warning in record["warnings"] or ():
            session.progress.note(f"! {record['name']}: {warning}")
    if more:
        session.progress.note(_MORE)


async def print_one(
    session: ReadingSession,
    layout: RecordLayout,
    path: str,
    view: Callable[[Record], str],
) -> None:
    """Print an object as the node has it; ``view`` formats it for a person."""
    print_record(session, layout, await session.reader.document(path), view)


def print_record(
    session: ReadingSession, layout: RecordLayout, record: Record, view: Callable[[Record], str]
) -> None:
    """Print an object that the node has answered; ``view`` formats it for a person."""
    with expected_members():
        session.output.print_one(record, layout, view)


async def print_whole(
    session: ReadingSession,
    layout: RecordLayout,
    path: str,
    query: Mapping[str, object] | None = None,
) -> None:
    """Print the objects of a list that the node answers in one piece."""
    records = (await session.reader.listed(path, query or {})).items
    with expected_members():
        session.output.print_list(records, layout)


@contextmanager
def expected_members() -> Iterator[None]:
    """Report as the node's fault that an object of it has not the members to be printed.

    :raises PeerAnswered: a member is missing, or is of another kind.
    """
    try:
        yield
    except (TypeError, AttributeError, LookupError, ValueError) as error:
        raise PeerAnswered(
            f"the node's answer is not what this program expects ({error}); "
            "do their versions differ?"
        ) from error
