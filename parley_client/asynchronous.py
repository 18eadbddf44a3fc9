"""The asynchronous client of a node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, ClassVar, TypeVar

from node.client.first_contact import verify
from node.client.responses import Page
from node.client.users import UserClient
from node.runtime.clock import SystemClock
from node.trust.tls import TlsOptions

T = TypeVar("T")
PAGE = 500
"""Number of items in a page of :meth:`AsyncParley.every`, the most that a node sends."""


class AsyncParley(UserClient):
    """A node's API; use it with ``async with``.

    Methods return the documents that the API describes, or raise the error of a problem document.
    """

    _clock_kind: ClassVar[type[SystemClock]] = SystemClock

    def __init__(
        self,
        server: str = "http://127.0.0.1:8642",
        token: str | None = None,
        *,
        identity: str | None = None,
        patience_s: float = 30,
        plain_http: bool = False,
    ) -> None:
        """Use a node at ``server``: scheme, host, and port.

        ``identity`` is the node's key, as ``parley node show`` prints it there; without it, a
        server with https must be certified by an authority that this host trusts. An answer is
        awaited for ``patience_s``. ``plain_http``: send the token over http to other hosts, too.
        """
        super().__init__(
            server.removesuffix("/"),
            token,
            self._clock_kind(),
            patience_s=patience_s,
            plain_http=plain_http,
        )
        self._identity = identity

    async def _tls_options(self) -> TlsOptions | None:
        """Return whom to trust: the node that has the key, if one is named.

        :raises PeerError: the server does not answer, or is not the node with this key.
        """
        if self._identity is None:
            return None
        return (await self._wait(partial(verify, self.server, self._identity))).tls

    async def every(
        self, list_: Callable[..., Awaitable[Page[T]]], *args: Any, **filters: Any
    ) -> AsyncIterator[T]:
        """Yield all items of a list, page by page: ``every(client.runs, mesh="lab")``.

        It takes what ``list_`` takes: ``limit`` is the size of a page, ``cursor`` the first one's.
        """
        query = {"limit": PAGE, "cursor": None, **filters}
        while True:
            page = await list_(*args, **query)
            for item in page.items:
                yield item
            if page.next is None:
                return
            query["cursor"] = page.next
