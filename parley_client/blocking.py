"""The base of the synchronous client: an event loop of its own, which runs while it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from node.client.responses import Page
from parley_client.asynchronous import PAGE, AsyncParley

T = TypeVar("T")


class Blocking:
    """A session with one node; use it with ``with``, in one thread at a time."""

    def __init__(self, client: AsyncParley) -> None:
        """Wait for the answers to ``client``. Nothing is connected yet."""
        self._client = client
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        """Open the session; see :class:`AsyncParley`."""
        self._run(self._client.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the session."""
        self._run(self._client.__aexit__(kind, error, trace))
        self._runner.close()

    def every(self, list_: Callable[..., Page[T]], **filters: Any) -> Iterator[T]:
        """Yield all items of a list, page by page: ``every(client.runs, mesh="lab")``."""
        cursor: str | None = None
        while True:
            page = list_(**filters, limit=PAGE, cursor=cursor)
            yield from page.items
            if page.next is None:
                return
            cursor = page.next

    def _each(self, asking: AsyncIterator[T]) -> Iterator[T]:
        """Yield what an asynchronous iterator yields, and end it with this one."""
        try:
            while True:
                try:
                    yield self._run(_next(asking))
                except StopAsyncIteration:
                    return
        finally:
            if isinstance(asking, AsyncGenerator):
                self._run(_end(asking))

    def _run(self, asking: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(asking)


async def _next(asking: AsyncIterator[T]) -> T:
    return await anext(asking)


async def _end(asking: AsyncGenerator[Any, None]) -> None:
    await asking.aclose()
